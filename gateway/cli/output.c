#include "output.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "leasehold/clock.h"
#include "leasehold/json.h"

#define LABEL_MAX 64

void output_clean(const char *s, size_t len, bool keep_lines, struct buf *out)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        bool kept = c == '\t' || (c == '\n' && keep_lines);
        /* U+0080..U+009F, the other control characters: 0xC2 0x80..0x9F in UTF-8. */
        if (c == 0xc2 && i + 1 < len && (unsigned char)s[i + 1] < 0xa0) {
            buf_add_char(out, '?');
            i++;
        } else if ((c < 0x20 && !kept) || c == 0x7f) {
            buf_add_char(out, '?');
        } else {
            buf_add_char(out, s[i]);
        }
    }
}

void output_text(const char *s, size_t len, FILE *out)
{
    struct buf clean;
    buf_init(&clean, len);
    output_clean(s, len, false, &clean);
    if (clean.len > 0) {
        fwrite(clean.data, 1, clean.len, out);
    }
    buf_done(&clean);
}

static void print_str(const char *s, FILE *out)
{
    if (s == NULL || s[0] == '\0') {
        fputc('-', out);
    } else {
        output_text(s, strlen(s), out);
    }
}

static void print_scalar(enum field_kind kind, const struct field *f, const void *at, FILE *out)
{
    switch (kind) {
    case FIELD_KIND_STR:
    case FIELD_KIND_RAW:
        print_str(*(char *const *)at, out);
        break;
    case FIELD_KIND_ID:
        print_str(id_is_zero(at) ? NULL : ID_STR((const struct id *)at), out);
        break;
    case FIELD_KIND_INT:
        if (*(const int64_t *)at == 0 && (f->flags & FIELD_NULL_ZERO) != 0) {
            print_str(NULL, out);
        } else {
            fprintf(out, "%" PRId64, *(const int64_t *)at);
        }
        break;
    case FIELD_KIND_REAL:
        if (isnan(*(const double *)at)) {
            print_str(NULL, out);
        } else {
            fprintf(out, "%g", *(const double *)at);
        }
        break;
    case FIELD_KIND_BOOL:
        fputs(*(const bool *)at ? "yes" : "no", out);
        break;
    case FIELD_KIND_ENUM:
        print_str(f->names[*(const int *)at], out);
        break;
    case FIELD_KIND_TIME:
        print_str(*(const int64_t *)at == 0
                      ? NULL
                      : time_format(*(const int64_t *)at, (char[TIME_TEXT]){0}),
                  out);
        break;
    default:
        break;
    }
}

/* A list of objects stands on a line each: "name value  name value". */
static void print_inline(const struct field *fields, const char *obj, FILE *out)
{
    for (const struct field *f = fields; f->name != NULL; f++) {
        fprintf(out, "%s%s ", f == fields ? "" : "  ", f->name);
        print_scalar(f->kind, f, obj + f->offset, out);
    }
}

static void label_of(const char *prefix, const char *name, char out[static LABEL_MAX])
{
    snprintf(out, LABEL_MAX, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
}

static const void *nested(const struct field *f, const char *obj)
{
    return f->kind == FIELD_KIND_OBJPTR ? *(void *const *)(const void *)(obj + f->offset)
                                        : (const void *)(obj + f->offset);
}

static bool is_object(const struct field *f)
{
    return f->kind == FIELD_KIND_OBJECT || f->kind == FIELD_KIND_OBJPTR;
}

/* The longest label; the same walk as print_rows. */
static int label_width(const struct field *fields, const char *obj, const char *prefix)
{
    int width = 0;
    for (const struct field *f = fields; f->name != NULL; f++) {
        char label[LABEL_MAX];
        label_of(prefix, f->name, label);
        int w = (int)strlen(label);
        if (is_object(f)) {
            const void *inner = nested(f, obj);
            w = inner != NULL ? label_width(f->fields, inner, f->name) : 0;
        }
        width = w > width ? w : width;
    }
    return width;
}

static void print_list(const struct field *f, const struct list *list, const char *label, int width,
                       FILE *out)
{
    const char *item = list->items;
    if (f->fields == NULL && list->n > 0) {
        fprintf(out, "%-*s  ", width, label);
    }
    for (size_t i = 0; i < list->n; i++, item += f->elem) {
        if (f->fields == NULL) {
            fputs(i > 0 ? "," : "", out);
            print_scalar(f->elem_kind, f, item, out);
        } else {
            fprintf(out, "%-*s  ", width, label);
            print_inline(f->fields, item, out);
            fputc('\n', out);
        }
    }
    if (f->fields == NULL && list->n > 0) {
        fputc('\n', out);
    }
}

static bool has_text(const struct field *f, const void *at)
{
    const char *s = f->kind == FIELD_KIND_STR ? *(char *const *)at : NULL;
    return s != NULL && s[0] != '\0';
}

static void print_rows(const struct field *fields, const char *obj, const char *prefix, int width,
                       bool show_secret, FILE *out)
{
    for (const struct field *f = fields; f->name != NULL; f++) {
        char label[LABEL_MAX];
        label_of(prefix, f->name, label);
        const void *at = obj + f->offset;
        if ((f->flags & FIELD_SECRET) != 0 && !show_secret) {
            fprintf(out, "%-*s  %s\n", width, label, has_text(f, at) ? "(not shown)" : "-");
            continue;
        }
        if (is_object(f)) {
            const void *inner = nested(f, obj);
            if (inner != NULL) {
                print_rows(f->fields, inner, f->name, width, show_secret, out);
            }
        } else if (f->kind == FIELD_KIND_LIST) {
            print_list(f, at, label, width, out);
        } else {
            fprintf(out, "%-*s  ", width, label);
            print_scalar(f->kind, f, at, out);
            fputc('\n', out);
        }
    }
}

void output_object(const struct field *fields, const void *obj, bool show_secret, FILE *out)
{
    assert(obj != NULL);
    print_rows(fields, obj, "", label_width(fields, obj, ""), show_secret, out);
}

/* --- tables ----------------------------------------------------------------------------------- */

#define CELL_MAX 64 /* of a column, in bytes */

/* The first, and how many more there are: the object and --json have them all. */
static void print_list_cell(const struct field *f, const struct list *list, FILE *out)
{
    if (list->n == 0 || f->fields != NULL) {
        print_str(NULL, out);
        return;
    }
    print_scalar(f->elem_kind, f, list->items, out);
    if (list->n > 1) {
        fprintf(out, "+%zu", list->n - 1);
    }
}

static int cell_text(const struct field *f, const char *item, char ret[static CELL_MAX])
{
    FILE *cell = fmemopen(ret, CELL_MAX, "w"); /* cuts what is longer */
    ret[0] = '\0';
    if (cell == NULL) {
        return 0;
    }
    if (f->kind == FIELD_KIND_LIST) {
        print_list_cell(f, (const void *)(item + f->offset), cell);
    } else {
        print_scalar(f->kind, f, item + f->offset, cell);
    }
    fclose(cell);
    ret[CELL_MAX - 1] = '\0';
    size_t len = strlen(ret);
    while (!utf8_valid(ret, len)) { /* cut inside a character */
        ret[--len] = '\0';
    }
    return (int)len;
}

static int column_width(const struct field *f, const struct list *items, size_t item_size)
{
    char cell[CELL_MAX];
    int width = (int)strlen(f->name);
    const char *item = items->items;
    for (size_t i = 0; i < items->n; i++, item += item_size) {
        int w = cell_text(f, item, cell);
        width = w > width ? w : width;
    }
    return width;
}

/* The last column is not filled up. */
static void print_cell(const struct field *f, int width, const char *text, FILE *out)
{
    if (f[1].name != NULL) {
        fprintf(out, "%-*s  ", width, text);
    } else {
        fprintf(out, "%s\n", text);
    }
}

#define COLUMNS_MAX 16

void output_table(const struct field *columns, const struct list *items, size_t item_size,
                  FILE *out)
{
    int width[COLUMNS_MAX];
    char cell[CELL_MAX];
    const char *item = items->items;
    for (size_t i = 0; columns[i].name != NULL && i < COLUMNS_MAX; i++) {
        width[i] = column_width(&columns[i], items, item_size);
        print_cell(&columns[i], width[i], columns[i].name, out);
    }
    for (size_t row = 0; row < items->n; row++, item += item_size) {
        for (size_t i = 0; columns[i].name != NULL && i < COLUMNS_MAX; i++) {
            cell_text(&columns[i], item, cell);
            print_cell(&columns[i], width[i], cell, out);
        }
    }
}
