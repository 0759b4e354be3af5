/* Bodies in pieces, both ways, of one connection: buffers, flow and deadlines. */
#include <stdlib.h>
#include <string.h>

#include "leasehold/clock.h"
#include "server_state.h"

#define READ_MAX    (64u * 1024) /* the socket gives so much at once */
#define FRAMING_MAX 64           /* around a chunk of an answer of unknown length */

static int64_t now_us(void)
{
    return clock_boot_us(&clock_system);
}

/* --- requests -------------------------------------------------------------------------------- */

void http_stream_begin(struct conn *c, struct http_request *r, bool expects)
{
    r->streams = true;
    c->http.streams = true;
    c->http.in = (struct http_in){.open = true, .expects = expects, .left = r->declared_len};
    buf_init(&c->http.in.piece, SERVER_PIECE + READ_MAX);
    http_pending(c, r);
    c->server->handler.http(c->server->handler.ctx, r);
}

/* Nobody waits for the peer while its last piece is still being worked on. */
static void deadline(struct conn *c)
{
    const struct http_in *in = &c->http.in;
    int64_t stall_us = now_us() + CONN_STALL_MS * 1000;
    bool waits = in->wanted && in->left > 0;
    c->deadline_us = !waits ? 0 : stall_us < in->until_us ? stall_us : in->until_us;
}

static bool piece_is_whole(const struct http_in *in)
{
    return in->piece.len >= SERVER_PIECE || in->left == 0;
}

static void piece_up(struct conn *c)
{
    struct http_in *in = &c->http.in;
    struct buf piece = in->piece;
    in->piece = in->spare;
    in->spare = (struct buf){0};
    if (in->piece.data == NULL) {
        buf_init(&in->piece, SERVER_PIECE + READ_MAX);
    }
    in->wanted = false;
    in->open = in->left > 0;
    deadline(c);
    c->server->handler.body(c->server->handler.ctx, c->id, &piece, !in->open);
}

size_t http_stream_feed(struct conn *c, const char *data, size_t len)
{
    struct http_in *in = &c->http.in;
    size_t take = len < in->left ? len : (size_t)in->left;
    in->expects = false;
    buf_add(&in->piece, data, take);
    in->left -= take;
    if (!buf_ok(&in->piece)) {
        conn_kill(c);
        return len;
    }
    if (in->wanted && piece_is_whole(in)) {
        piece_up(c);
    } else {
        deadline(c);
    }
    return take;
}

static void say_continue(struct conn *c)
{
    struct buf b;
    buf_init(&b, 64);
    buf_add_str(&b, "HTTP/1.1 100 Continue\r\n\r\n");
    conn_queue(c, &b);
    conn_flush(c);
}

int server_body_want(struct server *s, uint64_t conn, struct buf *spare)
{
    struct conn *c = conn_find(s, conn);
    struct http_in *in = c == NULL ? NULL : &c->http.in;
    if (in == NULL || c->state != CONN_PENDING || !in->open) {
        if (spare != NULL) {
            buf_done(spare);
        }
        return -1;
    }
    if (spare != NULL) {
        buf_done(&in->spare);
        in->spare = *spare;
        buf_reset(&in->spare);
        *spare = (struct buf){0};
    }
    if (in->expects && in->left > 0) {
        say_continue(c);
    }
    in->expects = false;
    in->wanted = true;
    in->until_us = now_us() + CONN_PIECE_MS * 1000;
    if (piece_is_whole(in)) {
        piece_up(c);
    } else {
        deadline(c);
    }
    conn_flow(c);
    return 0;
}

bool http_stream_reads(const struct conn *c)
{
    const struct http_state *h = &c->http;
    if (c->state == CONN_PENDING && h->in.left > 0) {
        return h->in.piece.len < SERVER_PIECE;
    }
    /* Only so is it seen that nobody listens to an answer without an end. */
    return c->state == CONN_SENDING && h->out.open && h->out.unknown;
}

void http_stream_end(struct conn *c)
{
    struct http_state *h = &c->http;
    bool early = h->streams && (c->state == CONN_PENDING || c->state == CONN_SENDING) &&
                 (h->in.open || h->out.open || c->out != NULL);
    buf_done(&h->in.piece);
    buf_done(&h->in.spare);
    h->in = (struct http_in){.left = h->in.left};
    h->out = (struct http_out){0};
    h->streams = false;
    if (early) {
        c->server->handler.gone(c->server->handler.ctx, c->id);
    }
}

/* --- answers --------------------------------------------------------------------------------- */

static struct conn *sending(struct server *s, uint64_t conn)
{
    struct conn *c = conn_find(s, conn);
    return c != NULL && c->state == CONN_SENDING && c->http.out.open ? c : NULL;
}

/* What the transfer coding puts around the piece; an empty one would be the end. */
static void chunk_wrap(struct buf *piece, bool last)
{
    struct buf b;
    buf_init(&b, piece->len + FRAMING_MAX);
    if (piece->len > 0) {
        buf_printf(&b, "%zx\r\n", piece->len);
        buf_add(&b, piece->data, piece->len);
        buf_add_str(&b, "\r\n");
    }
    if (last) {
        buf_add_str(&b, "0\r\n\r\n");
    }
    buf_done(piece);
    *piece = b;
}

void server_send(struct server *s, uint64_t conn, struct buf *piece, bool last)
{
    struct conn *c = sending(s, conn);
    if (c == NULL) {
        buf_done(piece);
        return;
    }
    if (c->http.out.chunked) {
        chunk_wrap(piece, last);
    }
    c->http.out.open = !last;
    conn_queue_piece(c, piece);
    conn_flush(c);
}

void server_send_pipe(struct server *s, uint64_t conn, int pipe_fd, size_t len, bool last)
{
    struct conn *c = sending(s, conn);
    if (c != NULL) {
        c->http.out.open = !last;
        conn_queue_pipe(c, pipe_fd, len);
        conn_flush(c);
    }
}

bool server_takes_pipes(struct server *s, uint64_t conn)
{
    const struct conn *c = conn_find(s, conn);
    return c != NULL && !c->tls;
}

bool server_alive(struct server *s, uint64_t conn)
{
    return conn_find(s, conn) != NULL;
}

void server_cut(struct server *s, uint64_t conn)
{
    struct conn *c = conn_find(s, conn);
    if (c != NULL) {
        conn_kill(c);
    }
}
