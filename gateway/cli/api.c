#include "api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/http_client.h"

#include "output.h"

#define API_ROOT          "/api/v1"
#define PROBLEM_ARENA_CAP (1024UL * 1024)
#define API_ROOT_LEN      (sizeof(API_ROOT) - 1)
#define HEADERS_MAX       8
#define STALL_MS          300000L

struct api {
    const struct api_access *access;
    struct http_client *http;
};

static int check_url(const char *url, struct err *e)
{
    bool known = strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
    if (!known || strchr(url, '@') != NULL || strpbrk(url, " ?#\r\n") != NULL) {
        return err_set(e, ERR_INVALID_REQUEST, "the URL must be http:// or https:// and a host");
    }
    return 0;
}

int api_access_init(struct api_access *ret, const char *url, const char *key, const char *ca_file,
                    struct err *e)
{
    *ret = (struct api_access){.ca_file = ca_file};
    if (check_url(url, e) < 0) {
        return -1;
    }
    size_t len = strlen(url);
    while (len > 0 && url[len - 1] == '/') {
        len--;
    }
    if (len > API_ROOT_LEN && memcmp(url + len - API_ROOT_LEN, API_ROOT, API_ROOT_LEN) == 0) {
        len -= API_ROOT_LEN;
    }
    if (asprintf(&ret->base_url, "%.*s" API_ROOT, (int)len, url) < 0) {
        ret->base_url = NULL;
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    if (key != NULL) {
        snprintf(ret->authorization, sizeof(ret->authorization), "Authorization: Bearer %s", key);
    }
    return 0;
}

void api_access_done(struct api_access *access)
{
    free(access->base_url);
    explicit_bzero(access, sizeof(*access));
}

void api_access_key_id(const struct api_access *access, char ret[static ID_TEXT])
{
    const char *from = strchr(access->authorization, '_');
    const char *end = from != NULL ? strchr(from + 1, '_') : NULL;
    struct id id;
    ret[0] = '\0';
    if (end != NULL && id_parse(from + 1, (size_t)(end - from - 1), &id)) {
        id_format(&id, ret);
    }
}

struct api *api_new(const struct api_access *access)
{
    struct api *api = calloc(1, sizeof(*api));
    if (api == NULL) {
        return NULL;
    }
    api->access = access;
    api->http = http_client_new();
    if (api->http == NULL) {
        free(api);
        return NULL;
    }
    return api;
}

void api_free(struct api *api)
{
    if (api != NULL) {
        http_client_free(api->http);
        free(api);
    }
}

void api_answer_init(struct api_answer *a)
{
    *a = (struct api_answer){0};
    buf_init(&a->body, API_ANSWER_MAX);
}

void api_answer_done(struct api_answer *a)
{
    if (a->body.data != NULL) {
        explicit_bzero(a->body.data, a->body.size);
    }
    buf_done(&a->body);
}

static int run(struct api *api, const struct http_client_request *req, struct api_answer *ret,
               struct err *e)
{
    struct http_client_response res = {0};
    buf_init(&res.body, API_ANSWER_MAX);
    struct err why;
    if (http_client_run(api->http, req, &res, &why) < 0) {
        buf_done(&res.body);
        return err_set(e, why.code, "%.60s: %.95s", api->access->base_url, why.msg);
    }
    api_answer_done(ret);
    ret->status = res.status;
    ret->body = res.body;
    memcpy(ret->request_id, res.request_id, sizeof(ret->request_id));
    return 0;
}

int api_call(struct api *api, const char *method, const char *path, const struct buf *body,
             long timeout_ms, struct api_answer *ret, struct err *e)
{
    char *url = NULL;
    if (asprintf(&url, "%s%s", api->access->base_url, path) < 0) {
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    const char *headers[5] = {"Accept: application/json"};
    size_t n = 1;
    if (api->access->authorization[0] != '\0') {
        headers[n++] = api->access->authorization;
    }
    if (api->access->idempotency[0] != '\0' && strcmp(method, "POST") == 0) {
        headers[n++] = api->access->idempotency;
    }
    if (body != NULL) {
        headers[n++] = "Content-Type: application/json";
    }
    struct http_client_request req = {
        .method = method,
        .url = url,
        .headers = headers,
        .body = body != NULL ? body->data : NULL,
        .body_len = body != NULL ? body->len : 0,
        .ca_file = api->access->ca_file,
        .timeout_ms = timeout_ms,
    };
    int rc = run(api, &req, ret, e);
    free(url);
    return rc;
}

static enum http_client_body fetch_head(void *ctx, long status)
{
    (void)ctx;
    return status >= 200 && status < 300 ? HTTP_CLIENT_STREAM : HTTP_CLIENT_COLLECT;
}

static bool fetch_data(void *ctx, const char *data, size_t len)
{
    const struct api_sink *sink = ctx;
    return sink->data(sink->ctx, data, len);
}

/* Those of every call, then further ones. */
static void headers_of(const struct api *api, const char *const *more,
                       const char *ret[static HEADERS_MAX + 1])
{
    size_t n = 0;
    if (api->access->authorization[0] != '\0') {
        ret[n++] = api->access->authorization;
    }
    for (; more != NULL && *more != NULL && n < HEADERS_MAX; more++) {
        ret[n++] = *more;
    }
    ret[n] = NULL;
}

static int transfer(struct api *api, const struct api_transfer *t, long stall_ms,
                    struct api_answer *ret, struct err *e)
{
    struct http_client_sink taken = {
        .ctx = (void *)(uintptr_t)t->sink, .head = fetch_head, .data = fetch_data};
    const char *headers[HEADERS_MAX + 1];
    char *url = NULL;
    if (asprintf(&url, "%s%s", api->access->base_url, t->path) < 0) {
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    headers_of(api, t->headers, headers);
    struct http_client_request req = {
        .method = t->method,
        .url = url,
        .headers = headers,
        .source = t->source,
        .sink = t->sink != NULL ? &taken : NULL,
        .ca_file = api->access->ca_file,
        .timeout_ms = HTTP_CLIENT_NO_DEADLINE,
        .stall_timeout_ms = stall_ms,
        .expect_continue = t->source != NULL,
    };
    int rc = run(api, &req, ret, e);
    free(url);
    return rc;
}

int api_fetch(struct api *api, const char *path, const struct api_sink *sink,
              struct api_answer *ret, struct err *e)
{
    struct api_transfer t = {.method = "GET", .path = path, .sink = sink};
    return transfer(api, &t, 0, ret, e);
}

int api_transfer(struct api *api, const struct api_transfer *t, struct api_answer *ret,
                 struct err *e)
{
    return transfer(api, t, STALL_MS, ret, e);
}

const char *api_header(const struct api *api, const char *name)
{
    return http_client_header(api->http, name);
}

bool api_answer_ok(const struct api_answer *a)
{
    return a->status >= 200 && a->status < 300;
}

int api_answer_foreign(struct err *e, const char *why)
{
    return err_set(e, ERR_INTERNAL, "the answer is not one of a leasehold gateway: %s", why);
}

int api_answer_read(const struct api_answer *a, const struct field *fields, void *ret,
                    struct arena *arena, struct err *e)
{
    struct err bad;
    if (a->body.len == 0) {
        return api_answer_foreign(e, "it is empty");
    }
    if (json_decode_lenient(a->body.data, a->body.len, fields, ret, arena, &bad) < 0) {
        return api_answer_foreign(e, bad.msg);
    }
    return 0;
}

static const struct field problem_at_fields[] = {
    FIELD_STR(struct api_problem_at, pointer, .max = 1024),
    {0},
};

static const struct field problem_fields[] = {
    FIELD_STR(struct api_problem, code, .max = 128),
    FIELD_STR(struct api_problem, title, .max = 1024),
    FIELD_STR(struct api_problem, detail, .max = 65536),
    FIELD_STR(struct api_problem, request_id, .max = 256),
    FIELD_OBJLIST(struct api_problem, errors, problem_at_fields, struct api_problem_at),
    {0},
};

void api_problem_read(const struct api_answer *a, struct arena *arena, struct api_problem *ret)
{
    struct err e;
    *ret = (struct api_problem){0};
    if (json_decode_lenient(a->body.data, a->body.len, problem_fields, ret, arena, &e) < 0 ||
        ret->code == NULL || ret->code[0] == '\0') {
        *ret = (struct api_problem){.title = "the answer is not one of a leasehold gateway"};
    }
    ret->status = a->status;
    if (ret->request_id == NULL && a->request_id[0] != '\0') {
        ret->request_id = arena_strndup(arena, a->request_id, strlen(a->request_id));
    }
}

static void print_part(const char *before, const char *s, const char *after)
{
    if (s != NULL && s[0] != '\0') {
        fputs(before, stderr);
        output_text(s, strlen(s), stderr);
        fputs(after, stderr);
    }
}

void api_problem_print(const struct api_problem *p)
{
    fputs("leasectl: ", stderr);
    if (p->code != NULL) {
        output_text(p->code, strlen(p->code), stderr);
    } else {
        fprintf(stderr, "HTTP %ld", p->status);
    }
    print_part(": ", p->title, "");
    /* /create answers the code again as detail, for older clients. */
    if (p->detail != NULL && (p->code == NULL || strcmp(p->detail, p->code) != 0)) {
        print_part(": ", p->detail, "");
    }
    const struct api_problem_at *at = p->errors.items;
    for (size_t i = 0; i < p->errors.n; i++) {
        print_part(i == 0 ? ", at " : " and ", at[i].pointer, "");
    }
    print_part(" (request id ", p->request_id, ")");
    fputc('\n', stderr);
}

int api_exit_code(long status)
{
    if (status >= 200 && status < 300) {
        return EXIT_OK;
    }
    switch (status) {
    case 404:
        return EXIT_NOT_FOUND;
    case 401:
    case 403:
        return EXIT_DENIED;
    default:
        return EXIT_FAILED;
    }
}

int api_refused(const struct api_answer *a)
{
    struct arena *arena = arena_new(PROBLEM_ARENA_CAP);
    struct api_problem p;
    if (arena == NULL) {
        return EXIT_FAILED;
    }
    api_problem_read(a, arena, &p);
    api_problem_print(&p);
    arena_free(arena);
    return api_exit_code(a->status);
}

int api_exit_code_of_err(const struct err *e)
{
    switch (e->code) {
    case ERR_ENGINE_UNAVAILABLE:
        return EXIT_UNREACHABLE;
    case ERR_INVALID_REQUEST:
        return EXIT_USAGE;
    case ERR_NOT_FOUND:
        return EXIT_NOT_FOUND;
    default:
        return EXIT_FAILED;
    }
}
