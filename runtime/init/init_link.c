#include "init_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mono.h"

#define CONNECT_PAUSE_MS 20

static int connect_once(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

int link_connect(const char *path, int64_t deadline_ms, int sigfd)
{
    for (;;) {
        int fd = connect_once(path);
        if (fd >= 0)
            return fd;
        /* EAGAIN: the door's backlog is full. */
        int why = errno;
        if (why != ENOENT && why != ECONNREFUSED && why != EAGAIN && why != EINTR)
            return -1;
        struct pollfd pfd = {.fd = sigfd, .events = POLLIN};
        if (poll(&pfd, 1, CONNECT_PAUSE_MS) > 0) {
            errno = EINTR;
            return -1;
        }
        if (mono_ms() >= deadline_ms) {
            errno = why;
            return -1;
        }
    }
}

/* Moving is put off until it gains much, so that a slow door does not cost a move per write. */
static void make_room(struct link *l)
{
    if (l->out_start == 0 || (l->out_start < l->out_sealed && l->out_start < LINK_OUT_SIZE / 2))
        return;
    memmove(l->out, l->out + l->out_start, l->out_end - l->out_start);
    l->out_sealed -= l->out_start;
    l->out_end -= l->out_start;
    l->out_start = 0;
}

static bool frame_begin(struct link *l)
{
    if (link_frame_open(l))
        return true;
    if (LINK_OUT_SIZE - l->out_end < LINK_HEADER)
        make_room(l);
    if (LINK_OUT_SIZE - l->out_end < LINK_HEADER) {
        l->starved = true;
        return false;
    }
    l->out_end += LINK_HEADER;
    return true;
}

bool link_frame_open(const struct link *l)
{
    return l->out_end > l->out_sealed;
}

bool link_frame_full(const struct link *l)
{
    return l->out_end - l->out_sealed == LINK_HEADER + LINK_LINE_MAX;
}

size_t link_frame_add(struct link *l, const void *data, size_t len)
{
    if (len == 0 || !frame_begin(l))
        return 0;
    size_t frame_left = LINK_HEADER + LINK_LINE_MAX - (l->out_end - l->out_sealed);
    if (len > frame_left)
        len = frame_left;
    if (len > LINK_OUT_SIZE - l->out_end)
        make_room(l);
    if (len > LINK_OUT_SIZE - l->out_end) {
        len = LINK_OUT_SIZE - l->out_end;
        l->starved = true;
    }
    memcpy(l->out + l->out_end, data, len);
    l->out_end += len;
    return len;
}

bool link_frame_end(struct link *l, uint8_t type)
{
    if (!frame_begin(l))
        return false;
    size_t len = l->out_end - l->out_sealed - LINK_HEADER;
    link_header_put(l->out + l->out_sealed, type, (uint32_t)len);
    l->out_sealed = l->out_end;
    return true;
}

bool link_has_output(const struct link *l)
{
    return l->fd >= 0 && l->out_sealed > l->out_start;
}

bool link_wants_writable(const struct link *l)
{
    return link_has_output(l) || (l->fd >= 0 && l->starved);
}

int link_flush(struct link *l)
{
    while (link_has_output(l)) {
        size_t len = l->out_sealed - l->out_start;
        ssize_t n = send(l->fd, l->out + l->out_start, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -1;
        l->out_start += (size_t)n;
    }
    if (l->out_start == l->out_end)
        l->out_start = l->out_sealed = l->out_end = 0;
    return 0;
}

bool link_wants_input(const struct link *l)
{
    return l->fd >= 0 && l->in_end - l->in_start < LINK_HEADER;
}

int link_fill(struct link *l)
{
    memmove(l->in, l->in + l->in_start, l->in_end - l->in_start);
    l->in_end -= l->in_start;
    l->in_start = 0;
    ssize_t n = recv(l->fd, l->in + l->in_end, LINK_IN_SIZE - l->in_end, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    l->in_end += (size_t)n;
    return n == 0 ? -1 : 0;
}

/* 1 when a frame has begun. */
static int read_header(struct link *l)
{
    if (l->in_end - l->in_start < LINK_HEADER)
        return 0;
    const uint8_t *header = l->in + l->in_start;
    uint32_t len = link_header_len(header);
    if (header[0] == 0 || len > LINK_LINE_MAX)
        return -1;
    l->in_type = header[0];
    l->in_left = len;
    l->in_start += LINK_HEADER;
    return 1;
}

int link_peek(struct link *l, struct link_piece *ret)
{
    if (l->in_type == 0) {
        int r = read_header(l);
        if (r <= 0)
            return r;
    }
    size_t len = l->in_end - l->in_start;
    if (len == 0 && l->in_left > 0)
        return 0;
    if (len > l->in_left)
        len = l->in_left;
    *ret = (struct link_piece){.type = l->in_type,
                               .data = l->in + l->in_start,
                               .len = len,
                               .ends_frame = len == l->in_left};
    return 1;
}

void link_consume(struct link *l, size_t len)
{
    l->in_start += len;
    l->in_left -= (uint32_t)len;
    if (l->in_left == 0)
        l->in_type = 0;
}

void link_close(struct link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    l->in_start = l->in_end = 0;
    l->in_left = 0;
    l->in_type = 0;
}
