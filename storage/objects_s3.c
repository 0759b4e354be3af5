/* Objects in a bucket of an S3-compatible store: what is one request each, and the life of the store. */
#include "objects_s3.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "objects_s3_wire.h"

#define TRIES        6
#define BACKOFF_MS   100
#define STALL_MS     60000
#define PARALLEL     4
#define PART_BYTES   (8u * 1024 * 1024)
#define PART_MOST    (64u * 1024 * 1024)
#define MEMORY_BYTES (40u * 1024 * 1024)
#define MULTIPART_AT (16 * 1024 * 1024)
#define VERSION_TEXT 1100

/* --- one object ------------------------------------------------------------------------------- */

int s3_head(struct objects *o, const char *key, struct object_info *ret, struct err *e)
{
    struct s3_call c = {.method = "HEAD", .key = key};
    struct s3_answer a;
    s3_answer_init(&a);
    int rc = s3_call_run(objects_s3_of(o), &c, &a, e);
    /* Without a body it does not tell whether the object is missing, or the bucket. */
    if (rc == 0 && a.status == 404) {
        rc = s3_check(o, e);
    }
    if (rc == 0 && a.status != 200) {
        rc = s3_call_refused(&a, "a HEAD", e);
    }
    if (rc == 0) {
        *ret = (struct object_info){.size_bytes = a.length};
        memcpy(ret->token, a.token, sizeof(ret->token));
        memcpy(ret->maker, a.maker, sizeof(ret->maker));
    }
    s3_answer_done(&a);
    return rc;
}

/* Of one version, or (NULL) of what is seen; *ret_versioned tells that older ones may remain. */
static int delete_one(struct objects_s3 *s, const char *key, const char *version,
                      bool *ret_versioned, struct err *e)
{
    const struct s3_pair query[] = {{"versionId", version}};
    struct s3_call c = {.method = "DELETE", .key = key, .query = query, .query_n = version != NULL};
    struct s3_answer a;
    s3_answer_init(&a);
    int rc = s3_call_run(s, &c, &a, e);
    if (rc == 0 && a.status / 100 != 2 &&
        (a.status != 404 || strcmp(a.code, "NoSuchBucket") == 0)) {
        rc = s3_call_refused(&a, "a DELETE", e);
    }
    *ret_versioned = a.versioned;
    s3_answer_done(&a);
    return rc;
}

/* The versions and markers of exactly this key on one page; *ret_n counts them. */
static int delete_listed(struct objects_s3 *s, const char *key, struct s3_slice page,
                         const char *element, size_t *ret_n, struct err *e)
{
    char name[OBJECT_KEY_MAX + 1], version[VERSION_TEXT];
    struct s3_slice entry;
    bool ignored;
    while (s3_xml_next(&page, element, &entry)) {
        if (!s3_xml_text(entry, "Key", name, sizeof(name)) || strcmp(name, key) != 0 ||
            !s3_xml_text(entry, "VersionId", version, sizeof(version))) {
            continue;
        }
        if (delete_one(s, key, version, &ignored, e) != 0) {
            return -1;
        }
        ++*ret_n;
    }
    return 0;
}

/* In a bucket with versions a DELETE only hides. The key itself is the first in the order of its
 * prefix, so that one page after another has it until there is none. */
static int delete_versions(struct objects_s3 *s, const char *key, struct err *e)
{
    const struct s3_pair query[] = {{"versions", NULL}, {"prefix", key}};
    size_t n = 1;
    int rc = 0;
    while (rc == 0 && n > 0) {
        struct s3_call c = {.method = "GET", .query = query, .query_n = 2};
        struct s3_answer a;
        n = 0;
        s3_answer_init(&a);
        rc = s3_call_run(s, &c, &a, e);
        if (rc == 0 && a.status != 200) {
            rc = s3_call_refused(&a, "a list of versions", e);
        }
        if (rc == 0) {
            rc = delete_listed(s, key, s3_answer_slice(&a), "Version", &n, e) ||
                         delete_listed(s, key, s3_answer_slice(&a), "DeleteMarker", &n, e)
                     ? -1
                     : 0;
        }
        s3_answer_done(&a);
    }
    return rc;
}

int s3_del(struct objects *o, const char *key, struct err *e)
{
    struct objects_s3 *s = objects_s3_of(o);
    bool versioned;
    if (delete_one(s, key, NULL, &versioned, e) != 0) {
        return -1;
    }
    return versioned ? delete_versions(s, key, e) : 0;
}

static int s3_link(struct objects *o, const struct object_presign *p, struct buf *ret,
                   struct err *e)
{
    struct objects_s3 *s = objects_s3_of(o);
    const struct s3_pair headers[] = {{"host", s->public_endpoint.host}};
    struct s3_pair query[2];
    size_t n = 0;
    struct s3_signed sig;
    struct buf path;
    if (p->disposition != NULL) {
        query[n++] = (struct s3_pair){"response-content-disposition", p->disposition};
    }
    if (p->content_type != NULL) {
        query[n++] = (struct s3_pair){"response-content-type", p->content_type};
    }
    buf_init(&path, OBJECT_KEY_MAX + 512);
    s3_path(s, p->key, &path);
    const struct s3_to_sign r = {.method = "GET",
                                 .path = path.data,
                                 .query = query,
                                 .query_n = n,
                                 .headers = headers,
                                 .headers_n = 1,
                                 .payload_hash = S3_UNSIGNED_PAYLOAD,
                                 .at_s = p->now_s + atomic_load(&s->skew_s)};
    s3_signed_init(&sig);
    int rc = buf_ok(&path) ? s3_presign(s->signer, &r, p->expires_s, &sig, e)
                           : err_set(e, ERR_INTERNAL, "no memory for a link");
    if (rc == 0) {
        buf_printf(ret, "%s://%s%s?%s", s->public_endpoint.scheme, s->public_endpoint.host,
                   sig.path.data, sig.query.data);
        rc = buf_ok(ret) ? 0 : err_set(e, ERR_INTERNAL, "no memory for a link");
    }
    s3_signed_done(&sig);
    buf_done(&path);
    return rc;
}

/* --- life ------------------------------------------------------------------------------------- */

static void s3_free(struct objects *o)
{
    struct objects_s3 *s = objects_s3_of(o);
    while (s->idle_n > 0) {
        http_client_free(s->idle[--s->idle_n]);
    }
    s3_signer_free(s->signer);
    if (s->o.session_token != NULL) {
        OPENSSL_cleanse((char *)s->o.session_token, strlen(s->o.session_token));
    }
    free((char *)s->o.session_token);
    free((char *)s->o.bucket);
    free((char *)s->o.ca_file);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->room);
    free(s);
}

static void s3_stop(struct objects *o)
{
    atomic_store(&objects_s3_of(o)->stopped, true);
}

static const struct objects_vtable s3_vtable = {
    .name = "s3",
    .shared = true,
    .put = s3_put,
    .get = s3_get,
    .head = s3_head,
    .del = s3_del,
    .list = s3_list,
    .presign = s3_link,
    .uploads = s3_uploads,
    .abort = s3_abort,
    .check = s3_check,
    .stop = s3_stop,
    .free = s3_free,
};

static void apply_defaults(struct objects_s3_options *o)
{
    o->tries = o->tries > 0 ? o->tries : TRIES;
    o->backoff_ms = o->backoff_ms > 0 ? o->backoff_ms : BACKOFF_MS;
    o->stall_ms = o->stall_ms > 0 ? o->stall_ms : STALL_MS;
    o->parallel = o->parallel > 0 ? o->parallel : PARALLEL;
    o->part_bytes = o->part_bytes > 0 ? o->part_bytes : PART_BYTES;
    o->part_bytes_most = o->part_bytes_most > 0 ? o->part_bytes_most : PART_MOST;
    o->memory_bytes = o->memory_bytes > 0 ? o->memory_bytes : MEMORY_BYTES;
    o->multipart_at = o->multipart_at > 0 ? o->multipart_at : MULTIPART_AT;
}

static int copy_options(struct objects_s3 *s, const struct objects_s3_options *o, struct err *e)
{
    const struct s3_credentials c = {
        .key_id = o->access_key, .secret = o->secret, .token = o->session_token};
    s->o = *o;
    apply_defaults(&s->o);
    s->o.access_key = s->o.secret = s->o.endpoint = s->o.public_endpoint = s->o.region = NULL;
    s->o.bucket = strdup(o->bucket);
    s->o.ca_file = o->ca_file != NULL && *o->ca_file != '\0' ? strdup(o->ca_file) : NULL;
    s->o.session_token = o->session_token != NULL ? strdup(o->session_token) : NULL;
    s->signer = s3_signer_new(&c, o->region, "s3");
    bool ok = s->o.bucket != NULL && s->signer != NULL &&
              (o->ca_file == NULL || *o->ca_file == '\0' || s->o.ca_file != NULL) &&
              (o->session_token == NULL || s->o.session_token != NULL);
    return ok ? 0 : err_set(e, ERR_INTERNAL, "no memory for the object store");
}

int objects_s3_renew(struct objects *o, const char *access_key, const char *secret, struct err *e)
{
    return s3_signer_renew(objects_s3_of(o)->signer, access_key, secret, e);
}

int objects_s3_new(const struct objects_s3_options *o, struct objects **ret, struct err *e)
{
    struct objects_s3 *s = calloc(1, sizeof(*s));
    const char *before = o->path_style ? NULL : o->bucket;
    const char *link = o->public_endpoint != NULL && *o->public_endpoint != '\0'
                           ? o->public_endpoint
                           : o->endpoint;
    if (s == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for the object store");
    }
    s->base.v = &s3_vtable;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->room, NULL);
    if (copy_options(s, o, e) != 0 ||
        s3_endpoint_parse(o->endpoint, before, &s->endpoint, e) != 0 ||
        s3_endpoint_parse(link, before, &s->public_endpoint, e) != 0) {
        s3_free(&s->base);
        return -1;
    }
    *ret = &s->base;
    return 0;
}
