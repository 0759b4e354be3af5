#include "init_flow.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

size_t flow_len(const struct flow *f)
{
    return f->end - f->start;
}

size_t flow_room(const struct flow *f)
{
    return FLOW_SIZE - flow_len(f);
}

void flow_clear(struct flow *f)
{
    f->start = f->end = 0;
}

uint8_t *flow_extend(struct flow *f, size_t len)
{
    if (len > FLOW_SIZE - f->end) {
        memmove(f->data, f->data + f->start, flow_len(f));
        f->end -= f->start;
        f->start = 0;
    }
    f->end += len;
    return f->data + f->end - len;
}

void flow_add(struct flow *f, const void *data, size_t len)
{
    uint8_t *to = flow_extend(f, len);
    if (len > 0)
        memcpy(to, data, len);
}

void flow_drop(struct flow *f, size_t len)
{
    f->start += len;
    if (f->start == f->end)
        flow_clear(f);
}

enum flow_result flow_recv(struct flow *f, int fd)
{
    size_t room = flow_room(f);
    if (room == 0)
        return FLOW_AGAIN;
    uint8_t *to = flow_extend(f, room);
    ssize_t n = recv(fd, to, room, MSG_DONTWAIT);
    f->end -= n > 0 ? room - (size_t)n : room;
    if (n > 0)
        return FLOW_MOVED;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? FLOW_AGAIN : FLOW_ENDED;
}

enum flow_result flow_send(struct flow *f, int fd)
{
    while (flow_len(f) > 0) {
        ssize_t n = send(fd, f->data + f->start, flow_len(f), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? FLOW_AGAIN : FLOW_ENDED;
        flow_drop(f, (size_t)n);
    }
    return FLOW_MOVED;
}
