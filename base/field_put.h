/*
 * Storing checked values by a field's row: what the JSON decoder, the configuration and
 * field_set_text share. A message starts with the field's name, so that a caller may put the path
 * before it; `pointer` goes into the error as it is.
 *
 * Any thread.
 */
#ifndef LEASEHOLD_BASE_FIELD_PUT_H
#define LEASEHOLD_BASE_FIELD_PUT_H

#include "leasehold/field.h"

#define FIELD_STR_MAX   4096
#define FIELD_RAW_MAX   16384
#define FIELD_LIST_MAX  1000
#define FIELD_INT_EXACT (INT64_C(1) << 53) /* a double holds every integer up to here */

static inline void *field_at(const struct field *f, void *obj)
{
    return (char *)obj + f->offset;
}

static inline const void *field_at_const(const struct field *f, const void *obj)
{
    return (const char *)obj + f->offset;
}

/* Marks the field as present, where its row asks for it. */
void field_mark(const struct field *f, void *obj, bool present);

/* Scalars and sets from text; a set is written with commas. */
int field_put_text(const struct field *f, void *obj, const char *pointer, const char *text,
                   size_t len, struct arena *arena, struct err *e) MUST_CHECK;

/* One string of `kind` (STR or ID) to *at, which is a char * or a struct id. */
int field_put_elem(const struct field *f, enum field_kind kind, void *at, const char *pointer,
                   const char *text, size_t len, struct arena *arena, struct err *e) MUST_CHECK;

/* INT and REAL. */
int field_put_number(const struct field *f, void *obj, const char *pointer, double v,
                     struct err *e) MUST_CHECK;

/* Adds one name to a set. */
int field_put_set_name(const struct field *f, void *obj, const char *pointer, const char *text,
                       size_t len, struct err *e) MUST_CHECK;

/* Refuses an empty set where the row does. */
int field_check_set(const struct field *f, const void *obj, const char *pointer,
                    struct err *e) MUST_CHECK;

/* Stores the text of a JSON object that json_check accepts. */
int field_put_raw(const struct field *f, void *obj, const char *pointer, const char *text,
                  size_t len, struct arena *arena, struct err *e) MUST_CHECK;

/* Defaults of all fields that have none of `skip_flags`. */
int field_put_defaults(const struct field *fields, void *obj, unsigned skip_flags,
                       struct arena *arena, struct err *e) MUST_CHECK;

/* At most so many items may a list have. */
size_t field_list_max(const struct field *f);

int field_no_memory(struct err *e);

#endif
