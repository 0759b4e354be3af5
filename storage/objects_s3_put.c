/* Objects that go up in one request: read whole first, or by place, so that it can be tried again. */
#include <stdio.h>
#include <string.h>

#include "objects_s3.h"

#define MIB          ((int64_t)1024 * 1024)
#define PART_MAX     (5 * 1024 * MIB) /* no store takes more */
#define PARTS_WANTED 1000             /* some take no more */
#define TURNS        2 /* parts that each of those at a time gets, so that they end together */

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

/* Of `data`, or (NULL) of `range`. */
static int put_once(struct objects_s3 *s, const struct object_put *p, const struct s3_range *range,
                    const char *data, size_t len, struct object_info *ret, struct err *e)
{
    struct object_info info = {.size_bytes = (int64_t)len};
    struct s3_answer a;
    if (p->sha256 == NULL && s3_body_sum(NULL, data, len, info.sha256, e) != 0) {
        return -1;
    }
    if (p->sha256 != NULL) {
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
                        .range = range,
                        .hash = s->o.signing != OBJECTS_S3_SIGN_HEADS ? info.sha256 : NULL,
                        .cancel = p->cancel};
    s3_answer_init(&a);
    int rc = s3_call_run(s, &c, &a, e);
    if (rc == 0 && a.status != 200) {
        rc = s3_put_refused(&a, "a PUT", e);
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
        rc = put_once(s, p, NULL, data, len, ret, e);
    }
    s3_memory_give(s, data, len);
    return rc;
}

/* What stands still is as long as it was said, or the caller has erred. */
static int has_end(const struct object_put *p, struct err *e)
{
    char more;
    ssize_t n = p->read_at(p->ctx, &more, 1, p->len, e);
    return n <= 0 ? (int)n : err_set(e, ERR_TOO_LARGE, "more comes than was said");
}

static int put_by_place(struct objects_s3 *s, const struct object_put *p, struct object_info *ret,
                        struct err *e)
{
    const struct s3_range all = {.p = p, .len = p->len};
    return put_once(s, p, &all, NULL, (size_t)p->len, ret, e);
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
        rc = put_once(s, p, NULL, data, n, ret, e);
    }
    s3_memory_give(s, data, part);
    return rc;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Few enough for stores that take a thousand parts, as long as that does not want more memory than
 * there is; all of one size, as some stores demand. What is read by place wants no memory, and a store
 * less work for each byte of a longer part. */
static size_t part_bytes(const struct objects_s3 *s, const struct object_put *p)
{
    bool by_place = s3_is_by_place(p);
    int64_t wanted = p->len / PARTS_WANTED;
    if (by_place) {
        int64_t even = p->len / ((int64_t)s->o.parallel * TURNS);
        wanted = most_of(wanted, least_of(even, (int64_t)s->o.part_bytes_most - MIB));
    }
    wanted = (wanted + MIB) / MIB * MIB;
    wanted = least_of(wanted, by_place ? PART_MAX : (int64_t)s->o.memory_bytes * 3 / 4);
    return (size_t)most_of(wanted, (int64_t)s->o.part_bytes);
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
    if (s3_is_by_place(p) && has_end(p, e) != 0) {
        return -1;
    }
    if (p->len < s->o.multipart_at) {
        return s3_is_by_place(p) ? put_by_place(s, p, ret, e) : put_announced(s, p, ret, e);
    }
    size_t part = part_bytes(s, p);
    if (p->len / (int64_t)part >= S3_PARTS_MAX) {
        return err_set(e, ERR_TOO_LARGE, "an object has at most %d parts of %zu bytes",
                       S3_PARTS_MAX, part);
    }
    return s3_multipart(s, p, NULL, part, ret, e);
}
