/*
 * One request with all its tries: after failures that pass (full jitter, Retry-After), with the
 * store's own clock after it has refused ours, and signed anew for where it sends us.
 */
#include <errno.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "objects_s3_wire.h"

#define ANSWER_MAX      (1024u * 1024)
#define BACKOFF_MAX_MS  10000
#define RETRY_AFTER_MAX 20 /* s; some say 120 and mean it for nobody in particular */
#define REDIRECTS_MAX   3
#define SKEW_MIN_S      300 /* of an answer that does not say why it refuses (HEAD has no body) */
#define NAP_MS          100

void s3_answer_init(struct s3_answer *a)
{
    *a = (struct s3_answer){0};
    buf_init(&a->body, ANSWER_MAX);
}

void s3_answer_done(struct s3_answer *a)
{
    buf_done(&a->body);
}

struct s3_slice s3_answer_slice(const struct s3_answer *a)
{
    return (struct s3_slice){a->body.data != NULL ? a->body.data : "", a->body.len};
}

void s3_path(const struct objects_s3 *s, const char *key, struct buf *ret)
{
    buf_add_char(ret, '/');
    if (s->o.path_style) {
        buf_add_str(ret, s->o.bucket);
    }
    if (key != NULL) {
        buf_printf(ret, "%s%s", s->o.path_style ? "/" : "", key);
    }
}

/* --- clients ---------------------------------------------------------------------------------- */

static struct http_client *client_take(struct objects_s3 *s)
{
    struct http_client *c = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->idle_n > 0) {
        c = s->idle[--s->idle_n];
    }
    pthread_mutex_unlock(&s->lock);
    return c != NULL ? c : http_client_new();
}

static void client_give(struct objects_s3 *s, struct http_client *c)
{
    pthread_mutex_lock(&s->lock);
    if (s->idle_n < S3_CLIENTS_KEPT) {
        s->idle[s->idle_n++] = c;
        c = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    http_client_free(c);
}

/* --- pauses ----------------------------------------------------------------------------------- */

static int64_t jitter(int64_t below)
{
    uint64_t random = 0;
    if (RAND_bytes((unsigned char *)&random, sizeof(random)) != 1) {
        return below;
    }
    return below > 0 ? (int64_t)(random % (uint64_t)below) : 0;
}

int s3_pause(const struct objects_s3 *s, unsigned tries, int64_t least_ms,
             const atomic_bool *cancel, struct err *e)
{
    int64_t most = s->o.backoff_ms;
    while (tries-- > 1 && most < BACKOFF_MAX_MS) {
        most *= 2;
    }
    int64_t left = jitter(most < BACKOFF_MAX_MS ? most : BACKOFF_MAX_MS) + least_ms;
    for (; left > 0 && !s3_is_cancelled(cancel); left -= NAP_MS) {
        int64_t nap = left < NAP_MS ? left : NAP_MS;
        nanosleep(&(struct timespec){.tv_nsec = nap * 1000000}, NULL);
    }
    return s3_is_cancelled(cancel) ? err_set(e, ERR_BUSY, "the upload was cancelled") : 0;
}

/* --- what an answer asks for ------------------------------------------------------------------- */

enum verdict { DONE, AGAIN, AGAIN_AT_ONCE };

static bool passes(const struct s3_answer *a)
{
    return a->status == 429 || a->status == 500 || (a->status >= 502 && a->status <= 504) ||
           (a->status == 400 && strcmp(a->code, "RequestTimeout") == 0);
}

static bool is_skewed(const struct objects_s3 *s, const struct s3_answer *a,
                      const struct s3_reply *r)
{
    int64_t off = r->date_s - (int64_t)time(NULL) - atomic_load(&s->skew_s);
    return a->status == 403 && r->date_s > 0 &&
           (strcmp(a->code, "RequestTimeTooSkewed") == 0 ||
            (a->body.len == 0 && llabs(off) > SKEW_MIN_S));
}

/* "%2F" in a Location is that; it is signed and sent as it was meant. */
static void decode_path(const char *at, size_t len, struct buf *ret)
{
    for (size_t i = 0; i < len; i++) {
        unsigned c;
        if (at[i] == '%' && i + 2 < len && sscanf(at + i + 1, "%2x", &c) == 1 && c != 0) {
            buf_add_char(ret, (char)c);
            i += 2;
        } else {
            buf_add_char(ret, at[i]);
        }
    }
}

/* By Location, or by the host that the body names. Never from TLS to plain text. */
static bool follow(const struct s3_answer *a, const struct s3_reply *r, struct s3_target *t)
{
    struct s3_endpoint next;
    char host[256], url[sizeof(host) + 16];
    struct err e;
    const char *location = r->location;
    if (location[0] == '\0') {
        if (!s3_xml_text(s3_answer_slice(a), "Endpoint", host, sizeof(host))) {
            return false;
        }
        snprintf(url, sizeof(url), "%s://%s", t->endpoint.scheme, host);
        return s3_endpoint_parse(url, NULL, &t->endpoint, &e) == 0;
    }
    const char *authority = strstr(location, "://");
    size_t path = authority != NULL ? strcspn(authority + 3, "/?") : 0;
    char *origin =
        authority != NULL ? strndup(location, (size_t)(authority + 3 - location) + path) : NULL;
    bool ok = origin != NULL && s3_endpoint_parse(origin, NULL, &next, &e) == 0 &&
              (strcmp(next.scheme, "https") == 0 || strcmp(t->endpoint.scheme, "http") == 0);
    if (ok) {
        const char *at = authority + 3 + path;
        t->endpoint = next;
        buf_reset(&t->path);
        decode_path(at, strcspn(at, "?"), &t->path);
        ok = buf_ok(&t->path) && t->path.len > 0;
    }
    free(origin);
    return ok;
}

struct tries {
    unsigned n, redirects;
    bool skewed, fresh;
    struct s3_target target;
};

static enum verdict judge(struct objects_s3 *s, struct tries *t, const struct s3_answer *a,
                          const struct s3_reply *r)
{
    bool moved = a->status == 301 || a->status == 307 || a->status == 308;
    if (moved && t->redirects < REDIRECTS_MAX && follow(a, r, &t->target)) {
        t->redirects++;
        return AGAIN_AT_ONCE;
    }
    if (!t->skewed && is_skewed(s, a, r)) {
        t->skewed = true;
        atomic_store(&s->skew_s, r->date_s - (int64_t)time(NULL));
        return AGAIN_AT_ONCE;
    }
    return passes(a) ? AGAIN : DONE;
}

/* --- the tries -------------------------------------------------------------------------------- */

static void tell(const struct objects_s3 *s, const struct s3_call *c, const struct s3_answer *a,
                 unsigned n)
{
    if (s->o.log != NULL) {
        log_event(s->o.log, LOG_WARNING, "object_store_retry", LF_STR("method", c->method),
                  LF_INT("status", a->status), LF_STR("code", a->code), LF_INT("try", n));
    }
}

static int give_up(const struct s3_answer *a, const struct err *last, struct err *e)
{
    return a->status == 0 ? err_set(e, ERR_OBJECT_STORE_UNAVAILABLE,
                                    "the object store does not answer: %s", last->msg)
                          : err_set(e, ERR_OBJECT_STORE_UNAVAILABLE,
                                    "the object store answers %ld %s", a->status, a->code);
}

/* Not an answer, one that is too long, or a place to go to that is none. */
static bool is_the_stores(const struct tries *t, enum err_code code)
{
    return code == ERR_ENGINE_UNAVAILABLE || code == ERR_TOO_LARGE ||
           (code == ERR_INVALID_REQUEST && t->redirects > 0);
}

/* One try. 1: done, 0: once more, -1. */
static int once(struct objects_s3 *s, struct s3_call *c, struct tries *t, struct s3_answer *ret,
                struct err *e)
{
    struct s3_reply reply;
    struct err failed = {0};
    enum verdict v = AGAIN;
    buf_reset(&ret->body);
    if (s3_exchange(s, c, &t->target, t->fresh, ret, &reply, &failed) == 0) {
        v = judge(s, t, ret, &reply);
    } else if (is_the_stores(t, failed.code)) {
        ret->status = 0;
    } else {
        *e = failed;
        return -1;
    }
    if (v == DONE) {
        return 1;
    }
    t->fresh = v == AGAIN; /* what answers so may do so for as long as the connection lives */
    if (v == AGAIN &&
        (++t->n >= (c->tries > 0 ? c->tries : s->o.tries) || (c->begun != NULL && *c->begun))) {
        return give_up(ret, &failed, e);
    }
    tell(s, c, ret, t->n);
    int64_t after = reply.retry_after_s < RETRY_AFTER_MAX ? reply.retry_after_s : RETRY_AFTER_MAX;
    return v == AGAIN ? s3_pause(s, t->n, after * 1000, c->cancel, e) : 0;
}

int s3_call_run(struct objects_s3 *s, struct s3_call *c, struct s3_answer *ret, struct err *e)
{
    struct tries t = {.target.endpoint = s->endpoint};
    int rc = 0;
    c->cancel = c->cancel != NULL ? c->cancel : &s->stopped;
    c->client = client_take(s);
    if (c->client == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for a request");
    }
    buf_init(&t.target.path, OBJECT_KEY_MAX + 512);
    s3_path(s, c->key, &t.target.path);
    if (!buf_ok(&t.target.path)) {
        rc = err_set(e, ERR_INVALID_REQUEST, "a key has 1 to %d bytes", OBJECT_KEY_MAX);
    }
    while (rc == 0) {
        rc = once(s, c, &t, ret, e);
    }
    buf_done(&t.target.path);
    client_give(s, c->client);
    c->client = NULL;
    return rc < 0 ? -1 : 0;
}

static int refused(const struct s3_answer *a, const char *what, struct err *e)
{
    return err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "the object store answers %ld %s to %s",
                   a->status, a->code, what);
}

int s3_call_refused(const struct s3_answer *a, const char *what, struct err *e)
{
    if (a->status == 404 && strcmp(a->code, "NoSuchBucket") != 0) {
        return err_set(e, ERR_NOT_FOUND, "there is no such object");
    }
    if (a->status == 416) {
        return err_set(e, ERR_RANGE_NOT_SATISFIABLE, "the object is shorter");
    }
    if (a->status == 507 || strcmp(a->code, "QuotaExceeded") == 0) {
        return err_set(e, ERR_STORAGE_FULL, "the object store is full");
    }
    if (strcmp(a->code, "KeyTooLongError") == 0 || strcmp(a->code, "InvalidObjectName") == 0) {
        return err_set(e, ERR_INVALID_REQUEST, "a key has 1 to %d bytes", OBJECT_KEY_MAX);
    }
    return refused(a, what, e);
}

int s3_put_refused(const struct s3_answer *a, const char *what, struct err *e)
{
    return a->status == 404 ? refused(a, what, e) : s3_call_refused(a, what, e);
}
