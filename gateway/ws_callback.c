/*
 * One WebSocket on a connection: the upgrade, a bounded assembler of messages, a bounded queue of
 * outbound ones, and a close of which the peer gets to see the code.
 */
#include <libwebsockets.h>
#include <string.h>
#include <strings.h>

#include "leasehold/clock.h"
#include "leasehold/door_proto.h"
#include "leasehold/json.h"
#include "leasehold/tcp_reserve.h"
#include "server_state.h"

#define MISSED_MAX   2            /* pings without an answer */
#define MESSAGE_KEEP (64u * 1024) /* memory that is kept for the next message */

struct ws_protocol {
    const char *name;
    bool local; /* on the node's unix socket, and only there */
    bool pinged;
    size_t message_max, queue_max;
};

static const struct ws_protocol protocols[] = {
    {DOOR_CONTROL_PROTOCOL, true, false, DOOR_CONTROL_MAX, DOOR_CONTROL_MAX},
    {"leasehold.v1", false, true, 256u * 1024, 4u * 1024 * 1024},
};

/* --- upgrade --------------------------------------------------------------------------------- */

static const struct ws_protocol *protocol_find(const struct conn *c, const char *offered)
{
    for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; i++) {
        if (protocols[i].local == c->local && http_list_has(offered, protocols[i].name)) {
            return &protocols[i];
        }
    }
    return NULL;
}

/* A program sends no Origin. A page may connect to where it came from, and to who lists its origin. */
static bool origin_allowed(const struct conn *c, const struct http_head *head)
{
    const char *origin = head->field[HDR_ORIGIN];
    const struct list *allowed = &c->server->cfg->http.origins;
    const char *host = strstr(origin, "://");
    if (c->local || origin[0] == '\0' || (host && !strcmp(host + 3, head->field[HDR_HOST]))) {
        return true;
    }
    for (size_t i = 0; i < allowed->n; i++) {
        if (strcmp(((char **)allowed->items)[i], origin) == 0) {
            return true;
        }
    }
    return false;
}

static int upgrade_check(struct conn *c, const struct http_head *head, struct err *e)
{
    if (head->method != HTTP_GET || head->minor != 1 || head->body_len != 0) {
        return err_set(e, ERR_MALFORMED_REQUEST, "a WebSocket starts with a GET of HTTP/1.1");
    }
    if (strcmp(head->field[HDR_WS_VERSION], "13") != 0) {
        return err_set(e, ERR_MALFORMED_REQUEST, "Sec-WebSocket-Version is not 13");
    }
    if (!ws_key_valid(head->field[HDR_WS_KEY])) {
        return err_set(e, ERR_MALFORMED_REQUEST, "Sec-WebSocket-Key is malformed");
    }
    if (!origin_allowed(c, head)) {
        return err_set(e, ERR_FORBIDDEN, "pages of this origin may not connect (http.origins)");
    }
    c->ws.protocol = protocol_find(c, head->field[HDR_WS_PROTOCOL]);
    if (c->ws.protocol == NULL) {
        return err_set(e, ERR_MALFORMED_REQUEST, "no WebSocket subprotocol offered is spoken here");
    }
    return 0;
}

static void accept_queue(struct conn *c, const char *key)
{
    char text[WS_KEY_TEXT + 37];
    unsigned char sha[20];
    char proof[32];
    int len = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    lws_SHA1((const unsigned char *)text, (size_t)len, sha);
    (void)lws_b64_encode_string((const char *)sha, (int)sizeof sha, proof, (int)sizeof proof);
    struct buf b;
    buf_init(&b, 512);
    buf_printf(&b,
               "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
               "Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n",
               proof, c->ws.protocol->name);
    conn_queue(c, &b);
}

static void ping_due(struct conn *c, int64_t now_us)
{
    unsigned ms = c->server->handler.ws_ping_ms;
    c->ws.ping_at_us = c->ws.protocol->pinged && ms > 0 ? now_us + (int64_t)ms * 1000 : 0;
}

void ws_upgrade(struct conn *c, const struct http_head *head, struct http_request *r)
{
    struct err e;
    const struct server_handler *h = &c->server->handler;
    if (upgrade_check(c, head, &e) != 0) {
        http_refuse(c, r, &e);
        return;
    }
    tcp_reserve_keep(sock_fd(c));
    /* First in the queue, so that the handler may send from ws_open already. */
    c->held = true;
    accept_queue(c, head->field[HDR_WS_KEY]);
    c->state = CONN_WS;
    conn_deadline(c, 0);
    buf_init(&c->ws.message, c->ws.protocol->message_max);
    c->ws.reader =
        (struct ws_reader){.sender = WS_FROM_CLIENT, .message_max = c->ws.protocol->message_max};
    c->ws.opened = h->ws_open(h->ctx, c->id, c->ws.protocol->name, r, &e) == 0;
    c->held = false;
    if (c->ws.opened) {
        c->server->websockets++;
        http_request_free(r);
        ping_due(c, clock_boot_us(&clock_system));
        conn_flush(c);
        return;
    }
    conn_drop_queue(c);
    http_refuse(c, r, &e);
}

/* --- output ---------------------------------------------------------------------------------- */

static void frame_send(struct conn *c, enum ws_opcode opcode, const char *data, size_t len)
{
    uint8_t header[WS_HEADER_OUT_MAX];
    struct buf b;
    buf_init(&b, WS_HEADER_OUT_MAX + len);
    buf_reserve(&b, WS_HEADER_OUT_MAX + len);
    buf_add(&b, header,
            ws_frame_put(header, &(struct ws_frame){.fin = true, .opcode = opcode, .len = len}));
    buf_add(&b, data, len);
    conn_queue_gathered(c, &b);
    conn_flush_gathered(c);
}

static void close_send(struct conn *c, unsigned code, const char *reason)
{
    char payload[WS_CONTROL_MAX + 1];
    size_t len = 0;
    if (code != WS_CODE_NONE) {
        payload[0] = (char)(code >> 8);
        payload[1] = (char)code;
        (void)snprintf(payload + 2, sizeof payload - 2, "%s", reason);
        len = 2 + strlen(payload + 2);
    }
    c->state = CONN_WS_CLOSING;
    conn_deadline(c, CONN_WS_CLOSE_MS);
    if (c->out != NULL || sock_is_full(c)) {
        tcp_reserve_use(sock_fd(c));
    }
    frame_send(c, WS_CLOSE, payload, len);
}

/* The peer is wrong about the protocol: what it sends from here on has no meaning. */
static void fail(struct conn *c, unsigned code, const char *reason)
{
    c->ws.finished = true;
    if (c->state == CONN_WS) {
        close_send(c, code, reason);
    }
}

void ws_ping(struct conn *c, int64_t now_us)
{
    struct ws_state *w = &c->ws;
    if (w->ping_at_us == 0 || now_us < w->ping_at_us) {
        return;
    }
    if (w->unanswered == MISSED_MAX) {
        conn_drop_waiting(c);
        close_send(c, CLOSE_IDLE, "no pong");
        return;
    }
    w->unanswered++;
    ping_due(c, now_us);
    frame_send(c, WS_PING, "", 0);
}

static size_t queue_max(const struct conn *c)
{
    size_t own = c->server->handler.ws_queue_max;
    return own > 0 && !c->local ? own : c->ws.protocol->queue_max;
}

static bool is_full(const struct conn *c, size_t len)
{
    return c->out_bytes > 0 && c->out_bytes + len > queue_max(c);
}

int server_ws_send(struct server *s, uint64_t conn, const char *data, size_t len)
{
    struct conn *c = conn_find(s, conn);
    if (c == NULL || c->state != CONN_WS) {
        return -1;
    }
    if (is_full(c, len) && c->corked) {
        conn_flush(c); /* what was gathered has not been offered to the socket yet */
    }
    if (c->dead) {
        return -1;
    }
    if (is_full(c, len)) {
        conn_drop_waiting(c); /* they are not read, and the code would stand behind them */
        close_send(c, CLOSE_SLOW_READER, "slow reader");
        log_event(s->log, LOG_WARNING, "ws_slow_reader", LF_STR("address", c->peer));
        return -1;
    }
    frame_send(c, WS_TEXT, data, len);
    return c->dead ? -1 : 0;
}

size_t server_ws_waiting(struct server *s, uint64_t conn)
{
    const struct conn *c = conn_find(s, conn);
    return c != NULL && c->state == CONN_WS ? c->out_bytes : SIZE_MAX;
}

void server_ws_close(struct server *s, uint64_t conn, int code, const char *reason)
{
    struct conn *c = conn_find(s, conn);
    if (c != NULL && c->state == CONN_WS) {
        close_send(c, (unsigned)code, reason);
    }
}

void server_ws_proved(struct server *s, uint64_t conn)
{
    struct conn *c = conn_find(s, conn);
    if (c != NULL && c->local) {
        conn_uncount(c);
    }
}

void ws_written(struct conn *c)
{
    if (c->ws.finished) {
        conn_linger(c);
    }
}

/* --- input ----------------------------------------------------------------------------------- */

static void on_close(struct conn *c, const struct ws_event *event)
{
    c->ws.finished = true;
    if (c->state == CONN_WS) {
        close_send(c, event->code, "");
    } else if (c->out == NULL) {
        conn_linger(c);
    }
}

static void on_ping(struct conn *c, const struct ws_event *event)
{
    if (c->state != CONN_WS) {
        return;
    }
    /* A peer that sends pings and reads no pongs is a slow reader like any other. */
    if (c->out_bytes + event->len > queue_max(c)) {
        conn_kill(c);
        return;
    }
    frame_send(c, WS_PONG, (const char *)event->data, event->len);
}

static void on_message(struct conn *c)
{
    struct ws_state *w = &c->ws;
    if (c->state == CONN_WS) {
        const struct server_handler *h = &c->server->handler;
        h->ws_message(h->ctx, c->id, w->message.data, w->message.len);
    }
    if (w->message.size > MESSAGE_KEEP) {
        buf_done(&w->message);
    }
    buf_reset(&w->message);
}

static void on_piece(struct conn *c, const struct ws_event *event)
{
    if (!event->text) {
        fail(c, WS_CODE_TYPE, "text messages only");
        return;
    }
    buf_add(&c->ws.message, event->data, event->len);
    if (!buf_ok(&c->ws.message)) {
        conn_kill(c);
    } else if (event->fin) {
        on_message(c);
    }
}

size_t ws_feed(struct conn *c, char *data, size_t len)
{
    struct ws_event event;
    if (c->ws.finished) {
        return len;
    }
    size_t used = ws_reader_next(&c->ws.reader, (uint8_t *)data, len, SIZE_MAX, &event);
    switch (event.kind) {
    case WS_GOT_PIECE:
        on_piece(c, &event);
        break;
    case WS_GOT_PING:
        on_ping(c, &event);
        break;
    case WS_GOT_PONG:
        c->ws.unanswered = 0;
        break;
    case WS_GOT_CLOSE:
        on_close(c, &event);
        break;
    case WS_GOT_FAULT:
        fail(c, event.code, event.why);
        break;
    case WS_GOT_MORE:
        break;
    }
    return used;
}

void ws_forget(struct conn *c)
{
    const struct server_handler *h = &c->server->handler;
    buf_done(&c->ws.message);
    if (c->ws.opened) {
        c->ws.opened = false;
        c->server->websockets--;
        h->ws_closed(h->ctx, c->id);
    }
}
