#include "errand.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "leasehold/agent_link.h"

#define ERRANDS_MAX 8
#define SAY_US      INT64_C(2000000)    /* to say what is wanted … */
#define WAIT_US     INT64_C(3600000000) /* … to be answered, and to take the answer */

struct errand {
    struct errands *all;
    struct loop_fd *fd;
    struct loop_timer *timer;
    int64_t n;
    bool asked, answered;
    size_t in_len, out_len, out_at;
    char in[LINK_HEADER + LINK_PUT_MAX + 1];
    char out[LINK_HEADER + LINK_DONE_MAX];
    struct errand *prev, *next;
};

struct errands {
    struct loop *loop;
    bool (*ask)(void *ctx, int64_t n, const char *path, const char *name);
    void *ctx;
    int64_t last_n;
    struct errand *list;
};

struct errands *errands_new(struct loop *l,
                            bool (*ask)(void *ctx, int64_t n, const char *path, const char *name),
                            void *ctx)
{
    struct errands *all = calloc(1, sizeof(*all));

    if (all)
        *all = (struct errands){.loop = l, .ask = ask, .ctx = ctx};
    return all;
}

/* --- the answer ------------------------------------------------------------------------------ */

static void answer(struct errand *r, bool stored, const char *text)
{
    size_t len = strnlen(text, LINK_DONE_MAX - 1);

    if (r->answered)
        return;
    r->answered = true;
    link_header_put((uint8_t *)r->out, LINK_PUT_DONE, (uint32_t)(1 + len));
    r->out[LINK_HEADER] = stored ? 1 : 0;
    memcpy(r->out + LINK_HEADER + 1, text, len);
    r->out_len = LINK_HEADER + 1 + len;
    loop_timer_set(r->timer, SAY_US);
    loop_fd_write(r->fd);
}

void errands_done(struct errands *all, int64_t n, const char *artifact, const char *fault)
{
    struct errand *r;

    DL_FOREACH (all->list, r)
        if (r->n == n && r->asked)
            answer(r, artifact[0] != '\0', artifact[0] != '\0' ? artifact : fault);
}

void errands_lost(struct errands *all)
{
    struct errand *r;

    DL_FOREACH (all->list, r)
        if (r->asked)
            answer(r, false, "gateway_lost: look whether it is stored before trying again");
}

/* --- the question ---------------------------------------------------------------------------- */

/* The payload is a path, a NUL and a name; behind it stands a NUL of ours. */
static void ask(struct errand *r, size_t len)
{
    char *path = r->in + LINK_HEADER;
    size_t path_len = strnlen(path, len);

    if (path_len == 0 || path_len == len || strlen(path + path_len + 1) != len - path_len - 1) {
        answer(r, false, "invalid_request: not a path and a name");
        return;
    }
    r->asked = true;
    r->n = ++r->all->last_n;
    loop_timer_set(r->timer, WAIT_US);
    if (!r->all->ask(r->all->ctx, r->n, path, path + path_len + 1))
        answer(r, false, "gateway_away: try again in a while");
}

static void readable(void *ctx)
{
    struct errand *r = ctx;
    ssize_t n =
        recv(loop_fd_get(r->fd), r->in + r->in_len, sizeof(r->in) - 1 - r->in_len, MSG_DONTWAIT);
    size_t len;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || r->asked) { /* who has asked has nothing more to say */
        loop_fd_close(r->fd);
        return;
    }
    r->in_len += (size_t)n;
    if (r->in_len < LINK_HEADER)
        return;
    len = link_header_len((uint8_t *)r->in);
    if (r->in[0] != LINK_PUT || len > LINK_PUT_MAX || r->in_len > LINK_HEADER + len)
        loop_fd_close(r->fd);
    else if (r->in_len == LINK_HEADER + len)
        ask(r, len);
}

static void writable(void *ctx)
{
    struct errand *r = ctx;
    ssize_t n = send(loop_fd_get(r->fd), r->out + r->out_at, r->out_len - r->out_at,
                     MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n > 0)
        r->out_at += (size_t)n;
    if ((n < 0 && errno != EAGAIN && errno != EINTR) || r->out_at == r->out_len)
        loop_fd_close(r->fd);
    else
        loop_fd_write(r->fd);
}

static void errand_free(struct errand *r)
{
    loop_timer_free(r->timer);
    free(r);
}

static void ended(void *ctx)
{
    struct errand *r = ctx;

    DL_DELETE(r->all->list, r);
    errand_free(r);
}

static void too_late(void *ctx)
{
    struct errand *r = ctx;

    loop_fd_close(r->fd);
}

void errands_take(struct errands *all, int fd)
{
    static const struct loop_fd_ops ops = {readable, writable, ended};
    struct errand *r, *other;
    int count;

    DL_COUNT(all->list, other, count);
    r = count < ERRANDS_MAX ? calloc(1, sizeof(*r)) : NULL;
    if (!r) {
        close(fd);
        return;
    }
    r->all = all;
    r->timer = loop_timer_new(all->loop, too_late, r);
    r->fd = r->timer ? loop_fd_add(all->loop, fd, &ops, r) : NULL;
    if (!r->fd) {
        close(fd);
        errand_free(r);
        return;
    }
    DL_APPEND(all->list, r);
    loop_timer_set(r->timer, SAY_US);
}
