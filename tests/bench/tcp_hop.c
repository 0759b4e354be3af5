/*
 * The least that can stand between a client and its agent: copies from socket to socket and parses
 * nothing. What it costs, any door in its place costs at least.
 *
 *     tcp_hop PORT TO PIECE      one process a connection, on 127.0.0.1; PIECE bytes at once
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* One direction: a piece that is read when the one before it is written. */
struct way {
    int from, to;
    char *piece;
    size_t at, len;
};

static struct sockaddr_in loopback(const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static int passing(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* -1: the end. */
static int move(struct way *w, size_t size)
{
    ssize_t n = 0;

    if (w->len == 0) {
        n = recv(w->from, w->piece, size, 0);
        if (n <= 0)
            return passing(n) ? 0 : -1;
        w->at = 0;
        w->len = (size_t)n;
    }
    n = send(w->to, w->piece + w->at, w->len, MSG_NOSIGNAL);
    if (n < 0)
        return passing(n) ? 0 : -1;
    w->at += (size_t)n;
    w->len -= (size_t)n;
    return 0;
}

static void tune(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

static _Noreturn void serve(int client, int agent, size_t size)
{
    struct way ways[2] = {{.from = client, .to = agent, .piece = malloc(size)},
                          {.from = agent, .to = client, .piece = malloc(size)}};

    tune(client);
    tune(agent);
    while (agent >= 0 && ways[0].piece && ways[1].piece) {
        struct pollfd p[2] = {{.fd = client}, {.fd = agent}};

        for (int i = 0; i < 2; i++)
            p[ways[i].len ? 1 - i : i].events |= ways[i].len ? POLLOUT : POLLIN;
        poll(p, 2, -1);
        if (move(&ways[0], size) || move(&ways[1], size))
            break;
    }
    _exit(0);
}

static int dial(const char *port)
{
    struct sockaddr_in a = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a)) {
        close(fd);
        return -1;
    }
    return fd;
}

int main(int argc, char **argv)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in a;

    if (argc != 4)
        return 2;
    a = loopback(argv[1]);
    signal(SIGCHLD, SIG_IGN);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 64)) {
        perror("tcp_hop");
        return 1;
    }
    for (;;) {
        int client = accept(listener, NULL, NULL);

        if (client < 0)
            continue;
        if (fork() == 0)
            serve(client, dial(argv[2]), strtoul(argv[3], NULL, 10));
        close(client);
    }
}
