#include "control.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utlist.h>

#include "leasehold/arena.h"
#include "leasehold/buf.h"
#include "leasehold/ws_reader.h"
#include "shake.h"
#include "wire.h"

#define RETRY_FIRST_US 50000
#define RETRY_MOST_US  1000000
#define SHAKE_US       3000000 /* until the handshake has to be answered */
#define PING_US        1000000
#define OUT_MAX        (1024 * 1024) /* of a gateway that does not read */
#define ARENA_MAX      (8 * DOOR_CONTROL_MAX)
#define ANSWER_MAX     4096
#define PIECE          16384
#define GATHER_US      1000 /* of news of who went one write in so long */

/* A message to be sent as a frame. */
struct control_out {
    int type; /* enum door_msg_type */
    size_t len;
    struct control_out *prev, *next;
    uint8_t head_len;
    unsigned char frame[]; /* header and text */
};

struct control {
    struct loop *loop;
    struct log *log;
    struct control_events events;
    struct wire wire;
    bool there; /* the wire is open */
    bool open;  /* and the handshake is done */
    bool dropping;
    char accept[SHAKE_ACCEPT_TEXT + 1]; /* what proves that the handshake was read */
    struct control_out *out;
    size_t out_bytes;
    bool urgent;     /* something in `out` is not to wait */
    int64_t news_us; /* when news went out last */
    struct ws_reader reader;
    struct buf in; /* the answer to the handshake, then the message under way */
    int64_t retry_us;
    unsigned seed; /* of the jitter: doors must not come back all at once */
    struct loop_timer *retry_timer, *ping_timer, *gather_timer;
};

static void drop(struct control *c)
{
    if (c->dropping || !c->there)
        return;
    c->dropping = true;
    wire_close(&c->wire, false);
}

/* --- out ------------------------------------------------------------------------------------- */

static void out_free(struct control *c, struct control_out *o)
{
    DL_DELETE(c->out, o);
    c->out_bytes -= o->len;
    explicit_bzero(o->frame, o->head_len + o->len); /* a HELLO holds the secret */
    free(o);
}

static void out_clear(struct control *c, int type)
{
    struct control_out *o, *next;

    DL_FOREACH_SAFE (c->out, o, next)
        if (type < 0 || o->type == type)
            out_free(c, o);
}

/* A gateway that reads too slowly first misses activity, then has to take a snapshot. */
static bool out_has_room(struct control *c, size_t len)
{
    if (c->out_bytes + len > OUT_MAX)
        out_clear(c, DOOR_ACTIVITY);
    return !c->out || c->out_bytes + len <= OUT_MAX;
}

/* Masking protects what stands between from taking a message for something else. Nothing stands
 * between two ends of a unix socket, so the mask is one that changes nothing: all zero. */
static int out_add(struct control *c, int type, const struct buf *text)
{
    const struct ws_frame f = {.fin = true, .opcode = WS_TEXT, .len = text->len};
    struct control_out *o;

    if (!out_has_room(c, text->len))
        return -1;
    o = malloc(sizeof(*o) + WS_HEADER_MAX + text->len);
    if (!o)
        return -1;
    *o = (struct control_out){.type = type, .len = text->len};
    o->head_len = (uint8_t)ws_frame_put_masked(o->frame, &f);
    memcpy(o->frame + o->head_len, text->data, text->len);
    DL_APPEND(c->out, o);
    c->out_bytes += o->len;
    return 0;
}

/* An admission is none: whoever was let in may ask the gateway for its lease next. */
static bool is_news(enum door_msg_type type)
{
    return type == DOOR_CLOSE || type == DOOR_ACTIVITY;
}

/* Each write wakes the gateway, which costs more than what it reads then. The first of some news does not
 * wait: one who goes alone is told of at once. */
static void schedule(struct control *c, enum door_msg_type type)
{
    int64_t now_us = loop_now_us();

    if (!is_news(type)) {
        c->urgent = true;
    } else if (now_us - c->news_us >= GATHER_US) {
        c->news_us = now_us;
        c->urgent = true;
    } else if (!loop_timer_is_set(c->gather_timer)) {
        loop_timer_set(c->gather_timer, c->news_us + GATHER_US - now_us);
    }
}

void control_send(struct control *c, const struct door_msg *m)
{
    struct buf text;

    if (!c->open || c->dropping)
        return;
    buf_init(&text, DOOR_CONTROL_MAX);
    door_msg_encode(m, &text);
    if (!buf_ok(&text) || out_add(c, m->t, &text)) {
        log_event(c->log, LOG_WARNING, "control_queue_full");
        drop(c);
    }
    schedule(c, m->t);
    if (text.data)
        explicit_bzero(text.data, text.size);
    buf_done(&text);
}

bool control_is_idle(const struct control *c)
{
    return !c->open || (!c->out && wire_kept(&c->wire) == 0);
}

static void out_write(struct control *c)
{
    struct iovec frames[WIRE_FRAMES_MAX];
    int n = WIRE_FRAMES_MAX;

    c->urgent = false;
    loop_timer_stop(c->gather_timer);
    while (c->there && !c->dropping && c->out && n == WIRE_FRAMES_MAX) {
        struct control_out *o;

        n = 0;
        DL_FOREACH (c->out, o) {
            frames[n++] = (struct iovec){o->frame, o->head_len + o->len};
            if (n == WIRE_FRAMES_MAX)
                break;
        }
        n = wire_send(&c->wire, frames, n);
        for (int i = 0; i < n; i++)
            out_free(c, c->out);
    }
    if (c->there && !c->dropping && c->out)
        wire_want(&c->wire);
}

void control_flush(struct control *c)
{
    if (c->urgent)
        out_write(c);
}

static void gathered(void *ctx)
{
    struct control *c = ctx;

    c->news_us = loop_now_us();
    out_write(c);
}

static void writable(void *ctx)
{
    out_write(ctx);
}

/* --- in -------------------------------------------------------------------------------------- */

static int message_take(struct control *c, const char *text, size_t len)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct err e = {0};
    struct door_msg m;
    int r;

    if (!arena)
        return -1;
    r = door_msg_decode(text, len, arena, &m, &e);
    if (r == 0)
        r = c->events.message(c->events.ctx, &m, &e);
    if (r)
        log_error(c->log, "control_message_refused", &e);
    else
        c->retry_us = RETRY_FIRST_US;
    arena_free(arena);
    return r;
}

static int piece_take(struct control *c, const struct ws_event *event)
{
    int r;

    if (event->first && event->fin)
        return message_take(c, (const char *)event->data, event->len);
    buf_add(&c->in, event->data, event->len);
    if (!buf_ok(&c->in))
        return -1;
    if (!event->fin)
        return 0;
    r = message_take(c, c->in.data, c->in.len);
    buf_done(&c->in);
    return r;
}

static void pong_put(struct control *c, const struct ws_event *event)
{
    const struct ws_frame f = {.fin = true, .opcode = WS_PONG, .len = event->len};
    uint8_t head[WS_HEADER_MAX];

    if (c->wire.blocked) /* a pong that is late is none */
        return;
    wire_put(&c->wire, head, ws_frame_put_masked(head, &f));
    wire_put(&c->wire, event->data, event->len);
    (void)wire_flush(&c->wire);
}

static void frames_take(struct control *c, uint8_t *data, size_t len)
{
    struct ws_event event = {.kind = WS_GOT_PONG};

    while (event.kind != WS_GOT_MORE && !c->dropping) {
        size_t used = ws_reader_next(&c->reader, data, len, SIZE_MAX, &event);

        data += used;
        len -= used;
        if (event.kind == WS_GOT_PING)
            pong_put(c, &event);
        if (event.kind == WS_GOT_FAULT)
            log_event(c->log, LOG_ERROR, "control_bad_frame", LF_STR("why", event.why));
        if ((event.kind == WS_GOT_PIECE && piece_take(c, &event)) || event.kind == WS_GOT_CLOSE ||
            event.kind == WS_GOT_FAULT)
            drop(c);
    }
}

/* --- the connection --------------------------------------------------------------------------- */

static int established(struct control *c)
{
    struct door_msg m = {0};
    struct err e = {0};

    c->open = true;
    loop_timer_stop(c->retry_timer);
    c->reader = (struct ws_reader){.sender = WS_FROM_SERVER, .message_max = DOOR_CONTROL_MAX};
    if (c->events.hello(c->events.ctx, &m, &e)) {
        log_error(c->log, "hello_failed", &e);
        return -1;
    }
    control_send(c, &m);
    c->events.hello_sent(c->events.ctx, &m);
    loop_timer_set(c->ping_timer, PING_US);
    log_event(c->log, LOG_INFO, "gateway_connected");
    return 0;
}

/* The answer to the handshake, as far as it has come; frames may stand right behind it. */
static void answer_take(struct control *c, const uint8_t *data, size_t len)
{
    struct buf answer;
    const char *end;
    size_t head;

    buf_add(&c->in, data, len);
    end = buf_ok(&c->in) ? memmem(c->in.data, c->in.len, "\r\n\r\n", 4) : NULL;
    head = end ? (size_t)(end - c->in.data) + 4 : 0;
    if (!end && buf_ok(&c->in) && c->in.len < ANSWER_MAX)
        return;
    answer = c->in;
    buf_init(&c->in, DOOR_CONTROL_MAX);
    if (!end || head > ANSWER_MAX || strncmp(answer.data, "HTTP/1.1 101 ", 13) != 0 ||
        !memmem(answer.data, head, c->accept, SHAKE_ACCEPT_TEXT) || established(c))
        drop(c);
    else
        frames_take(c, (uint8_t *)answer.data + head, answer.len - head);
    buf_done(&answer);
}

static void readable(void *ctx)
{
    struct control *c = ctx;
    uint8_t piece[PIECE];
    ssize_t n = c->dropping ? -1 : wire_read(&c->wire, piece, sizeof(piece));

    if (n > 0 && c->open)
        frames_take(c, piece, (size_t)n);
    else if (n > 0)
        answer_take(c, piece, (size_t)n);
    else if (n == 0)
        drop(c);
}

static void retry_later(struct control *c)
{
    int64_t spread = c->retry_us / 2;

    if (loop_timer_is_set(c->retry_timer))
        return;
    loop_timer_set(c->retry_timer, c->retry_us - spread + rand_r(&c->seed) % (spread + 1));
    c->retry_us = c->retry_us * 2 < RETRY_MOST_US ? c->retry_us * 2 : RETRY_MOST_US;
}

static void ended(void *ctx)
{
    struct control *c = ctx;
    bool was_open = c->open;

    c->there = c->open = c->dropping = false;
    out_clear(c, -1);
    buf_done(&c->in);
    loop_timer_stop(c->ping_timer);
    loop_timer_stop(c->retry_timer);
    loop_timer_stop(c->gather_timer);
    c->urgent = false;
    if (was_open)
        c->events.ended(c->events.ctx);
    retry_later(c);
}

static int shake_begin(struct control *c)
{
    unsigned char random[SHAKE_KEY_BYTES], key[SHAKE_KEY_TEXT + 1];
    char text[512];
    int len;

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return -1;
    EVP_EncodeBlock(key, random, sizeof(random));
    shake_accept((const char *)key, c->accept);
    len = snprintf(text, sizeof(text),
                   "GET " DOOR_CONTROL_PATH " HTTP/1.1\r\nHost: localhost\r\n"
                   "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                   "Sec-WebSocket-Protocol: " DOOR_CONTROL_PROTOCOL "\r\n"
                   "Sec-WebSocket-Key: %s\r\n\r\n",
                   (const char *)key);
    wire_put(&c->wire, text, (size_t)len);
    return wire_flush(&c->wire);
}

static int dial(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = DOOR_CONTROL_SOCKET};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Also when the handshake was not answered in time. */
static void connect_now(void *ctx)
{
    static const struct wire_ops ops = {readable, writable, ended};
    struct control *c = ctx;
    int fd;

    if (c->there) {
        drop(c);
        return;
    }
    fd = dial();
    if (fd < 0 || wire_open(&c->wire, c->loop, fd, NULL, &ops, c)) {
        retry_later(c);
        return;
    }
    c->there = true;
    buf_init(&c->in, ANSWER_MAX + PIECE);
    loop_timer_set(c->retry_timer, SHAKE_US);
    if (shake_begin(c))
        drop(c);
}

static void ping(void *ctx)
{
    struct control *c = ctx;
    struct door_msg m = {.t = DOOR_PING, .now = c->events.gateway_ms(c->events.ctx)};

    control_send(c, &m);
    loop_timer_set(c->ping_timer, PING_US);
}

void control_reconnect(struct control *c)
{
    if (c->open)
        drop(c);
}

static void control_free(struct control *c)
{
    if (!c)
        return;
    loop_timer_free(c->retry_timer);
    loop_timer_free(c->ping_timer);
    loop_timer_free(c->gather_timer);
    free(c);
}

struct control *control_new(struct loop *l, struct log *log, const struct control_events *events,
                            struct err *e)
{
    struct control *c = calloc(1, sizeof(*c));

    if (!c) {
        err_set(e, ERR_INTERNAL, "no memory for the control connection");
        return NULL;
    }
    *c = (struct control){.loop = l, .log = log, .events = *events, .retry_us = RETRY_FIRST_US};
    buf_init(&c->in, DOOR_CONTROL_MAX);
    if (getrandom(&c->seed, sizeof(c->seed), 0) < 0)
        c->seed = (unsigned)loop_now_us();
    c->retry_timer = loop_timer_new(l, connect_now, c);
    c->ping_timer = loop_timer_new(l, ping, c);
    c->gather_timer = loop_timer_new(l, gathered, c);
    if (!c->retry_timer || !c->ping_timer || !c->gather_timer) {
        err_set(e, ERR_INTERNAL, "cannot make the control connection");
        control_free(c);
        return NULL;
    }
    loop_timer_set(c->retry_timer, 0);
    return c;
}
