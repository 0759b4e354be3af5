#include "json_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "field_put.h"
#include "leasehold/clock.h"
#include "leasehold/json.h"
#include "utf8.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define ESCAPE_SIZE 7              /* "\u001f" and NUL */

/* The escape of an ASCII character, or NULL if it stands for itself. */
static const char *escape_of(unsigned char c, char out[static ESCAPE_SIZE])
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        break;
    }
    if (c >= 0x20 && c != 0x7f) {
        return NULL;
    }
    snprintf(out, ESCAPE_SIZE, "\\u%04x", (unsigned)c);
    return out;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

#define EACH_BYTE(b) (0x0101010101010101u * (uint64_t)(b))

/* The lowest byte that is zero, if any, has its high bit in the result. */
static uint64_t zero_byte(uint64_t bytes)
{
    return (bytes - EACH_BYTE(1)) & ~bytes & EACH_BYTE(0x80);
}

/* is_plain of eight bytes at once: most text is nothing else. */
static bool are_plain(const char s[static sizeof(uint64_t)])
{
    uint64_t bytes;
    memcpy(&bytes, s, sizeof(bytes));
    uint64_t control = (bytes - EACH_BYTE(0x20)) & ~bytes & EACH_BYTE(0x80);
    uint64_t not_ascii = bytes & EACH_BYTE(0x80);
    return (control | not_ascii | zero_byte(bytes ^ EACH_BYTE('"')) |
            zero_byte(bytes ^ EACH_BYTE('\\')) | zero_byte(bytes ^ EACH_BYTE(0x7f))) == 0;
}

static size_t ascii_run(const char *s, size_t len)
{
    size_t n = 0;
    while (len - n >= sizeof(uint64_t) && are_plain(s + n)) {
        n += sizeof(uint64_t);
    }
    while (n < len && is_plain((unsigned char)s[n])) {
        n++;
    }
    return n;
}

/* How many bytes from the start of s may be copied as they are. */
static size_t plain_run(const char *s, size_t len)
{
    size_t n = 0;
    for (;;) {
        uint32_t point;
        n += ascii_run(s + n, len - n);
        size_t step = n < len ? utf8_next(s + n, len - n, &point) : 0;
        if (step <= 1) { /* what is to be escaped, or no UTF-8 */
            return n;
        }
        n += step;
    }
}

static bool add_plain(struct buf *out, const char *s, size_t len)
{
    buf_add_char(out, '"');
    buf_add(out, s, len);
    buf_add_char(out, '"');
    return true;
}

bool json_add_string_max(struct buf *out, const char *s, size_t len, size_t max)
{
    bool whole = true;
    if (len <= max && ascii_run(s, len) == len) {
        return add_plain(out, s, len);
    }
    buf_add_char(out, '"');
    while (len > 0) {
        size_t run = plain_run(s, len);
        size_t fits = utf8_clip(s, run, max);
        buf_add(out, s, fits);
        max -= fits;
        s += fits;
        len -= fits;
        whole = fits == run;
        if (!whole || len == 0) {
            break;
        }
        char escape[ESCAPE_SIZE];
        const char *piece = (unsigned char)*s < 0x80 ? escape_of((unsigned char)*s, escape) : NULL;
        if (piece == NULL) {
            piece = REPLACEMENT;
        }
        size_t size = strlen(piece);
        whole = size <= max;
        if (!whole) {
            break;
        }
        buf_add(out, piece, size);
        max -= size;
        s++;
        len--;
    }
    buf_add_char(out, '"');
    return whole;
}

void json_add_string(struct buf *out, const char *s, size_t len)
{
    json_add_string_max(out, s, len, SIZE_MAX);
}

void json_add_real(struct buf *out, double v)
{
    char text[32] = "null";
    /* 17 digits always read back; most numbers need fewer, and 0.1 should not grow a tail. */
    for (int digits = 15; isfinite(v) && digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        if (strtod(text, NULL) == v) {
            break;
        }
    }
    buf_add_str(out, text);
}

static void add_text(struct buf *out, const char *s)
{
    json_add_string(out, s, strlen(s));
}

static void add_set(struct buf *out, const struct field *f, unsigned set)
{
    bool first = true;
    buf_add_char(out, '[');
    for (unsigned i = 0; f->names[i] != NULL; i++) {
        if ((set & 1u << i) != 0) {
            buf_add_str(out, first ? "" : ",");
            add_text(out, f->names[i]);
            first = false;
        }
    }
    buf_add_char(out, ']');
}

static void add_enum(struct buf *out, const struct field *f, int value)
{
    for (int i = 0; f->names[i] != NULL; i++) {
        if (i == value) {
            add_text(out, f->names[i]);
            return;
        }
    }
    buf_add_str(out, "null"); /* no name: a row of a newer version */
}

static void add_elem(struct buf *out, const struct field *f, const void *elem)
{
    if (f->fields != NULL) {
        json_encode(f->fields, elem, out);
    } else if (f->elem_kind == FIELD_KIND_ID) {
        add_plain(out, ID_STR((const struct id *)elem), ID_TEXT - 1);
    } else {
        const char *s = *(char *const *)elem;
        add_text(out, s != NULL ? s : "");
    }
}

static void add_list(struct buf *out, const struct field *f, const struct list *list)
{
    const char *elem = list->items;
    buf_add_char(out, '[');
    for (size_t i = 0; i < list->n; i++, elem += f->elem) {
        buf_add_str(out, i > 0 ? "," : "");
        add_elem(out, f, elem);
    }
    buf_add_char(out, ']');
}

static bool is_zero(const struct field *f, const void *at)
{
    switch (f->kind) {
    case FIELD_KIND_STR:
    case FIELD_KIND_RAW:
        return *(char *const *)at == NULL || **(char *const *)at == '\0';
    case FIELD_KIND_CHARS:
        return *(const char *)at == '\0';
    case FIELD_KIND_ID:
        return id_is_zero(at);
    case FIELD_KIND_INT:
    case FIELD_KIND_TIME:
        return *(const int64_t *)at == 0;
    case FIELD_KIND_REAL:
        return fpclassify(*(const double *)at) == FP_ZERO;
    case FIELD_KIND_BOOL:
        return !*(const bool *)at;
    case FIELD_KIND_SET:
        return *(const unsigned *)at == 0;
    case FIELD_KIND_OBJPTR:
        return *(void *const *)at == NULL;
    case FIELD_KIND_LIST:
        return ((const struct list *)at)->n == 0;
    case FIELD_KIND_ENUM: /* 0 is the first name */
    case FIELD_KIND_OBJECT:
    case FIELD_KIND_END:
        break;
    }
    return false;
}

static bool is_null(const struct field *f, const void *obj)
{
    if (f->has != 0 && !*(const bool *)((const char *)obj + f->has)) {
        return true;
    }
    bool zero_is_null = (f->flags & FIELD_NULL_ZERO) != 0 || f->kind == FIELD_KIND_TIME ||
                        f->kind == FIELD_KIND_OBJPTR;
    return zero_is_null && is_zero(f, field_at_const(f, obj));
}

static void add_value(struct buf *out, const struct field *f, const void *at)
{
    char time[TIME_TEXT];
    switch (f->kind) {
    case FIELD_KIND_STR:
        add_text(out, is_zero(f, at) ? "" : *(char *const *)at);
        break;
    case FIELD_KIND_CHARS:
        add_text(out, at);
        break;
    case FIELD_KIND_ID:
        add_plain(out, ID_STR((const struct id *)at), ID_TEXT - 1);
        break;
    case FIELD_KIND_INT:
        buf_add_int(out, *(const int64_t *)at);
        break;
    case FIELD_KIND_REAL:
        json_add_real(out, *(const double *)at);
        break;
    case FIELD_KIND_BOOL:
        buf_add_str(out, *(const bool *)at ? "true" : "false");
        break;
    case FIELD_KIND_ENUM:
        add_enum(out, f, *(const int *)at);
        break;
    case FIELD_KIND_SET:
        add_set(out, f, *(const unsigned *)at);
        break;
    case FIELD_KIND_TIME:
        add_plain(out, time_format(*(const int64_t *)at, time), TIME_TEXT - 1);
        break;
    case FIELD_KIND_RAW:
        buf_add_str(out, is_zero(f, at) ? "{}" : *(char *const *)at);
        break;
    case FIELD_KIND_OBJECT:
        json_encode(f->fields, at, out);
        break;
    case FIELD_KIND_OBJPTR:
        json_encode(f->fields, *(void *const *)at, out);
        break;
    case FIELD_KIND_LIST:
        add_list(out, f, at);
        break;
    case FIELD_KIND_END:
        break;
    }
}

void json_encode(const struct field *fields, const void *obj, struct buf *out)
{
    char before = '{';
    for (const struct field *f = fields; f->name != NULL; f++) {
        if ((f->flags & FIELD_OMIT_ZERO) != 0 && is_zero(f, field_at_const(f, obj))) {
            continue;
        }
        buf_add_char(out, before);
        before = ',';
        add_plain(out, f->name, strlen(f->name)); /* of a C member */
        buf_add_char(out, ':');
        if (is_null(f, obj)) {
            buf_add_str(out, "null");
        } else {
            add_value(out, f, field_at_const(f, obj));
        }
    }
    buf_add_str(out, before == '{' ? "{}" : "}");
}
