#include "s3_sign.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hex.h"
#include "s3_canonical.h"

#define ALGORITHM    "AWS4-HMAC-SHA256"
#define TERMINATOR   "aws4_request"
#define TEXT_MAX     (256u * 1024)
#define ARENA_MAX    (1024u * 1024)
#define OWN_QUERY_N  6 /* of a presigned URL */
#define OWN_HEADER_N 2

struct s3_signer {
    char *token, *region, *service; /* constant */
    pthread_rwlock_t in_use;        /* a signature is made with one pair of credentials */
    char *key_id, *secret;          /* in_use */
    pthread_mutex_t lock;
    char day[9];     /* lock; the key below is of this day, "": of none */
    uint8_t key[32]; /* lock */
};

static void wipe_free(char *s)
{
    if (s != NULL) {
        OPENSSL_cleanse(s, strlen(s));
        free(s);
    }
}

struct s3_signer *s3_signer_new(const struct s3_credentials *c, const char *region,
                                const char *service)
{
    struct s3_signer *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_rwlock_init(&s->in_use, NULL);
    s->key_id = strdup(c->key_id);
    s->secret = strdup(c->secret);
    s->token = c->token != NULL ? strdup(c->token) : NULL;
    s->region = strdup(region);
    s->service = strdup(service);
    if (s->key_id == NULL || s->secret == NULL || (c->token != NULL && s->token == NULL) ||
        s->region == NULL || s->service == NULL) {
        s3_signer_free(s);
        return NULL;
    }
    return s;
}

int s3_signer_renew(struct s3_signer *s, const char *key_id, const char *secret, struct err *e)
{
    char *fresh_id = strdup(key_id), *fresh_secret = strdup(secret);
    bool ok = fresh_id != NULL && fresh_secret != NULL;
    if (ok) {
        char *former_id = s->key_id, *former_secret = s->secret;
        pthread_rwlock_wrlock(&s->in_use);
        s->key_id = fresh_id;
        s->secret = fresh_secret;
        pthread_mutex_lock(&s->lock);
        s->day[0] = '\0';
        pthread_mutex_unlock(&s->lock);
        pthread_rwlock_unlock(&s->in_use);
        fresh_id = former_id;
        fresh_secret = former_secret;
    }
    free(fresh_id);
    wipe_free(fresh_secret);
    return ok ? 0 : err_set(e, ERR_INTERNAL, "no memory for credentials");
}

void s3_signer_free(struct s3_signer *s)
{
    if (s == NULL) {
        return;
    }
    wipe_free(s->secret);
    wipe_free(s->token);
    free(s->key_id);
    free(s->region);
    free(s->service);
    pthread_mutex_destroy(&s->lock);
    pthread_rwlock_destroy(&s->in_use);
    OPENSSL_cleanse(s->key, sizeof(s->key));
    free(s);
}

void s3_signed_init(struct s3_signed *s)
{
    *s = (struct s3_signed){0};
    struct buf *const all[] = {&s->path, &s->query, &s->authorization, &s->canonical, &s->to_sign};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        buf_init(all[i], TEXT_MAX);
    }
}

void s3_signed_done(struct s3_signed *s)
{
    struct buf *const all[] = {&s->path, &s->query, &s->authorization, &s->canonical, &s->to_sign};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        buf_done(all[i]);
    }
}

static void reset(struct s3_signed *s)
{
    struct buf *const all[] = {&s->path, &s->query, &s->authorization, &s->canonical, &s->to_sign};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        buf_reset(all[i]);
    }
}

/* --- the key of a day ------------------------------------------------------------------------ */

static int hmac(const void *key, size_t key_len, const char *text, uint8_t ret[static 32],
                struct err *e)
{
    unsigned len = 32;
    if (HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)text, strlen(text), ret,
             &len) == NULL) {
        return err_set(e, ERR_INTERNAL, "no HMAC of a request");
    }
    return 0;
}

static int derive(const struct s3_signer *s, const char *day, uint8_t ret[static 32], struct err *e)
{
    struct buf first;
    uint8_t a[32], b[32];
    buf_init(&first, TEXT_MAX);
    buf_printf(&first, "AWS4%s", s->secret);
    int rc = buf_ok(&first) ? 0 : err_set(e, ERR_INTERNAL, "no memory for a signing key");
    if (rc == 0) {
        rc = hmac(first.data, first.len, day, a, e) || hmac(a, sizeof(a), s->region, b, e) ||
                     hmac(b, sizeof(b), s->service, a, e) || hmac(a, sizeof(a), TERMINATOR, ret, e)
                 ? -1
                 : 0;
    }
    if (first.data != NULL) {
        OPENSSL_cleanse(first.data, first.len);
    }
    buf_done(&first);
    OPENSSL_cleanse(a, sizeof(a));
    OPENSSL_cleanse(b, sizeof(b));
    return rc;
}

static int key_of(struct s3_signer *s, const char *day, uint8_t ret[static 32], struct err *e)
{
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    if (strcmp(s->day, day) != 0) {
        rc = derive(s, day, s->key, e);
        memcpy(s->day, rc == 0 ? day : "", rc == 0 ? sizeof(s->day) : 1);
    }
    memcpy(ret, s->key, sizeof(s->key));
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* --- one signature --------------------------------------------------------------------------- */

struct signing {
    struct s3_signer *signer;
    const struct s3_to_sign *r;
    struct s3_signed *ret;
    struct arena *arena;
    char day[9];
    struct buf scope, lines, names; /* header lines, and their names */
};

static int begin(struct signing *g, struct err *e)
{
    struct tm tm;
    time_t at = (time_t)g->r->at_s;
    g->arena = arena_new(ARENA_MAX);
    if (g->arena == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for a signature");
    }
    /* One reading of the time for date and scope: they must not disagree at midnight. */
    if (g->r->at_s < 0 || gmtime_r(&at, &tm) == NULL || tm.tm_year > 9999 - 1900) {
        return err_set(e, ERR_INTERNAL, "no date of a signature");
    }
    strftime(g->ret->date, sizeof(g->ret->date), "%Y%m%dT%H%M%SZ", &tm);
    strftime(g->day, sizeof(g->day), "%Y%m%d", &tm);
    buf_printf(&g->scope, "%s/%s/%s/%s", g->day, g->signer->region, g->signer->service, TERMINATOR);
    s3_encode(&g->ret->path, g->r->path, strlen(g->r->path), true);
    return 0;
}

static int hash_hex(const struct buf *b, char ret[static HASH_HEX], struct err *e)
{
    uint8_t hash[32];
    if (EVP_Digest(b->data, b->len, hash, NULL, EVP_sha256(), NULL) != 1) {
        return err_set(e, ERR_INTERNAL, "no hash of a request");
    }
    hash_to_hex(hash, ret);
    return 0;
}

/* Canonical request, string to sign, signature; path, query and headers are there. */
static int finish(struct signing *g, struct err *e)
{
    struct s3_signed *ret = g->ret;
    char hash[HASH_HEX];
    uint8_t key[32], mac[32];
    buf_printf(&ret->canonical, "%s\n%s\n%s\n%s\n%s\n%s", g->r->method, ret->path.data,
               ret->query.data != NULL ? ret->query.data : "",
               g->lines.data != NULL ? g->lines.data : "",
               g->names.data != NULL ? g->names.data : "", g->r->payload_hash);
    if (!buf_ok(&ret->canonical) || !buf_ok(&ret->query) || !buf_ok(&ret->path) ||
        !buf_ok(&g->scope) || !buf_ok(&g->lines) || !buf_ok(&g->names)) {
        return err_set(e, ERR_TOO_LARGE, "the request is too long to sign");
    }
    if (hash_hex(&ret->canonical, hash, e) != 0) {
        return -1;
    }
    buf_printf(&ret->to_sign, ALGORITHM "\n%s\n%s\n%s", ret->date, g->scope.data, hash);
    if (!buf_ok(&ret->to_sign)) {
        return err_set(e, ERR_INTERNAL, "no memory for a signature");
    }
    int rc = key_of(g->signer, g->day, key, e) || hmac(key, sizeof(key), ret->to_sign.data, mac, e)
                 ? -1
                 : 0;
    OPENSSL_cleanse(key, sizeof(key));
    if (rc == 0) {
        hash_to_hex(mac, ret->signature);
    }
    return rc;
}

static int run(struct s3_signer *s, const struct s3_to_sign *r, struct s3_signed *ret,
               int (*how)(struct signing *, int64_t, struct err *), int64_t expires_s,
               struct err *e)
{
    struct signing g = {.signer = s, .r = r, .ret = ret};
    reset(ret);
    buf_init(&g.scope, TEXT_MAX);
    buf_init(&g.lines, TEXT_MAX);
    buf_init(&g.names, TEXT_MAX);
    pthread_rwlock_rdlock(&s->in_use);
    int rc = begin(&g, e) || how(&g, expires_s, e) ? -1 : 0;
    pthread_rwlock_unlock(&s->in_use);
    buf_done(&g.scope);
    buf_done(&g.lines);
    buf_done(&g.names);
    arena_free(g.arena);
    return rc;
}

static int by_header(struct signing *g, int64_t expires_s, struct err *e)
{
    const struct s3_to_sign *r = g->r;
    struct s3_pair *headers =
        arena_alloc(g->arena, (r->headers_n + OWN_HEADER_N) * sizeof(*headers));
    size_t n = r->headers_n;
    (void)expires_s;
    if (headers == NULL) {
        return err_set(e, ERR_TOO_LARGE, "the headers are too long to sign");
    }
    if (n > 0) {
        memcpy(headers, r->headers, n * sizeof(*headers));
    }
    headers[n++] = (struct s3_pair){"x-amz-date", g->ret->date};
    if (g->signer->token != NULL) {
        headers[n++] = (struct s3_pair){"x-amz-security-token", g->signer->token};
    }
    if (s3_canonical_headers(headers, n, g->arena, &g->lines, &g->names, e) != 0 ||
        s3_canonical_query(r->query, r->query_n, g->arena, &g->ret->query, e) != 0 ||
        finish(g, e) != 0) {
        return -1;
    }
    buf_printf(&g->ret->authorization,
               ALGORITHM " Credential=%s/%s, SignedHeaders=%s, Signature=%s", g->signer->key_id,
               g->scope.data, g->names.data, g->ret->signature);
    return buf_ok(&g->ret->authorization) ? 0 : err_set(e, ERR_INTERNAL, "no memory to sign");
}

int s3_sign(struct s3_signer *s, const struct s3_to_sign *r, struct s3_signed *ret, struct err *e)
{
    return run(s, r, ret, by_header, 0, e);
}

/* The request's parameters and our own. */
static int fill_query(struct signing *g, const char *credential, const char *expires, struct err *e)
{
    const struct s3_to_sign *r = g->r;
    struct s3_pair *query = arena_alloc(g->arena, (r->query_n + OWN_QUERY_N) * sizeof(*query));
    size_t n = r->query_n;
    if (query == NULL) {
        return err_set(e, ERR_TOO_LARGE, "the query is too long to sign");
    }
    if (n > 0) {
        memcpy(query, r->query, n * sizeof(*query));
    }
    query[n++] = (struct s3_pair){"X-Amz-Algorithm", ALGORITHM};
    query[n++] = (struct s3_pair){"X-Amz-Credential", credential};
    query[n++] = (struct s3_pair){"X-Amz-Date", g->ret->date};
    query[n++] = (struct s3_pair){"X-Amz-Expires", expires};
    query[n++] = (struct s3_pair){"X-Amz-SignedHeaders", g->names.data};
    if (g->signer->token != NULL) {
        query[n++] = (struct s3_pair){"X-Amz-Security-Token", g->signer->token};
    }
    return s3_canonical_query(query, n, g->arena, &g->ret->query, e);
}

static int by_query(struct signing *g, int64_t expires_s, struct err *e)
{
    struct buf credential, expires;
    if (expires_s < 1 || expires_s > S3_EXPIRES_MAX_S) {
        return err_set(e, ERR_INVALID_REQUEST, "a URL lives for 1 to %d seconds", S3_EXPIRES_MAX_S);
    }
    if (s3_canonical_headers(g->r->headers, g->r->headers_n, g->arena, &g->lines, &g->names, e)) {
        return -1;
    }
    buf_init(&credential, TEXT_MAX);
    buf_init(&expires, TEXT_MAX);
    buf_printf(&credential, "%s/%s", g->signer->key_id, g->scope.data);
    buf_printf(&expires, "%lld", (long long)expires_s);
    int rc = buf_ok(&credential) && buf_ok(&expires)
                 ? fill_query(g, credential.data, expires.data, e)
                 : err_set(e, ERR_INTERNAL, "no memory to sign");
    buf_done(&credential);
    buf_done(&expires);
    if (rc != 0 || finish(g, e) != 0) {
        return -1;
    }
    buf_printf(&g->ret->query, "&X-Amz-Signature=%s", g->ret->signature);
    return buf_ok(&g->ret->query) ? 0 : err_set(e, ERR_INTERNAL, "no memory to sign");
}

int s3_presign(struct s3_signer *s, const struct s3_to_sign *r, int64_t expires_s,
               struct s3_signed *ret, struct err *e)
{
    return run(s, r, ret, by_query, expires_s, e);
}
