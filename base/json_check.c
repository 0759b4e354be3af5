/*
 * The scan before the parser: RFC 8259 and our stricter rules in one pass. cJSON alone accepts bad
 * UTF-8, U+0000, duplicates and trailing bytes, and clamps numbers.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "field_put.h"
#include "json_scan.h"
#include "leasehold/json.h"
#include "utf8.h"

/* A member name with its escapes undone. */
struct name {
    const char *s;
    size_t len;
};

struct scan {
    const char *start, *at, *end;
    unsigned depth;
    struct name *names; /* a stack: those of the open objects, the innermost last */
    size_t n_names, names_size;
    struct arena *decoded; /* names that had escapes; made when the first one comes */
    bool big_integers;     /* may stand where nobody reads them */
    struct err *e;
};

static int scan_value(struct scan *s);

static int malformed(struct scan *s, const char *what)
{
    return err_set(s->e, ERR_MALFORMED_JSON, "%s at byte %zu", what, (size_t)(s->at - s->start));
}

static int no_memory(struct scan *s)
{
    return err_set(s->e, ERR_INTERNAL, "no memory to check JSON");
}

static void skip_space(struct scan *s)
{
    while (s->at < s->end &&
           (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r')) {
        s->at++;
    }
}

static bool take(struct scan *s, char c)
{
    if (s->at == s->end || *s->at != c) {
        return false;
    }
    s->at++;
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four hex digits at s, or -1. */
static int32_t hex4(const char *s, size_t len)
{
    int32_t v = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = i < len ? hex_value(s[i]) : -1;
        if (digit < 0) {
            return -1;
        }
        v = v << 4 | digit;
    }
    return v;
}

/* Behind "\u". A surrogate must be the first of a pair, else no UTF-8 could hold it. */
static int scan_unicode_escape(struct scan *s)
{
    int32_t unit = hex4(s->at, (size_t)(s->end - s->at));
    if (unit < 0) {
        return malformed(s, "bad \\u escape");
    }
    if (unit == 0) {
        return malformed(s, "\\u0000");
    }
    bool high = unit >= 0xd800 && unit <= 0xdbff;
    if (unit >= 0xdc00 && unit <= 0xdfff) {
        return malformed(s, "lone surrogate");
    }
    s->at += 4;
    if (!high) {
        return 0;
    }
    size_t left = (size_t)(s->end - s->at);
    int32_t low = left >= 6 && s->at[0] == '\\' && s->at[1] == 'u' ? hex4(s->at + 2, 4) : -1;
    if (low < 0xdc00 || low > 0xdfff) {
        return malformed(s, "lone surrogate");
    }
    s->at += 6;
    return 0;
}

static int scan_escape(struct scan *s)
{
    if (s->at == s->end || strchr("\"\\/bfnrtu", *s->at) == NULL || *s->at == '\0') {
        return malformed(s, "bad escape");
    }
    return *s->at++ == 'u' ? scan_unicode_escape(s) : 0;
}

/* Scans a string with its quotes. *ret is what stands between them, as it is. */
static int scan_string(struct scan *s, struct name *ret, bool *ret_escaped)
{
    if (!take(s, '"')) {
        return malformed(s, "expected a string");
    }
    const char *first = s->at;
    *ret_escaped = false;
    while (s->at < s->end) {
        uint32_t point;
        size_t n = utf8_next(s->at, (size_t)(s->end - s->at), &point);
        if (n == 0) {
            return malformed(s, "invalid UTF-8");
        }
        if (point < 0x20) {
            return malformed(s, "control character in a string");
        }
        s->at += n;
        if (point == '"') {
            *ret = (struct name){.s = first, .len = (size_t)(s->at - 1 - first)};
            return 0;
        }
        if (point == '\\') {
            *ret_escaped = true;
            if (scan_escape(s) != 0) {
                return -1;
            }
        }
    }
    return malformed(s, "unterminated string");
}

static size_t utf8_put(char *out, uint32_t p)
{
    if (p < 0x80) {
        out[0] = (char)p;
        return 1;
    }
    if (p < 0x800) {
        out[0] = (char)(0xc0 | p >> 6);
        out[1] = (char)(0x80 | (p & 0x3f));
        return 2;
    }
    if (p < 0x10000) {
        out[0] = (char)(0xe0 | p >> 12);
        out[1] = (char)(0x80 | (p >> 6 & 0x3f));
        out[2] = (char)(0x80 | (p & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | p >> 18);
    out[1] = (char)(0x80 | (p >> 12 & 0x3f));
    out[2] = (char)(0x80 | (p >> 6 & 0x3f));
    out[3] = (char)(0x80 | (p & 0x3f));
    return 4;
}

/* The character of a valid escape at s (behind its backslash); *ret_len: how long the escape is. */
static uint32_t escape_value(const char *s, size_t *ret_len)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (*s != 'u') {
        *ret_len = 1;
        return (unsigned char)values[strchr(letters, *s) - letters];
    }
    uint32_t unit = (uint32_t)hex4(s + 1, 4);
    *ret_len = 5;
    if (unit < 0xd800 || unit > 0xdbff) {
        return unit;
    }
    *ret_len = 11;
    return 0x10000 + ((unit & 0x3ff) << 10) + ((uint32_t)hex4(s + 7, 4) & 0x3ff);
}

/* Replaces a name by itself without escapes: never longer. */
static int decode_name(struct scan *s, struct name *name)
{
    if (s->decoded == NULL) {
        s->decoded = arena_new(SIZE_MAX / 4);
    }
    char *out = s->decoded != NULL ? arena_alloc(s->decoded, name->len) : NULL;
    if (out == NULL) {
        return no_memory(s);
    }
    size_t n = 0;
    for (size_t i = 0; i < name->len;) {
        if (name->s[i] != '\\') {
            out[n++] = name->s[i++];
            continue;
        }
        size_t len;
        n += utf8_put(out + n, escape_value(name->s + i + 1, &len));
        i += 1 + len;
    }
    *name = (struct name){.s = out, .len = n};
    return 0;
}

static int push_name(struct scan *s, struct name name)
{
    if (s->n_names == s->names_size) {
        size_t size = s->names_size == 0 ? 32 : s->names_size * 2;
        struct name *names = reallocarray(s->names, size, sizeof(*names));
        if (names == NULL) {
            return no_memory(s);
        }
        s->names = names;
        s->names_size = size;
    }
    s->names[s->n_names++] = name;
    return 0;
}

static int compare_names(const void *pa, const void *pb)
{
    const struct name *a = pa, *b = pb;
    if (a->len != b->len) {
        return a->len < b->len ? -1 : 1;
    }
    return memcmp(a->s, b->s, a->len);
}

/* Takes the names of the innermost object, from `base` on, off the stack. Sorted, because comparing
 * all pairs would let one body of 1 MiB occupy a thread for minutes. */
static int pop_names(struct scan *s, size_t base)
{
    size_t n = s->n_names - base;
    s->n_names = base;
    if (n < 2) {
        return 0;
    }
    struct name *names = s->names + base;
    qsort(names, n, sizeof(*names), compare_names);
    for (size_t i = 1; i < n; i++) {
        if (compare_names(&names[i - 1], &names[i]) == 0) {
            char quoted[UTF8_QUOTE_SIZE];
            return err_set(s->e, ERR_MALFORMED_JSON, "member \"%s\" is given twice",
                           utf8_quote(names[i].s, names[i].len, quoted));
        }
    }
    return 0;
}

static int scan_member(struct scan *s)
{
    struct name name;
    bool escaped;
    skip_space(s);
    if (scan_string(s, &name, &escaped) != 0 || (escaped && decode_name(s, &name) != 0) ||
        push_name(s, name) != 0) {
        return -1;
    }
    skip_space(s);
    return take(s, ':') ? scan_value(s) : malformed(s, "expected ':'");
}

/* Behind the opening bracket: the parts up to `close`, each read by scan_part. */
static int scan_parts(struct scan *s, char close, int (*scan_part)(struct scan *))
{
    if (++s->depth > JSON_MAX_DEPTH) {
        return malformed(s, "nested too deep");
    }
    skip_space(s);
    if (!take(s, close)) {
        do {
            if (scan_part(s) != 0) {
                return -1;
            }
            skip_space(s);
        } while (take(s, ','));
        if (!take(s, close)) {
            return malformed(s, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
        }
    }
    s->depth--;
    return 0;
}

static int scan_object(struct scan *s)
{
    size_t base = s->n_names;
    return scan_parts(s, '}', scan_member) != 0 ? -1 : pop_names(s, base);
}

static size_t digits_len(const char *s, size_t len)
{
    size_t n = 0;
    while (n < len && s[n] >= '0' && s[n] <= '9') {
        n++;
    }
    return n;
}

size_t json_number_len(const char *s, size_t len, bool *ret_integer)
{
    size_t at = len > 0 && s[0] == '-' ? 1 : 0;
    size_t digits = digits_len(s + at, len - at);
    if (digits == 0 || (digits > 1 && s[at] == '0')) {
        return 0;
    }
    at += digits;
    *ret_integer = true;
    if (at < len && s[at] == '.') {
        *ret_integer = false;
        digits = digits_len(s + at + 1, len - at - 1);
        if (digits == 0) {
            return 0;
        }
        at += 1 + digits;
    }
    if (at < len && (s[at] == 'e' || s[at] == 'E')) {
        *ret_integer = false;
        at++;
        if (at < len && (s[at] == '+' || s[at] == '-')) {
            at++;
        }
        digits = digits_len(s + at, len - at);
        if (digits == 0) {
            return 0;
        }
        at += digits;
    }
    return at;
}

double json_number_value(const char *s, size_t len)
{
    char text[JSON_NUMBER_MAX + 1];
    memcpy(text, s, len);
    text[len] = '\0';
    return strtod(text, NULL);
}

bool json_integer_is_exact(const char *s, size_t len)
{
    static const char limit[] = "9007199254740992"; /* 2^53 */
    const size_t limit_len = sizeof(limit) - 1;
    if (*s == '-') {
        s++;
        len--;
    }
    return len < limit_len || (len == limit_len && memcmp(s, limit, limit_len) <= 0);
}

static int scan_number(struct scan *s)
{
    bool integer = false;
    size_t n = json_number_len(s->at, (size_t)(s->end - s->at), &integer);
    if (n == 0) {
        return malformed(s, "bad number");
    }
    if (n > JSON_NUMBER_MAX || (integer && !s->big_integers && !json_integer_is_exact(s->at, n))) {
        return malformed(s, n > JSON_NUMBER_MAX && !integer ? "number too long"
                                                            : "integer beyond 2^53");
    }
    if (!isfinite(json_number_value(s->at, n))) {
        return malformed(s, "number out of range");
    }
    s->at += n;
    return 0;
}

static int scan_word(struct scan *s, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(s->end - s->at) < len || memcmp(s->at, word, len) != 0) {
        return malformed(s, "unexpected character");
    }
    s->at += len;
    return 0;
}

static int scan_value(struct scan *s)
{
    struct name text;
    bool escaped;
    skip_space(s);
    if (s->at == s->end) {
        return malformed(s, "unexpected end");
    }
    switch (*s->at) {
    case '{':
        s->at++;
        return scan_object(s);
    case '[':
        s->at++;
        return scan_parts(s, ']', scan_value);
    case '"':
        return scan_string(s, &text, &escaped);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    case '-':
    case '0' ... '9':
        return scan_number(s);
    default:
        return malformed(s, "unexpected character");
    }
}

static int scan_text(struct scan *s, bool want_object)
{
    if (s->end - s->at >= 3 && memcmp(s->at, "\xef\xbb\xbf", 3) == 0) {
        return malformed(s, "byte order mark");
    }
    skip_space(s);
    bool is_object = s->at < s->end && *s->at == '{';
    if (scan_value(s) != 0) {
        return -1;
    }
    skip_space(s);
    if (s->at != s->end) {
        return malformed(s, "trailing bytes");
    }
    if (want_object && !is_object) {
        return err_field(s->e, "", "must be a JSON object");
    }
    return 0;
}

static int check(const char *text, size_t len, bool want_object, bool big_integers, struct err *e)
{
    if (len == 0) {
        text = ""; /* it may be NULL */
    }
    struct scan s = {
        .start = text, .at = text, .end = text + len, .big_integers = big_integers, .e = e};
    int rc = scan_text(&s, want_object);
    free(s.names);
    arena_free(s.decoded);
    return rc;
}

int json_check(const char *text, size_t len, bool want_object, struct err *e)
{
    return check(text, len, want_object, false, e);
}

int json_check_foreign(const char *text, size_t len, struct err *e)
{
    return check(text, len, true, true, e);
}
