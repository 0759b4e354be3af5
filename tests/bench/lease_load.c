/*
 * A load client of many kept-alive connections, over HTTP/1.1 or the bots' WebSocket.
 *
 *     lease_load http|ws PORT CONNECTIONS IN_FLIGHT SECONDS KEEP <LINES
 *
 * The first line is the API key (empty: none), every other one a request: `METHOD PATH BODY`, or for
 * the WebSocket `OP ARGS`. IN_FLIGHT requests are under way all the time, spread over CONNECTIONS
 * (HTTP: one on each). With SECONDS the lines are sent in turns for that long, with 0 each once. KEEP
 * names a file for the bodies of the answers, one a line; - keeps none.
 *
 * Prints {"requests", "failed", "seconds", "p50_us", "p99_us", "p999_us"} of what was answered. A
 * first failed answer goes to stderr.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ws_frame.h"

#define BUFFER      (128u * 1024u)
#define LINES_MAX   2000000u
#define SAMPLES_MAX 8000000u
#define SLOTS_MAX   64

struct conn {
    int fd;
    uint8_t *in;
    size_t held;
    int64_t sent_us[SLOTS_MAX]; /* by slot: when its request went; 0: it is free */
};

struct load {
    bool ws;
    uint16_t port;
    int conns_n, slots; /* slots: in flight on one connection */
    struct conn *conns;
    char key[256];
    char **lines;
    size_t lines_n, next;
    bool once;
    int64_t end_us;
    size_t under_way, failed;
    uint32_t *samples;
    size_t samples_n;
    FILE *keep;
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "lease_load: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* --- requests -------------------------------------------------------------------------------- */

static size_t http_request(const struct load *l, const char *line, char *out, size_t size)
{
    const char *path = strchr(line, ' '), *body = path ? strchr(path + 1, ' ') : NULL;

    if (!body)
        die("a line is no request");
    int n = snprintf(out, size,
                     "%.*s HTTP/1.1\r\nHost: bench\r\n%s%s%sContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     (int)(body - line), line, *l->key ? "Authorization: Bearer " : "", l->key,
                     *l->key ? "\r\n" : "", strlen(body + 1), body + 1);
    return (size_t)n < size ? (size_t)n : 0;
}

static size_t ws_request(const char *line, int slot, char *out, size_t size)
{
    static const uint8_t mask[4] = {0x11, 0x22, 0x33, 0x44};
    const char *args = strchr(line, ' ');
    char text[4096];

    if (!args)
        die("a line is no request");
    int n = snprintf(text, sizeof text, "{\"id\":\"%02d\",\"op\":\"%.*s\",\"args\":%s}", slot,
                     (int)(args - line), line, args + 1);
    if (n < 0 || (size_t)n >= sizeof text || (size_t)n + FRAME_HEAD_MAX > size)
        return 0;
    size_t head = frame_head_put((uint8_t *)out, FRAME_FIN | OPCODE_TEXT, (uint64_t)n, mask);
    memcpy(out + head, text, (size_t)n);
    frame_unmask((uint8_t *)out + head, (size_t)n, mask, 0);
    return head + (size_t)n;
}

/* The next line on a free slot; nothing when the time is over or all lines were sent. */
static void send_next(struct load *l, struct conn *c, int slot)
{
    char out[8192];
    size_t n;

    if (l->once ? l->next == l->lines_n : now_us() >= l->end_us)
        return;
    const char *line = l->lines[l->next++ % l->lines_n];
    n = l->ws ? ws_request(line, slot, out, sizeof out) : http_request(l, line, out, sizeof out);
    if (n == 0)
        die("a request is too long");
    c->sent_us[slot] = now_us();
    if (send(c->fd, out, n, MSG_NOSIGNAL) != (ssize_t)n)
        die("cannot send");
    l->under_way++;
}

/* --- answers --------------------------------------------------------------------------------- */

static void answered(struct load *l, struct conn *c, int slot, bool ok, const char *body,
                     size_t len)
{
    int64_t took = now_us() - c->sent_us[slot];

    c->sent_us[slot] = 0;
    l->under_way--;
    if (!ok && l->failed++ == 0)
        fprintf(stderr, "lease_load: %.*s\n", (int)len, body);
    if (ok && l->samples_n < SAMPLES_MAX)
        l->samples[l->samples_n++] = (uint32_t)took;
    if (ok && l->keep) {
        fwrite(body, 1, len, l->keep);
        if (len == 0 || body[len - 1] != '\n')
            fputc('\n', l->keep);
    }
    send_next(l, c, slot);
}

/* The length of the body behind `head`; -1: more is needed. Chunks stay as they are. */
static ssize_t body_len(const char *head, const char *body, size_t held)
{
    const char *length = strcasestr(head, "\r\nContent-Length:"), *end;

    if (length && length < body)
        return (ssize_t)strtoul(length + 17, NULL, 10);
    if (!strcasestr(head, "\r\nTransfer-Encoding: chunked"))
        return 0;
    end = memmem(body, held, "0\r\n\r\n", 5);
    return end ? end + 5 - body : -1;
}

/* Takes one whole answer off the connection. */
static bool take_http(struct load *l, struct conn *c)
{
    char *in = (char *)c->in, *body;
    ssize_t len;

    in[c->held] = '\0';
    body = memmem(in, c->held, "\r\n\r\n", 4);
    if (!body)
        return false;
    body += 4;
    len = body_len(in, body, c->held - (size_t)(body - in));
    if (len < 0 || c->held - (size_t)(body - in) < (size_t)len)
        return false;
    answered(l, c, 0, in[9] == '2', body, (size_t)len);
    c->held -= (size_t)(body - in + len);
    memmove(in, body + len, c->held);
    return true;
}

static size_t take_frame(struct load *l, struct conn *c, size_t at)
{
    struct frame_head head;

    if (!frame_head_get(c->in + at, c->held - at, &head) || c->held - at < head.size + head.len)
        return 0;
    const char *text = (const char *)c->in + at + head.size;
    if ((head.first & 0x0f) == OPCODE_CLOSE)
        die("the connection was closed");
    const char *id = memmem(text, (size_t)head.len, "\"id\":\"", 6);
    const char *ok = memmem(text, (size_t)head.len, "\"ok\":true", 9);
    if (!id)
        die("an answer without an id");
    answered(l, c, (int)strtol(id + 6, NULL, 10), ok != NULL, text, (size_t)head.len);
    return head.size + (size_t)head.len;
}

static void take_all(struct load *l, struct conn *c)
{
    size_t at = 0, n;

    if (!l->ws) {
        while (take_http(l, c))
            ;
        return;
    }
    while ((n = take_frame(l, c, at)) > 0)
        at += n;
    c->held -= at;
    memmove(c->in, c->in + at, c->held);
}

static void receive(struct conn *c)
{
    ssize_t n = recv(c->fd, c->in + c->held, BUFFER - 1 - c->held, 0);

    if (n <= 0)
        die("the connection ended");
    c->held += (size_t)n;
}

/* --- connections ----------------------------------------------------------------------------- */

static void shake(const struct load *l, struct conn *c)
{
    char head[1024], *end;
    int n = snprintf(head, sizeof head,
                     "GET /api/v1/ws HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                     "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                     "Sec-WebSocket-Protocol: leasehold.v1\r\nAuthorization: Bearer %s\r\n\r\n",
                     l->key);

    if (send(c->fd, head, (size_t)n, 0) != n)
        die("cannot send the upgrade");
    do
        receive(c);
    while (!(end = memmem(c->in, c->held, "\r\n\r\n", 4)));
    if (memcmp(c->in, "HTTP/1.1 101", 12) != 0)
        die("the upgrade was refused");
    c->held = 0;
}

static void dial(const struct load *l, struct conn *c)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(l->port)};
    int on = 1;

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->in = malloc(BUFFER);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!c->in || c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to))
        die("cannot connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (l->ws)
        shake(l, c);
}

static void run(struct load *l)
{
    int ep = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[64];

    for (int i = 0; i < l->conns_n; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &l->conns[i]};

        if (epoll_ctl(ep, EPOLL_CTL_ADD, l->conns[i].fd, &ev))
            die("epoll");
    }
    for (int slot = 0; slot < l->slots; slot++)
        for (int i = 0; i < l->conns_n; i++)
            send_next(l, &l->conns[i], slot);
    while (l->under_way) {
        int n = epoll_wait(ep, events, 64, 30000);

        if (n <= 0)
            die("no answer in 30 seconds");
        for (int i = 0; i < n; i++) {
            receive(events[i].data.ptr);
            take_all(l, events[i].data.ptr);
        }
    }
    close(ep);
}

/* --- the whole ------------------------------------------------------------------------------- */

static void read_lines(struct load *l)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t n;

    l->lines = calloc(LINES_MAX, sizeof *l->lines);
    if (!l->lines || (n = getline(&line, &size, stdin)) < 0)
        die("no lines");
    snprintf(l->key, sizeof l->key, "%.*s", (int)strcspn(line, "\n"), line);
    while (l->lines_n < LINES_MAX && (n = getline(&line, &size, stdin)) > 0) {
        line[strcspn(line, "\n")] = '\0';
        l->lines[l->lines_n++] = strdup(line);
    }
    free(line);
    if (!l->lines_n)
        die("no requests");
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static unsigned quantile(const struct load *l, size_t per_mille)
{
    size_t at = l->samples_n * per_mille / 1000;

    return l->samples_n ? l->samples[at < l->samples_n ? at : l->samples_n - 1] : 0;
}

static void report(const struct load *l, int64_t took_us)
{
    qsort(l->samples, l->samples_n, sizeof *l->samples, by_size);
    printf("{\"requests\": %zu, \"failed\": %zu, \"seconds\": %.6f, \"p50_us\": %u, "
           "\"p99_us\": %u, \"p999_us\": %u}\n",
           l->samples_n, l->failed, (double)took_us / 1e6, quantile(l, 500), quantile(l, 990),
           quantile(l, 999));
}

int main(int argc, char **argv)
{
    struct load l = {.samples = calloc(SAMPLES_MAX, sizeof *l.samples)};
    int64_t start;

    if (argc != 7 || !l.samples)
        return 2;
    l.ws = !strcmp(argv[1], "ws");
    l.port = (uint16_t)atoi(argv[2]);
    l.conns_n = atoi(argv[3]);
    l.slots = l.ws ? atoi(argv[4]) / l.conns_n : 1;
    l.once = !strcmp(argv[5], "0");
    l.conns = calloc((size_t)l.conns_n, sizeof *l.conns);
    if (!l.conns || l.slots < 1 || l.slots > SLOTS_MAX)
        return 2;
    if (strcmp(argv[6], "-") && !(l.keep = fopen(argv[6], "we")))
        die(argv[6]);
    read_lines(&l);
    for (int i = 0; i < l.conns_n; i++)
        dial(&l, &l.conns[i]);
    start = now_us();
    l.end_us = start + (int64_t)(atof(argv[5]) * 1e6);
    run(&l);
    report(&l, now_us() - start);
    return l.keep && fclose(l.keep) ? 1 : 0;
}
