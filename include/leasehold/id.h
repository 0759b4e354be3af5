/*
 * Ids are UUIDs (RFC 4122). In memory they are 16 bytes, so that they hash and compare at once; on
 * the wire and in the store they are canonical text (lower case, hyphens).
 */
#ifndef LEASEHOLD_ID_H
#define LEASEHOLD_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ID_TEXT 37 /* canonical text and its NUL */

struct id {
    uint8_t b[16];
};

void id_random(struct id *ret); /* version 4 */

/* Puts the time of its making (48 bits of milliseconds) in front of a random id, of which 74 random
 * bits stay: ids that are made one after the other then stand together in an index. */
void id_order(struct id *id, int64_t ms);

/* Accepts hyphenated, 32 hex digits, {…}, urn:uuid:…, any case. Exactly `len` bytes of s. */
bool id_parse(const char *s, size_t len, struct id *ret);

char *id_format(const struct id *id, char out[static ID_TEXT]); /* returns out */
bool id_equal(const struct id *a, const struct id *b);
bool id_is_zero(const struct id *id); /* all zero bytes: "none" */

/* The text of an id for the rest of the enclosing block. */
#define ID_STR(idp) id_format((idp), (char[ID_TEXT]){0})

#endif
