#include "route.h"

#include <stdio.h>
#include <string.h>

#include "leasehold/json.h"

const char *http_method_name(enum http_method m)
{
    static const char *const names[] = {"GET",   "HEAD",   "POST",    "PUT",
                                        "PATCH", "DELETE", "OPTIONS", "OTHER"};
    return names[m];
}

static bool take_param(const char **template, const char **path, struct route *r)
{
    size_t value_n = strcspn(*path, "/"), name_n = strcspn(*template, "}");

    if (!value_n || r->params_n == ROUTE_PARAMS_MAX)
        return false;
    r->params[r->params_n++] = (struct route_param){*template + 1, name_n - 1, *path, value_n};
    *template += name_n + 1;
    *path += value_n;
    return true;
}

/* Matches one path against one template, of which most differ within a few characters; fills the
 * parameters. */
static bool match(const char *template, const char *path, struct route *r)
{
    r->params_n = 0;
    while (*template) {
        if (*template == '{') {
            if (!take_param(&template, &path, r))
                return false;
        } else if (*template ++ != *path++) {
            return false;
        }
    }
    return !*path;
}

int route_find(const struct op *table, enum http_method method, const char *path, struct route *ret,
               struct err *e)
{
    struct route r = {0};
    size_t allow_len = 0;

    for (const struct op *op = table; op->name; op++) {
        if (!op->path || !match(op->path, path, &r))
            continue;
        if (op->method == method || (method == HTTP_HEAD && op->method == HTTP_GET)) {
            r.op = op;
            *ret = r;
            return 0;
        }
        if (allow_len < sizeof r.allow)
            allow_len += (size_t)snprintf(r.allow + allow_len, sizeof r.allow - allow_len, "%s%s%s",
                                          allow_len ? ", " : "", http_method_name(op->method),
                                          op->method == HTTP_GET ? ", HEAD" : "");
    }
    if (!allow_len)
        return err_set(e, ERR_NOT_FOUND, "there is no such path");
    memcpy(ret->allow, r.allow, sizeof ret->allow);
    return err_set(e, ERR_METHOD_NOT_ALLOWED, "the path takes %s", r.allow);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int percent_decode(const char *s, size_t len, bool form, struct arena *arena, char **ret,
                   size_t *ret_len, struct err *e)
{
    char *out = arena_alloc(arena, len + 1);
    size_t n = 0;

    if (!out)
        return err_set(e, ERR_INTERNAL, "no memory for the request");
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        if (c == '%') {
            int hi = len - i > 2 ? hex_digit(s[i + 1]) : -1;
            int lo = len - i > 2 ? hex_digit(s[i + 2]) : -1;
            if (hi < 0 || lo < 0)
                return err_set(e, ERR_MALFORMED_REQUEST, "a percent escape is broken");
            c = (char)(hi << 4 | lo);
            i += 2;
        } else if (form && c == '+') {
            c = ' ';
        }
        if (!c)
            return err_set(e, ERR_MALFORMED_REQUEST, "a NUL byte is not allowed");
        out[n++] = c;
    }
    if (!utf8_valid(out, n))
        return err_set(e, ERR_MALFORMED_REQUEST, "the path or query is not UTF-8");
    out[n] = '\0';
    *ret = out;
    *ret_len = n;
    return 0;
}
