/* A file, or ranges of it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "http_when.h"
#include "leasehold/file_name.h"
#include "ops.h"

#define HEADERS_CAP   4096
#define PART_HEAD_MAX 320
#define HEADERS_USUAL 500

struct get {
    int fd;
    const char *type;
    int64_t size;
    struct http_range ranges[HTTP_RANGES_MAX];
    int n, at;
    char boundary[ID_TEXT]; /* of several ranges; "" */
};

/* --- parts ----------------------------------------------------------------------------------- */

static size_t part_head(const struct get *g, int i, char ret[static PART_HEAD_MAX])
{
    const struct http_range *r = &g->ranges[i];

    return (size_t)snprintf(ret, PART_HEAD_MAX,
                            "\r\n--%s\r\nContent-Type: %s\r\nContent-Range: bytes %" PRId64
                            "-%" PRId64 "/%" PRId64 "\r\n\r\n",
                            g->boundary, g->type, r->from, r->from + r->len - 1, g->size);
}

static size_t parts_end(const struct get *g, char ret[static PART_HEAD_MAX])
{
    return (size_t)snprintf(ret, PART_HEAD_MAX, "\r\n--%s--\r\n", g->boundary);
}

static int64_t answer_len(const struct get *g)
{
    char text[PART_HEAD_MAX];
    int64_t len = 0;

    for (int i = 0; i < g->n; i++)
        len += g->ranges[i].len + (g->boundary[0] ? (int64_t)part_head(g, i, text) : 0);
    return len + (g->boundary[0] ? (int64_t)parts_end(g, text) : 0);
}

int op_file_give(struct call *c, struct op_piece *piece, struct err *e)
{
    struct get *g = c->state;
    char text[PART_HEAD_MAX];

    (void)e;
    if (g->at == g->n) {
        if (g->boundary[0])
            buf_add(&piece->text, text, parts_end(g, text));
        piece->last = true;
        return 0;
    }
    if (g->boundary[0])
        buf_add(&piece->text, text, part_head(g, g->at, text));
    piece->fd = g->fd;
    piece->offset = g->ranges[g->at].from;
    piece->len = g->ranges[g->at].len;
    g->at++;
    return 0;
}

void op_file_close(struct call *c)
{
    struct get *g = c->state;

    close(g->fd);
}

/* --- what is asked for ----------------------------------------------------------------------- */

struct view {
    const struct file *file;
    char etag[80];
    int64_t modified_s;
};

static int headers(struct call *c, const struct view *v, const struct get *g, struct err *e)
{
    char date[HTTP_DATE_SIZE];
    struct buf b;

    buf_init(&b, HEADERS_CAP);
    buf_reserve(&b, HEADERS_USUAL);
    http_date_format(v->modified_s, date);
    buf_printf(&b, "Accept-Ranges: bytes\r\nLast-Modified: %s\r\n", date);
    if (v->etag[0])
        buf_printf(&b, "ETag: %s\r\n", v->etag);
    buf_add_str(&b, "X-Content-Type-Options: nosniff\r\n"
                    "Content-Security-Policy: default-src 'none'; sandbox\r\n");
    http_disposition(v->file->name, &b);
    if (c->status == 206 && !g->boundary[0])
        buf_printf(&b, "Content-Range: bytes %" PRId64 "-%" PRId64 "/%" PRId64 "\r\n",
                   g->ranges[0].from, g->ranges[0].from + g->ranges[0].len - 1, g->size);
    c->extra = buf_ok(&b) ? arena_strndup(c->arena, b.data, b.len) : NULL;
    buf_done(&b);
    return c->extra ? 0 : err_set(e, ERR_INTERNAL, "no memory for the answer's head");
}

static int out_of_range(struct call *c, int64_t size, struct err *e)
{
    char line[64];

    snprintf(line, sizeof line, "Content-Range: bytes */%" PRId64 "\r\n", size);
    c->extra = arena_strndup(c->arena, line, strlen(line));
    return err_set(e, ERR_RANGE_NOT_SATISFIABLE, "the file has %" PRId64 " bytes", size);
}

/* Ranges are for GET alone, and for a file that is still what the client has a part of. */
static int choose_ranges(struct call *c, const struct view *v, struct get *g, struct err *e)
{
    bool asked = *c->when.range && !c->head_only &&
                 http_if_range(c->when.if_range, v->etag[0] ? v->etag : NULL, v->modified_s);
    struct id random;

    g->n = asked ? http_ranges(c->when.range, g->size, g->ranges) : 0;
    if (g->n < 0)
        return out_of_range(c, g->size, e);
    c->status = g->n ? 206 : 200;
    c->raw_type = g->type;
    if (g->n > 1) {
        size_t size = sizeof "multipart/byteranges; boundary=" + ID_TEXT;
        char *type = call_alloc(c, size);
        if (!type)
            return err_set(e, ERR_INTERNAL, "no memory for the answer's head");
        id_random(&random);
        id_format(&random, g->boundary);
        snprintf(type, size, "multipart/byteranges; boundary=%s", g->boundary);
        c->raw_type = type;
    }
    if (!g->n) {
        g->ranges[0] = (struct http_range){0, g->size};
        g->n = 1;
    }
    return 0;
}

static int answer(struct call *c, const struct view *v, struct file_look *l, struct err *e)
{
    struct get *g = call_alloc(c, sizeof *g);

    if (!g)
        return err_set(e, ERR_INTERNAL, "no memory for the request");
    g->size = v->file->size_bytes;
    g->type = ((const struct file *)c->result)->content_type;
    switch (http_when(&c->when, v->etag, v->modified_s, true)) {
    case HTTP_FAILED:
        return err_set(e, ERR_PRECONDITION_FAILED, "the file is another by now");
    case HTTP_NOT_MODIFIED:
        c->status = 304;
        c->raw = "";
        return headers(c, v, g, e);
    case HTTP_GO_ON:
        break;
    }
    if (choose_ranges(c, v, g, e) || headers(c, v, g, e))
        return -1;
    c->answer_len = answer_len(g);
    c->streams = true;
    c->state = g;
    g->fd = l->fd;
    l->fd = -1;
    if (!c->head_only)
        files_read_now(c->s, &v->file->file_id);
    return 0;
}

int op_file_get(struct call *c, struct err *e)
{
    const struct file_name_args *a = c->args;
    struct file_look look;
    struct view v = {.file = &look.file};
    int rc;

    if (file_name_check(a->name, e))
        return -1;
    file_look_init(&look);
    look.only_reads = true;
    rc = file_look_at(c, &a->chat_id, a->name, &look, e);
    if (!rc) {
        *(struct file *)c->result = look.file;
        v.modified_s = look.file.last_update_at / 1000;
        if (look.file.sha256[0])
            snprintf(v.etag, sizeof v.etag, "\"%s\"", look.file.sha256);
        rc = answer(c, &v, &look, e);
    }
    file_look_done(&look);
    return rc;
}
