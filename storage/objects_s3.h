/* What the parts of the S3 store share: one request with all its tries, and who pays for memory. */
#ifndef STORAGE_OBJECTS_S3_H
#define STORAGE_OBJECTS_S3_H

#include <pthread.h>

#include "leasehold/http_client.h"
#include "leasehold/objects.h"
#include "s3_sign.h"
#include "s3_xml.h"

#define S3_TOKEN_HEADER "x-amz-meta-leasehold-token"
#define S3_MAKER_HEADER "x-amz-meta-leasehold-maker"
#define S3_CLIENTS_KEPT 16
#define S3_PAGES_KEPT   16
#define S3_ETAG_TEXT    100
#define S3_PARTS_MAX    10000

/* Where a store listens: what stands before and between the slashes of a URL. */
struct s3_endpoint {
    char scheme[6]; /* "http", "https" */
    char host[256]; /* with a port that is not the scheme's own; with the bucket if it goes there */
};

struct objects_s3 {
    struct objects base;
    struct objects_s3_options o; /* constant; its texts are ours, the secrets are the signer's */
    struct s3_endpoint endpoint, public_endpoint; /* constant */
    struct s3_signer *signer;
    _Atomic int64_t skew_s; /* of the store's clock against ours */
    atomic_bool stopped;
    pthread_mutex_t lock;
    pthread_cond_t room;                       /* memory was given back */
    struct http_client *idle[S3_CLIENTS_KEPT]; /* lock */
    size_t idle_n, memory_used;                /* lock */
    struct s3_pages {
        char *data;
        size_t len;
    } kept[S3_PAGES_KEPT];    /* lock; of parts that were sent, for the next ones */
    size_t kept_n, kept_used; /* lock */
};

static inline struct objects_s3 *objects_s3_of(struct objects *o)
{
    return (struct objects_s3 *)o;
}

static inline bool s3_is_cancelled(const atomic_bool *cancel)
{
    return cancel != NULL && atomic_load(cancel);
}

/* --- what a request carries ------------------------------------------------------------------- */

/* Of what is put, by p->read_at. */
struct s3_range {
    const struct object_put *p;
    int64_t at, len;
};

static inline bool s3_is_by_place(const struct object_put *p)
{
    return p->read_at != NULL && p->len >= 0 && p->sha256 != NULL;
}

struct s3_reading {
    const struct s3_range *range;
    int64_t done;
    struct http_client_source source;
    bool failed; /* *e says why */
    struct err e;
};
void s3_reading_begin(struct s3_reading *x, const struct s3_range *r);

/* Hex SHA-256 of a range, or (NULL) of memory. */
int s3_body_sum(const struct s3_range *r, const char *data, size_t len, char ret[static 65],
                struct err *e) MUST_CHECK;

/* Has a body to be summed for its signature? */
static inline bool s3_signs_bodies(const struct objects_s3 *s)
{
    return s->o.signing == OBJECTS_S3_SIGN_ALL ||
           (s->o.signing == OBJECTS_S3_SIGN_AUTO && s->endpoint.scheme[4] == '\0');
}

/* --- one request ------------------------------------------------------------------------------ */

struct s3_call {
    const char *method;
    const char *key; /* NULL: of the bucket itself */
    const struct s3_pair *query;
    size_t query_n;
    const struct s3_pair *headers; /* signed */
    size_t headers_n;
    const char *const *plain; /* further lines, not signed; NULL-terminated; may be NULL */
    const char *body;
    size_t body_len;
    const struct s3_range *range; /* instead of body; NULL: none */
    const char *hash;             /* hex SHA-256 of the body; NULL: not signed */
    bool trusted; /* the like was taken just now: a long body does not wait for the store's word */
    const struct http_client_sink *sink; /* a request that it has let begin is not tried again */
    const bool *begun;                   /* … which this tells */
    const atomic_bool *cancel;           /* NULL: s3->stopped */
    unsigned tries;                      /* 0: the store's */
    int64_t stall_ms;                    /* then all of it takes no longer; 0: the store's */
    struct http_client *client;          /* set while it runs: for headers in the sink */
};

struct s3_answer {
    long status;
    struct buf body;
    char code[64]; /* of an error, letters and digits; "" */
    int64_t length;
    char token[OBJECT_TOKEN_TEXT], maker[OBJECT_MAKER_TEXT], etag[S3_ETAG_TEXT];
    bool versioned; /* a version or a marker of one was named */
};
void s3_answer_init(struct s3_answer *a);
void s3_answer_done(struct s3_answer *a);
struct s3_slice s3_answer_slice(const struct s3_answer *a);

/* 0 for any answer that trying again would not change. */
int s3_call_run(struct objects_s3 *s, struct s3_call *c, struct s3_answer *ret,
                struct err *e) MUST_CHECK;

/* What an answer other than a success means; `what` was tried. -1. */
int s3_call_refused(const struct s3_answer *a, const char *what, struct err *e);

/* The same to something that is put: where it goes is missing, and not the object. */
int s3_put_refused(const struct s3_answer *a, const char *what, struct err *e);

/* A pause of up to backoff_ms doubled `tries` times, at least `least_ms`. ERR_BUSY if cancelled. */
int s3_pause(const struct objects_s3 *s, unsigned tries, int64_t least_ms,
             const atomic_bool *cancel, struct err *e) MUST_CHECK;

/* Memory of a part under way: waits for room. One part is always let in. NULL: ERR_BUSY if cancelled,
 * ERR_INTERNAL. What is given back serves the next part, until there is none under way. */
char *s3_memory_take(struct objects_s3 *s, size_t len, const atomic_bool *cancel, struct err *e);
void s3_memory_give(struct objects_s3 *s, char *data, size_t len); /* takes NULL */

/* "/bucket/key" or "/key", before it is encoded. */
void s3_path(const struct objects_s3 *s, const char *key, struct buf *ret);

/* --- members of the vtable -------------------------------------------------------------------- */

int s3_put(struct objects *o, const struct object_put *p, struct object_info *ret, struct err *e);
int s3_multipart(struct objects_s3 *s, const struct object_put *p, char *first, size_t part_bytes,
                 struct object_info *ret, struct err *e);
int s3_get(struct objects *o, const struct object_get *g, struct err *e);
int s3_head(struct objects *o, const char *key, struct object_info *ret, struct err *e);
int s3_del(struct objects *o, const char *key, struct err *e);
int s3_check(struct objects *o, struct err *e);
int s3_list(struct objects *o, const char *prefix,
            int (*each)(void *ctx, const char *key, struct err *e), void *ctx, struct err *e);
int s3_uploads(struct objects *o, const char *prefix,
               int (*each)(void *ctx, const struct object_upload *u, struct err *e), void *ctx,
               struct err *e);
int s3_abort(struct objects *o, const char *key, const char *upload_id, struct err *e);

/* What is kept with an object: type, token, maker. */
#define S3_PUT_HEADERS 3
size_t s3_put_headers(const struct object_put *p, struct s3_pair ret[static S3_PUT_HEADERS]);

/* Reads up to `len` bytes, less only at the end; *ret_end tells that this was it. */
int s3_read_full(const struct object_put *p, char *data, size_t len, size_t *ret_n, bool *ret_end,
                 struct err *e) MUST_CHECK;

#endif
