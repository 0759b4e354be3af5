/*
 * Decoding by field tables. json_check has already refused everything that is not strict JSON, so
 * what is left here is to compare the tree with the table.
 */
#include "leasehold/json.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "field_put.h"
#include "json_write.h"
#include "utf8.h"

#define KNOWN_TEXT 96 /* of the list of known members in a message */

/* RFC 6901. A segment that does not fit is left out: the pointer then names an outer member. */
struct pointer {
    char text[sizeof(((struct err *)0)->pointer)];
    size_t len;
};

struct decode {
    struct pointer at;
    unsigned skip_flags; /* fields that do not come from here */
    bool lenient;
    bool foreign; /* written by somebody else's program */
    struct arena *arena;
    struct err *e;
};

static int decode_members(struct decode *d, const cJSON *object, const struct field *fields,
                          void *obj);

/* Returns what pointer_pop needs. */
static size_t pointer_push(struct pointer *p, const char *name)
{
    size_t before = p->len;
    size_t at = p->len;
    const size_t room = sizeof(p->text) - 3; /* of an escape and NUL */
    p->text[at++] = '/';
    for (; *name != '\0' && at < room; name++) {
        if (*name == '~' || *name == '/') {
            p->text[at++] = '~';
            p->text[at++] = *name == '~' ? '0' : '1';
        } else {
            p->text[at++] = *name;
        }
    }
    if (*name == '\0' && at <= room) {
        p->len = at;
    }
    p->text[p->len] = '\0';
    return before;
}

static void pointer_pop(struct pointer *p, size_t before)
{
    p->len = before;
    p->text[before] = '\0';
}

static int wrong_type(struct decode *d, const struct field *f, const char *want)
{
    return err_field(d->e, d->at.text, "%s must be %s", f->name, want);
}

/* --- values of one field -------------------------------------------------------------------- */

static int decode_string(struct decode *d, const cJSON *item, const struct field *f, void *obj)
{
    if (!cJSON_IsString(item)) {
        return wrong_type(d, f, "a string");
    }
    return field_put_text(f, obj, d->at.text, item->valuestring, strlen(item->valuestring),
                          d->arena, d->e);
}

static int decode_number(struct decode *d, const cJSON *item, const struct field *f, void *obj)
{
    if (!cJSON_IsNumber(item)) {
        return wrong_type(d, f, f->kind == FIELD_KIND_INT ? "a whole number" : "a number");
    }
    return field_put_number(f, obj, d->at.text, item->valuedouble, d->e);
}

static int decode_bool(struct decode *d, const cJSON *item, const struct field *f, void *obj)
{
    if (!cJSON_IsBool(item)) {
        return wrong_type(d, f, "true or false");
    }
    *(bool *)field_at(f, obj) = cJSON_IsTrue(item);
    return 0;
}

static int decode_set(struct decode *d, const cJSON *item, const struct field *f, void *obj)
{
    if (!cJSON_IsArray(item)) {
        return wrong_type(d, f, "a list of strings");
    }
    *(unsigned *)field_at(f, obj) = 0; /* the default does not add to what is given */
    for (const cJSON *part = item->child; part != NULL; part = part->next) {
        if (!cJSON_IsString(part)) {
            return wrong_type(d, f, "a list of strings");
        }
        if (field_put_set_name(f, obj, d->at.text, part->valuestring, strlen(part->valuestring),
                               d->e) != 0) {
            return -1;
        }
    }
    return field_check_set(f, obj, d->at.text, d->e);
}

/* Not cJSON_Print: it rounds numbers to 15 digits where they differ in the last bit only. */
static void write_tree(const cJSON *item, struct buf *out)
{
    if (cJSON_IsString(item)) {
        json_add_string(out, item->valuestring, strlen(item->valuestring));
    } else if (cJSON_IsNumber(item)) {
        json_add_real(out, item->valuedouble);
    } else if (cJSON_IsBool(item)) {
        buf_add_str(out, cJSON_IsTrue(item) ? "true" : "false");
    } else if (cJSON_IsNull(item)) {
        buf_add_str(out, "null");
    } else {
        bool is_object = cJSON_IsObject(item);
        buf_add_char(out, is_object ? '{' : '[');
        for (const cJSON *part = item->child; part != NULL; part = part->next) {
            if (part != item->child) {
                buf_add_char(out, ',');
            }
            if (is_object) {
                json_add_string(out, part->string, strlen(part->string));
                buf_add_char(out, ':');
            }
            write_tree(part, out);
        }
        buf_add_char(out, is_object ? '}' : ']');
    }
}

static int decode_raw(struct decode *d, const cJSON *item, const struct field *f, void *obj)
{
    if (!cJSON_IsObject(item)) {
        return wrong_type(d, f, "an object");
    }
    size_t max = f->max > 0 ? (size_t)f->max : FIELD_RAW_MAX;
    struct buf text;
    buf_init(&text, max);
    write_tree(item, &text);
    int rc = buf_ok(&text) ? field_put_raw(f, obj, d->at.text, text.data, text.len, d->arena, d->e)
                           : err_field(d->e, d->at.text, "%s must be at most %zu bytes of JSON",
                                       f->name, max);
    buf_done(&text);
    return rc;
}

static int decode_object(struct decode *d, const cJSON *item, const struct field *f, void *obj)
{
    if (!cJSON_IsObject(item)) {
        return wrong_type(d, f, "an object");
    }
    return decode_members(d, item, f->fields, field_at(f, obj));
}

static int decode_objptr(struct decode *d, const cJSON *item, const struct field *f, void *obj)
{
    if (!cJSON_IsObject(item)) {
        return wrong_type(d, f, "an object");
    }
    void *inner = arena_alloc(d->arena, f->elem);
    if (inner == NULL) {
        return field_no_memory(d->e);
    }
    *(void **)field_at(f, obj) = inner;
    return decode_members(d, item, f->fields, inner);
}

static int decode_elem(struct decode *d, const cJSON *part, const struct field *f, void *elem)
{
    if (f->fields != NULL) {
        return cJSON_IsObject(part) ? decode_members(d, part, f->fields, elem)
                                    : wrong_type(d, f, "a list of objects");
    }
    if (!cJSON_IsString(part)) {
        return wrong_type(d, f, "a list of strings");
    }
    return field_put_elem(f, f->elem_kind, elem, d->at.text, part->valuestring,
                          strlen(part->valuestring), d->arena, d->e);
}

static int decode_list(struct decode *d, const cJSON *item, const struct field *f, void *obj)
{
    if (!cJSON_IsArray(item)) {
        return wrong_type(d, f, "a list");
    }
    size_t n = 0;
    for (const cJSON *part = item->child; part != NULL; part = part->next) {
        n++;
    }
    if (n > field_list_max(f)) {
        return err_field(d->e, d->at.text, "%s must hold at most %zu items", f->name,
                         field_list_max(f));
    }
    struct list list = {.n = n};
    if (n > 0 && (list.items = arena_alloc(d->arena, n * f->elem)) == NULL) {
        return field_no_memory(d->e);
    }
    char *elem = list.items;
    size_t i = 0;
    for (const cJSON *part = item->child; part != NULL; part = part->next, elem += f->elem) {
        char index[24];
        snprintf(index, sizeof(index), "%zu", i++);
        size_t before = pointer_push(&d->at, index);
        if (decode_elem(d, part, f, elem) != 0) {
            return -1;
        }
        pointer_pop(&d->at, before);
    }
    *(struct list *)field_at(f, obj) = list;
    return 0;
}

static int decode_value(struct decode *d, const cJSON *item, const struct field *f, void *obj)
{
    switch (f->kind) {
    case FIELD_KIND_STR:
    case FIELD_KIND_ID:
    case FIELD_KIND_ENUM:
    case FIELD_KIND_TIME:
        return decode_string(d, item, f, obj);
    case FIELD_KIND_INT:
    case FIELD_KIND_REAL:
        return decode_number(d, item, f, obj);
    case FIELD_KIND_BOOL:
        return decode_bool(d, item, f, obj);
    case FIELD_KIND_SET:
        return decode_set(d, item, f, obj);
    case FIELD_KIND_RAW:
        return decode_raw(d, item, f, obj);
    case FIELD_KIND_OBJECT:
        return decode_object(d, item, f, obj);
    case FIELD_KIND_OBJPTR:
        return decode_objptr(d, item, f, obj);
    case FIELD_KIND_LIST:
        return decode_list(d, item, f, obj);
    case FIELD_KIND_CHARS: /* of answers only */
    case FIELD_KIND_END:
        break;
    }
    return err_set(d->e, ERR_INTERNAL, "field %s has no kind", f->name);
}

/* --- members of one object ------------------------------------------------------------------ */

static const struct field *field_find(const struct decode *d, const struct field *fields,
                                      const char *name)
{
    for (const struct field *f = fields; f->name != NULL; f++) {
        if ((f->flags & d->skip_flags) == 0 && strcmp(f->name, name) == 0) {
            return f;
        }
    }
    return NULL;
}

static int unknown_member(struct decode *d, const struct field *fields, const char *name)
{
    char quoted[UTF8_QUOTE_SIZE];
    struct buf known;
    buf_init(&known, KNOWN_TEXT);
    for (const struct field *f = fields; f->name != NULL; f++) {
        if ((f->flags & d->skip_flags) == 0) {
            buf_printf(&known, "%s%s", known.len > 0 ? ", " : "", f->name);
        }
    }
    err_field(d->e, d->at.text, "unknown member \"%s\"; known: %s%s",
              utf8_quote(name, strlen(name), quoted), known.len > 0 ? known.data : "none",
              buf_ok(&known) ? "" : ", ...");
    buf_done(&known);
    return -1;
}

static int decode_member(struct decode *d, const cJSON *item, const struct field *fields, void *obj)
{
    const struct field *f = field_find(d, fields, item->string);
    if (f == NULL) {
        return d->lenient ? 0 : unknown_member(d, fields, item->string);
    }
    if (cJSON_IsNull(item)) {
        return (f->flags & FIELD_REQUIRED) == 0
                   ? 0
                   : err_field(d->e, d->at.text, "%s must not be null", f->name);
    }
    if (decode_value(d, item, f, obj) != 0) {
        return -1;
    }
    field_mark(f, obj, true);
    return 0;
}

static int check_required(struct decode *d, const cJSON *object, const struct field *fields)
{
    for (const struct field *f = fields; f->name != NULL; f++) {
        if ((f->flags & FIELD_REQUIRED) != 0 && (f->flags & d->skip_flags) == 0 &&
            cJSON_GetObjectItemCaseSensitive(object, f->name) == NULL) {
            pointer_push(&d->at, f->name);
            return err_field(d->e, d->at.text, "%s is missing", f->name);
        }
    }
    return 0;
}

static int decode_members(struct decode *d, const cJSON *object, const struct field *fields,
                          void *obj)
{
    if (field_put_defaults(fields, obj, d->skip_flags, d->arena, d->e) != 0) {
        return -1;
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        size_t before = pointer_push(&d->at, item->string);
        if (decode_member(d, item, fields, obj) != 0) {
            return -1;
        }
        pointer_pop(&d->at, before);
    }
    return check_required(d, object, fields);
}

/* --- entry points --------------------------------------------------------------------------- */

static int decode_text(struct decode *d, const char *text, size_t len, const struct field *fields,
                       void *obj)
{
    if (len == 0) {
        text = "{}";
        len = 2;
    }
    if ((d->foreign ? json_check_foreign(text, len, d->e) : json_check(text, len, true, d->e)) !=
        0) {
        return -1;
    }
    cJSON *tree = cJSON_ParseWithLengthOpts(text, len, NULL, 0);
    if (tree == NULL) {
        return err_set(d->e, ERR_INTERNAL, "no memory to parse JSON");
    }
    int rc = decode_members(d, tree, fields, obj);
    cJSON_Delete(tree);
    return rc;
}

int json_decode(const char *text, size_t len, const struct field *fields, void *obj,
                struct arena *arena, struct err *e)
{
    struct decode d = {.skip_flags = FIELD_PATH | FIELD_QUERY, .arena = arena, .e = e};
    return decode_text(&d, text, len, fields, obj);
}

int json_decode_args(const char *text, size_t len, const struct field *fields, void *obj,
                     struct arena *arena, struct err *e)
{
    struct decode d = {.arena = arena, .e = e};
    return decode_text(&d, text, len, fields, obj);
}

int json_decode_lenient(const char *text, size_t len, const struct field *fields, void *obj,
                        struct arena *arena, struct err *e)
{
    struct decode d = {
        .skip_flags = FIELD_PATH | FIELD_QUERY, .lenient = true, .arena = arena, .e = e};
    return decode_text(&d, text, len, fields, obj);
}

int json_decode_foreign(const char *text, size_t len, const struct field *fields, void *obj,
                        struct arena *arena, struct err *e)
{
    struct decode d = {.skip_flags = FIELD_PATH | FIELD_QUERY,
                       .lenient = true,
                       .foreign = true,
                       .arena = arena,
                       .e = e};
    return decode_text(&d, text, len, fields, obj);
}

static int pair_read(struct decode *d, const cJSON *item, struct json_pair *ret)
{
    size_t before = pointer_push(&d->at, item->string);
    if (!cJSON_IsString(item)) {
        return err_field(d->e, d->at.text, "it must be a string");
    }
    pointer_pop(&d->at, before);
    ret->name = arena_strndup(d->arena, item->string, strlen(item->string));
    ret->value = arena_strndup(d->arena, item->valuestring, strlen(item->valuestring));
    return ret->name != NULL && ret->value != NULL ? 0 : field_no_memory(d->e);
}

static int pairs_read(struct decode *d, const cJSON *object, struct list *ret)
{
    struct list list = {.n = (size_t)cJSON_GetArraySize(object)};
    struct json_pair *pairs = arena_alloc(d->arena, (list.n + 1) * sizeof(*pairs));
    if (pairs == NULL) {
        return field_no_memory(d->e);
    }
    list.items = pairs;
    for (const cJSON *item = object->child; item != NULL; item = item->next) {
        if (pair_read(d, item, pairs++) != 0) {
            return -1;
        }
    }
    *ret = list;
    return 0;
}

int json_object_strings(const char *text, size_t len, const char *pointer, struct arena *arena,
                        struct list *ret, struct err *e)
{
    struct decode d = {.arena = arena, .e = e};
    if (json_check(text, len, true, e) != 0) {
        return -1;
    }
    cJSON *tree = cJSON_ParseWithLengthOpts(text, len, NULL, 0);
    if (tree == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory to parse JSON");
    }
    size_t n = strnlen(pointer, sizeof(d.at.text) / 2);
    memcpy(d.at.text, pointer, n);
    d.at.len = n;
    int rc = pairs_read(&d, tree, ret);
    cJSON_Delete(tree);
    return rc;
}
