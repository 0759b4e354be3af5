/*
 * Who connects to agent.sock beside the link: leaseinit, with a connection of the agent in its hands.
 * Until that is sure, it is a guest. What it brings is looked at before it is used: it must be what a
 * transport can have made, and nothing about it may make a call of ours wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "bridge_state.h"

#define GUEST_US   2000000
#define GUESTS_MAX 8

struct bridge_guest {
    struct bridges *bs;
    struct loop_fd *fd;
    struct loop_timer *timer;
    uint8_t said[LINK_HEADER + 4]; /* CONN */
    size_t said_len;
    int brought; /* the descriptor; -1: none yet */
    bool bad;    /* it brought more than one */
    struct bridge_guest *prev, *next;
};

/* --- the descriptor -------------------------------------------------------------------------- */

static int option_get(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof(value);

    return getsockopt(fd, SOL_SOCKET, name, &value, &len) == 0 ? value : -1;
}

static bool is_agents_connection(int fd, enum bridge_kind kind)
{
    bool is_unix = kind == BRIDGE_UNIX;

    return option_get(fd, SO_TYPE) == SOCK_STREAM &&
           option_get(fd, SO_DOMAIN) == (is_unix ? AF_UNIX : AF_INET) &&
           option_get(fd, SO_PROTOCOL) == (is_unix ? 0 : IPPROTO_TCP) &&
           option_get(fd, SO_ACCEPTCONN) == 0;
}

/* What whoever had it before may have set: a close that waits, reads that wait for more. */
static int settings_reset(int fd, enum bridge_kind kind)
{
    const struct linger none = {0};
    int on = 1;

    if (fcntl(fd, F_SETFL, O_NONBLOCK) ||
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none)) ||
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &on, sizeof(on)))
        return -1;
    return kind == BRIDGE_UNIX ? 0 : setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* --- the guest ------------------------------------------------------------------------------- */

static void guest_dismiss(void *ctx)
{
    struct bridge_guest *g = ctx;

    loop_fd_close(g->fd);
}

static void brought_take(struct bridge_guest *g, struct msghdr *m)
{
    struct cmsghdr *h = CMSG_FIRSTHDR(m);
    int fd;

    g->bad |= (m->msg_flags & MSG_CTRUNC) != 0;
    if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS ||
        h->cmsg_len != CMSG_LEN(sizeof(fd)))
        return;
    memcpy(&fd, CMSG_DATA(h), sizeof(fd));
    if (g->brought < 0) {
        g->brought = fd;
        return;
    }
    g->bad = true;
    close(fd);
}

/* CONN and what comes with it; nothing behind it. */
static ssize_t guest_recv(struct bridge_guest *g)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {g->said + g->said_len, sizeof(g->said) - g->said_len};
    /* The length, not the space: that would have room for a second descriptor. */
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t n = recvmsg(loop_fd_get(g->fd), &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n >= 0)
        brought_take(g, &m);
    if (n > 0)
        g->said_len += (size_t)n;
    return n;
}

static uint32_t number_said(const struct bridge_guest *g)
{
    const uint8_t *p = g->said + LINK_HEADER;

    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void guest_seat(struct bridge_guest *g)
{
    struct bridge *b = NULL;

    if (g->said[0] == LINK_CONN && link_header_len(g->said) == 4)
        b = bridge_dialled(g->bs, number_said(g));
    if (!b || g->bad || g->brought < 0 || !is_agents_connection(g->brought, g->bs->kind) ||
        settings_reset(g->brought, g->bs->kind))
        return;
    bridge_seat(b, g->brought);
    g->brought = -1;
}

static void guest_readable(void *ctx)
{
    struct bridge_guest *g = ctx;
    ssize_t n = guest_recv(g);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && g->said_len < sizeof(g->said))
        return;
    if (n > 0)
        guest_seat(g);
    guest_dismiss(g);
}

static void guest_writable(void *ctx)
{
    (void)ctx;
}

static void guest_ended(void *ctx)
{
    struct bridge_guest *g = ctx;

    if (g->brought >= 0) {
        /* Whatever it is: its close shall not wait. */
        (void)setsockopt(g->brought, SOL_SOCKET, SO_LINGER, &(struct linger){0},
                         sizeof(struct linger));
        close(g->brought);
    }
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
        g->brought = -1;
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
