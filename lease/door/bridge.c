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

#define DIAL_US    10000000 /* an agent gets so long to answer */
#define LAST_US    5000000  /* and so long to take what its client said last */
#define END_US     2000000  /* after its end, until what it said last is with the clients */
#define GUEST_US   2000000
#define GUESTS_MAX 8
#define DOWN_HIGH  (128 * 1024)
#define DOWN_LOW   (32 * 1024)
#define DOWN_CAP   (256 * 1024)

/* --- life ------------------------------------------------------------------------------------ */

static void bridges_ended(void *ctx)
{
    struct bridges *bs = ctx;

    if (bs->ended)
        return;
    bs->ended = true;
    bs->events.ended(bs->events.ctx);
}

struct bridges *bridges_new(struct loop *l, bool framed, const struct bridges_events *events,
                            const struct bridge_ops *ops)
{
    struct bridges *bs = calloc(1, sizeof(*bs));

    if (!bs)
        return NULL;
    *bs = (struct bridges){.loop = l, .framed = framed, .events = *events, .ops = ops};
    bs->end_timer = loop_timer_new(l, bridges_ended, bs);
    if (bs->end_timer)
        return bs;
    free(bs);
    return NULL;
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

/* The dial, or the leaving, took too long. */
static void bridge_late(void *ctx)
{
    struct bridge *b = ctx;
    const struct bridge_ops *ops = b->bs->ops;
    void *client = b->client;

    bridge_drop(b);
    if (client)
        ops->failed(client);
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

static struct bridge *dialled(const struct bridges *bs, uint32_t number)
{
    struct bridge *b;

    DL_SEARCH_SCALAR(bs->list, b, number, number);
    return b && !b->up && !b->left ? b : NULL;
}

void bridges_failed(struct bridges *bs, uint32_t number)
{
    struct bridge *b = dialled(bs, number);

    if (b)
        bridge_late(b);
}

bool bridge_is_up(const struct bridge *b)
{
    return b->up;
}

/* --- to the agent ---------------------------------------------------------------------------- */

static void link_readable(void *ctx)
{
    struct bridge *b = ctx;

    /* Read when the client can take it: bridge_read.c. */
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
    buf_reset(&b->down);
    b->down_at = 0;
    if (b->left)
        loop_fd_close(b->fd);
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

bool bridge_send(struct bridge *b, const struct bridge_piece *piece)
{
    uint8_t head[LINK_HEADER + 1];
    size_t head_len = 0;

    if (b->bs->framed) {
        link_header_put(head, piece->text ? LINK_TEXT : LINK_BINARY, (uint32_t)piece->len + 1);
        head[LINK_HEADER] =
            (uint8_t)((piece->first ? LINK_FLAG_FIRST : 0) | (piece->fin ? LINK_FLAG_FIN : 0));
        head_len = sizeof(head);
    }
    return head_len + piece->len == 0 || down_put(b, head, head_len, piece->data, piece->len);
}

bool bridge_is_full(const struct bridge *b)
{
    return b->full;
}

static void close_put(struct bridge *b, int code, const void *reason, size_t len)
{
    uint8_t head[LINK_HEADER + 2];

    if (!b->bs->framed || code == 0)
        return;
    link_header_put(head, LINK_CLOSE, (uint32_t)len + 2);
    head[LINK_HEADER] = (uint8_t)(code >> 8);
    head[LINK_HEADER + 1] = (uint8_t)code;
    down_put(b, head, sizeof(head), reason, len);
}

void bridge_leave(struct bridge *b, bool deliver, int code, const void *reason, size_t len)
{
    struct bridges *bs = b->bs;

    b->client = NULL;
    if (!deliver || !b->fd) {
        bridge_drop(b);
        return;
    }
    close_put(b, code, reason, len);
    b->left = true;
    loop_fd_read(b->fd, false);
    if (b->down.len == 0)
        bridge_drop(b);
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

static const struct loop_fd_ops link_ops = {link_readable, link_writable, link_ended};

/* --- who comes ------------------------------------------------------------------------------- */

static void guest_dismiss(void *ctx)
{
    struct bridge_guest *g = ctx;

    loop_fd_close(g->fd);
}

/* The descriptor goes from the guest's watch to the bridge's by way of a copy. */
static void guest_seat(struct bridge_guest *g, struct bridge *b)
{
    int fd = fcntl(loop_fd_get(g->fd), F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return;
    b->fd = loop_fd_add(b->bs->loop, fd, &link_ops, b);
    if (!b->fd) {
        close(fd);
        return;
    }
    b->up = true;
    loop_timer_stop(b->timer);
    b->bs->ops->up(b->client);
}

/* CONN and nothing behind it, so that what follows stays in the socket. */
static void guest_readable(void *ctx)
{
    struct bridge_guest *g = ctx;
    const uint8_t *p = g->said + LINK_HEADER;
    ssize_t n = recv(loop_fd_get(g->fd), g->said + g->said_len, sizeof(g->said) - g->said_len,
                     MSG_DONTWAIT);
    struct bridge *b;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        g->said_len += (size_t)n;
    if (n > 0 && g->said_len < sizeof(g->said))
        return;
    if (n > 0 && g->said[0] == LINK_CONN && link_header_len(g->said) == 4) {
        b = dialled(g->bs,
                    (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
        if (b)
            guest_seat(g, b);
    }
    guest_dismiss(g);
}

static void guest_writable(void *ctx)
{
    (void)ctx;
}

static void guest_ended(void *ctx)
{
    struct bridge_guest *g = ctx;

    DL_DELETE(g->bs->guests, g);
    g->bs->guests_count--;
    loop_timer_free(g->timer);
    free(g);
}

void bridges_adopt(struct bridges *bs, int fd)
{
    static const struct loop_fd_ops ops = {guest_readable, guest_writable, guest_ended};
    struct bridge_guest *g = NULL;

    if (bs->guests_count < GUESTS_MAX && !bs->ending)
        g = calloc(1, sizeof(*g));
    if (g) {
        g->bs = bs;
        g->timer = loop_timer_new(bs->loop, guest_dismiss, g);
    }
    if (g && g->timer)
        g->fd = loop_fd_add(bs->loop, fd, &ops, g);
    if (!g || !g->fd) {
        close(fd);
        if (g)
            loop_timer_free(g->timer);
        free(g);
        return;
    }
    DL_APPEND(bs->guests, g);
    bs->guests_count++;
    loop_timer_set(g->timer, GUEST_US);
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
    bs->ending = true;
    loop_timer_set(bs->end_timer, END_US);
    bridges_end_check(bs);
}
