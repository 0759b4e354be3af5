#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "leasehold/agent_link.h"
#include "leasehold/buf.h"

#define QUEUE_HIGH     (1024 * 1024) /* clients stop sending */
#define QUEUE_LOW      (256 * 1024)  /* and go on */
#define QUEUE_CAP      SIZE_MAX      /* the high mark bounds it: a message a client at most above */
#define READ_PIECE     65536
#define READ_PER_TURN  (256 * 1024) /* then others get their turn */
#define DRAIN_AT_END   (4 * 1024 * 1024)
#define EXIT_PAYLOAD   2u
#define NUMBER_PAYLOAD 4u
#define DIALS_MAX      4096 /* bytes of them on their way; an agent behind by so much takes none */

struct agent {
    struct loop *loop;
    struct agent_events events;
    const char *transport;
    size_t name_len; /* of the transport's name, before its address */
    struct bridges *bridges;
    struct loop_fd *listener, *link;
    struct loop_timer *accept_timer; /* set: accepting is paused */
    pid_t link_pid; /* who has the link: leaseinit, which is there before the agent */
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
    return len == 1 + a->name_len && payload[0] == LINK_VERSION &&
           memcmp(payload + 1, a->transport, a->name_len) == 0;
}

static uint32_t number_get(const char *payload)
{
    const uint8_t *p = (const uint8_t *)payload;

    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
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
    else if (type == LINK_DIAL_FAILED)
        bridges_failed(a->bridges, number_get(payload));
    else
        link_fail(a, type == LINK_EXIT && len == EXIT_PAYLOAD ? "exit" : "bad_frame");
}

/* May a frame of this type be so long? Asked before its payload is waited for. */
static bool frame_fits(const struct agent *a, uint8_t type, size_t len)
{
    if (!a->hello)
        return type == LINK_HELLO && len <= 64;
    if (type == LINK_EXIT)
        return len == EXIT_PAYLOAD;
    return a->bridges ? type == LINK_DIAL_FAILED && len == NUMBER_PAYLOAD
                      : type == LINK_LINE && len <= LINK_LINE_MAX;
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

static void frame_put(struct agent *a, uint8_t type, const void *payload, size_t len)
{
    uint8_t head[LINK_HEADER];

    link_header_put(head, type, (uint32_t)len);
    buf_add(&a->out, head, sizeof(head));
    buf_add(&a->out, payload, len);
    if (!buf_ok(&a->out) && a->link)
        link_fail(a, "no_memory");
    if (a->link && a->hello)
        loop_fd_write(a->link);
    queue_note(a);
}

bool agent_line(struct agent *a, const char *text, size_t len)
{
    if (a->ended)
        return true;
    frame_put(a, LINK_LINE, text, len);
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

/* --- its end --------------------------------------------------------------------------------- */

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
    if (!a->why)
        a->why = "link_closed";
    if (a->bridges)
        bridges_end(a->bridges);
    else
        a->events.ended(a->events.ctx, a->why);
}

static const struct loop_fd_ops link_ops = {link_readable, link_writable, link_ended};

/* As this process sees it; 0 if it cannot. */
static pid_t peer_pid(int fd)
{
    struct ucred peer = {.pid = 0};
    socklen_t len = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 ? peer.pid : 0;
}

static void accept_pause(struct agent *a)
{
    loop_fd_read(a->listener, false);
    loop_timer_set(a->accept_timer, LOOP_ACCEPT_PAUSE_US);
}

static void accept_resume(void *ctx)
{
    struct agent *a = ctx;

    if (a->listener)
        loop_fd_read(a->listener, true);
}

static void listener_readable(void *ctx)
{
    struct agent *a = ctx;
    int fd = accept4(loop_fd_get(a->listener), NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0) {
        if (!loop_accept_passes(errno))
            accept_pause(a);
        return;
    }
    if (a->link && a->hello) {
        if (a->bridges && peer_pid(fd) == a->link_pid)
            bridges_adopt(a->bridges, fd);
        else
            a->events.visitor(a->events.ctx, fd);
        return;
    }
    if (a->link || a->ended) {
        close(fd);
        return;
    }
    buf_init(&a->in, LINK_HEADER + LINK_LINE_MAX + READ_PIECE);
    a->link_pid = peer_pid(fd);
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

/* --- bridges --------------------------------------------------------------------------------- */

static bool bridge_dial(void *ctx, uint32_t number)
{
    struct agent *a = ctx;
    const uint8_t payload[NUMBER_PAYLOAD] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16),
                                             (uint8_t)(number >> 8), (uint8_t)number};

    if (!a->hello || a->why || a->ended || a->out.len > DIALS_MAX)
        return false;
    frame_put(a, LINK_DIAL, payload, sizeof(payload));
    return !a->why;
}

static bool bridge_asks_ending(void *ctx)
{
    struct agent *a = ctx;

    if (a->link && !a->why)
        link_read(a);
    return a->why != NULL;
}

static void bridges_all_ended(void *ctx)
{
    struct agent *a = ctx;

    a->events.ended(a->events.ctx, a->why);
}

struct bridges *agent_bridges(const struct agent *a)
{
    return a->bridges;
}

/* --- life ------------------------------------------------------------------------------------ */

static int transport_take(struct agent *a, const char *transport, struct err *e)
{
    static const char *const names[] = {"stdio", "tcp", "unix", "ws"};
    static const enum bridge_kind kinds[] = {0, BRIDGE_TCP, BRIDGE_UNIX, BRIDGE_WS};
    const struct bridges_events events = {
        .ctx = a, .dial = bridge_dial, .ending = bridge_asks_ending, .ended = bridges_all_ended};
    size_t i = 0;

    a->transport = transport;
    a->name_len = strcspn(transport, ":");
    while (i < sizeof(names) / sizeof(names[0]) &&
           (strlen(names[i]) != a->name_len || memcmp(names[i], transport, a->name_len) != 0))
        i++;
    if (i == sizeof(names) / sizeof(names[0]))
        return err_set(e, ERR_INVALID_REQUEST, "no such transport");
    if (i == 0)
        return 0;
    a->bridges = bridges_new(a->loop, kinds[i], &events, a->events.bridge);
    return a->bridges ? 0 : err_set(e, ERR_INTERNAL, "no memory for bridges");
}

struct agent *agent_new(struct loop *l, int listen_fd, const char *transport,
                        const struct agent_events *events, struct err *e)
{
    static const struct loop_fd_ops ops = {listener_readable, listener_writable, listener_ended};
    struct agent *a = calloc(1, sizeof(*a));

    if (!a) {
        err_set(e, ERR_INTERNAL, "no memory for the agent");
        return NULL;
    }
    *a = (struct agent){.loop = l, .events = *events, .reading = true};
    buf_init(&a->out, QUEUE_CAP);
    if (transport_take(a, transport, e) == 0) {
        a->accept_timer = loop_timer_new(l, accept_resume, a);
        a->listener = a->accept_timer ? loop_fd_add(l, listen_fd, &ops, a) : NULL;
        if (a->listener)
            return a;
        err_set(e, ERR_INTERNAL, "cannot watch agent.sock");
    }
    free(a); /* the program ends: what else it had goes with it */
    return NULL;
}
