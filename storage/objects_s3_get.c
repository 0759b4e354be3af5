/* Reading an object: what breaks off goes on where it broke, of the same object only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects_s3.h"

#define RESUMES_MAX 8 /* without a byte between them */

struct getting {
    struct objects_s3 *s;
    const struct object_get *g;
    struct s3_call call;
    struct object_info info;
    char etag[S3_ETAG_TEXT];
    int64_t at, end; /* of the object; end -1: not known yet */
    bool told;       /* head was called */
    bool begun;      /* this try has brought bytes */
    bool failed;     /* by the caller's functions, or by what the store says of the object: *e */
    struct err e;
};

static int refuse(struct getting *x, enum err_code code, const char *text)
{
    x->failed = true;
    return err_set(&x->e, code, "%s", text);
}

/* "bytes 5-9/100": the whole's size. */
static int64_t total_of(const struct http_client *client, long status)
{
    const char *range = http_client_header(client, "Content-Range");
    const char *length = http_client_header(client, "Content-Length");
    const char *slash = range != NULL ? strchr(range, '/') : NULL;
    if (status == 206) {
        return slash != NULL ? strtoll(slash + 1, NULL, 10) : -1;
    }
    return length != NULL ? strtoll(length, NULL, 10) : -1;
}

static int read_head(struct getting *x, long status)
{
    const struct object_get *g = x->g;
    const char *etag = http_client_header(x->call.client, "ETag");
    const char *token = http_client_header(x->call.client, S3_TOKEN_HEADER);
    int64_t size = total_of(x->call.client, status);
    if (size < 0 || (x->told && size != x->info.size_bytes)) {
        return refuse(x, ERR_OBJECT_STORE_UNAVAILABLE,
                      "the object store tells no size, or another");
    }
    if (x->told) {
        return 0;
    }
    x->info.size_bytes = size;
    snprintf(x->info.token, sizeof(x->info.token), "%s", token != NULL ? token : "");
    snprintf(x->etag, sizeof(x->etag), "%s", etag != NULL ? etag : "");
    x->end = g->len >= 0 && g->len < size - g->offset ? g->offset + g->len : size;
    x->told = true;
    if (g->head != NULL && g->head(g->ctx, &x->info, &x->e) != 0) {
        x->failed = true;
        return -1;
    }
    return 0;
}

static enum http_client_body on_head(void *ctx, long status)
{
    struct getting *x = ctx;
    if (status != 200 && status != 206) {
        return HTTP_CLIENT_COLLECT;
    }
    if (status == 200 && x->at > 0) {
        (void)refuse(x, ERR_OBJECT_STORE_UNAVAILABLE, "the object store knows no ranges");
        return HTTP_CLIENT_STOP;
    }
    return read_head(x, status) == 0 ? HTTP_CLIENT_STREAM : HTTP_CLIENT_STOP;
}

static bool on_data(void *ctx, const char *data, size_t len)
{
    struct getting *x = ctx;
    size_t left = (size_t)(x->end - x->at), n = len < left ? len : left;
    x->begun = true;
    if (n > 0 && x->g->write(x->g->ctx, data, n, &x->e) != 0) {
        x->failed = true;
        return false;
    }
    x->at += (int64_t)n;
    return n == len; /* more than was asked for: no need to read it */
}

/* One request for what is left. */
static int get_rest(struct getting *x, struct s3_answer *a, struct err *e)
{
    char range[64], match[S3_ETAG_TEXT + 16];
    const char *plain[3] = {NULL};
    size_t n = 0;
    const struct http_client_sink sink = {.ctx = x, .head = on_head, .data = on_data};
    if (x->at > 0 || x->g->len >= 0) {
        int64_t end = x->end >= 0 ? x->end : x->g->len >= 0 ? x->at + x->g->len : -1;
        snprintf(range, sizeof(range), end >= 0 ? "Range: bytes=%lld-%lld" : "Range: bytes=%lld-",
                 (long long)x->at, (long long)end - 1);
        plain[n++] = range;
    }
    if (x->etag[0] != '\0') {
        snprintf(match, sizeof(match), "If-Match: %s", x->etag);
        plain[n++] = match;
    }
    x->begun = false;
    x->call = (struct s3_call){
        .method = "GET", .key = x->g->key, .plain = plain, .sink = &sink, .begun = &x->begun};
    int rc = s3_call_run(x->s, &x->call, a, e);
    if (rc == 0 && !x->failed && a->status != 200 && a->status != 206) {
        return s3_call_refused(a, "a GET", e);
    }
    return rc;
}

static bool is_whole(const struct getting *x)
{
    return x->told && x->at >= x->end;
}

/* A range of nothing, or of an empty object, is not one to S3: HEAD has the size. */
static int get_nothing(struct getting *x, struct err *e)
{
    const struct object_get *g = x->g;
    if (s3_head(&x->s->base, g->key, &x->info, e) != 0) {
        return -1;
    }
    if (g->offset > x->info.size_bytes || (g->offset > 0 && g->offset == x->info.size_bytes)) {
        return err_set(e, ERR_RANGE_NOT_SATISFIABLE, "the object has %lld bytes",
                       (long long)x->info.size_bytes);
    }
    return g->head != NULL ? g->head(g->ctx, &x->info, e) : 0;
}

int s3_get(struct objects *o, const struct object_get *g, struct err *e)
{
    struct getting x = {.s = objects_s3_of(o), .g = g, .at = g->offset, .end = -1};
    struct s3_answer a;
    int rc = -1;
    if (g->len == 0) {
        return get_nothing(&x, e);
    }
    s3_answer_init(&a);
    for (unsigned stuck = 0; stuck < RESUMES_MAX; stuck++) {
        int64_t before = x.at;
        rc = get_rest(&x, &a, e);
        if (x.failed) {
            *e = x.e;
            rc = -1;
        }
        bool broke = rc == 0 || (e->code == ERR_OBJECT_STORE_UNAVAILABLE && x.begun);
        if (is_whole(&x) || x.failed || !broke) {
            break;
        }
        stuck = x.at > before ? 0 : stuck;
        rc = err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "the object store breaks off");
    }
    s3_answer_done(&a);
    return is_whole(&x) && !x.failed ? 0 : rc;
}
