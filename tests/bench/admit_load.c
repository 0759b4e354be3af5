/*
 * Opens and closes WebSocket connections one after the other, several beside each other.
 *
 *     admit_load PORT CONNECTIONS SECONDS <TOKENS
 *
 * Each connection is made, upgraded, and closed as soon as it is admitted: behind the head of the
 * answer, or, with a token, behind the door's `ready`. TOKENS has a line for each connection; an empty
 * one is no token. Prints {"requests", "failed", "seconds", "p50_us", "p99_us", "p999_us"}.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 64
#define SAMPLES_MAX     1000000u

struct client {
    pthread_t thread;
    uint16_t port;
    int64_t end_us;
    char token[4096];
    uint32_t *samples;
    size_t n, failed;
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "admit_load: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Closed by a reset, or the ports of the machine would be used up. */
static int dial(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct linger reset = {.l_onoff = 1};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
        die("cannot connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return fd;
}

static bool admitted(int fd, const char *token)
{
    const char *wanted = *token ? "\"ready\"" : "\r\n\r\n";
    char in[8192];
    size_t held = 0;

    for (;;) {
        ssize_t n = recv(fd, in + held, sizeof in - held, 0);

        if (n <= 0)
            return false;
        held += (size_t)n;
        if (memmem(in, held, wanted, strlen(wanted)))
            return memcmp(in, "HTTP/1.1 101", 12) == 0;
        if (held == sizeof in)
            return false;
    }
}

static void come_and_go(struct client *c)
{
    char head[8192];
    int64_t start = now_us();
    int fd = dial(c->port);
    int n = snprintf(head, sizeof head,
                     "GET / HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                     "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                     "Sec-WebSocket-Protocol: leasehold.door.v1\r\n%s%s%s\r\n",
                     *c->token ? "Authorization: Bearer " : "", c->token, *c->token ? "\r\n" : "");

    if (send(fd, head, (size_t)n, MSG_NOSIGNAL) != n)
        die("cannot send");
    if (!admitted(fd, c->token))
        c->failed++;
    else if (c->n < SAMPLES_MAX)
        c->samples[c->n++] = (uint32_t)(now_us() - start);
    close(fd);
}

static void *serve(void *arg)
{
    struct client *c = arg;

    while (now_us() < c->end_us)
        come_and_go(c);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void report(struct client *clients, int n, int64_t took_us)
{
    size_t all = 0, failed = 0;
    uint32_t *samples = calloc((size_t)n * SAMPLES_MAX, sizeof *samples);

    if (!samples)
        die("no memory");
    for (int i = 0; i < n; i++) {
        memcpy(samples + all, clients[i].samples, clients[i].n * sizeof *samples);
        all += clients[i].n;
        failed += clients[i].failed;
    }
    if (!all)
        die("nobody was let in");
    qsort(samples, all, sizeof *samples, by_size);
    printf("{\"requests\": %zu, \"failed\": %zu, \"seconds\": %.6f, \"p50_us\": %u, "
           "\"p99_us\": %u, \"p999_us\": %u}\n",
           all, failed, (double)took_us / 1e6, samples[all / 2], samples[all * 99 / 100],
           samples[all * 999 / 1000]);
    free(samples);
}

int main(int argc, char **argv)
{
    static struct client clients[CONNECTIONS_MAX];
    int n = argc == 4 ? atoi(argv[2]) : 0;
    int64_t start = now_us();

    if (n < 1 || n > CONNECTIONS_MAX)
        return 2;
    for (int i = 0; i < n; i++) {
        struct client *c = &clients[i];

        if (!fgets(c->token, sizeof c->token, stdin))
            return 2;
        c->token[strcspn(c->token, "\n")] = '\0';
        c->port = (uint16_t)atoi(argv[1]);
        c->end_us = start + (int64_t)(atof(argv[3]) * 1e6);
        c->samples = calloc(SAMPLES_MAX, sizeof *c->samples);
        if (!c->samples || pthread_create(&c->thread, NULL, serve, c))
            die("cannot start");
    }
    for (int i = 0; i < n; i++)
        pthread_join(clients[i].thread, NULL);
    report(clients, n, now_us() - start);
    return 0;
}
