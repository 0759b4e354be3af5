#include "bridge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utlist.h>

#include "bridge_state.h"

#define DIAL_US   10000000 /* an agent gets so long to answer */
#define LAST_US   5000000  /* and so long to take what its client said last */
#define LINGER_US 2000000  /* and then to end, too */
#define HOLD_US   50000 /* an agent that ends closes its connections a moment before it is known to */
#define END_US    2000000 /* after its end, until what it said last is with the clients */
#define TIDY_US   1000000
#define DOWN_HIGH (128 * 1024)
#define DOWN_LOW  (32 * 1024)
#define DOWN_CAP  (256 * 1024)

/* --- life ------------------------------------------------------------------------------------ */

static void bridges_ended(void *ctx)
{
    struct bridges *bs = ctx;

    if (bs->ended)
        return;
    bs->ended = true;
    bs->events.ended(bs->events.ctx);
}

static void bridges_tidy(void *ctx)
{
    struct bridges *bs = ctx;
    struct bridge *b;

    DL_FOREACH (bs->list, b)
        if (b->up_at == b->up_end && !b->has_piece)
            bridge_up_free(b);
}

struct bridges *bridges_new(struct loop *l, enum bridge_kind kind,
                            const struct bridges_events *events, const struct bridge_ops *ops)
{
    struct bridges *bs = calloc(1, sizeof(*bs));

    if (!bs)
        return NULL;
    *bs = (struct bridges){.loop = l, .kind = kind, .events = *events, .ops = ops};
    bs->end_timer = loop_timer_new(l, bridges_ended, bs);
    bs->tidy_timer = loop_timer_new(l, bridges_tidy, bs);
    if (bs->end_timer && bs->tidy_timer)
        return bs;
    loop_timer_free(bs->end_timer);
    loop_timer_free(bs->tidy_timer);
    free(bs);
    return NULL;
}

void bridge_up_quiet(struct bridge *b)
{
    if (!loop_timer_is_set(b->bs->tidy_timer))
        loop_timer_set(b->bs->tidy_timer, TIDY_US);
}

static void bridge_free(struct bridge *b)
{
    struct bridges *bs = b->bs;

    DL_DELETE(bs->list, b);
    bs->count--;
    loop_timer_free(b->timer);
    if (b->kept_fd >= 0)
        close(b->kept_fd);
    buf_done(&b->down);
    bridge_up_free(b);
    free(b);
    bridges_end_check(bs);
}

/* Ends the connection; the loop still holds its descriptor for a moment. */
static void bridge_drop(struct bridge *b)
{
    b->client = NULL;
    b->left = true;
    buf_done(&b->down);
    b->down_at = 0;
    loop_timer_stop(b->timer);
    if (b->fd)
        loop_fd_close(b->fd);
    else
        bridge_free(b);
}

/* The dial, or the leaving, took too long; or the end was held back for long enough. */
static void bridge_late(void *ctx)
{
    struct bridge *b = ctx;
    const struct bridge_ops *ops = b->bs->ops;
    void *client = b->client;

    if (b->up && client) {
        b->held = true;
        ops->readable(client);
        return;
    }
    bridge_drop(b);
    if (client)
        ops->failed(client);
}

void bridge_hold_end(struct bridge *b)
{
    if (!loop_timer_is_set(b->timer))
        loop_timer_set(b->timer, HOLD_US);
}

struct bridge *bridge_new(struct bridges *bs, void *client)
{
    struct bridge *b = NULL;

    if (bs->count < BRIDGES_MAX && !bs->ending)
        b = calloc(1, sizeof(*b));
    if (!b)
        return NULL;
    b->bs = bs;
    b->client = client;
    b->kept_fd = -1;
    b->number = ++bs->last_number;
    b->reader.message_max = LINK_MESSAGE_MAX;
    buf_init(&b->down, DOWN_CAP);
    b->timer = loop_timer_new(bs->loop, bridge_late, b);
    if (!b->timer || !bs->events.dial(bs->events.ctx, b->number)) {
        loop_timer_free(b->timer);
        free(b);
        return NULL;
    }
    DL_APPEND(bs->list, b);
    bs->count++;
    loop_timer_set(b->timer, DIAL_US);
    return b;
}

struct bridge *bridge_dialled(const struct bridges *bs, uint32_t number)
{
    struct bridge *b;

    DL_SEARCH_SCALAR(bs->list, b, number, number);
    return b && !b->up && !b->left ? b : NULL;
}

void bridges_failed(struct bridges *bs, uint32_t number)
{
    struct bridge *b = bridge_dialled(bs, number);

    if (b)
        bridge_late(b);
}

bool bridge_is_up(const struct bridge *b)
{
    return b->up;
}

/* --- to the agent ---------------------------------------------------------------------------- */

/* Everything is said. Closing over what the agent still says would reset the connection under what it
 * has not read yet, so that is dropped until it ends, too. */
static void bridge_linger(struct bridge *b)
{
    b->client = NULL;
    b->left = b->lingers = true;
    shutdown(loop_fd_get(b->fd), SHUT_WR);
    loop_timer_set(b->timer, LINGER_US);
    loop_fd_read(b->fd, true);
}

static void link_readable(void *ctx)
{
    struct bridge *b = ctx;

    if (b->lingers) {
        if (!bridge_drain(b))
            loop_fd_close(b->fd);
        return;
    }
    /* Read when the client can take it: bridge_read.c, which also asks for the next time. */
    loop_fd_read(b->fd, false);
    if (b->client)
        b->bs->ops->readable(b->client);
}

static void down_note(struct bridge *b)
{
    size_t waits = b->down.len - b->down_at;

    if (waits >= DOWN_HIGH)
        b->full = true;
    if (waits > DOWN_LOW || !b->full)
        return;
    b->full = false;
    if (b->client)
        b->bs->ops->drained(b->client);
}

static void down_clear(struct bridge *b)
{
    buf_done(&b->down);
    b->down_at = 0;
    if (b->left && !b->lingers)
        bridge_linger(b);
    else
        bridge_pong(b);
}

static void link_writable(void *ctx)
{
    struct bridge *b = ctx;
    size_t waits = b->down.len - b->down_at;
    ssize_t n;

    if (waits == 0)
        return;
    n = send(loop_fd_get(b->fd), b->down.data + b->down_at, waits, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) /* it is told by the end of what it says */
        n = (ssize_t)waits;
    if (n > 0)
        b->down_at += (size_t)n;
    if (b->down_at == b->down.len)
        down_clear(b);
    else
        loop_fd_write(b->fd);
    down_note(b);
}

/* Moving the rest down costs its length, so it is done when there is no room behind it. */
static void down_make_room(struct bridge *b, size_t len)
{
    if (b->down_at == 0 || b->down.len + len <= DOWN_CAP)
        return;
    buf_consume(&b->down, b->down_at);
    b->down_at = 0;
}

/* Sends head and data; keeps what the socket does not take. */
static bool down_put(struct bridge *b, const void *head, size_t head_len, const void *data,
                     size_t len)
{
    struct iovec iov[] = {{(void *)(uintptr_t)head, head_len}, {(void *)(uintptr_t)data, len}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t r = 0;
    size_t n, of_head;

    if (!b->fd)
        return true;
    if (b->down.len == 0)
        r = sendmsg(loop_fd_get(b->fd), &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (r < 0 && errno != EAGAIN && errno != EINTR)
        return true; /* nobody is there any more: said by the end of what it says */
    n = r > 0 ? (size_t)r : 0;
    if (n == head_len + len)
        return true;
    of_head = n < head_len ? n : head_len;
    down_make_room(b, head_len + len - n);
    buf_add(&b->down, (const char *)head + of_head, head_len - of_head);
    buf_add(&b->down, (const char *)data + (n - of_head), len - (n - of_head));
    loop_fd_write(b->fd);
    down_note(b);
    return buf_ok(&b->down);
}

/* Masking protects what stands between a client and its server from taking a message for something
 * else. Here nothing does, so the mask is one that changes nothing: all zero. */
static bool frame_put(struct bridge *b, const struct ws_frame *h, const void *data)
{
    uint8_t head[WS_HEADER_MAX];

    return down_put(b, head, ws_frame_put_masked(head, h), data, (size_t)h->len);
}

bool bridge_send(struct bridge *b, const struct bridge_piece *piece)
{
    struct ws_frame h = {.fin = piece->fin, .opcode = WS_CONTINUATION, .len = piece->len};

    if (b->bs->kind != BRIDGE_WS)
        return piece->len == 0 || down_put(b, NULL, 0, piece->data, piece->len);
    if (b->closed) /* it wants to hear no more, and its client is about to be told */
        return true;
    if (piece->first)
        h.opcode = piece->text ? WS_TEXT : WS_BINARY;
    return frame_put(b, &h, piece->data);
}

bool bridge_is_full(const struct bridge *b)
{
    return b->full;
}

void bridge_pong(struct bridge *b)
{
    const struct ws_frame h = {.fin = true, .opcode = WS_PONG, .len = b->pong_len};

    if (!b->owes_pong || b->closed || b->down.len > 0)
        return;
    b->owes_pong = false;
    frame_put(b, &h, b->pong);
}

void bridge_close_put(struct bridge *b, unsigned code, const void *reason, size_t len)
{
    uint8_t payload[WS_CONTROL_MAX] = {(uint8_t)(code >> 8), (uint8_t)code};
    struct ws_frame h = {.fin = true, .opcode = WS_CLOSE};

    if (b->bs->kind != BRIDGE_WS || b->closed)
        return;
    b->closed = true;
    if (ws_close_code_valid(code)) {
        h.len = 2 + (len <= sizeof(payload) - 2 ? len : 0);
        if (h.len > 2)
            memcpy(payload + 2, reason, len);
    }
    frame_put(b, &h, payload);
}

void bridge_leave(struct bridge *b, bool deliver, int code, const void *reason, size_t len)
{
    struct bridges *bs = b->bs;

    b->client = NULL;
    b->has_piece = false;
    if (!b->fd || (!deliver && b->down.len > 0)) {
        bridge_drop(b);
        return;
    }
    bridge_close_put(b, deliver ? (unsigned)code : WS_CODE_AWAY, reason, len);
    b->left = true;
    bridge_up_free(b);
    loop_fd_read(b->fd, false);
    if (b->down.len == 0)
        bridge_linger(b);
    else
        loop_timer_set(b->timer, LAST_US);
    bridges_end_check(bs);
}

/* The loop saw the end, or we asked for it. What is still in the socket stays readable. */
static void link_ended(void *ctx)
{
    struct bridge *b = ctx;

    if (!b->left && !b->eof)
        b->kept_fd = fcntl(loop_fd_get(b->fd), F_DUPFD_CLOEXEC, 0);
    b->eof |= b->kept_fd < 0;
    b->fd = NULL;
    buf_done(&b->down);
    b->down_at = 0;
    down_note(b);
    if (b->left)
        bridge_free(b);
    else
        b->bs->ops->readable(b->client);
}

void bridge_seat(struct bridge *b, int fd)
{
    static const struct loop_fd_ops ops = {link_readable, link_writable, link_ended};

    b->fd = loop_fd_add(b->bs->loop, fd, &ops, b);
    if (!b->fd) {
        close(fd);
        return;
    }
    b->up = true;
    loop_timer_stop(b->timer);
    b->bs->ops->up(b->client);
}

/* --- the agent's end ------------------------------------------------------------------------- */

void bridges_end_check(struct bridges *bs)
{
    const struct bridge *b;

    if (!bs->ending || bs->ended)
        return;
    DL_FOREACH (bs->list, b)
        if (b->up && !b->left && !b->done)
            return;
    loop_timer_set(bs->end_timer, 0);
}

void bridges_end(struct bridges *bs)
{
    struct bridge *b;

    bs->ending = true;
    loop_timer_set(bs->end_timer, END_US);
    DL_FOREACH (bs->list, b)
        if (b->eof && b->client)
            bs->ops->readable(b->client);
    bridges_end_check(bs);
}
