/*
 * Strict JSON (RFC 8259 and the rules of docs/api: unknown, duplicate or mistyped members, trailing
 * bytes, depth > 32, integers beyond 2^53, invalid UTF-8 and U+0000 are refused) to and from C
 * structs by field tables. cJSON parses; nothing else of the project sees it.
 *
 * Any thread. Decoded strings and lists live in the arena given.
 */
#ifndef LEASEHOLD_JSON_H
#define LEASEHOLD_JSON_H

#include "leasehold/field.h"

#define JSON_MAX_DEPTH 32

/*
 * Decodes the JSON object of exactly `len` bytes into *obj (sizeof its struct, zeroed by the
 * caller). Fields flagged FIELD_PATH or FIELD_QUERY are not accepted from the body. len 0 decodes
 * as {}. Defaults are applied to absent members of the body.
 * Errors: ERR_MALFORMED_JSON (not JSON, or not strict), ERR_INVALID_REQUEST with a pointer.
 */
int json_decode(const char *text, size_t len, const struct field *fields, void *obj,
                struct arena *arena, struct err *e) MUST_CHECK;

/* As json_decode, but FIELD_PATH and FIELD_QUERY members too: in a WebSocket message the members of
 * path, query and body stand together. */
int json_decode_args(const char *text, size_t len, const struct field *fields, void *obj,
                     struct arena *arena, struct err *e) MUST_CHECK;

/* As json_decode, but unknown members are skipped (for messages of our own next version: doors). */
int json_decode_lenient(const char *text, size_t len, const struct field *fields, void *obj,
                        struct arena *arena, struct err *e) MUST_CHECK;

/* As json_decode_lenient, for what somebody else's program writes (a container engine): integers may
 * also lie beyond 2^53, as nanoseconds do; such a one is rounded. */
int json_decode_foreign(const char *text, size_t len, const struct field *fields, void *obj,
                        struct arena *arena, struct err *e) MUST_CHECK;
int json_check_foreign(const char *text, size_t len, struct err *e) MUST_CHECK;

/*
 * Decodes what json_encode wrote of this table, when all of it are ids, whole numbers, enums and sets:
 * no white space, each member there and in the table's order. It takes no memory, and answers as
 * json_decode does. Of anything else, right or wrong: false, *obj is worth nothing, and json_decode
 * has to look. `_head`: the members that the text begins with, whatever follows.
 */
bool json_decode_written(const char *text, size_t len, const struct field *fields, void *obj);
bool json_decode_written_head(const char *text, size_t len, const struct field *fields, void *obj);

/* Checks syntax and the strict rules alone. `want_object`: the top value must be an object. */
int json_check(const char *text, size_t len, bool want_object, struct err *e) MUST_CHECK;

/* The members of the object `text`, all strings, as pairs in the arena: struct json_pair. One that is
 * no string: ERR_INVALID_REQUEST at "<pointer>/<name>". */
struct json_pair {
    char *name, *value;
};
int json_object_strings(const char *text, size_t len, const char *pointer, struct arena *arena,
                        struct list *ret, struct err *e) MUST_CHECK;

/* Appends *obj as a JSON object. RAW fields are written as they are (NULL: {}). */
void json_encode(const struct field *fields, const void *obj, struct buf *out);

/* Appends a JSON string with quotes; invalid UTF-8 becomes U+FFFD. */
void json_add_string(struct buf *out, const char *s, size_t len);

/* Is this well-formed UTF-8 (RFC 3629: no surrogates, no overlongs)? */
bool utf8_valid(const char *s, size_t len);

#endif
