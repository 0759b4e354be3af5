/* Objects that go up in one request: read whole first, so that it can be tried again. */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "hex.h"
#include "objects_s3.h"

int s3_read_full(const struct object_put *p, char *data, size_t len, size_t *ret_n, bool *ret_end,
                 struct err *e)
{
    size_t have = 0;
    bool end = false;
    while (have < len && !end) {
        ssize_t n = p->read(p->ctx, data + have, len - have, e);
        if (n < 0) {
            return -1;
        }
        end = n == 0;
        have += (size_t)n;
    }
    *ret_n = have;
    *ret_end = end;
    return 0;
}

size_t s3_put_headers(const struct object_put *p, struct s3_pair ret[static S3_PUT_HEADERS])
{
    size_t n = 0;
    ret[n++] = (struct s3_pair){"content-type", p->content_type};
    ret[n++] = (struct s3_pair){S3_TOKEN_HEADER, p->token};
    if (p->maker != NULL) {
        ret[n++] = (struct s3_pair){S3_MAKER_HEADER, p->maker};
    }
    return n;
}

static int put_once(struct objects_s3 *s, const struct object_put *p, const char *data, size_t len,
                    struct object_info *ret, struct err *e)
{
    struct object_info info = {.size_bytes = (int64_t)len};
    uint8_t hash[32];
    struct s3_answer a;
    if (p->sha256 == NULL && EVP_Digest(data, len, hash, NULL, EVP_sha256(), NULL) != 1) {
        return err_set(e, ERR_INTERNAL, "no hash of an object");
    }
    if (p->sha256 == NULL) {
        hash_to_hex(hash, info.sha256);
    } else {
        snprintf(info.sha256, sizeof(info.sha256), "%s", p->sha256);
    }
    snprintf(info.token, sizeof(info.token), "%s", p->token);
    struct s3_pair headers[S3_PUT_HEADERS];
    struct s3_call c = {.method = "PUT",
                        .key = p->key,
                        .headers = headers,
                        .headers_n = s3_put_headers(p, headers),
                        .body = data,
                        .body_len = len,
                        .hash = info.sha256,
                        .cancel = p->cancel};
    s3_answer_init(&a);
    int rc = s3_call_run(s, &c, &a, e);
    if (rc == 0 && a.status != 200) {
        rc = s3_call_refused(&a, "a PUT", e);
    }
    s3_answer_done(&a);
    if (rc != 0) {
        return -1;
    }
    if (p->progress != NULL) {
        p->progress(p->ctx, info.size_bytes);
    }
    *ret = info;
    return 0;
}

/* The last byte of an announced length is followed by one more look: what brings more is not what
 * was announced. */
static int read_announced(const struct object_put *p, char *data, struct err *e)
{
    char more;
    size_t n, len = (size_t)p->len;
    bool end;
    if (s3_read_full(p, data, len, &n, &end, e) != 0) {
        return -1;
    }
    if (n < len) {
        return err_set(e, ERR_INVALID_REQUEST, "less comes than was said");
    }
    if (s3_read_full(p, &more, 1, &n, &end, e) != 0) {
        return -1;
    }
    return n == 0 ? 0 : err_set(e, ERR_TOO_LARGE, "more comes than was said");
}

static int put_announced(struct objects_s3 *s, const struct object_put *p, struct object_info *ret,
                         struct err *e)
{
    size_t len = (size_t)p->len;
    char *data = s3_memory_take(s, len, p->cancel, e);
    if (data == NULL) {
        return -1;
    }
    int rc = read_announced(p, data, e);
    if (rc == 0) {
        rc = put_once(s, p, data, len, ret, e);
    }
    s3_memory_give(s, data, len);
    return rc;
}

/* As long as a part, or it becomes the first of many. */
static int put_unannounced(struct objects_s3 *s, const struct object_put *p,
                           struct object_info *ret, struct err *e)
{
    size_t part = s->o.part_bytes, n;
    bool end;
    char *data = s3_memory_take(s, part, p->cancel, e);
    if (data == NULL) {
        return -1;
    }
    int rc = s3_read_full(p, data, part, &n, &end, e);
    if (rc == 0 && !end) {
        return s3_multipart(s, p, data, part, ret, e);
    }
    if (rc == 0) {
        rc = put_once(s, p, data, n, ret, e);
    }
    s3_memory_give(s, data, part);
    return rc;
}

/* Few enough for stores that take a thousand parts, as long as that does not want more memory than
 * there is; all of one size, as some stores demand. */
static size_t part_bytes(const struct objects_s3 *s, int64_t len)
{
    const int64_t step = 1024 * 1024, most = (int64_t)s->o.memory_bytes * 3 / 4;
    int64_t wanted = (len / 1000 + step) / step * step, least = (int64_t)s->o.part_bytes;
    wanted = wanted > most ? most : wanted;
    return (size_t)(wanted > least ? wanted : least);
}

int s3_put(struct objects *o, const struct object_put *p, struct object_info *ret, struct err *e)
{
    struct objects_s3 *s = objects_s3_of(o);
    size_t key_len = strlen(p->key);
    if (key_len == 0 || key_len > OBJECT_KEY_MAX) {
        return err_set(e, ERR_INVALID_REQUEST, "a key has 1 to %d bytes", OBJECT_KEY_MAX);
    }
    if (p->len < 0) {
        return put_unannounced(s, p, ret, e);
    }
    if (p->len < s->o.multipart_at) {
        return put_announced(s, p, ret, e);
    }
    size_t part = part_bytes(s, p->len);
    if (p->len / (int64_t)part >= S3_PARTS_MAX) {
        return err_set(e, ERR_TOO_LARGE, "an object has at most %d parts of %zu bytes",
                       S3_PARTS_MAX, part);
    }
    return s3_multipart(s, p, NULL, part, ret, e);
}
