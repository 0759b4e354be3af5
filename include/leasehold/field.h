/*
 * Field tables: one description of a C struct from which decoding (JSON, query strings, YAML,
 * environment), validation, encoding and OpenAPI all come.
 *
 *   struct chat_create_args { struct id user_id; bool has_chat_id; struct id chat_id; char *title; };
 *   static const struct field chat_create_in[] = {
 *       FIELD_ID(struct chat_create_args, user_id, .flags = FIELD_REQUIRED),
 *       FIELD_ID(struct chat_create_args, chat_id, .has = offsetof(…, has_chat_id)),
 *       FIELD_STR(struct chat_create_args, title, .max = 256, .def = ""),
 *       {0}};
 *
 * C types by kind:
 *   FIELD_KIND_STR      char *          UTF-8, NUL-terminated, `max` bytes (0: 4096), `min` bytes
 *   FIELD_KIND_CHARS    char[N]         a string inside the struct; only encoded, never decoded
 *   FIELD_KIND_ID       struct id
 *   FIELD_KIND_INT      int64_t         min <= v <= max (both 0: 0..2^53)
 *   FIELD_KIND_REAL     double          min <= v <= max, both as integers (both 0: any finite)
 *   FIELD_KIND_BOOL     bool
 *   FIELD_KIND_ENUM     int             index into `names` (NULL-terminated), any case if
 *                                       FIELD_ANY_CASE
 *   FIELD_KIND_SET      unsigned        JSON array of `names`; bit i = names[i]; no duplicates;
 *                                       empty refused unless FIELD_EMPTY_OK
 *   FIELD_KIND_TIME     int64_t         RFC 3339 in JSON, milliseconds in memory; 0 = unset
 *   FIELD_KIND_RAW      char *          a JSON object kept as text, `max` bytes (metadata)
 *   FIELD_KIND_OBJECT   struct T        inline; `fields` describes T
 *   FIELD_KIND_OBJPTR   struct T *      NULL = null; `fields` describes T, `elem` = sizeof(T)
 *   FIELD_KIND_LIST     struct list     of objects (`fields`, `elem`), or of `elem_kind` scalars
 *                                       (STR: char *, ID: struct id); at most `max` items (0: 1000)
 *
 * An absent member gets `def` (parsed as text by kind), else zero. JSON null is accepted for a
 * member that is not required and means absent.
 */
#ifndef LEASEHOLD_FIELD_H
#define LEASEHOLD_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leasehold/arena.h"
#include "leasehold/buf.h"
#include "leasehold/err.h"
#include "leasehold/id.h"

enum field_kind {
    FIELD_KIND_END,
    FIELD_KIND_STR,
    FIELD_KIND_CHARS,
    FIELD_KIND_ID,
    FIELD_KIND_INT,
    FIELD_KIND_REAL,
    FIELD_KIND_BOOL,
    FIELD_KIND_ENUM,
    FIELD_KIND_SET,
    FIELD_KIND_TIME,
    FIELD_KIND_RAW,
    FIELD_KIND_OBJECT,
    FIELD_KIND_OBJPTR,
    FIELD_KIND_LIST,
};

enum field_flags {
    FIELD_REQUIRED = 1,    /* in: must be present */
    FIELD_PATH = 2,        /* in: comes from the path template, as text */
    FIELD_QUERY = 4,       /* in: comes from the query string, as text */
    FIELD_NULL_ZERO = 8,   /* out: a zero value (0, zero id, "", empty) is written as null */
    FIELD_ANY_CASE = 16,   /* in: enum names in any case */
    FIELD_EMPTY_OK = 32,   /* in: an empty set is allowed */
    FIELD_SECRET = 64,     /* print-config masks it */
    FIELD_FORM = 128,      /* in: of a body that may also be a form, as text */
    FIELD_OMIT_ZERO = 256, /* out: a zero value is left out */
};

struct list {
    void *items;
    size_t n;
};

struct field {
    const char *name; /* of the member; NULL ends the table */
    enum field_kind kind;
    enum field_kind elem_kind; /* of a LIST of scalars */
    unsigned flags;
    size_t offset;
    size_t has; /* offset of a bool set true when the member was present; 0: none (so it is
                   never the first member of a struct) */
    int64_t min, max;
    const char *def;
    const char *const *names;
    const struct field *fields;
    size_t elem;
    const char *doc; /* one sentence for OpenAPI and --help */
};

#define FIELD_OF(T, m, k, ...)                                                                     \
    {                                                                                              \
        .name = #m, .kind = (k), .offset = offsetof(T, m), __VA_ARGS__                             \
    }
#define FIELD_STR(T, m, ...)       FIELD_OF(T, m, FIELD_KIND_STR, __VA_ARGS__)
#define FIELD_CHARS(T, m, ...)     FIELD_OF(T, m, FIELD_KIND_CHARS, __VA_ARGS__)
#define FIELD_ID(T, m, ...)        FIELD_OF(T, m, FIELD_KIND_ID, __VA_ARGS__)
#define FIELD_INT(T, m, ...)       FIELD_OF(T, m, FIELD_KIND_INT, __VA_ARGS__)
#define FIELD_REAL(T, m, ...)      FIELD_OF(T, m, FIELD_KIND_REAL, __VA_ARGS__)
#define FIELD_BOOL(T, m, ...)      FIELD_OF(T, m, FIELD_KIND_BOOL, __VA_ARGS__)
#define FIELD_ENUM(T, m, ...)      FIELD_OF(T, m, FIELD_KIND_ENUM, __VA_ARGS__)
#define FIELD_SET(T, m, ...)       FIELD_OF(T, m, FIELD_KIND_SET, __VA_ARGS__)
#define FIELD_TIME(T, m, ...)      FIELD_OF(T, m, FIELD_KIND_TIME, __VA_ARGS__)
#define FIELD_RAW(T, m, ...)       FIELD_OF(T, m, FIELD_KIND_RAW, __VA_ARGS__)
#define FIELD_OBJECT(T, m, f, ...) FIELD_OF(T, m, FIELD_KIND_OBJECT, .fields = (f), __VA_ARGS__)
#define FIELD_OBJPTR(T, m, f, S, ...)                                                              \
    FIELD_OF(T, m, FIELD_KIND_OBJPTR, .fields = (f), .elem = sizeof(S), __VA_ARGS__)
#define FIELD_OBJLIST(T, m, f, S, ...)                                                             \
    FIELD_OF(T, m, FIELD_KIND_LIST, .fields = (f), .elem = sizeof(S), __VA_ARGS__)
#define FIELD_STRLIST(T, m, ...)                                                                   \
    FIELD_OF(T, m, FIELD_KIND_LIST, .elem_kind = FIELD_KIND_STR, .elem = sizeof(char *),           \
             __VA_ARGS__)
#define FIELD_IDLIST(T, m, ...)                                                                    \
    FIELD_OF(T, m, FIELD_KIND_LIST, .elem_kind = FIELD_KIND_ID, .elem = sizeof(struct id),         \
             __VA_ARGS__)

/* Sets one field of *obj from text (query string, path, YAML scalar, environment). Strings are
 * copied into the arena. Errors: ERR_INVALID_REQUEST with pointer "/<name>". */
int field_set_text(const struct field *f, void *obj, const char *text, size_t len,
                   struct arena *arena, struct err *e) MUST_CHECK;

/* Sets every field of *obj to its default (recursively through OBJECT). */
int field_set_defaults(const struct field *fields, void *obj, struct arena *arena,
                       struct err *e) MUST_CHECK;

#endif
