/*
 * An object in parts. A few workers each take the next part from the caller's function, one at a
 * time, and send theirs at the same time; one more of them than may send reads and sums ahead, so that
 * the store never waits for that. Of what can be read by place a part is only where it begins and ends.
 * What is begun is made known before the first part, given up when it fails, and held to be done only
 * when HEAD shows our own token.
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hex.h"
#include "objects_s3.h"

#define WORKERS_MAX    16
#define PART_TEXT      (S3_ETAG_TEXT * 6 + 64) /* of one in the list; an ETag may be escaped */
#define COMPLETE_TRIES 5
#define LAST_WORD_MS   2000

struct part {
    char etag[S3_ETAG_TEXT];
};

struct multipart {
    struct objects_s3 *s;
    const struct object_put *p;
    char upload_id[OBJECT_UPLOAD_MAX];
    size_t part_bytes;
    pthread_mutex_t reading; /* held while a part is read; guards the next ones */
    char *first;             /* the first part, read already; NULL: none, or taken */
    unsigned parts_n;
    bool ended;
    int64_t read_bytes;
    EVP_MD_CTX *md;        /* NULL: the sum is known */
    struct part *parts;    /* also `state` */
    pthread_mutex_t state; /* guards the rest */
    pthread_cond_t turn;   /* a part has been sent */
    unsigned sending;
    size_t parts_size;
    int64_t sent_bytes;
    bool failed;
    struct err e;
};

/* --- begin, end ------------------------------------------------------------------------------- */

static int initiate(struct multipart *m, struct err *e)
{
    const struct object_put *p = m->p;
    const struct s3_pair query[] = {{"uploads", NULL}};
    struct s3_pair headers[S3_PUT_HEADERS];
    struct s3_call c = {.method = "POST",
                        .key = p->key,
                        .query = query,
                        .query_n = 1,
                        .headers = headers,
                        .headers_n = s3_put_headers(p, headers),
                        .cancel = p->cancel};
    struct s3_answer a;
    s3_answer_init(&a);
    int rc = s3_call_run(m->s, &c, &a, e);
    if (rc == 0 && a.status != 200) {
        rc = s3_put_refused(&a, "the start of an upload", e);
    }
    if (rc == 0 &&
        (!s3_xml_text(s3_answer_slice(&a), "UploadId", m->upload_id, sizeof(m->upload_id)) ||
         m->upload_id[0] == '\0')) {
        rc = err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "the object store names no upload");
    }
    s3_answer_done(&a);
    return rc;
}

int s3_abort(struct objects *o, const char *key, const char *upload_id, struct err *e)
{
    struct objects_s3 *s = objects_s3_of(o);
    const atomic_bool never = false;
    const struct s3_pair query[] = {{"uploadId", upload_id}};
    struct s3_call c = {.method = "DELETE", .key = key, .query = query, .query_n = 1};
    struct s3_answer a;
    /* The last word of an upload that was cancelled; else the next start has to say it. */
    if (atomic_load(&s->stopped)) {
        c.cancel = &never;
        c.tries = 1;
        c.stall_ms = LAST_WORD_MS;
    }
    s3_answer_init(&a);
    int rc = s3_call_run(s, &c, &a, e);
    if (rc == 0 && a.status / 100 != 2 && a.status != 404) {
        rc = s3_call_refused(&a, "the end of an upload", e);
    }
    s3_answer_done(&a);
    return rc;
}

/* --- parts ------------------------------------------------------------------------------------ */

static void fail(struct multipart *m, const struct err *e)
{
    pthread_mutex_lock(&m->state);
    if (!m->failed) {
        m->failed = true;
        m->e = *e;
    }
    pthread_mutex_unlock(&m->state);
}

static bool has_failed(struct multipart *m)
{
    pthread_mutex_lock(&m->state);
    bool failed = m->failed;
    pthread_mutex_unlock(&m->state);
    return failed;
}

/* Room for the ETag of one more part. */
static int grow(struct multipart *m, struct err *e)
{
    int rc = 0;
    pthread_mutex_lock(&m->state);
    if (m->parts_n >= m->parts_size) {
        size_t size = m->parts_size > 0 ? m->parts_size * 2 : 16;
        struct part *grown = realloc(m->parts, size * sizeof(*grown));
        if (grown == NULL) {
            rc = err_set(e, ERR_INTERNAL, "no memory for an upload");
        } else {
            m->parts = grown;
            m->parts_size = size;
        }
    }
    pthread_mutex_unlock(&m->state);
    return rc;
}

/* One part on its way: in memory that is paid for, or (data NULL) by place. */
struct piece {
    char *data;
    size_t n;
    struct s3_range range;
    unsigned number;
    char sum[HASH_HEX]; /* "": it goes up without */
};

static const struct s3_range *range_of(const struct piece *t)
{
    return t->data == NULL ? &t->range : NULL;
}

static int sum_piece(const struct multipart *m, struct piece *t, struct err *e)
{
    return s3_signs_bodies(m->s) ? s3_body_sum(range_of(t), t->data, t->n, t->sum, e) : 0;
}

static void piece_done(struct multipart *m, struct piece *t)
{
    s3_memory_give(m->s, t->data, m->part_bytes);
    t->data = NULL;
}

/* The next one; n 0: there is none left. */
static int read_piece(struct multipart *m, struct piece *ret, struct err *e)
{
    if (s3_is_by_place(m->p)) {
        int64_t left = m->p->len - m->read_bytes, part = (int64_t)m->part_bytes;
        ret->range =
            (struct s3_range){.p = m->p, .at = m->read_bytes, .len = left < part ? left : part};
        ret->n = (size_t)ret->range.len;
        return 0;
    }
    ret->data = m->first;
    ret->n = m->part_bytes;
    m->first = NULL;
    if (ret->data != NULL) {
        return 0;
    }
    ret->data = s3_memory_take(m->s, m->part_bytes, m->p->cancel, e);
    return ret->data != NULL ? s3_read_full(m->p, ret->data, m->part_bytes, &ret->n, &m->ended, e)
                             : -1;
}

static int count(struct multipart *m, struct piece *t, struct err *e)
{
    m->read_bytes += (int64_t)t->n;
    if (m->p->len >= 0 && m->read_bytes > m->p->len) {
        return err_set(e, ERR_TOO_LARGE, "more comes than was said");
    }
    if (m->parts_n >= S3_PARTS_MAX) {
        return err_set(e, ERR_TOO_LARGE, "an object has at most %d parts of %zu bytes",
                       S3_PARTS_MAX, m->part_bytes);
    }
    if (grow(m, e) != 0) {
        return -1;
    }
    if (m->md != NULL && EVP_DigestUpdate(m->md, t->data, t->n) != 1) {
        return err_set(e, ERR_INTERNAL, "no hash of an object");
    }
    t->number = ++m->parts_n;
    return 0;
}

/* false: there is nothing more to do, or it failed. */
static bool take_piece(struct multipart *m, struct piece *ret)
{
    struct err e;
    int rc = 0;
    *ret = (struct piece){0};
    pthread_mutex_lock(&m->reading);
    if (!m->ended && !has_failed(m)) {
        rc = read_piece(m, ret, &e);
    }
    if (rc == 0 && ret->n > 0) {
        rc = count(m, ret, &e);
    }
    pthread_mutex_unlock(&m->reading);
    if (rc != 0) {
        fail(m, &e);
    }
    if (rc != 0 || ret->n == 0) {
        piece_done(m, ret);
        return false;
    }
    return true;
}

static void wait_turn(struct multipart *m)
{
    pthread_mutex_lock(&m->state);
    while (m->sending >= m->s->o.parallel) {
        pthread_cond_wait(&m->turn, &m->state);
    }
    m->sending++;
    pthread_mutex_unlock(&m->state);
}

static void end_turn(struct multipart *m)
{
    pthread_mutex_lock(&m->state);
    m->sending--;
    pthread_cond_signal(&m->turn);
    pthread_mutex_unlock(&m->state);
}

static void sent(struct multipart *m, unsigned number, const char *etag, size_t n)
{
    pthread_mutex_lock(&m->state);
    snprintf(m->parts[number - 1].etag, S3_ETAG_TEXT, "%s", etag);
    m->sent_bytes += (int64_t)n;
    if (m->p->progress != NULL) {
        m->p->progress(m->p->ctx, m->sent_bytes);
    }
    pthread_mutex_unlock(&m->state);
}

static int send_piece(struct multipart *m, const struct piece *t, struct s3_answer *a,
                      struct err *e)
{
    char text[12];
    snprintf(text, sizeof(text), "%u", t->number);
    const struct s3_pair query[] = {{"partNumber", text}, {"uploadId", m->upload_id}};
    struct s3_call c = {.method = "PUT",
                        .key = m->p->key,
                        .query = query,
                        .query_n = 2,
                        .body = t->data,
                        .body_len = t->n,
                        .range = range_of(t),
                        .hash = t->sum[0] != '\0' ? t->sum : NULL,
                        .trusted = t->number > m->s->o.parallel,
                        .cancel = m->p->cancel};
    if (s3_call_run(m->s, &c, a, e) != 0) {
        return -1;
    }
    if (a->status != 200 || a->etag[0] == '\0') {
        return s3_put_refused(a, "a part", e);
    }
    sent(m, t->number, a->etag, t->n);
    return 0;
}

static void *work(void *arg)
{
    struct multipart *m = arg;
    struct s3_answer a;
    struct err e;
    struct piece t;
    s3_answer_init(&a);
    while (take_piece(m, &t)) {
        int rc = sum_piece(m, &t, &e);
        wait_turn(m);
        if (rc != 0 || (!has_failed(m) && send_piece(m, &t, &a, &e) != 0)) {
            fail(m, &e);
        }
        end_turn(m);
        piece_done(m, &t);
    }
    s3_answer_done(&a);
    return NULL;
}

static int send_all(struct multipart *m, struct err *e)
{
    pthread_t threads[WORKERS_MAX];
    unsigned n = 0;
    while (n < m->s->o.parallel && n < WORKERS_MAX &&
           pthread_create(&threads[n], NULL, work, m) == 0) {
        n++;
    }
    work(m);
    while (n > 0) {
        pthread_join(threads[--n], NULL);
    }
    if (m->failed) {
        *e = m->e;
        return -1;
    }
    return m->p->len < 0 || m->read_bytes == m->p->len
               ? 0
               : err_set(e, ERR_INVALID_REQUEST, "less comes than was said");
}

/* --- complete --------------------------------------------------------------------------------- */

static void add_escaped(struct buf *out, const char *s)
{
    for (; *s != '\0'; s++) {
        switch (*s) {
        case '&':
            buf_add_str(out, "&amp;");
            break;
        case '<':
            buf_add_str(out, "&lt;");
            break;
        case '>':
            buf_add_str(out, "&gt;");
            break;
        default:
            buf_add_char(out, *s);
        }
    }
}

static int list_parts(const struct multipart *m, struct buf *ret, struct err *e)
{
    buf_add_str(ret, "<CompleteMultipartUpload>");
    for (unsigned i = 0; i < m->parts_n; i++) {
        buf_printf(ret, "<Part><PartNumber>%u</PartNumber><ETag>", i + 1);
        add_escaped(ret, m->parts[i].etag);
        buf_add_str(ret, "</ETag></Part>");
    }
    buf_add_str(ret, "</CompleteMultipartUpload>");
    return buf_ok(ret) ? 0 : err_set(e, ERR_INTERNAL, "no memory to complete an upload");
}

/* 1: the store says so; 0: it says something that the next try or HEAD has to explain. */
static int complete_once(struct multipart *m, const struct buf *list, struct s3_answer *a,
                         struct err *e)
{
    const struct s3_pair query[] = {{"uploadId", m->upload_id}};
    const struct s3_pair headers[] = {{"content-type", "application/xml"}};
    char hex[HASH_HEX];
    struct s3_slice done, body;
    struct s3_call c = {.method = "POST",
                        .key = m->p->key,
                        .query = query,
                        .query_n = 1,
                        .headers = headers,
                        .headers_n = 1,
                        .body = list->data,
                        .body_len = list->len,
                        .hash = hex};
    if (s3_body_sum(NULL, list->data, list->len, hex, e) != 0 || s3_call_run(m->s, &c, a, e) != 0) {
        return -1;
    }
    body = s3_answer_slice(a);
    return a->status == 200 && s3_xml_next(&body, "CompleteMultipartUploadResult", &done);
}

/* Is it there, and ours? 1, 0, or -1: nobody knows. */
static int is_there(struct multipart *m, struct err *e)
{
    struct object_info info;
    if (s3_head(&m->s->base, m->p->key, &info, e) != 0) {
        return e->code == ERR_NOT_FOUND ? 0 : -1;
    }
    return strcmp(info.token, m->p->token) == 0 && info.size_bytes == m->read_bytes;
}

/* 1 done, 0 it is not with *e filled, -1 not known. A 200 may carry an error; NoSuchUpload may mean
 * that the try before was heard: the object itself says what is true. */
static int complete(struct multipart *m, struct err *e)
{
    struct buf list;
    struct s3_answer a;
    int there = 0;
    buf_init(&list, (size_t)S3_PARTS_MAX * PART_TEXT);
    s3_answer_init(&a);
    int rc = list_parts(m, &list, e);
    for (unsigned n = 1; rc == 0 && n <= COMPLETE_TRIES; n++) {
        int said = complete_once(m, &list, &a, e);
        there = is_there(m, e);
        bool passes = there < 0 || said < 0 || a.status == 200;
        if (there == 1 || !passes || s3_pause(m->s, n, 0, m->p->cancel, e) != 0) {
            break;
        }
    }
    if (rc == 0 && there == 0) {
        err_fill_code(e, ERR_OBJECT_STORE_UNAVAILABLE, "the upload was not completed: %ld %s",
                      a.status, a.code);
    }
    s3_answer_done(&a);
    buf_done(&list);
    return there;
}

/* --- all of it -------------------------------------------------------------------------------- */

static int finish(struct multipart *m, struct object_info *ret, struct err *e)
{
    uint8_t hash[32];
    struct object_info info = {0};
    struct err ignored;
    int done = send_all(m, e) == 0 ? complete(m, e) : 0;
    if (done == 0 && s3_abort(&m->s->base, m->p->key, m->upload_id, &ignored) != 0 &&
        m->s->o.log != NULL) {
        log_error(m->s->o.log, "object_upload_left", &ignored);
    }
    if (done != 1) {
        return done == 0 ? -1
                         : err_set(e, ERR_OBJECT_STORE_UNAVAILABLE,
                                   "whether the object is there is not known");
    }
    if (m->md != NULL) {
        EVP_DigestFinal_ex(m->md, hash, NULL);
        hash_to_hex(hash, info.sha256);
    } else {
        snprintf(info.sha256, sizeof(info.sha256), "%s", m->p->sha256);
    }
    info.size_bytes = m->read_bytes;
    snprintf(info.token, sizeof(info.token), "%s", m->p->token);
    *ret = info;
    return 0;
}

static int run(struct multipart *m, struct object_info *ret, struct err *e)
{
    struct err ignored;
    if (m->p->sha256 == NULL &&
        (m->md == NULL || EVP_DigestInit_ex(m->md, EVP_sha256(), NULL) != 1)) {
        return err_set(e, ERR_INTERNAL, "no memory for an upload");
    }
    if (initiate(m, e) != 0) {
        return -1;
    }
    if (m->p->begun != NULL && m->p->begun(m->p->ctx, m->upload_id, e) != 0) {
        (void)s3_abort(&m->s->base, m->p->key, m->upload_id, &ignored);
        return -1;
    }
    return finish(m, ret, e);
}

/* Takes `first`, which is paid for. */
int s3_multipart(struct objects_s3 *s, const struct object_put *p, char *first, size_t part_bytes,
                 struct object_info *ret, struct err *e)
{
    struct multipart m = {.s = s,
                          .p = p,
                          .part_bytes = part_bytes,
                          .first = first,
                          .md = p->sha256 == NULL ? EVP_MD_CTX_new() : NULL};
    pthread_mutex_init(&m.reading, NULL);
    pthread_mutex_init(&m.state, NULL);
    pthread_cond_init(&m.turn, NULL);
    int rc = run(&m, ret, e);
    s3_memory_give(s, m.first, part_bytes);
    EVP_MD_CTX_free(m.md);
    free(m.parts);
    pthread_mutex_destroy(&m.reading);
    pthread_mutex_destroy(&m.state);
    pthread_cond_destroy(&m.turn);
    return rc;
}
