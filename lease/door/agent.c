#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "leasehold/agent_link.h"
#include "leasehold/buf.h"

#define QUEUE_HIGH    (1024 * 1024) /* clients stop sending */
#define QUEUE_LOW     (256 * 1024)  /* and go on */
#define QUEUE_CAP     SIZE_MAX      /* the high mark bounds it: a message a client at most above */
#define READ_PIECE    65536
#define READ_PER_TURN (256 * 1024) /* then others get their turn */
#define DRAIN_AT_END  (4 * 1024 * 1024)
#define EXIT_PAYLOAD  2u

struct agent {
    struct loop *loop;
    struct agent_events events;
    const char *transport;
    struct loop_fd *listener, *link;
    bool hello, ended, full, reading;
    const char *why; /* of the end */
    struct buf in;   /* at most one frame */
    struct buf out;
    size_t out_at; /* bytes of `out` that are sent */
};

/* --- from the agent -------------------------------------------------------------------------- */

static void link_fail(struct agent *a, const char *why)
{
    if (!a->why)
        a->why = why;
    loop_fd_close(a->link);
}

static bool hello_is_good(const struct agent *a, const char *payload, size_t len)
{
    size_t name = strlen(a->transport);

    return len == 1 + name && payload[0] == LINK_VERSION &&
           memcmp(payload + 1, a->transport, name) == 0;
}

/* A frame whose payload is complete. */
static void frame_take(struct agent *a, uint8_t type, const char *payload, size_t len)
{
    if (!a->hello) {
        if (type != LINK_HELLO || !hello_is_good(a, payload, len)) {
            link_fail(a, "bad_hello");
            return;
        }
        a->hello = true;
        a->events.up(a->events.ctx);
        if (a->out.len > 0)
            loop_fd_write(a->link);
        return;
    }
    if (type == LINK_LINE)
        a->events.line(a->events.ctx, payload, len);
    else
        link_fail(a, type == LINK_EXIT && len == EXIT_PAYLOAD ? "exit" : "bad_frame");
}

/* May a frame of this type be so long? Asked before its payload is waited for. */
static bool frame_fits(const struct agent *a, uint8_t type, size_t len)
{
    if (!a->hello)
        return type == LINK_HELLO && len <= 64;
    return (type == LINK_LINE && len <= LINK_LINE_MAX) ||
           (type == LINK_EXIT && len == EXIT_PAYLOAD);
}

/* Takes whole frames off the front of `in`. */
static void frames_take(struct agent *a)
{
    size_t at = 0;

    while (!a->why && a->in.len - at >= LINK_HEADER) {
        const uint8_t *head = (const uint8_t *)a->in.data + at;
        size_t len = link_header_len(head);

        if (!frame_fits(a, head[0], len)) {
            link_fail(a, "bad_frame");
            break;
        }
        if (a->in.len - at < LINK_HEADER + len)
            break;
        frame_take(a, head[0], a->in.data + at + LINK_HEADER, len);
        at += LINK_HEADER + len;
    }
    buf_consume(&a->in, at);
}

/* One read; false when there is nothing more for now. */
static bool link_read(struct agent *a)
{
    char piece[READ_PIECE];
    ssize_t n = recv(loop_fd_get(a->link), piece, sizeof(piece), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        link_fail(a, "link_closed");
        return false;
    }
    buf_add(&a->in, piece, (size_t)n);
    if (!buf_ok(&a->in)) {
        link_fail(a, "no_memory");
        return false;
    }
    frames_take(a);
    return !a->why;
}

static void link_readable(void *ctx)
{
    struct agent *a = ctx;

    for (size_t n = 0; n < READ_PER_TURN && a->reading; n += READ_PIECE)
        if (!link_read(a))
            return;
}

/* --- to the agent ---------------------------------------------------------------------------- */

static void queue_note(struct agent *a)
{
    size_t left = a->out.len - a->out_at;

    if (left >= QUEUE_HIGH)
        a->full = true;
    if (left <= QUEUE_LOW && a->full) {
        a->full = false;
        a->events.drained(a->events.ctx);
    }
}

static void link_writable(void *ctx)
{
    struct agent *a = ctx;
    ssize_t n;

    if (!a->hello || a->out.len == 0)
        return;
    n = send(loop_fd_get(a->link), a->out.data + a->out_at, a->out.len - a->out_at,
             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        link_fail(a, "link_closed");
        return;
    }
    if (n > 0)
        a->out_at += (size_t)n;
    if (a->out_at == a->out.len)
        buf_done(&a->out);
    /* Moving the rest down costs its length, so not after every write. */
    else if (a->out_at >= QUEUE_HIGH)
        buf_consume(&a->out, a->out_at);
    if (a->out.len == 0 || a->out_at >= QUEUE_HIGH)
        a->out_at = 0;
    if (a->out.len > 0)
        loop_fd_write(a->link);
    queue_note(a);
}

bool agent_line(struct agent *a, const char *text, size_t len)
{
    uint8_t head[LINK_HEADER];

    if (a->ended)
        return true;
    link_header_put(head, LINK_LINE, (uint32_t)len);
    buf_add(&a->out, head, sizeof(head));
    buf_add(&a->out, text, len);
    if (!buf_ok(&a->out) && a->link)
        link_fail(a, "no_memory");
    if (a->link && a->hello)
        loop_fd_write(a->link);
    queue_note(a);
    return !a->full;
}

bool agent_is_full(const struct agent *a)
{
    return a->full;
}

void agent_read(struct agent *a, bool on)
{
    a->reading = on;
    if (a->link)
        loop_fd_read(a->link, on);
}

/* --- life ------------------------------------------------------------------------------------ */

/* The loop saw the end, or we asked for it. What the agent said last is still in the socket. */
static void link_ended(void *ctx)
{
    struct agent *a = ctx;

    for (size_t n = 0; !a->why && n < DRAIN_AT_END && link_read(a); n += READ_PIECE)
        ;
    a->link = NULL;
    buf_done(&a->in);
    if (!a->hello) {
        /* It never was the agent's link; the next one may be. */
        a->why = NULL;
        return;
    }
    a->ended = true;
    buf_done(&a->out);
    if (a->listener)
        loop_fd_close(a->listener);
    a->events.ended(a->events.ctx, a->why ? a->why : "link_closed");
}

static const struct loop_fd_ops link_ops = {link_readable, link_writable, link_ended};

static void listener_readable(void *ctx)
{
    struct agent *a = ctx;
    int fd = accept4(loop_fd_get(a->listener), NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (a->link || a->ended) {
        close(fd);
        return;
    }
    buf_init(&a->in, LINK_HEADER + LINK_LINE_MAX + READ_PIECE);
    a->link = loop_fd_add(a->loop, fd, &link_ops, a);
    if (!a->link)
        close(fd);
    else
        loop_fd_read(a->link, a->reading);
}

static void listener_writable(void *ctx)
{
    (void)ctx;
}

static void listener_ended(void *ctx)
{
    struct agent *a = ctx;

    a->listener = NULL;
}

struct agent *agent_new(struct loop *l, int listen_fd, const char *transport,
                        const struct agent_events *events, struct err *e)
{
    static const struct loop_fd_ops ops = {listener_readable, listener_writable, listener_ended};
    struct agent *a = calloc(1, sizeof(*a));

    if (a) {
        *a = (struct agent){.loop = l, .events = *events, .transport = transport, .reading = true};
        buf_init(&a->out, QUEUE_CAP);
        a->listener = loop_fd_add(l, listen_fd, &ops, a);
    }
    if (a && a->listener)
        return a;
    free(a);
    err_set(e, ERR_INTERNAL, "cannot watch agent.sock");
    return NULL;
}
