#include "s3_canonical.h"

#include <stdlib.h>
#include <string.h>

#define PART_MAX (64u * 1024)

struct part {
    const char *name, *value;
    size_t order; /* as given: qsort keeps none */
};

/* Byte ranges, not isalnum: what is signed must not hang on a locale. */
static bool is_unreserved(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

void s3_encode(struct buf *out, const char *bytes, size_t len, bool is_path)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (is_unreserved(bytes[i]) || (is_path && c == '/')) {
            buf_add_char(out, bytes[i]);
        } else {
            const char escape[] = {'%', digits[c >> 4], digits[c & 15]};
            buf_add(out, escape, sizeof(escape));
        }
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

char s3_lower(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return (char)(c | 0x20);
    }
    return c;
}

static void add_lower(struct buf *out, const char *s)
{
    for (; *s != '\0'; s++) {
        buf_add_char(out, s3_lower(*s));
    }
}

/* Without blanks at its ends; a run of them, also one that folds a line, is one space. */
static void add_folded(struct buf *out, const char *s)
{
    bool gap = false;
    size_t start = out->len;
    for (; *s != '\0'; s++) {
        if (is_blank(*s)) {
            gap = out->len > start;
            continue;
        }
        if (gap) {
            buf_add_char(out, ' ');
            gap = false;
        }
        buf_add_char(out, *s);
    }
}

static void add_encoded(struct buf *out, const char *s)
{
    s3_encode(out, s, strlen(s), false);
}

/* One text of a pair as it is signed, in the arena. */
static const char *convert(const char *s, void (*how)(struct buf *, const char *),
                           struct arena *arena)
{
    struct buf text;
    buf_init(&text, PART_MAX);
    how(&text, s != NULL ? s : "");
    const char *kept =
        buf_ok(&text) ? arena_strndup(arena, text.data != NULL ? text.data : "", text.len) : NULL;
    buf_done(&text);
    return kept;
}

static struct part *convert_all(const struct s3_pair *pairs, size_t n,
                                void (*name)(struct buf *, const char *),
                                void (*value)(struct buf *, const char *), struct arena *arena)
{
    struct part *parts = arena_alloc(arena, (n > 0 ? n : 1) * sizeof(*parts));
    for (size_t i = 0; parts != NULL && i < n; i++) {
        parts[i] = (struct part){convert(pairs[i].name, name, arena),
                                 convert(pairs[i].value, value, arena), i};
        if (parts[i].name == NULL || parts[i].value == NULL) {
            return NULL;
        }
    }
    return parts;
}

/* By name alone: "a=b" would put "a-b" before "a". */
static int by_name_then_value(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : strcmp(x->value, y->value);
}

static int by_name_then_order(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

int s3_canonical_query(const struct s3_pair *pairs, size_t n, struct arena *arena, struct buf *out,
                       struct err *e)
{
    struct part *parts = convert_all(pairs, n, add_encoded, add_encoded, arena);
    if (parts == NULL) {
        return err_set(e, ERR_TOO_LARGE, "the query is too long to sign");
    }
    qsort(parts, n, sizeof(*parts), by_name_then_value);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%s=%s", i > 0 ? "&" : "", parts[i].name, parts[i].value);
    }
    return 0;
}

int s3_canonical_headers(const struct s3_pair *pairs, size_t n, struct arena *arena,
                         struct buf *lines, struct buf *names, struct err *e)
{
    struct part *parts = convert_all(pairs, n, add_lower, add_folded, arena);
    if (parts == NULL) {
        return err_set(e, ERR_TOO_LARGE, "the headers are too long to sign");
    }
    qsort(parts, n, sizeof(*parts), by_name_then_order);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(parts[i].name, parts[i - 1].name) == 0) {
            buf_printf(lines, ",%s", parts[i].value);
            continue;
        }
        buf_printf(lines, "%s%s:%s", i > 0 ? "\n" : "", parts[i].name, parts[i].value);
        buf_printf(names, "%s%s", i > 0 ? ";" : "", parts[i].name);
    }
    if (n > 0) {
        buf_add_char(lines, '\n');
    }
    return 0;
}
