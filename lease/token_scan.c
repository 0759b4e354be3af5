#include "token_scan.h"

#include <string.h>

#define INT_LIMIT ((int64_t)1 << 40)

static void skip_space(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

bool scan_char(struct scan *s, char c)
{
    skip_space(s);
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

bool scan_end(struct scan *s)
{
    skip_space(s);
    return s->at == s->end;
}

bool scan_is_text_char(char c)
{
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
}

bool scan_string(struct scan *s, struct scan_text *ret)
{
    if (!scan_char(s, '"'))
        return false;
    const char *start = s->at;
    while (s->at < s->end && scan_is_text_char(*s->at))
        s->at++;
    if (s->at == s->end || *s->at != '"')
        return false;
    *ret = (struct scan_text){start, (size_t)(s->at - start)};
    s->at++;
    return true;
}

/* A fraction or an exponent is left unread: no caller takes one as the next character. */
bool scan_int(struct scan *s, int64_t *ret)
{
    int64_t v = 0;

    skip_space(s);
    const char *start = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') {
        v = v * 10 + (*s->at - '0');
        if (v >= INT_LIMIT)
            return false;
        s->at++;
    }
    if (s->at == start || (*start == '0' && s->at - start > 1))
        return false;
    *ret = v;
    return true;
}

bool scan_text_is(const struct scan_text *t, const char *s)
{
    return strlen(s) == t->len && memcmp(t->s, s, t->len) == 0;
}

static bool scan_member(struct scan *s, const struct scan_member *members, size_t n, void *obj,
                        uint32_t *seen)
{
    struct scan_text name;
    size_t i = 0;

    if (!scan_string(s, &name))
        return false;
    while (i < n && !scan_text_is(&name, members[i].name))
        i++;
    if (i == n || (*seen >> i & 1) != 0 || !scan_char(s, ':'))
        return false;
    *seen |= UINT32_C(1) << i;
    return members[i].read(s, (char *)obj + members[i].offset);
}

bool scan_object(struct scan *s, const struct scan_member *members, size_t n, void *obj)
{
    uint32_t seen = 0;

    if (!scan_char(s, '{'))
        return false;
    if (!scan_char(s, '}')) {
        do {
            if (!scan_member(s, members, n, obj, &seen))
                return false;
        } while (scan_char(s, ','));
        if (!scan_char(s, '}'))
            return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!members[i].optional && (seen >> i & 1) == 0)
            return false;
    return true;
}
