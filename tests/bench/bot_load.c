/*
 * Many WebSocket sessions of one thread, to ours and to what ours is measured beside.
 *
 *     bot_load leasehold|nats|bare PORT SESSIONS WINDOW
 *
 * The first line on stdin is the key ("": none). Then commands, a line each, and a line of JSON for
 * each when it is done:
 *
 *     connect              opens and proves all sessions, WINDOW handshakes at a time
 *     subscribe ARGS       asks for events, one session after the other (nats: of subject ARGS)
 *     await TEXT           "armed", then when the last session has had a message that contains TEXT
 *     ask SECONDS RATE OP ARGS     RATE operations a second on each session
 *
 * Latencies of `ask` count from when an operation was due, not from when it could be sent. Times of
 * `await` are those of the monotonic clock. It ends with stdin.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ws_frame.h"

#define BUFFER      (256u * 1024u)
#define TEXT_MAX    8192 /* more than a line and what stands around it */
#define SLOTS       64   /* operations under way on one session, as many as a session may have */
#define SAMPLES_MAX 4000000u
#define OPCODE_PING 9u
#define OPCODE_PONG 10u

enum kind { LEASEHOLD, NATS, BARE };
enum bot_state { NEW, SHAKING, PROVING, UP, AWAITED };

struct bot {
    int fd;
    enum bot_state state;
    int64_t began_us;
    uint8_t *rest; /* an incomplete frame */
    size_t held;
    int64_t due_us[SLOTS]; /* by the number of the operation; 0: none is under way */
};

struct load {
    enum kind kind;
    uint16_t port;
    size_t n, window;
    char key[256];
    int epoll;
    struct bot *bots;
    uint8_t *in;
    size_t up, under_way, failed, asked;
    const char *awaited;
    int64_t last_us;
    uint32_t *samples;
    size_t samples_n;
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "bot_load: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void sample(struct load *l, int64_t took_us)
{
    if (l->samples_n < SAMPLES_MAX)
        l->samples[l->samples_n++] = (uint32_t)took_us;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static unsigned quantile(const struct load *l, double q)
{
    size_t at = (size_t)((double)l->samples_n * q);

    return l->samples_n ? l->samples[at < l->samples_n ? at : l->samples_n - 1] : 0;
}

static void report(struct load *l, int64_t began_us)
{
    qsort(l->samples, l->samples_n, sizeof *l->samples, by_size);
    printf("{\"done\":%zu,\"failed\":%zu,\"seconds\":%.6f,\"end_us\":%lld,\"p50_us\":%u,"
           "\"p99_us\":%u,\"p999_us\":%u}\n",
           l->samples_n, l->failed, (double)(now_us() - began_us) / 1e6, (long long)l->last_us,
           quantile(l, 0.5), quantile(l, 0.99), quantile(l, 0.999));
    fflush(stdout);
    l->samples_n = l->failed = 0;
}

/* --- sending --------------------------------------------------------------------------------- */

static void put(const struct bot *b, const void *data, size_t len)
{
    if (send(b->fd, data, len, MSG_NOSIGNAL) != (ssize_t)len)
        die("cannot send");
}

static void put_frame(const struct bot *b, unsigned opcode, const char *text, size_t len)
{
    static const uint8_t mask[4] = {0x11, 0x22, 0x33, 0x44};
    uint8_t out[FRAME_HEAD_MAX + TEXT_MAX];
    size_t head = frame_head_put(out, (uint8_t)(FRAME_FIN | opcode), len, mask);

    if (len > TEXT_MAX)
        die("a message is too long");
    memcpy(out + head, text, len);
    frame_unmask(out + head, len, mask, 0);
    put(b, out, head + len);
}

static void put_text(const struct load *l, const struct bot *b, const char *text)
{
    put_frame(b, l->kind == NATS ? OPCODE_BINARY : OPCODE_TEXT, text, strlen(text));
}

static void shake(const struct load *l, const struct bot *b)
{
    char head[1024];
    bool ours = l->kind == LEASEHOLD;
    int n = snprintf(head, sizeof head,
                     "GET %s HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                     "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s%s%s\r\n",
                     ours ? "/api/v1/ws" : "/",
                     ours ? "Sec-WebSocket-Protocol: leasehold.v1\r\nAuthorization: Bearer " : "",
                     ours ? l->key : "", ours ? "\r\n" : "");

    put(b, head, (size_t)n);
}

/* --- receiving ------------------------------------------------------------------------------- */

static void is_up(struct load *l, struct bot *b)
{
    b->state = UP;
    l->up++;
    l->under_way--;
    sample(l, now_us() - b->began_us);
}

static void prove(const struct load *l, const struct bot *b)
{
    char text[512];

    snprintf(text, sizeof text,
             "CONNECT {\"verbose\":false,\"pedantic\":false,\"auth_token\":\"%s\"}\r\nPING\r\n",
             l->key);
    put_text(l, b, text);
}

static void answered(struct load *l, struct bot *b, const char *text, size_t len)
{
    const char *id = memmem(text, len, "\"id\":\"", 6);
    long slot = id ? strtol(id + 6, NULL, 10) : -1;

    if (slot < 0 || slot >= SLOTS || !b->due_us[slot])
        return; /* an event */
    l->under_way--;
    if (memmem(text, len, "\"ok\":true", 9))
        sample(l, now_us() - b->due_us[slot]);
    else if (l->failed++ == 0)
        fprintf(stderr, "bot_load: %.*s\n", (int)len, text);
    b->due_us[slot] = 0;
}

static void told(struct load *l, struct bot *b, const char *text, size_t len)
{
    if (l->awaited && b->state == UP && memmem(text, len, l->awaited, strlen(l->awaited))) {
        b->state = AWAITED;
        l->under_way--;
        l->last_us = now_us();
        sample(l, 0);
    } else if (l->kind == LEASEHOLD) {
        answered(l, b, text, len);
    } else if (l->kind == NATS && memmem(text, len, "INFO ", 5)) {
        prove(l, b);
    } else if (l->kind == NATS && memmem(text, len, "PONG", 4)) {
        if (b->state == PROVING)
            is_up(l, b);
        else if (b->due_us[0])
            l->under_way--, b->due_us[0] = 0;
    } else if (l->kind == NATS && memmem(text, len, "PING", 4)) {
        put_text(l, b, "PONG\r\n");
    }
}

static _Noreturn void closed(const char *text, size_t len)
{
    int code = len < 2 ? 0 : (uint8_t)text[0] << 8 | (uint8_t)text[1];

    fprintf(stderr, "bot_load: a session was closed: %d %.*s\n", code, len < 2 ? 0 : (int)len - 2,
            text + 2);
    exit(1);
}

static size_t frames(struct load *l, struct bot *b, const uint8_t *data, size_t len)
{
    struct frame_head head;
    size_t at = 0;

    while (frame_head_get(data + at, len - at, &head) && len - at >= head.size + head.len) {
        const char *text = (const char *)data + at + head.size;

        if ((head.first & 0x0f) == OPCODE_CLOSE)
            closed(text, (size_t)head.len);
        if ((head.first & 0x0f) == OPCODE_PING)
            put_frame(b, OPCODE_PONG, text, (size_t)head.len);
        else
            told(l, b, text, (size_t)head.len);
        at += head.size + (size_t)head.len;
    }
    return at;
}

/* Takes what is complete; how much that was. */
static size_t take(struct load *l, struct bot *b, const uint8_t *data, size_t len)
{
    const uint8_t *end;
    size_t head;

    if (b->state != SHAKING)
        return frames(l, b, data, len);
    end = memmem(data, len, "\r\n\r\n", 4);
    if (!end)
        return 0;
    if (memcmp(data, "HTTP/1.1 101", 12) != 0)
        die("an upgrade was refused");
    b->state = PROVING;
    if (l->kind != NATS)
        is_up(l, b);
    head = (size_t)(end + 4 - data);
    return head + frames(l, b, data + head, len - head);
}

static void receive(struct load *l, struct bot *b)
{
    size_t had = b->held, used;
    ssize_t n;

    memcpy(l->in, b->rest, had);
    n = recv(b->fd, l->in + had, BUFFER - had, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        die("a session ended");
    used = take(l, b, l->in, had + (size_t)n);
    b->held = had + (size_t)n - used;
    if (b->held || b->rest) {
        free(b->rest);
        b->rest = b->held ? malloc(b->held) : NULL;
        memcpy(b->rest, l->in + used, b->held);
    }
}

/* What comes within `ms`. */
static void turn(struct load *l, int ms)
{
    struct epoll_event events[256];
    int n = epoll_wait(l->epoll, events, 256, ms);

    for (int i = 0; i < n; i++) {
        struct bot *b = events[i].data.ptr;

        if (b->state == NEW) {
            struct epoll_event want = {.events = EPOLLIN, .data.ptr = b};

            b->state = SHAKING;
            epoll_ctl(l->epoll, EPOLL_CTL_MOD, b->fd, &want);
            shake(l, b);
        } else {
            receive(l, b);
        }
    }
}

/* --- commands -------------------------------------------------------------------------------- */

static void dial(struct load *l, struct bot *b)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(l->port)};
    struct epoll_event want = {.events = EPOLLOUT, .data.ptr = b};
    int on = 1;

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    b->began_us = now_us();
    b->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (b->fd < 0 ||
        (connect(b->fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS))
        die("cannot connect");
    setsockopt(b->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_ctl(l->epoll, EPOLL_CTL_ADD, b->fd, &want);
    l->under_way++;
}

static void do_connect(struct load *l)
{
    int64_t began_us = now_us();
    size_t next = 0;

    while (l->up < l->n) {
        while (next < l->n && l->under_way < l->window)
            dial(l, &l->bots[next++]);
        turn(l, 1000);
    }
    report(l, began_us);
}

static void do_subscribe(struct load *l, const char *args)
{
    int64_t began_us = now_us();
    char text[TEXT_MAX];

    if (l->kind == NATS)
        snprintf(text, sizeof text, "SUB %s 1\r\nPING\r\n", args);
    else
        snprintf(text, sizeof text, "{\"id\":\"0\",\"op\":\"subscribe\",\"args\":%s}", args);
    for (size_t i = 0; i < l->n && l->kind != BARE; i++) {
        put_text(l, &l->bots[i], text);
        l->bots[i].due_us[0] = now_us();
        l->under_way++;
        while (l->under_way >= l->window || (i + 1 == l->n && l->under_way > 0))
            turn(l, 1000);
    }
    report(l, began_us);
}

static void do_await(struct load *l, const char *text)
{
    int64_t began_us = now_us();

    l->awaited = text;
    l->under_way = l->n;
    for (size_t i = 0; i < l->n; i++)
        l->bots[i].state = UP;
    puts("armed");
    fflush(stdout);
    while (l->under_way > 0)
        turn(l, 1000);
    l->awaited = NULL;
    report(l, began_us);
}

static void ask(struct load *l, struct bot *b, const char *op, const char *args, int64_t due_us)
{
    char text[TEXT_MAX];
    int slot = 0;

    while (slot < SLOTS && b->due_us[slot])
        slot++;
    if (slot == SLOTS) { /* it has as many under way as it may */
        l->failed++;
        return;
    }
    snprintf(text, sizeof text, "{\"id\":\"%02d\",\"op\":\"%s\",\"args\":%s}", slot, op, args);
    put_text(l, b, text);
    b->due_us[slot] = due_us;
    l->under_way++;
}

/* The sessions in turns, so that they ask evenly over the second. */
static void do_ask(struct load *l, double seconds, double rate, const char *op, const char *args)
{
    int64_t began_us = now_us();
    double each_us = 1e6 / (rate * (double)l->n);
    size_t total = (size_t)(seconds * rate * (double)l->n), next = 0;

    while (next < total || l->under_way > 0) {
        int64_t now = now_us();

        for (; next < total && (double)(now - began_us) >= (double)next * each_us; next++)
            ask(l, &l->bots[next % l->n], op, args, began_us + (int64_t)((double)next * each_us));
        turn(l, next < total ? 1 : 1000);
    }
    report(l, began_us);
}

static void obey(struct load *l, char *line)
{
    double seconds, rate;
    char op[64];
    int at = 0;

    if (!strcmp(line, "connect"))
        do_connect(l);
    else if (!strncmp(line, "subscribe ", 10))
        do_subscribe(l, line + 10);
    else if (!strncmp(line, "await ", 6))
        do_await(l, line + 6);
    else if (sscanf(line, "ask %lf %lf %63s %n", &seconds, &rate, op, &at) == 3)
        do_ask(l, seconds, rate, op, line + at);
    else
        die("no such command");
}

/* Between commands the sessions are served, too: they are pinged. */
static bool next_line(struct load *l, char *line, int size)
{
    fd_set in;

    for (;;) {
        struct timeval wait = {.tv_usec = 50000};

        FD_ZERO(&in);
        FD_SET(STDIN_FILENO, &in);
        if (select(STDIN_FILENO + 1, &in, NULL, NULL, &wait) > 0)
            break;
        turn(l, 0);
    }
    if (!fgets(line, size, stdin))
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = {"leasehold", "nats", "bare"};
    struct load l = {.epoll = epoll_create1(EPOLL_CLOEXEC)};
    struct rlimit limit;
    char line[4096];

    if (argc != 5)
        return 2;
    while (l.kind < BARE && strcmp(argv[1], kinds[l.kind]) != 0)
        l.kind++;
    l.port = (uint16_t)atoi(argv[2]);
    l.n = strtoul(argv[3], NULL, 10);
    l.window = strtoul(argv[4], NULL, 10);
    l.bots = calloc(l.n, sizeof *l.bots);
    l.in = malloc(BUFFER);
    l.samples = malloc(SAMPLES_MAX * sizeof *l.samples);
    if (!l.bots || !l.in || !l.samples || getrlimit(RLIMIT_NOFILE, &limit))
        die("no memory");
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    setvbuf(stdin, NULL, _IONBF, 0); /* select must see what stands there */
    if (!fgets(l.key, sizeof l.key, stdin))
        return 2;
    l.key[strcspn(l.key, "\n")] = '\0';
    while (next_line(&l, line, sizeof line))
        obey(&l, line);
    return 0;
}
