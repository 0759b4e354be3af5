/*
 * A load client of one WebSocket connection.
 *
 *     ws_load PORT PATH PROTOCOL|- SIZE SECONDS <TOKEN
 *
 * Sends a message of SIZE bytes to 127.0.0.1:PORT, waits for its echo, and so on for SECONDS. Prints
 * {"messages": N, "seconds": S}. An empty TOKEN is none; with one, the door's `ready` is awaited.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ws_frame.h"

#define BUFFER (256u * 1024u)

struct load {
    int fd;
    uint8_t *out; /* one whole frame, masked */
    size_t out_len;
    uint8_t *in;
    size_t held;
    uint64_t size, left, got; /* left: of the frame that is coming in; got: of the message */
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "ws_load: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void receive(struct load *l)
{
    ssize_t n = recv(l->fd, l->in + l->held, BUFFER - l->held, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        die("the connection ended");
    l->held += (size_t)n;
}

static void shake(struct load *l, const char *path, const char *protocol, const char *token)
{
    char head[8192], *end;
    int n = snprintf(head, sizeof head,
                     "GET %s HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                     "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s%s%s%s%s%s\r\n",
                     path, protocol ? "Sec-WebSocket-Protocol: " : "", protocol ? protocol : "",
                     protocol ? "\r\n" : "", *token ? "Authorization: Bearer " : "", token,
                     *token ? "\r\n" : "");

    if (n < 0 || (size_t)n >= sizeof head || send(l->fd, head, (size_t)n, 0) != n)
        die("cannot send the request");
    do
        receive(l);
    while (!(end = memmem(l->in, l->held, "\r\n\r\n", 4)));
    if (memcmp(l->in, "HTTP/1.1 101", 12) != 0)
        die("the upgrade was refused");
    l->held -= (size_t)(end + 4 - (char *)l->in);
    memmove(l->in, end + 4, l->held);
}

/* Takes what is held; true once a whole message (its last frame) is complete. */
static bool take(struct load *l)
{
    struct frame_head head;
    size_t at = 0;
    bool whole = false;

    while (!whole) {
        size_t n = l->held - at < l->left ? l->held - at : (size_t)l->left;

        at += n;
        l->left -= n;
        l->got += n;
        if (l->left > 0 || !frame_head_get(l->in + at, l->held - at, &head)) {
            whole = l->left == 0 && l->got == l->size;
            break;
        }
        if ((head.first & 0x0f) == OPCODE_CLOSE)
            die("the door closed");
        at += head.size;
        l->left = head.len;
    }
    l->held -= at;
    memmove(l->in, l->in + at, l->held);
    if (whole)
        l->got = 0;
    return whole;
}

/* Both ways at once: the far side need not hold a whole message. */
static void round_trip(struct load *l)
{
    size_t sent = 0;

    for (;;) {
        struct pollfd p = {.fd = l->fd, .events = POLLIN};

        if (sent < l->out_len) {
            ssize_t n = send(l->fd, l->out + sent, l->out_len - sent, MSG_NOSIGNAL);

            if (n < 0 && errno != EAGAIN)
                die("cannot send");
            sent += n > 0 ? (size_t)n : 0;
            p.events |= sent < l->out_len ? POLLOUT : 0;
        }
        poll(&p, 1, -1);
        if (!(p.revents & (POLLIN | POLLHUP | POLLERR)))
            continue;
        receive(l);
        if (take(l))
            return;
    }
}

static void frame_make(struct load *l, uint64_t size)
{
    static const uint8_t mask[4] = {0x11, 0x22, 0x33, 0x44};

    l->size = size;
    l->out = malloc(FRAME_HEAD_MAX + size);
    if (!l->out)
        die("no memory");
    l->out_len = frame_head_put(l->out, FRAME_FIN | OPCODE_TEXT, size, mask);
    memset(l->out + l->out_len, 'x', size);
    frame_unmask(l->out + l->out_len, size, mask, 0);
    l->out_len += size;
}

static void dial(struct load *l, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0 || connect(l->fd, (struct sockaddr *)&to, sizeof to))
        die("cannot connect");
    setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* The door's first message, the only one that is not an echo. */
static void ready_await(struct load *l)
{
    struct frame_head head;

    while (!frame_head_get(l->in, l->held, &head) || l->held < head.size + head.len)
        receive(l);
    if (!memmem(l->in, l->held, "\"ready\"", 7))
        die("the door did not say ready");
    l->held -= head.size + (size_t)head.len;
    memmove(l->in, l->in + head.size + head.len, l->held);
}

int main(int argc, char **argv)
{
    struct load l = {.in = malloc(BUFFER)};
    char token[4096] = "";
    uint64_t messages = 0;
    double start, end;

    if (argc != 6 || !l.in)
        return 2;
    if (!fgets(token, sizeof token, stdin))
        token[0] = '\0';
    token[strcspn(token, "\n")] = '\0';
    frame_make(&l, strtoull(argv[4], NULL, 10));
    dial(&l, (uint16_t)atoi(argv[1]));
    shake(&l, argv[2], strcmp(argv[3], "-") ? argv[3] : NULL, token);
    if (*token)
        ready_await(&l);
    fcntl(l.fd, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 3; i++)
        round_trip(&l);
    start = now_s();
    end = start + atof(argv[5]);
    while (now_s() < end) {
        round_trip(&l);
        messages++;
    }
    printf("{\"messages\": %llu, \"seconds\": %.6f}\n", (unsigned long long)messages,
           now_s() - start);
    close(l.fd);
    return 0;
}
