#include "conn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <utlist.h>

#include "leasehold/clock.h"
#include "server_state.h"
#include "tls_server.h"

#define PIECE_MAX    (64u * 1024)  /* of one write */
#define TURN_MAX     (256u * 1024) /* written on one connection before others have their turn */
#define JOBS_ONCE    4             /* of the inbox, between two looks at the clock … */
#define JOBS_TURN_US 1000          /* … until that is over: the sockets want their turn */
#define GATHER_MAX   16384         /* bytes of one write of frames */
#define FLUSH_ONCE   8             /* connections written to between two looks at the clock */

#define CONN_ROOM_LOW 8 /* one in so many left: room is short */

static int64_t now_us(void)
{
    return clock_boot_us(&clock_system);
}

static size_t address_cap(const struct server *s)
{
    return (size_t)s->cfg->http.max_connections_per_address;
}

static struct conn *conn_new(struct listener *l, const char *peer, struct peer *from)
{
    struct server *s = l->server;
    struct conn *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return NULL;
    }
    c->id = ++s->last_conn;
    c->server = s;
    c->listener = l;
    c->local = l->local;
    c->tls = l->tls;
    c->state = CONN_HEAD;
    c->silent_us = now_us();
    c->reading = true;
    (void)snprintf(c->peer, sizeof c->peer, "%s", peer);
    buf_init(&c->http.head, HTTP_HEAD_MAX);
    buf_init(&c->http.stash, CONN_STASH_MAX * 2);
    c->from = from;
    c->beyond = !l->local && from != NULL && from->conns > address_cap(s);
    conn_deadline(c, c->beyond ? CONN_BEYOND_MS : CONN_FIRST_MS);
    HASH_ADD(hh, s->conns, id, sizeof c->id, c);
    l->conns++;
    return c;
}

void conn_uncount(struct conn *c)
{
    peers_leave(c->local ? &c->server->processes : &c->server->peers, c->from);
    c->from = NULL;
}

void conn_free(struct conn *c)
{
    HASH_DEL(c->server->conns, c);
    c->listener->conns--;
    conn_uncount(c);
    c->dead = true;
    if (c->corked) {
        DL_DELETE2(c->server->corked, c, corked_prev, corked_next);
    }
    http_forget(c); /* looks at the queue */
    conn_drop_queue(c);
    ws_forget(c);
    free(c->certificate);
    free(c);
}

struct conn *conn_find(struct server *s, uint64_t id)
{
    struct conn *c;
    HASH_FIND(hh, s->conns, &id, sizeof id, c);
    return c == NULL || c->dead ? NULL : c;
}

const char *conn_certificate(struct conn *c)
{
    if (c->tls && !c->certificate_known) {
        c->certificate = tls_peer_names(sock_ssl(c));
        c->certificate_known = true;
    }
    return c->certificate != NULL ? c->certificate : "";
}

void conn_deadline(struct conn *c, int64_t ms)
{
    c->deadline_us = ms == 0 ? 0 : now_us() + ms * 1000;
}

/* --- output ---------------------------------------------------------------------------------- */

/* A streamed piece has so long to be written, from when it is the first. */
static void chunk_first(struct chunk *chunk)
{
    if (chunk != NULL && chunk->tell) {
        int64_t pieces = (int64_t)(chunk->len / SERVER_PIECE) + 1;
        chunk->until_us = now_us() + pieces * CONN_PIECE_MS * 1000;
    }
}

static void queue(struct conn *c, const struct chunk *what)
{
    struct chunk *chunk = c->dead ? NULL : malloc(sizeof *chunk);
    if (chunk == NULL) {
        struct buf b = what->buf;
        buf_done(&b);
        conn_kill(c);
        return;
    }
    *chunk = *what;
    if (c->out == NULL) {
        c->out = chunk;
        chunk_first(chunk);
    } else {
        c->out_last->next = chunk;
    }
    c->out_last = chunk;
    c->out_bytes += chunk->len;
}

static void queue_buf(struct conn *c, struct buf *b, bool tell)
{
    if (buf_ok(b)) {
        queue(c, &(struct chunk){.buf = *b, .len = b->len, .tell = tell});
    } else {
        buf_done(b);
        conn_kill(c);
    }
}

void conn_queue(struct conn *c, struct buf *b)
{
    queue_buf(c, b, false);
}

/* Behind the last chunk, if that is unsent and has room. */
static bool join_last(struct conn *c, const struct buf *b)
{
    struct chunk *last = c->out != NULL ? c->out_last : NULL;
    if (last == NULL || last->sent > 0 || last->tell || last->piped || !buf_ok(b) ||
        b->len > last->buf.cap - last->buf.len) {
        return false;
    }
    buf_add(&last->buf, b->data, b->len);
    if (!buf_ok(&last->buf)) {
        conn_kill(c);
        return true;
    }
    c->out_bytes += b->len;
    last->len = last->buf.len;
    return true;
}

void conn_queue_gathered(struct conn *c, struct buf *b)
{
    if (join_last(c, b)) {
        buf_done(b);
        return;
    }
    b->cap = b->cap > GATHER_MAX ? b->cap : GATHER_MAX; /* room for those behind it */
    queue_buf(c, b, false);
}

void conn_queue_piece(struct conn *c, struct buf *b)
{
    struct chunk *head = c->out;
    /* A small one goes out in one write with the head that waits for it. */
    if (head != NULL && head == c->out_last && join_last(c, b)) {
        head->tell = true;
        chunk_first(head);
        buf_done(b);
        return;
    }
    queue_buf(c, b, true);
}

void conn_queue_pipe(struct conn *c, int fd, size_t len)
{
    queue(c, &(struct chunk){.piped = true, .pipe = fd, .len = len, .tell = true});
}

static void chunk_drop(struct conn *c)
{
    struct chunk *chunk = c->out;
    c->out = chunk->next;
    c->out_bytes -= chunk->len - chunk->sent;
    buf_done(&chunk->buf);
    free(chunk);
    chunk_first(c->out);
}

void conn_drop_queue(struct conn *c)
{
    while (c->out != NULL) {
        chunk_drop(c);
    }
}

void conn_drop_waiting(struct conn *c)
{
    struct chunk *first = c->out;
    while (first != NULL && first->next != NULL) {
        struct chunk *chunk = first->next;
        first->next = chunk->next;
        c->out_bytes -= chunk->len;
        buf_done(&chunk->buf);
        free(chunk);
    }
    c->out_last = first;
}

static ssize_t write_buf(struct conn *c, const struct chunk *chunk)
{
    size_t len = chunk->len - chunk->sent;
    len = len < PIECE_MAX ? len : PIECE_MAX;
    unsigned char *data = (unsigned char *)chunk->buf.data + chunk->sent;
    return sock_write(c, data, len);
}

/* The bytes stay in the kernel. */
static ssize_t write_pipe(struct conn *c, const struct chunk *chunk)
{
    ssize_t n = splice(chunk->pipe, NULL, sock_fd(c), NULL, chunk->len - chunk->sent,
                       SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : n == 0 ? -1 : n;
}

/* libwebsockets keeps what the socket did not take, and neither reads nor looks away until that is
 * gone: with input waiting it would spin. So nothing more is written to a full socket, and nothing read.
 * Returns the bytes written, -1 when the connection is broken. */
static ssize_t write_queue(struct conn *c)
{
    size_t written = 0;
    while (c->out != NULL && written < TURN_MAX && !sock_is_full(c)) {
        struct chunk *chunk = c->out;
        ssize_t n = chunk->len == 0 ? 0 : chunk->piped ? write_pipe(c, chunk) : write_buf(c, chunk);
        if (n < 0) {
            return -1;
        }
        chunk->sent += (size_t)n;
        c->out_bytes -= (size_t)n;
        written += (size_t)n;
        if (chunk->sent < chunk->len && n == 0) {
            break; /* the socket is full */
        }
        if (chunk->sent == chunk->len) {
            bool tell = chunk->tell;
            chunk_drop(c);
            if (tell) {
                c->server->handler.sent(c->server->handler.ctx, c->id);
            }
        }
    }
    return (ssize_t)written;
}

/* Writes what the socket takes. Returns whether that is all. */
static bool flush(struct conn *c, bool progress)
{
    ssize_t written = write_queue(c);
    if (written < 0) {
        conn_kill(c);
        return false;
    }
    if (c->out == NULL && !sock_is_full(c)) {
        c->write_deadline_us = 0;
        return true;
    }
    if (progress || written > 0 || c->write_deadline_us == 0) {
        c->write_deadline_us = now_us() + CONN_UNREAD_MS * 1000;
    }
    sock_ask_writable(c);
    return false;
}

void conn_flush(struct conn *c)
{
    if (c->dead || c->held) {
        return;
    }
    if (flush(c, false)) {
        if (c->state == CONN_WS_CLOSING) {
            ws_written(c);
        } else if (c->http.stash.len == 0) {
            http_written(c);
        } else {
            sock_ask_writable(c); /* not from within the handler of this request */
        }
    }
    conn_flow(c);
}

void conn_writable(struct conn *c)
{
    if (flush(c, true)) {
        if (c->state == CONN_WS_CLOSING) {
            ws_written(c);
        } else {
            http_written(c);
        }
    }
    conn_flow(c);
}

void conn_flush_gathered(struct conn *c)
{
    if (!c->server->corking || c->out_bytes > TURN_MAX) {
        conn_flush(c);
    } else if (!c->corked) {
        c->corked = true;
        DL_APPEND2(c->server->corked, c, corked_prev, corked_next);
    }
}

/* So many as there is time for: the others stay corked until the loop comes again. */
static void uncork(struct server *s)
{
    int64_t until_us = now_us() + JOBS_TURN_US;
    s->corking = false;
    for (unsigned n = 1; s->corked != NULL; n++) {
        struct conn *c = s->corked;
        DL_DELETE2(s->corked, c, corked_prev, corked_next);
        c->corked = false;
        conn_flush(c);
        if (n % FLUSH_ONCE == 0 && now_us() >= until_us) {
            break;
        }
    }
}

/* --- input ----------------------------------------------------------------------------------- */

void conn_feed(struct conn *c, char *data, size_t len)
{
    while (len > 0 && !c->dead) {
        bool ws = c->state == CONN_WS || c->state == CONN_WS_CLOSING;
        size_t used = ws ? ws_feed(c, data, len) : http_feed(c, data, len);
        data += used;
        len -= used;
    }
}

void conn_bytes(struct conn *c, char *data, size_t len)
{
    sock_handshaken(c);
    conn_feed(c, data, len);
    conn_flow(c);
}

/* The end of the input closes the connection, and may come right behind the last request: it is not
 * looked for before that has its answer. */
void conn_flow(struct conn *c)
{
    if (c->dead || !sock_is_open(c)) {
        return;
    }
    bool answering = c->state == CONN_PENDING || c->state == CONN_SENDING;
    bool want = (!answering || http_stream_reads(c)) && !sock_is_full(c) &&
                c->http.stash.len < CONN_STASH_MAX;
    if (want != c->reading) {
        c->reading = want;
        sock_read(c, want);
    }
}

/* --- the end --------------------------------------------------------------------------------- */

/* Closing with unread input would reset the connection, and the peer might lose what we have sent:
 * it is told that nothing more comes, and is given a moment to close first. */
void conn_linger(struct conn *c)
{
    c->state = CONN_LINGER;
    conn_deadline(c, c->http.in.left > 0 ? CONN_REST_MS : CONN_LINGER_MS);
    c->dropped = c->http.stash.len;
    buf_done(&c->http.stash);
    sock_shutdown(c);
}

void conn_drop(struct conn *c, size_t len)
{
    c->dropped += len;
    if (c->dropped > CONN_DROPPED_MAX) {
        conn_kill(c);
    }
}

/* One that has sent nothing behind its request takes no harm: its end is no reset. */
size_t conn_lingering(const struct server *s)
{
    const struct conn *c, *next;
    size_t n = 0;
    HASH_ITER (hh, s->conns, c, next) {
        bool lingers = !c->dead && c->state == CONN_LINGER;
        n += lingers && (c->dropped > 0 || sock_has_input(c));
    }
    return n;
}

void conn_kill(struct conn *c)
{
    if (c->dead) {
        return;
    }
    c->dead = true;
    if (!c->in_call && sock_is_open(c)) {
        sock_close_soon(c);
    }
}

void conn_sweep(struct server *s)
{
    int64_t now = now_us();
    struct conn *c, *next;
    HASH_ITER (hh, s->conns, c, next) {
        bool late = c->deadline_us != 0 && c->deadline_us < now;
        bool unread = c->write_deadline_us != 0 && c->write_deadline_us < now;
        bool slow = c->out != NULL && c->out->until_us != 0 && c->out->until_us < now;
        if (late || unread || slow) {
            conn_kill(c);
        } else if (c->state == CONN_WS) {
            ws_ping(c, now);
        }
    }
}

void conn_close_idle(struct server *s)
{
    struct conn *c, *next;
    HASH_ITER (hh, s->conns, c, next) {
        if (c->state != CONN_HEAD || c->http.head.len > 0) {
            continue;
        }
        if (c->served) {
            conn_linger(c); /* its last answer may still be on the way */
        } else {
            conn_kill(c);
        }
    }
}

/* --- room ------------------------------------------------------------------------------------ */

static bool is_silent(const struct conn *c, int64_t before_us)
{
    return !c->dead && (c->state == CONN_HEAD || c->state == CONN_BODY) && c->silent_us < before_us;
}

static int by_claim(const void *a, const void *b)
{
    const struct conn *one = *(struct conn *const *)a, *other = *(struct conn *const *)b;
    if (one->served != other->served) {
        return one->served ? 1 : -1;
    }
    return (one->silent_us > other->silent_us) - (one->silent_us < other->silent_us);
}

/* So many may be left before this one has to go. */
static size_t enough(const struct listener *l, const struct conn *c)
{
    return c->served ? l->conns_max - l->conns_max / CONN_ROOM_LOW : l->conns_max / 2;
}

/* Up to half of all: a handful would only let in as many of a flood, and whoever waits behind it
 * would wait long. Those that have had requests go only until room is not short any more. */
void conn_make_room(const struct listener *l)
{
    if (l->conns + l->conns_max / CONN_ROOM_LOW < l->conns_max) {
        return;
    }
    struct conn **silent = calloc(l->conns, sizeof(struct conn *)), *c, *next;
    int64_t before_us = now_us() - CONN_SILENT_MS * 1000;
    size_t n = 0;
    if (silent == NULL) {
        return;
    }
    HASH_ITER (hh, l->server->conns, c, next) {
        if (c->listener == l && is_silent(c, before_us)) {
            silent[n++] = c;
        }
    }
    qsort(silent, n, sizeof(struct conn *), by_claim);
    size_t left = l->conns;
    for (size_t i = 0; i < n && left > enough(l, silent[i]); i++, left--) {
        conn_kill(silent[i]);
    }
    free(silent);
}

/* --- life -------------------------------------------------------------------------------------- */

bool conn_is_beyond(struct conn *c)
{
    c->beyond = c->beyond && c->from->conns > address_cap(c->server);
    return c->beyond;
}

void conn_adopt(struct listener *l, int fd, const char *peer, struct peer *from)
{
    struct conn *c = conn_new(l, peer, from);
    if (c == NULL) {
        peers_leave(l->local ? &l->server->processes : &l->server->peers, from);
        (void)close(fd);
        return;
    }
    c->adopting = true;
    int rc = sock_open(c, fd);
    c->adopting = false;
    if (rc != 0) {
        conn_free(c);
    }
}

void conn_closed(struct conn *c)
{
    c->dead = true;
    if (!c->adopting) {
        conn_free(c);
    }
}

void conn_serve_inbox(struct server *s)
{
    int64_t until_us = now_us() + JOBS_TURN_US;
    size_t left = 0;
    s->corking = true;
    do {
        left = inbox_drain(s->inbox, JOBS_ONCE);
    } while (left > 0 && now_us() < until_us);
    uncork(s);
    if (left > 0 || s->corked != NULL) {
        (void)uv_async_send(&s->wake);
    }
}
