/*
 * A scanner for the JSON that a lease token may hold, far narrower than JSON: objects of known
 * members in any order, arrays of strings, strings of printable ASCII without escapes, positive
 * integers as digits. Nothing a lease says needs more, and so every value has one spelling: no
 * escaped member name, no 1.0 or 1e3, no second copy of a member can mean something to us and
 * something else to another parser. White space between tokens is that of RFC 8259 §2.
 *
 * Total: every function moves forward or fails, and nothing is allocated or recursive beyond the
 * nesting of the member tables.
 */
#ifndef LEASE_TOKEN_SCAN_H
#define LEASE_TOKEN_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scan {
    const char *at, *end;
};

struct scan_text { /* borrowed from the input */
    const char *s;
    size_t len;
};

struct scan_member {
    const char *name;
    bool (*read)(struct scan *s, void *dest);
    size_t offset; /* of dest in the object read into */
    bool optional;
};

#define SCAN_MEMBERS_MAX 32 /* of one object, for the bit set of those seen */

/* Consumes the character behind white space; false (and only white space consumed) if another. */
bool scan_char(struct scan *s, char c);
bool scan_string(struct scan *s, struct scan_text *ret);
bool scan_int(struct scan *s, int64_t *ret); /* 0 <= v < 2^40, no leading zero */

/* Reads an object into *obj; false on unknown, duplicate or missing members and bad values. */
bool scan_object(struct scan *s, const struct scan_member *members, size_t n, void *obj);

/* Is there nothing but white space left? */
bool scan_end(struct scan *s);

bool scan_text_is(const struct scan_text *t, const char *s);

/* May this character stand in a string? */
bool scan_is_text_char(char c);

#endif
