/* Which operation a method and a path name. Any thread. */
#ifndef GATEWAY_ROUTE_H
#define GATEWAY_ROUTE_H

#include "op.h"

#define ROUTE_PARAMS_MAX 4

struct route_param {
    const char *name; /* within the template, not NUL-terminated */
    size_t name_len;
    const char *value; /* within the path: escapes still encoded */
    size_t value_len;
};

struct route {
    const struct op *op;
    struct route_param params[ROUTE_PARAMS_MAX];
    size_t params_n;
    char allow[64]; /* of ERR_METHOD_NOT_ALLOWED: "GET, DELETE" */
};

/* HEAD finds what GET does; the server sends the head of its answer alone.
 * ERR_NOT_FOUND: no such path; ERR_METHOD_NOT_ALLOWED: ret->allow is set (ret filled in that case
 * alone). A trailing slash is another path. */
int route_find(const struct op *table, enum http_method method, const char *path, struct route *ret,
               struct err *e) MUST_CHECK;

const char *http_method_name(enum http_method m);

/* Decodes %XX (and '+' as space if `form`) of exactly len bytes into the arena. Broken escapes, NUL
 * and invalid UTF-8: ERR_MALFORMED_REQUEST. */
int percent_decode(const char *s, size_t len, bool form, struct arena *arena, char **ret,
                   size_t *ret_len, struct err *e) MUST_CHECK;

#endif
