#include "field_put.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "json_scan.h"
#include "leasehold/clock.h"
#include "leasehold/json.h"

#define NAMES_TEXT 112 /* of a list of allowed names in a message */
#define SET_BITS   32u

int field_no_memory(struct err *e)
{
    return err_set(e, ERR_TOO_LARGE, "the request needs more memory than it may have");
}

size_t field_list_max(const struct field *f)
{
    return f->max > 0 ? (size_t)f->max : FIELD_LIST_MAX;
}

void field_mark(const struct field *f, void *obj, bool present)
{
    if (f->has != 0) {
        *(bool *)((char *)obj + f->has) = present;
    }
}

/* "a, b, c", clipped to what a message can hold. */
static const char *names_text(const char *const *names, char out[static NAMES_TEXT])
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; names[i] != NULL; i++) {
        size_t len = strlen(names[i]);
        if (at + len + sizeof(", , ...") > NAMES_TEXT) {
            memcpy(out + at, ", ...", sizeof(", ..."));
            break;
        }
        if (at > 0) {
            memcpy(out + at, ", ", 2);
            at += 2;
        }
        memcpy(out + at, names[i], len + 1);
        at += len;
    }
    return out;
}

static int name_index(const struct field *f, const char *text, size_t len)
{
    bool any_case = (f->flags & FIELD_ANY_CASE) != 0;
    for (int i = 0; f->names[i] != NULL; i++) {
        const char *name = f->names[i];
        if (strlen(name) == len &&
            (any_case ? strncasecmp(name, text, len) : memcmp(name, text, len)) == 0) {
            return i;
        }
    }
    return -1;
}

static int put_str(const struct field *f, bool is_elem, char **at, const char *pointer,
                   const char *text, size_t len, struct arena *arena, struct err *e)
{
    /* The bounds of a list count its items. */
    size_t max = f->max > 0 && !is_elem ? (size_t)f->max : FIELD_STR_MAX;
    if (len > max) {
        return err_field(e, pointer, "%s must be at most %zu bytes long", f->name, max);
    }
    if (!is_elem && f->min > 0 && len < (size_t)f->min) {
        return f->min == 1 ? err_field(e, pointer, "%s must not be empty", f->name)
                           : err_field(e, pointer, "%s must be at least %" PRId64 " bytes long",
                                       f->name, f->min);
    }
    if (memchr(text, '\0', len) != NULL || !utf8_valid(text, len)) {
        return err_field(e, pointer, "%s must be UTF-8 without NUL", f->name);
    }
    char *copy = arena_strndup(arena, text, len);
    if (copy == NULL) {
        return field_no_memory(e);
    }
    *at = copy;
    return 0;
}

static int put_id(const struct field *f, struct id *at, const char *pointer, const char *text,
                  size_t len, struct err *e)
{
    if (!id_parse(text, len, at)) {
        return err_field(e, pointer, "%s must be a UUID", f->name);
    }
    return 0;
}

int field_put_elem(const struct field *f, enum field_kind kind, void *at, const char *pointer,
                   const char *text, size_t len, struct arena *arena, struct err *e)
{
    return kind == FIELD_KIND_ID ? put_id(f, at, pointer, text, len, e)
                                 : put_str(f, true, at, pointer, text, len, arena, e);
}

static int put_int(const struct field *f, int64_t *at, const char *pointer, double v, struct err *e)
{
    bool open = f->min == 0 && f->max == 0;
    int64_t max = open ? FIELD_INT_EXACT : f->max;
    /* The first comparison also fails for NaN, and makes the casts safe. */
    if (!(fabs(v) <= (double)FIELD_INT_EXACT) || v != (double)(int64_t)v || (int64_t)v < f->min ||
        (int64_t)v > max) {
        return err_field(e, pointer, "%s must be a whole number from %" PRId64 " to %" PRId64,
                         f->name, f->min, max);
    }
    *at = (int64_t)v;
    return 0;
}

static int put_real(const struct field *f, double *at, const char *pointer, double v, struct err *e)
{
    bool open = f->min == 0 && f->max == 0;
    if (!isfinite(v)) {
        return err_field(e, pointer, "%s must be a number", f->name);
    }
    if (!open && (v < (double)f->min || v > (double)f->max)) {
        return err_field(e, pointer, "%s must be a number from %" PRId64 " to %" PRId64, f->name,
                         f->min, f->max);
    }
    *at = v;
    return 0;
}

int field_put_number(const struct field *f, void *obj, const char *pointer, double v, struct err *e)
{
    return f->kind == FIELD_KIND_INT ? put_int(f, field_at(f, obj), pointer, v, e)
                                     : put_real(f, field_at(f, obj), pointer, v, e);
}

static int put_number_text(const struct field *f, void *obj, const char *pointer, const char *text,
                           size_t len, struct err *e)
{
    bool integer = false;
    bool whole = len > 0 && len <= JSON_NUMBER_MAX && json_number_len(text, len, &integer) == len;
    if (f->kind == FIELD_KIND_INT && (!whole || !integer || !json_integer_is_exact(text, len))) {
        return put_int(f, field_at(f, obj), pointer, NAN, e);
    }
    double v = whole ? json_number_value(text, len) : NAN;
    return field_put_number(f, obj, pointer, v, e);
}

static int put_bool_text(const struct field *f, bool *at, const char *pointer, const char *text,
                         size_t len, struct err *e)
{
    static const char *const words[] = {"false", "true", "0", "1"};
    bool any_case = (f->flags & FIELD_ANY_CASE) != 0;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strlen(words[i]) == len &&
            (any_case ? strncasecmp(words[i], text, len) : memcmp(words[i], text, len)) == 0) {
            *at = i % 2 == 1;
            return 0;
        }
    }
    return err_field(e, pointer, "%s must be true or false", f->name);
}

static int put_enum(const struct field *f, int *at, const char *pointer, const char *text,
                    size_t len, struct err *e)
{
    int i = name_index(f, text, len);
    if (i < 0) {
        char names[NAMES_TEXT];
        return err_field(e, pointer, "%s must be one of: %s", f->name, names_text(f->names, names));
    }
    *at = i;
    return 0;
}

int field_put_set_name(const struct field *f, void *obj, const char *pointer, const char *text,
                       size_t len, struct err *e)
{
    unsigned *at = field_at(f, obj);
    int i = name_index(f, text, len);
    if (i < 0 || (unsigned)i >= SET_BITS) {
        char names[NAMES_TEXT];
        return err_field(e, pointer, "%s may hold: %s", f->name, names_text(f->names, names));
    }
    if ((*at & 1u << i) != 0) {
        return err_field(e, pointer, "%s holds \"%s\" twice", f->name, f->names[i]);
    }
    *at |= 1u << i;
    return 0;
}

int field_check_set(const struct field *f, const void *obj, const char *pointer, struct err *e)
{
    const unsigned *at = field_at_const(f, obj);
    if (*at == 0 && (f->flags & FIELD_EMPTY_OK) == 0) {
        char names[NAMES_TEXT];
        return err_field(e, pointer, "%s must hold at least one of: %s", f->name,
                         names_text(f->names, names));
    }
    return 0;
}

static int put_set_text(const struct field *f, void *obj, const char *pointer, const char *text,
                        size_t len, struct err *e)
{
    *(unsigned *)field_at(f, obj) = 0;
    while (len > 0) {
        const char *comma = memchr(text, ',', len);
        size_t n = comma != NULL ? (size_t)(comma - text) : len;
        if (field_put_set_name(f, obj, pointer, text, n, e) != 0) {
            return -1;
        }
        size_t step = comma != NULL ? n + 1 : n;
        text += step;
        len -= step;
    }
    return field_check_set(f, obj, pointer, e);
}

static int put_time(const struct field *f, int64_t *at, const char *pointer, const char *text,
                    size_t len, struct err *e)
{
    if (time_parse(text, len, at) != 0) {
        return err_field(e, pointer, "%s must be an RFC 3339 time", f->name);
    }
    return 0;
}

int field_put_raw(const struct field *f, void *obj, const char *pointer, const char *text,
                  size_t len, struct arena *arena, struct err *e)
{
    size_t max = f->max > 0 ? (size_t)f->max : FIELD_RAW_MAX;
    if (len > max) {
        return err_field(e, pointer, "%s must be at most %zu bytes of JSON", f->name, max);
    }
    char *copy = arena_strndup(arena, text, len);
    if (copy == NULL) {
        return field_no_memory(e);
    }
    *(char **)field_at(f, obj) = copy;
    return 0;
}

static int put_raw_text(const struct field *f, void *obj, const char *pointer, const char *text,
                        size_t len, struct arena *arena, struct err *e)
{
    if (json_check(text, len, true, e) != 0) {
        return err_field(e, pointer, "%s must be a JSON object", f->name);
    }
    return field_put_raw(f, obj, pointer, text, len, arena, e);
}

int field_put_text(const struct field *f, void *obj, const char *pointer, const char *text,
                   size_t len, struct arena *arena, struct err *e)
{
    void *at = field_at(f, obj);
    switch (f->kind) {
    case FIELD_KIND_STR:
        return put_str(f, false, at, pointer, text, len, arena, e);
    case FIELD_KIND_ID:
        return put_id(f, at, pointer, text, len, e);
    case FIELD_KIND_INT:
    case FIELD_KIND_REAL:
        return put_number_text(f, obj, pointer, text, len, e);
    case FIELD_KIND_BOOL:
        return put_bool_text(f, at, pointer, text, len, e);
    case FIELD_KIND_ENUM:
        return put_enum(f, at, pointer, text, len, e);
    case FIELD_KIND_SET:
        return put_set_text(f, obj, pointer, text, len, e);
    case FIELD_KIND_TIME:
        return put_time(f, at, pointer, text, len, e);
    case FIELD_KIND_RAW:
        return put_raw_text(f, obj, pointer, text, len, arena, e);
    case FIELD_KIND_CHARS:
    case FIELD_KIND_OBJECT:
    case FIELD_KIND_OBJPTR:
    case FIELD_KIND_LIST:
    case FIELD_KIND_END:
        break;
    }
    return err_field(e, pointer, "%s cannot be given as text", f->name);
}

int field_set_text(const struct field *f, void *obj, const char *text, size_t len,
                   struct arena *arena, struct err *e)
{
    char pointer[sizeof(e->pointer)] = "/";
    strncat(pointer, f->name, sizeof(pointer) - 2);
    if (field_put_text(f, obj, pointer, text, len, arena, e) != 0) {
        return -1;
    }
    field_mark(f, obj, true);
    return 0;
}

static size_t kind_size(enum field_kind kind)
{
    switch (kind) {
    case FIELD_KIND_STR:
    case FIELD_KIND_RAW:
    case FIELD_KIND_OBJPTR:
        return sizeof(char *);
    case FIELD_KIND_ID:
        return sizeof(struct id);
    case FIELD_KIND_INT:
    case FIELD_KIND_TIME:
        return sizeof(int64_t);
    case FIELD_KIND_REAL:
        return sizeof(double);
    case FIELD_KIND_BOOL:
        return sizeof(bool);
    case FIELD_KIND_ENUM:
        return sizeof(int);
    case FIELD_KIND_SET:
        return sizeof(unsigned);
    case FIELD_KIND_LIST:
        return sizeof(struct list);
    case FIELD_KIND_CHARS:
    case FIELD_KIND_OBJECT:
    case FIELD_KIND_END:
        break;
    }
    return 0;
}

int field_put_defaults(const struct field *fields, void *obj, unsigned skip_flags,
                       struct arena *arena, struct err *e)
{
    for (const struct field *f = fields; f->name != NULL; f++) {
        if ((f->flags & skip_flags) != 0) {
            continue;
        }
        if (f->kind == FIELD_KIND_OBJECT) {
            if (field_put_defaults(f->fields, field_at(f, obj), 0, arena, e) != 0) {
                return -1;
            }
            continue;
        }
        memset(field_at(f, obj), 0, kind_size(f->kind));
        field_mark(f, obj, false);
        if (f->def != NULL && field_put_text(f, obj, "", f->def, strlen(f->def), arena, e) != 0) {
            return e->code == ERR_TOO_LARGE ? -1
                                            : err_set(e, ERR_INTERNAL, "default of %s", e->msg);
        }
    }
    return 0;
}

int field_set_defaults(const struct field *fields, void *obj, struct arena *arena, struct err *e)
{
    return field_put_defaults(fields, obj, 0, arena, e);
}
