#include "s3_xml.h"

#include <stdlib.h>
#include <string.h>

/* Behind `at`, or NULL. */
static const char *find(const char *at, const char *end, char c)
{
    return at < end ? memchr(at, c, (size_t)(end - at)) : NULL;
}

/* Is the tag that starts at `at` (behind "<" or "</") of this name, whatever its prefix? */
static bool is_named(const char *at, const char *close, const char *name)
{
    size_t len = strlen(name), n = 0;
    while (at + n < close && memchr(" \t\r\n/", at[n], 5) == NULL) {
        n++;
    }
    const char *colon = memchr(at, ':', n);
    if (colon != NULL) {
        n -= (size_t)(colon + 1 - at);
        at = colon + 1;
    }
    return n == len && memcmp(at, name, len) == 0;
}

/* The next tag of this name from *at on; *at goes behind it. NULL: none. */
static const char *next_tag(const char **at, const char *end, const char *name, bool is_end)
{
    for (const char *open; (open = find(*at, end, '<')) != NULL;) {
        const char *close = find(open, end, '>');
        if (close == NULL) {
            return NULL;
        }
        *at = close + 1;
        bool ends = open + 1 < close && open[1] == '/';
        if (ends == is_end && is_named(open + 1 + ends, close, name)) {
            return open;
        }
    }
    return NULL;
}

bool s3_xml_next(struct s3_slice *in, const char *name, struct s3_slice *ret)
{
    const char *at = in->at, *end = in->at + in->len;
    if (next_tag(&at, end, name, false) == NULL) {
        return false;
    }
    const char *content = at;
    size_t len = 0;
    if (content[-2] != '/') { /* <name/> has no end tag */
        const char *close = next_tag(&at, end, name, true);
        if (close == NULL) {
            return false;
        }
        len = (size_t)(close - content);
    }
    *ret = (struct s3_slice){content, len};
    *in = (struct s3_slice){at, (size_t)(end - at)};
    return true;
}

/* One byte for an entity's name; S3 writes others as they are. -1: unknown. */
static int entity(const char *name, size_t len)
{
    static const struct {
        const char *name;
        char c;
    } known[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strlen(known[i].name) == len && memcmp(known[i].name, name, len) == 0) {
            return known[i].c;
        }
    }
    if (len >= 2 && len < 8 && name[0] == '#') {
        bool hex = name[1] == 'x';
        long c = strtol(name + 1 + hex, NULL, hex ? 16 : 10);
        return c > 0 && c < 128 ? (int)c : -1;
    }
    return -1;
}

bool s3_xml_text(struct s3_slice in, const char *name, char *ret, size_t size)
{
    struct s3_slice text;
    size_t n = 0;
    ret[0] = '\0';
    if (!s3_xml_next(&in, name, &text)) {
        return false;
    }
    for (size_t i = 0; i < text.len; n++) {
        const char *end = text.at[i] == '&' ? find(text.at + i, text.at + text.len, ';') : NULL;
        int c = end != NULL ? entity(text.at + i + 1, (size_t)(end - text.at) - i - 1)
                            : (unsigned char)text.at[i];
        if (n + 1 >= size || c <= 0) {
            ret[0] = '\0';
            return false;
        }
        ret[n] = (char)c;
        i = end != NULL ? (size_t)(end - text.at) + 1 : i + 1;
    }
    ret[n] = '\0';
    return true;
}
