#include "init_conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "leasehold/agent_link.h"
#include "leasehold/keep_spec.h"

#define DIAL_MS  8000 /* below the door's own patience */
#define RETRY_MS 20

int conn_socket(const struct conn_address *a)
{
    int on = 1;
    int fd = socket(a->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && a->addr.ss_family == AF_INET)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

void conn_start(struct conn *c, uint32_t number, int64_t now_ms)
{
    *c = (struct conn){.state = CONN_CONNECTING,
                       .number = number,
                       .agent_fd = -1,
                       .door_fd = -1,
                       .dial_by_ms = now_ms + DIAL_MS,
                       .due_ms = now_ms};
}

static void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void conn_free(struct conn *c, const struct conn_context *x)
{
    if (c->shake != NULL)
        x->handshake->end(c);
    fd_close(&c->agent_fd);
    fd_close(&c->door_fd);
    *c = (struct conn){.state = CONN_FREE, .agent_fd = -1, .door_fd = -1};
}

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

/* CONN and the descriptor in one message, so that the door never waits for one of them. */
static int hand_over(const struct conn *c)
{
    uint8_t frame[LINK_HEADER + 4];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    struct iovec iov = {.iov_base = frame, .iov_len = sizeof(frame)};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof(control)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &c->agent_fd, sizeof(int));
    link_header_put(frame, LINK_CONN, 4);
    for (size_t i = 0; i < 4; i++)
        frame[LINK_HEADER + i] = (uint8_t)(c->number >> (24 - 8 * i));
    ssize_t n = sendmsg(c->door_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return is_passing(errno) ? 0 : -1;
    return n == (ssize_t)sizeof(frame) ? 1 : -1;
}

static void door_join(struct conn *c, const struct conn_context *x)
{
    struct conn_address door = {.len = sizeof(struct sockaddr_un)};
    struct sockaddr_un *un = (struct sockaddr_un *)&door.addr;
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, AGENT_SOCKET, sizeof(AGENT_SOCKET));
    int r = connect_step(&c->door_fd, &door);
    if (r > 0)
        r = hand_over(c);
    if (r < 0)
        c->state = CONN_FAILED;
    else if (r > 0)
        conn_free(c, x);
}

static void agent_connect(struct conn *c, const struct conn_context *x)
{
    const struct handshake *h = x->handshake;
    int r = connect_step(&c->agent_fd, x->agent);
    c->in_progress = r == 0 && (errno == EINPROGRESS || errno == EALREADY);
    if (r < 0 || (r > 0 && h != NULL && h->begin(c, x->handshake_ctx) < 0))
        c->state = CONN_FAILED;
    else if (r > 0)
        c->state = h != NULL ? CONN_SHAKING : CONN_JOINING;
}

static void agent_shake(struct conn *c, const struct conn_context *x)
{
    int r = x->handshake->step(c);
    if (r < 0)
        c->state = CONN_FAILED;
    else if (r > 0)
        c->state = CONN_JOINING;
}

void conn_step(struct conn *c, const struct conn_context *x, const struct pollfd *p, int64_t now_ms)
{
    bool ready = p->fd >= 0 && p->revents != 0;
    if (!ready && (c->due_ms == 0 || now_ms < c->due_ms))
        return;
    if (c->state == CONN_CONNECTING)
        agent_connect(c, x);
    if (c->state == CONN_SHAKING)
        agent_shake(c, x);
    if (c->state == CONN_JOINING)
        door_join(c, x);
    if (c->state == CONN_FREE)
        return;
    if (now_ms >= c->dial_by_ms)
        c->state = CONN_FAILED;
    c->due_ms = now_ms + RETRY_MS;
    if (c->state == CONN_FAILED) {
        fd_close(&c->agent_fd);
        fd_close(&c->door_fd);
    }
}

struct pollfd conn_poll(const struct conn *c, const struct conn_context *x)
{
    struct pollfd p = {.fd = -1};
    if (c->state == CONN_CONNECTING && c->in_progress)
        p.events = POLLOUT;
    else if (c->state == CONN_SHAKING)
        p.events = (short)(POLLIN | (x->handshake->wants_writable(c) ? POLLOUT : 0));
    if (p.events != 0)
        p.fd = c->agent_fd;
    return p;
}
