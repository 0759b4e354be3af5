/* Transport `stdio`: a LINE frame is a line of the agent's stdin or stdout. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "init_transport.h"

#define RAW_SIZE 65536u

enum { FD_STDIN, FD_STDOUT, FD_COUNT };

struct stdio {
    struct transport base;
    int in_fd;    /* the agent's stdin; -1: it has closed it, messages are dropped */
    int out_fd;   /* the agent's stdout; -1: at its end */
    bool in_full; /* the agent does not read at the moment */
    bool owes_lf; /* a message was written, its line feed was not */
    bool out_dry; /* the last read found nothing */
    size_t raw_start, raw_end;
    uint8_t raw[RAW_SIZE]; /* of stdout, not in frames yet */
};

static struct transport *stdio_new(const char *word)
{
    if (strcmp(word, "stdio") != 0) {
        fprintf(stderr, "leaseinit: transport stdio takes no address: %s\n", word);
        return NULL;
    }
    struct stdio *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        perror("leaseinit");
        return NULL;
    }
    s->base.v = &transport_stdio;
    s->in_fd = s->out_fd = -1;
    return &s->base;
}

static int stdio_start(struct transport *t, struct agent *a, char **command)
{
    struct stdio *s = (struct stdio *)t;
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(from, O_CLOEXEC) < 0) {
        close(to[0]);
        close(to[1]);
        return -1;
    }
    s->in_fd = to[1];
    s->out_fd = from[0];
    fcntl(s->in_fd, F_SETFL, O_NONBLOCK);
    fcntl(s->out_fd, F_SETFL, O_NONBLOCK);
    int r = agent_start(a, command, &(struct agent_stdio){.in = to[0], .out = from[1]});
    int why = errno;
    close(to[0]);
    close(from[1]);
    errno = why;
    return r;
}

static bool stdio_ready(struct transport *t)
{
    (void)t;
    return true;
}

static int64_t stdio_due_ms(const struct transport *t)
{
    (void)t;
    return 0;
}

static size_t stdio_fds(struct transport *t, const struct link *l, struct pollfd *ret)
{
    const struct stdio *s = (const struct stdio *)t;
    (void)l;
    bool wants_output = s->raw_start == s->raw_end;
    ret[FD_STDIN] = (struct pollfd){.fd = s->in_full ? s->in_fd : -1, .events = POLLOUT};
    ret[FD_STDOUT] = (struct pollfd){.fd = wants_output ? s->out_fd : -1, .events = POLLIN};
    return FD_COUNT;
}

static void close_input(struct stdio *s)
{
    close(s->in_fd);
    s->in_fd = -1;
    s->in_full = s->owes_lf = false;
}

/* Writes part of a message and, where it `ends`, its line feed. Returns the bytes taken. */
static size_t write_piece(struct stdio *s, const uint8_t *data, size_t len, bool ends)
{
    static const char lf = '\n';
    struct iovec iov[2] = {{(void *)(uintptr_t)data, len}, {(void *)(uintptr_t)&lf, 1}};
    ssize_t r;
    do
        r = writev(s->in_fd, iov, ends ? 2 : 1);
    while (r < 0 && errno == EINTR);
    if (r < 0 && errno != EAGAIN) {
        close_input(s);
        return len;
    }
    size_t n = r > 0 ? (size_t)r : 0;
    size_t taken = n < len ? n : len;
    s->in_full = n < len + (ends ? 1 : 0);
    s->owes_lf = ends && n == len;
    return taken;
}

static int feed_agent(struct stdio *s, struct link *l)
{
    while (!s->in_full) {
        if (s->owes_lf) {
            write_piece(s, NULL, 0, true);
            continue;
        }
        struct link_piece piece;
        int r = link_peek(l, &piece);
        if (r <= 0)
            return r;
        if (piece.type != LINK_LINE)
            return -1;
        size_t taken = piece.len;
        if (s->in_fd >= 0)
            taken = write_piece(s, piece.data, piece.len, piece.ends_frame);
        link_consume(l, taken);
    }
    return 0;
}

static void read_agent(struct stdio *s)
{
    ssize_t n = read(s->out_fd, s->raw, RAW_SIZE);
    s->out_dry = n < 0 && errno == EAGAIN;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        close(s->out_fd);
        s->out_fd = -1;
    }
    s->raw_start = 0;
    s->raw_end = n > 0 ? (size_t)n : 0;
}

/* Turns raw output into frames as far as the link has room. A line of exactly the greatest length
 * is one frame: a full frame ends when its line feed or a further byte has come. */
static void frame_output(struct stdio *s, struct link *l)
{
    while (s->raw_start < s->raw_end) {
        const uint8_t *p = s->raw + s->raw_start;
        size_t len = s->raw_end - s->raw_start;
        const uint8_t *lf = memchr(p, '\n', len);
        size_t part = lf != NULL ? (size_t)(lf - p) : len;
        size_t took = link_frame_add(l, p, part);
        s->raw_start += took;
        if (took < part) {
            if (!link_frame_full(l))
                return;
            link_frame_end(l, LINK_LINE);
        } else if (lf != NULL) {
            if (!link_frame_end(l, LINK_LINE))
                return;
            s->raw_start++;
        }
    }
}

static int stdio_step(struct transport *t, struct link *l, const struct pollfd *fds)
{
    struct stdio *s = (struct stdio *)t;
    if (fds[FD_STDIN].fd >= 0 && fds[FD_STDIN].revents != 0)
        s->in_full = false;
    if (fds[FD_STDOUT].fd >= 0 && fds[FD_STDOUT].revents != 0)
        read_agent(s);
    frame_output(s, l);
    return feed_agent(s, l);
}

static bool stdio_drained(struct transport *t, struct link *l)
{
    struct stdio *s = (struct stdio *)t;
    /* Descendants may still hold the pipe: what they write later is not waited for. */
    s->out_dry = false;
    while (s->raw_start == s->raw_end && s->out_fd >= 0 && !s->out_dry) {
        read_agent(s);
        frame_output(s, l);
    }
    if (s->raw_start < s->raw_end)
        return false;
    return !link_frame_open(l) || link_frame_end(l, LINK_LINE);
}

const struct transport_vtable transport_stdio = {
    .name = "stdio",
    .new = stdio_new,
    .start = stdio_start,
    .ready = stdio_ready,
    .due_ms = stdio_due_ms,
    .fds = stdio_fds,
    .step = stdio_step,
    .drained = stdio_drained,
};
