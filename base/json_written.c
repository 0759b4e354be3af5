/* The way back from json_encode, for what is read as often as it is written: a table's members in its
 * own order can be taken one after the other, and need neither a tree nor memory. */
#include <string.h>

#include "field_put.h"
#include "leasehold/json.h"

#define INT_DIGITS 15 /* so many always fit a double, as those of json_decode do */
#define SET_BITS   32u

struct cursor {
    const char *at, *end;
};

static bool take(struct cursor *c, const char *text, size_t len)
{
    if ((size_t)(c->end - c->at) < len || memcmp(c->at, text, len) != 0) {
        return false;
    }
    c->at += len;
    return true;
}

static bool take_char(struct cursor *c, char wanted)
{
    return take(c, &wanted, 1);
}

static bool take_quoted(struct cursor *c, const char *text)
{
    return take_char(c, '"') && take(c, text, strlen(text)) && take_char(c, '"');
}

static bool take_id(struct cursor *c, struct id *ret)
{
    if (c->end - c->at < ID_TEXT || !take_char(c, '"') || !id_parse(c->at, ID_TEXT - 1, ret)) {
        return false;
    }
    c->at += ID_TEXT - 1;
    return take_char(c, '"');
}

static bool take_int(struct cursor *c, const struct field *f, int64_t *ret)
{
    int64_t max = f->min == 0 && f->max == 0 ? FIELD_INT_EXACT : f->max, v = 0;
    const char *from = c->at;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && c->at - from < INT_DIGITS) {
        v = v * 10 + (*c->at++ - '0');
    }
    *ret = v;
    return c->at > from && (*from != '0' || c->at == from + 1) && v >= f->min && v <= max;
}

/* -1: none. A name that another begins with is told from it by the quote behind. */
static int take_name(struct cursor *c, const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++) {
        struct cursor ahead = *c;
        if (take_quoted(&ahead, names[i])) {
            *c = ahead;
            return i;
        }
    }
    return -1;
}

static bool take_enum(struct cursor *c, const struct field *f, int *ret)
{
    *ret = take_name(c, f->names);
    return *ret >= 0;
}

static bool take_set(struct cursor *c, const struct field *f, unsigned *ret)
{
    *ret = 0;
    if (!take_char(c, '[')) {
        return false;
    }
    do {
        int i = take_name(c, f->names);
        if (i < 0 || (unsigned)i >= SET_BITS || (*ret & 1u << i) != 0) {
            return false;
        }
        *ret |= 1u << i;
    } while (take_char(c, ','));
    return take_char(c, ']');
}

static bool take_value(struct cursor *c, const struct field *f, void *at)
{
    switch (f->kind) {
    case FIELD_KIND_ID:
        return take_id(c, at);
    case FIELD_KIND_INT:
        return take_int(c, f, at);
    case FIELD_KIND_ENUM:
        return take_enum(c, f, at);
    case FIELD_KIND_SET:
        return take_set(c, f, at);
    default:
        return false;
    }
}

static bool take_members(struct cursor *c, const struct field *fields, void *obj)
{
    char before = '{';
    for (const struct field *f = fields; f->name != NULL; f++, before = ',') {
        if (!take_char(c, before) || !take_quoted(c, f->name) || !take_char(c, ':') ||
            !take_value(c, f, field_at(f, obj))) {
            return false;
        }
        field_mark(f, obj, true);
    }
    return true;
}

bool json_decode_written(const char *text, size_t len, const struct field *fields, void *obj)
{
    struct cursor c = {text, text + len};
    return take_members(&c, fields, obj) && take_char(&c, '}') && c.at == c.end;
}

bool json_decode_written_head(const char *text, size_t len, const struct field *fields, void *obj)
{
    struct cursor c = {text, text + len};
    return take_members(&c, fields, obj);
}
