#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "leasehold/clock.h"

#define US_PER_S  INT64_C(1000000)
#define NS_PER_US 1000

struct loop {
    struct pollfd *polls;      /* what to wait for … */
    struct loop_fd **fds;      /* … and for whom, by the same index */
    size_t n, size;            /* size: there is room for */
    struct loop_fd *closing;   /* to be ended before the next wait */
    struct loop_timer *timers; /* those that are set, the next first */
    bool stopped;
};

struct loop_fd {
    struct loop *loop;
    const struct loop_fd_ops *ops;
    void *ctx;
    size_t i;
    bool reading, writing, closing;
    struct loop_fd *prev, *next; /* in closing */
};

struct loop_timer {
    struct loop *loop;
    void (*fire)(void *ctx);
    void *ctx;
    bool set;
    int64_t at_us;
    struct loop_timer *prev, *next;
};

int64_t loop_now_us(void)
{
    return clock_boot_us(&clock_system);
}

/* --- descriptors ----------------------------------------------------------------------------- */

static bool room_make(struct loop *l)
{
    size_t size = l->size ? l->size * 2 : 16;
    struct pollfd *polls;
    struct loop_fd **fds;

    if (l->n < l->size)
        return true;
    if (l->n == LOOP_FD_MAX)
        return false;
    polls = realloc(l->polls, size * sizeof(*polls));
    l->polls = polls ? polls : l->polls;
    fds = realloc(l->fds, size * sizeof(struct loop_fd *));
    l->fds = fds ? fds : l->fds;
    if (!polls || !fds)
        return false;
    l->size = size;
    return true;
}

static void events_set(struct loop_fd *w)
{
    int events = (w->reading ? POLLIN : 0) | (w->writing ? POLLOUT : 0);

    w->loop->polls[w->i].events = (short)(w->closing ? 0 : events);
}

struct loop_fd *loop_fd_add(struct loop *l, int fd, const struct loop_fd_ops *ops, void *ctx)
{
    struct loop_fd *w = room_make(l) ? calloc(1, sizeof(*w)) : NULL;

    if (!w)
        return NULL;
    /* What was inherited or handed over may wait, and the loop must not: best effort, as all calls on
     * what is handed over are told not to wait, too. */
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    *w = (struct loop_fd){.loop = l, .ops = ops, .ctx = ctx, .i = l->n, .reading = true};
    l->fds[l->n] = w;
    l->polls[l->n++] = (struct pollfd){.fd = fd, .events = POLLIN};
    return w;
}

void loop_fd_read(struct loop_fd *w, bool on)
{
    w->reading = on;
    events_set(w);
}

void loop_fd_write(struct loop_fd *w)
{
    w->writing = true;
    events_set(w);
}

void loop_fd_close(struct loop_fd *w)
{
    if (w->closing)
        return;
    w->closing = true;
    events_set(w);
    DL_APPEND(w->loop->closing, w);
}

int loop_fd_get(const struct loop_fd *w)
{
    return w->loop->polls[w->i].fd;
}

bool loop_accept_passes(int err)
{
    return err == EAGAIN || err == EINTR || err == ECONNABORTED || err == EPROTO;
}

/* The last one takes the place of the one that goes. */
static void fd_end(struct loop *l, struct loop_fd *w)
{
    int fd = loop_fd_get(w);

    DL_DELETE(l->closing, w);
    w->ops->ended(w->ctx); /* it may still look at the descriptor, and add others */
    l->n--;
    l->polls[w->i] = l->polls[l->n];
    l->fds[w->i] = l->fds[l->n];
    l->fds[w->i]->i = w->i;
    free(w);
    close(fd);
}

static void closing_end(struct loop *l)
{
    while (l->closing)
        fd_end(l, l->closing);
}

/* Whatever it does may only mark others as closing, or add some behind. */
static void fd_turn(struct loop_fd *w, short got)
{
    if ((got & POLLOUT) && w->writing && !w->closing) {
        w->writing = false;
        events_set(w);
        w->ops->writable(w->ctx);
    }
    if ((got & ~POLLOUT) && w->reading && !w->closing)
        w->ops->readable(w->ctx); /* an end or an error is read, too */
    else if ((got & (POLLHUP | POLLERR | POLLNVAL)) && !w->reading)
        loop_fd_close(w); /* nobody will read it, and poll would not wait any more */
}

static void fds_turn(struct loop *l, int got)
{
    for (size_t i = 0; got > 0 && i < l->n; i++) {
        short events = l->polls[i].revents;

        if (events == 0)
            continue;
        got--;
        l->polls[i].revents = 0;
        if (!l->fds[i]->closing)
            fd_turn(l->fds[i], events);
    }
}

/* --- timers ---------------------------------------------------------------------------------- */

struct loop_timer *loop_timer_new(struct loop *l, void (*fire)(void *ctx), void *ctx)
{
    struct loop_timer *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    *t = (struct loop_timer){.loop = l, .fire = fire, .ctx = ctx};
    return t;
}

void loop_timer_free(struct loop_timer *t)
{
    if (!t)
        return;
    loop_timer_stop(t);
    free(t);
}

static int by_time(const struct loop_timer *a, const struct loop_timer *b)
{
    return (a->at_us > b->at_us) - (a->at_us < b->at_us);
}

void loop_timer_set(struct loop_timer *t, int64_t delay_us)
{
    int64_t now_us = loop_now_us();

    loop_timer_stop(t);
    delay_us = delay_us > 0 ? delay_us : 0;
    t->at_us = delay_us < INT64_MAX - now_us ? now_us + delay_us : INT64_MAX;
    t->set = true;
    DL_INSERT_INORDER(t->loop->timers, t, by_time);
}

void loop_timer_stop(struct loop_timer *t)
{
    if (t->set)
        DL_DELETE(t->loop->timers, t);
    t->set = false;
}

bool loop_timer_is_set(const struct loop_timer *t)
{
    return t->set;
}

/* Those that are due now, and none that they set anew. */
static void timers_turn(struct loop *l)
{
    int64_t now_us = loop_now_us();

    while (l->timers && l->timers->at_us < now_us) {
        struct loop_timer *t = l->timers;

        loop_timer_stop(t);
        t->fire(t->ctx);
    }
}

/* --- life ------------------------------------------------------------------------------------ */

struct loop *loop_new(struct err *e)
{
    struct loop *l = calloc(1, sizeof(*l));

    if (!l)
        err_set(e, ERR_INTERNAL, "no memory for the loop");
    return l;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    free(l->polls);
    free(l->fds);
    free(l);
}

static int wait(struct loop *l)
{
    int64_t wait_us = l->timers ? l->timers->at_us - loop_now_us() + 1 : INT64_MAX;
    struct timespec until;

    wait_us = wait_us < 0 || l->closing ? 0 : wait_us;
    until = (struct timespec){.tv_sec = (time_t)(wait_us / US_PER_S),
                              .tv_nsec = (long)(wait_us % US_PER_S) * NS_PER_US};
    return ppoll(l->polls, l->n, &until, NULL);
}

void loop_run(struct loop *l, void (*after)(void *ctx), void *ctx)
{
    l->stopped = false;
    after(ctx);
    while (!l->stopped) {
        fds_turn(l, wait(l)); /* less than 0: a signal or no memory, both pass */
        closing_end(l);
        timers_turn(l);
        closing_end(l);
        after(ctx);
    }
}

void loop_stop(struct loop *l)
{
    l->stopped = true;
}
