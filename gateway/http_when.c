#include "http_when.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- dates ----------------------------------------------------------------------------------- */

void http_date_format(int64_t at_s, char ret[static HTTP_DATE_SIZE])
{
    time_t at = (time_t)at_s;
    struct tm tm;

    gmtime_r(&at, &tm);
    strftime(ret, HTTP_DATE_SIZE, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

/* The form of today and the two of old (RFC 9110, 5.6.7). */
bool http_date_parse(const char *text, int64_t *ret_s)
{
    static const char *const forms[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
                                        "%a %b %d %H:%M:%S %Y"};

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct tm tm = {0};
        const char *end = strptime(text, forms[i], &tm);
        if (end && !*end) {
            *ret_s = timegm(&tm);
            return true;
        }
    }
    return false;
}

/* --- conditions ------------------------------------------------------------------------------ */

/* Takes one entity tag off *at: its quoted part, and whether it is weak. false: there is none. */
static bool tag_next(const char **at, const char **ret, size_t *ret_len, bool *ret_weak)
{
    const char *p = *at + strspn(*at, ", \t"), *end;

    *ret_weak = p[0] == 'W' && p[1] == '/';
    p += *ret_weak ? 2 : 0;
    end = *p == '"' ? strchr(p + 1, '"') : NULL;
    if (!end)
        return false;
    *ret = p;
    *ret_len = (size_t)(end - p) + 1;
    *at = end + 1;
    return true;
}

static bool list_names(const char *list, const char *etag, bool weak_too)
{
    const char *tag;
    size_t len;
    bool weak;

    if (!strcmp(list, "*"))
        return true;
    while (tag_next(&list, &tag, &len, &weak))
        if ((weak_too || !weak) && len == strlen(etag) && !memcmp(tag, etag, len))
            return true;
    return false;
}

static bool modified_since(const char *date, int64_t modified_s, bool otherwise)
{
    int64_t at_s;

    return http_date_parse(date, &at_s) ? modified_s > at_s : otherwise;
}

enum http_verdict http_when(const struct op_when *w, const char *etag, int64_t modified_s,
                            bool reads)
{
    if (*w->if_match) {
        if (!etag || !list_names(w->if_match, etag, false))
            return HTTP_FAILED;
    } else if (*w->if_unmodified_since && etag &&
               modified_since(w->if_unmodified_since, modified_s, false)) {
        return HTTP_FAILED;
    }
    if (*w->if_none_match) {
        if (etag && list_names(w->if_none_match, etag, true))
            return reads ? HTTP_NOT_MODIFIED : HTTP_FAILED;
    } else if (*w->if_modified_since && reads && etag &&
               !modified_since(w->if_modified_since, modified_s, true)) {
        return HTTP_NOT_MODIFIED;
    }
    return HTTP_GO_ON;
}

bool http_if_range(const char *if_range, const char *etag, int64_t modified_s)
{
    int64_t at_s;

    if (!*if_range)
        return true;
    if (strchr(if_range, '"'))
        return etag && !strcmp(if_range, etag);
    return http_date_parse(if_range, &at_s) && at_s == modified_s;
}

/* --- ranges ---------------------------------------------------------------------------------- */

/* Digits; too many of them are a place behind every end. false: none. */
static bool number(const char **at, int64_t *ret)
{
    const char *p = *at;
    int64_t n = 0;

    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p); p++)
        n = n > (INT64_MAX - 9) / 10 ? INT64_MAX : n * 10 + (*p - '0');
    *at = p;
    *ret = n;
    return true;
}

/* "5-9", "5-", "-5". 1: a range in `size` bytes, 0: one of nothing, -1: none at all. */
static int range_next(const char **at, int64_t size, struct http_range *ret)
{
    int64_t first = 0, last = INT64_MAX;
    bool has_first = number(at, &first), has_last;

    if (**at != '-')
        return -1;
    ++*at;
    has_last = number(at, &last);
    if (!has_first && !has_last)
        return -1;
    if (has_first && has_last && last < first)
        return -1;
    if (!has_first) { /* the last so many bytes */
        first = last < size ? size - last : 0;
        if (!last)
            return 0;
        last = INT64_MAX;
    }
    if (first >= size)
        return 0;
    last = last < size ? last : size - 1;
    *ret = (struct http_range){first, last - first + 1};
    return 1;
}

static int by_from(const void *a, const void *b)
{
    const struct http_range *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

/* Overlapping ones cost as many copies of the file as a client likes: they become one. Others stay
 * in the order they were asked in. */
static size_t merge(struct http_range *r, size_t n)
{
    struct http_range sorted[HTTP_RANGES_MAX];
    bool touch = false;
    size_t kept = 0;

    memcpy(sorted, r, n * sizeof *r);
    qsort(sorted, n, sizeof *sorted, by_from);
    for (size_t i = 1; i < n; i++)
        touch |= sorted[i].from <= sorted[i - 1].from + sorted[i - 1].len;
    if (!touch)
        return n;
    for (size_t i = 0; i < n; i++) {
        struct http_range *last = kept ? &r[kept - 1] : NULL;
        int64_t end = sorted[i].from + sorted[i].len;
        if (last && sorted[i].from <= last->from + last->len) {
            if (end > last->from + last->len)
                last->len = end - last->from;
        } else {
            r[kept++] = sorted[i];
        }
    }
    return kept;
}

int http_ranges(const char *text, int64_t size, struct http_range ret[static HTTP_RANGES_MAX])
{
    size_t n = 0, asked = 0;

    if (strncasecmp(text, "bytes=", 6) != 0)
        return 0;
    text += 6;
    for (;;) {
        struct http_range range;
        int rc;
        text += strspn(text, " \t,");
        if (!*text)
            break;
        rc = range_next(&text, size, &range);
        text += strspn(text, " \t");
        if (rc < 0 || (*text && *text != ',') || ++asked > HTTP_RANGES_MAX)
            return 0;
        if (rc)
            ret[n++] = range;
    }
    if (!asked)
        return 0;
    return n ? (int)merge(ret, n) : -1;
}

/* --- names ----------------------------------------------------------------------------------- */

static bool is_attr_char(unsigned char c)
{
    return isalnum(c) || (c && strchr("!#$&+-.^_`|~", c));
}

/* What is not plain is given twice: for old clients in ASCII, and as it is. */
void http_disposition(const char *name, struct buf *out)
{
    bool plain = true;

    buf_add_str(out, "Content-Disposition: attachment; filename=\"");
    for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
        bool safe = *p >= ' ' && *p < 0x7f && *p != '"' && *p != '\\' && *p != '%';
        plain &= safe;
        if (safe)
            buf_add_char(out, (char)*p);
        else if (*p < 0x80 || *p >= 0xc0) /* one for a letter, not for each of its bytes */
            buf_add_char(out, '_');
    }
    buf_add_char(out, '"');
    if (!plain) {
        buf_add_str(out, "; filename*=UTF-8''");
        for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
            if (is_attr_char(*p))
                buf_add_char(out, (char)*p);
            else
                buf_printf(out, "%%%02X", *p);
        }
    }
    buf_add_str(out, "\r\n");
}
