/*
 * The router and percent escapes on hostile bytes: the first byte is the method, the rest a path.
 * Held against each input: a parameter is a whole, non-empty segment of the path; "%2f" separates
 * nothing; decoded text is UTF-8 without NUL and no longer than what was sent; a path that is known
 * for another method says for which.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../gateway/route.h"
#include "leasehold/json.h"

#define ARENA_CAP (1024u * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static size_t slashes(const char *s)
{
    size_t n = 0;
    for (; *s != '\0'; s++) {
        n += *s == '/';
    }
    return n;
}

static void try_decode(const char *s, size_t len, bool form, struct arena *arena)
{
    char *text;
    size_t n;
    struct err e;
    if (percent_decode(s, len, form, arena, &text, &n, &e) != 0) {
        require(e.code == ERR_MALFORMED_REQUEST);
        return;
    }
    require(n <= len && strlen(text) == n && utf8_valid(text, n));
}

static void require_param(const struct route_param *p, const char *path)
{
    require(p->value > path && p->value[-1] == '/' && p->value_len > 0);
    require(memchr(p->value, '/', p->value_len) == NULL);
    require(p->value[p->value_len] == '/' || p->value[p->value_len] == '\0');
    require(p->name_len > 0 && memchr(p->name, '}', p->name_len) == NULL);
}

static void try_route(enum http_method method, const char *path, struct arena *arena)
{
    struct route r = {0};
    struct err e;
    if (route_find(ops_table, method, path, &r, &e) != 0) {
        require(e.code == ERR_NOT_FOUND || e.code == ERR_METHOD_NOT_ALLOWED);
        require((e.code == ERR_METHOD_NOT_ALLOWED) == (r.allow[0] != '\0'));
        return;
    }
    require(r.op->method == method || (method == HTTP_HEAD && r.op->method == HTTP_GET));
    require(slashes(r.op->path) == slashes(path));
    require(r.params_n <= ROUTE_PARAMS_MAX);
    for (size_t i = 0; i < r.params_n; i++) {
        require_param(&r.params[i], path);
        try_decode(r.params[i].value, r.params[i].value_len, false, arena);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    struct arena *arena = arena_new(ARENA_CAP);
    char *path = malloc(size);
    if (arena != NULL && path != NULL) {
        memcpy(path, data + 1, size - 1);
        path[size - 1] = '\0';
        try_decode(path, size - 1, false, arena);
        try_decode(path, size - 1, true, arena);
        try_route((enum http_method)(data[0] % (HTTP_OTHER + 1)), path, arena);
    }
    free(path);
    arena_free(arena);
    return 0;
}
