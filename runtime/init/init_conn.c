#include "init_conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "leasehold/agent_link.h"
#include "leasehold/keep_spec.h"

#define DIAL_MS   8000 /* below the door's own patience */
#define RETRY_MS  20
#define LINGER_MS 2000
#define LAST_MS   10000 /* for what the agent has not taken yet when its client is gone */
#define TURN_MAX  16    /* reads in a row; others get their turn, too */
#define HOLD_MS   50 /* an agent that ends closes its connections a moment before it is known to */

int conn_socket(const struct conn_address *a)
{
    int on = 1;
    int fd = socket(a->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && a->addr.ss_family == AF_INET)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

int conn_start(struct conn *c, uint32_t number, int64_t now_ms)
{
    *c = (struct conn){.state = CONN_CONNECTING,
                       .number = number,
                       .agent_fd = -1,
                       .door_fd = -1,
                       .dial_by_ms = now_ms + DIAL_MS,
                       .due_ms = now_ms,
                       .up = malloc(sizeof(*c->up)),
                       .down = malloc(sizeof(*c->down))};
    if (c->up == NULL || c->down == NULL) {
        c->state = CONN_FAILED;
        return -1;
    }
    flow_clear(c->up);
    flow_clear(c->down);
    return 0;
}

static void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void conn_free(struct conn *c, const struct codec *codec)
{
    if (c->ws != NULL)
        codec->end(c);
    fd_close(&c->agent_fd);
    fd_close(&c->door_fd);
    free(c->up);
    free(c->down);
    *c = (struct conn){.state = CONN_FREE, .agent_fd = -1, .door_fd = -1};
}

/* ---- until it is open ---- */

static bool is_passing(int err)
{
    return err == EAGAIN || err == EINTR || err == EINPROGRESS || err == EALREADY;
}

/* A step of connecting; asked again, the kernel says what became of it. 1: connected, 0: not yet,
 * -1: refused. */
static int connect_step(int *fd, const struct conn_address *a)
{
    if (*fd < 0)
        *fd = conn_socket(a);
    if (*fd < 0)
        return -1;
    if (connect(*fd, (const struct sockaddr *)&a->addr, a->len) == 0 || errno == EISCONN)
        return 1;
    return is_passing(errno) ? 0 : -1;
}

static void door_join(struct conn *c)
{
    struct conn_address door = {.len = sizeof(struct sockaddr_un)};
    struct sockaddr_un *un = (struct sockaddr_un *)&door.addr;
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, AGENT_SOCKET, sizeof(AGENT_SOCKET));
    int r = connect_step(&c->door_fd, &door);
    if (r < 0)
        c->state = CONN_FAILED;
    if (r <= 0)
        return;
    uint8_t frame[LINK_HEADER + 4];
    link_header_put(frame, LINK_CONN, 4);
    for (size_t i = 0; i < 4; i++)
        frame[LINK_HEADER + i] = (uint8_t)(c->number >> (24 - 8 * i));
    flow_add(c->up, frame, sizeof(frame));
    c->state = CONN_OPEN;
}

static void agent_connect(struct conn *c, const struct conn_context *x)
{
    int r = connect_step(&c->agent_fd, x->agent);
    c->in_progress = r == 0 && (errno == EINPROGRESS || errno == EALREADY);
    if (r < 0 || (r > 0 && x->codec->begin != NULL && x->codec->begin(c, x->codec_ctx) < 0))
        c->state = CONN_FAILED;
    else if (r > 0)
        c->state = x->codec->begin != NULL ? CONN_SHAKING : CONN_JOINING;
}

static void agent_shake(struct conn *c, const struct conn_context *x)
{
    int r = x->codec->shake(c);
    if (r < 0)
        c->state = CONN_FAILED;
    else if (r > 0)
        c->state = CONN_JOINING;
}

static void dial_step(struct conn *c, const struct conn_context *x, int64_t now_ms)
{
    if (c->state == CONN_CONNECTING)
        agent_connect(c, x);
    if (c->state == CONN_SHAKING)
        agent_shake(c, x);
    if (c->state == CONN_JOINING)
        door_join(c);
    if (c->state < CONN_OPEN && now_ms >= c->dial_by_ms)
        c->state = CONN_FAILED;
    c->due_ms = c->state != CONN_OPEN ? now_ms + RETRY_MS : 0;
    if (c->state == CONN_FAILED) {
        fd_close(&c->agent_fd);
        fd_close(&c->door_fd);
    }
}

/* ---- open ---- */

static void move_up(struct conn *c, const struct codec *codec)
{
    do {
        if (!c->agent_ended && flow_len(c->up) == 0)
            codec->up(c);
        if (c->door_deaf)
            flow_clear(c->up);
        else if (flow_send(c->up, c->door_fd) == FLOW_ENDED)
            c->door_deaf = true;
    } while (c->more_up && !c->agent_ended && flow_len(c->up) == 0);
}

static void move_down(struct conn *c, const struct codec *codec)
{
    do {
        if (!c->door_ended && flow_len(c->down) == 0)
            codec->down(c);
        if (c->agent_deaf)
            flow_clear(c->down);
        else if (flow_send(c->down, c->agent_fd) == FLOW_ENDED)
            c->agent_deaf = true;
    } while (c->more_down && !c->door_ended && flow_len(c->down) == 0);
}

static void linger(struct conn *c, int64_t now_ms)
{
    fd_close(&c->door_fd);
    flow_clear(c->up);
    shutdown(c->agent_fd, SHUT_WR);
    c->state = CONN_LINGERING;
    c->due_ms = now_ms + LINGER_MS;
}

/* The agent's side has ended and the door has it all. */
static void agent_end(struct conn *c, const struct conn_context *x, int64_t now_ms)
{
    if (c->agent_said_so && (c->agent_deaf || flow_len(c->down) == 0)) {
        linger(c, now_ms);
        return;
    }
    if (c->due_ms == 0) /* the answer to a Close gets some time, too */
        c->due_ms = now_ms + (c->agent_said_so ? LINGER_MS : HOLD_MS);
    if (now_ms < c->due_ms)
        return;
    if (x->agent_exited)
        c->due_ms = 0;
    else
        conn_free(c, x->codec);
}

/* The client is gone; what it said before still goes down. */
static void door_end(struct conn *c, const struct conn_context *x, int64_t now_ms)
{
    bool said = x->codec->bye(c);
    if (said && (c->agent_deaf || flow_send(c->down, c->agent_fd) != FLOW_AGAIN)) {
        linger(c, now_ms);
        return;
    }
    if (c->due_ms == 0)
        c->due_ms = now_ms + LAST_MS;
    if (now_ms >= c->due_ms)
        conn_free(c, x->codec);
}

static void open_settle(struct conn *c, const struct conn_context *x, int64_t now_ms)
{
    if (c->agent_ended && (flow_len(c->up) == 0 || c->door_deaf))
        agent_end(c, x, now_ms);
    else if (c->door_ended)
        door_end(c, x, now_ms);
}

/* Drops what the agent still says until it has closed too: closing over unread bytes would reset
 * the connection under what it has not read yet. */
static void linger_step(struct conn *c, const struct codec *codec, int64_t now_ms)
{
    enum flow_result r = FLOW_MOVED;
    for (int i = 0; i < TURN_MAX && r == FLOW_MOVED; i++) {
        flow_clear(c->up);
        r = flow_recv(c->up, c->agent_fd);
    }
    if (r == FLOW_ENDED || now_ms >= c->due_ms)
        conn_free(c, codec);
}

static bool is_ready(const struct pollfd *p)
{
    return p->fd >= 0 && p->revents != 0;
}

void conn_step(struct conn *c, const struct conn_context *x, const struct pollfd *fds,
               int64_t now_ms)
{
    bool ready = is_ready(&fds[CONN_FD_AGENT]) || is_ready(&fds[CONN_FD_DOOR]);
    bool due = c->due_ms != 0 && now_ms >= c->due_ms;
    if (!ready && !due)
        return;
    if (c->state < CONN_OPEN)
        dial_step(c, x, now_ms);
    if (c->state == CONN_OPEN) {
        move_up(c, x->codec);
        move_down(c, x->codec);
        open_settle(c, x, now_ms);
    } else if (c->state == CONN_LINGERING) {
        linger_step(c, x->codec, now_ms);
    }
}

enum conn_rest conn_drain(struct conn *c, const struct conn_context *x)
{
    if (c->state != CONN_OPEN)
        return CONN_DRAINED;
    c->dry = false;
    for (int i = 0; i < TURN_MAX && flow_len(c->up) == 0; i++) {
        move_up(c, x->codec);
        if (c->agent_ended || c->dry || c->door_deaf)
            return flow_len(c->up) == 0 ? CONN_DRAINED : CONN_BLOCKED;
    }
    return flow_len(c->up) == 0 ? CONN_HAS_MORE : CONN_BLOCKED;
}

/* ---- what to wait for ---- */

static struct pollfd interest(int fd, bool in, bool out)
{
    short events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0));
    return (struct pollfd){.fd = events != 0 ? fd : -1, .events = events};
}

void conn_fds(const struct conn *c, struct pollfd ret[static CONN_FDS])
{
    bool open = c->state == CONN_OPEN;
    ret[CONN_FD_AGENT] = ret[CONN_FD_DOOR] = (struct pollfd){.fd = -1};
    if (c->state == CONN_CONNECTING)
        ret[CONN_FD_AGENT] = interest(c->agent_fd, false, c->in_progress);
    else if (c->state == CONN_SHAKING)
        ret[CONN_FD_AGENT] = interest(c->agent_fd, true, flow_len(c->down) > 0);
    else if (c->state == CONN_LINGERING)
        ret[CONN_FD_AGENT] = interest(c->agent_fd, true, false);
    if (!open)
        return;
    ret[CONN_FD_AGENT] = interest(c->agent_fd, !c->agent_ended && flow_len(c->up) == 0,
                                  flow_len(c->down) > 0 && !c->agent_deaf);
    ret[CONN_FD_DOOR] = interest(c->door_fd, !c->door_ended && flow_len(c->down) == 0,
                                 flow_len(c->up) > 0 && !c->door_deaf);
}
