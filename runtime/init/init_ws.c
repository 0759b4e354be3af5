/* Transport `ws:PORT/path`: a WebSocket connection to the agent for each client, its messages in
 * frames of the link. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "init_dial.h"
#include "init_ws_frame.h"
#include "init_ws_shake.h"
#include "leasehold/agent_link.h"

#define DATA_HEAD  (LINK_HEADER + 1u)                 /* of a TEXT or BINARY, with its flags */
#define CLOSE_ROOM (WSC_HEADER_MAX + WSC_CONTROL_MAX) /* of any control frame */
#define REASON_MAX (WSC_CONTROL_MAX - 2u)

struct ws_target {
    char host[sizeof("127.0.0.1:65535")];
    char path[];
};

/* The frame of the link that is being converted. */
struct link_frame_in {
    uint8_t type; /* 0: none */
    uint8_t flags;
    uint32_t left;
};

struct ws {
    struct wsc_reader reader;
    char accept[WSC_ACCEPT_TEXT];
    struct flow rx; /* from the agent, not converted */
    struct flow dx; /* from the door, not converted */
    bool rx_ended, dx_ended;
    struct link_frame_in frame;
    bool closed; /* a Close is on its way to the agent: the last frame */
    bool owes_pong;
    uint8_t pong_len;
    uint8_t pong[WSC_CONTROL_MAX];
    size_t random_left;
    uint8_t random[256];
};

/* ---- the handshake ---- */

static int ws_begin(struct conn *c, const void *ctx)
{
    const struct ws_target *target = ctx;
    uint8_t nonce[WSC_NONCE];
    char key[WSC_KEY_TEXT], request[WSC_REQUEST_MAX];
    c->ws = calloc(1, sizeof(*c->ws));
    if (c->ws == NULL || getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
        return -1;
    c->ws->reader.message_max = LINK_MESSAGE_MAX;
    wsc_key_make(nonce, key, c->ws->accept);
    size_t len = wsc_request_put(request, sizeof(request), target->host, target->path, key);
    flow_add(c->down, request, len);
    return len > 0 ? 0 : -1;
}

static int ws_shake(struct conn *c)
{
    struct ws *w = c->ws;
    if (flow_send(c->down, c->agent_fd) == FLOW_ENDED)
        return -1;
    w->rx_ended = flow_recv(&w->rx, c->agent_fd) == FLOW_ENDED;
    const uint8_t *head = w->rx.data + w->rx.start;
    long len = wsc_answer_end(head, flow_len(&w->rx));
    if (len < 0 || (len == 0 && w->rx_ended))
        return -1;
    if (len == 0)
        return 0;
    if (!wsc_answer_accepts(head, (size_t)len, w->accept)) {
        fprintf(stderr, "leaseinit: the agent does not take a WebSocket connection\n");
        return -1;
    }
    flow_drop(&w->rx, (size_t)len);
    c->more_up = flow_len(&w->rx) > 0;
    return 1;
}

/* ---- to the agent ---- */

static const uint8_t *mask_next(struct ws *w)
{
    if (w->random_left == 0) {
        w->random_left = sizeof(w->random);
        /* Without randomness the mask is an old one: it protects proxies, and there is none. */
        if (getrandom(w->random, sizeof(w->random), 0) < 0)
            perror("leaseinit: getrandom");
    }
    w->random_left -= 4;
    return w->random + w->random_left;
}

static void frame_put(struct conn *c, const struct wsc_header *h, const uint8_t *data)
{
    const uint8_t *mask = mask_next(c->ws);
    uint8_t head[WSC_HEADER_MAX];
    flow_add(c->down, head, wsc_header_put(head, h, mask));
    wsc_mask(flow_extend(c->down, (size_t)h->len), data, (size_t)h->len, mask);
}

static void control_put(struct conn *c, uint8_t opcode, const uint8_t *data, size_t len)
{
    frame_put(c, &(struct wsc_header){.fin = true, .opcode = opcode, .len = len}, data);
}

/* Close frames end what we say. The flow always has room for one. */
static void close_put(struct conn *c, unsigned code, const uint8_t *reason, size_t len)
{
    uint8_t payload[WSC_CONTROL_MAX] = {(uint8_t)(code >> 8), (uint8_t)code};
    if (c->ws->closed || flow_room(c->down) < CLOSE_ROOM)
        return;
    c->ws->closed = true;
    bool coded = wsc_code_is_valid(code);
    if (len > REASON_MAX || !coded)
        len = 0;
    if (len > 0)
        memcpy(payload + 2, reason, len);
    control_put(c, WSC_CLOSE, payload, coded ? len + 2 : 0);
}

static void pong_put(struct conn *c)
{
    struct ws *w = c->ws;
    if (!w->owes_pong || w->closed || flow_room(c->down) < 2 * CLOSE_ROOM)
        return;
    w->owes_pong = false;
    control_put(c, WSC_PONG, w->pong, w->pong_len);
}

/* ---- from the door ---- */

static bool head_is_good(uint8_t type, uint32_t len)
{
    if (type == LINK_CLOSE)
        return len >= 2 && len <= WSC_CONTROL_MAX;
    return (type == LINK_TEXT || type == LINK_BINARY) && len >= 1 && len <= LINK_PIECE_MAX + 1;
}

/* A frame that is wrong ends the door's side and no more is said about it. */
static bool head_take(struct ws *w)
{
    const uint8_t *p = w->dx.data + w->dx.start;
    size_t have = flow_len(&w->dx);
    if (have >= LINK_HEADER && !head_is_good(p[0], link_header_len(p))) {
        w->dx_ended = true;
        flow_clear(&w->dx);
        return false;
    }
    if (have < DATA_HEAD)
        return false;
    w->frame = (struct link_frame_in){.type = p[0], .left = link_header_len(p)};
    if (p[0] != LINK_CLOSE) {
        w->frame.flags = p[LINK_HEADER];
        w->frame.left--;
    }
    flow_drop(&w->dx, p[0] == LINK_CLOSE ? LINK_HEADER : DATA_HEAD);
    return true;
}

static bool piece_down(struct conn *c)
{
    struct ws *w = c->ws;
    struct link_frame_in *f = &w->frame;
    size_t n = flow_len(&w->dx) < f->left ? flow_len(&w->dx) : f->left;
    if (n == 0 && f->left > 0)
        return false;
    struct wsc_header h = {.opcode = WSC_CONT, .len = n};
    h.fin = (f->flags & LINK_FLAG_FIN) != 0 && n == f->left;
    if ((f->flags & LINK_FLAG_FIRST) != 0)
        h.opcode = f->type == LINK_TEXT ? WSC_TEXT : WSC_BINARY;
    frame_put(c, &h, w->dx.data + w->dx.start);
    flow_drop(&w->dx, n);
    f->left -= (uint32_t)n;
    f->flags &= (uint8_t)~LINK_FLAG_FIRST;
    if (f->left == 0)
        f->type = 0;
    return true;
}

static bool close_down(struct conn *c)
{
    struct ws *w = c->ws;
    const uint8_t *p = w->dx.data + w->dx.start;
    if (flow_len(&w->dx) < w->frame.left)
        return false;
    close_put(c, (unsigned)(p[0] << 8 | p[1]), p + 2, w->frame.left - 2);
    flow_drop(&w->dx, w->frame.left);
    w->frame.type = 0;
    return true;
}

/* Room for a piece and for the control frames that may follow it. */
static bool has_room_down(const struct conn *c)
{
    const struct ws *w = c->ws;
    size_t most = flow_len(&w->dx) < LINK_PIECE_MAX ? flow_len(&w->dx) : LINK_PIECE_MAX;
    return flow_room(c->down) >= most + WSC_HEADER_MAX + 2 * CLOSE_ROOM;
}

static void ws_down(struct conn *c)
{
    struct ws *w = c->ws;
    bool moved = true;
    if (!w->dx_ended && !c->more_down)
        w->dx_ended = flow_recv(&w->dx, c->door_fd) == FLOW_ENDED;
    c->more_down = false;
    while (moved && !w->closed) {
        if (!has_room_down(c)) {
            c->more_down = true;
            return;
        }
        moved = w->frame.type != 0 || head_take(w);
        if (moved)
            moved = w->frame.type == LINK_CLOSE ? close_down(c) : piece_down(c);
    }
    if (w->closed)
        flow_clear(&w->dx);
    c->door_ended = w->dx_ended;
}

static bool ws_bye(struct conn *c)
{
    close_put(c, WSC_CODE_AWAY, NULL, 0);
    return c->ws->closed;
}

/* ---- from the agent ---- */

static void piece_up(struct conn *c, const struct wsc_event *e)
{
    uint8_t head[DATA_HEAD];
    link_header_put(head, e->text ? LINK_TEXT : LINK_BINARY, (uint32_t)e->len + 1);
    head[LINK_HEADER] = (uint8_t)((e->first ? LINK_FLAG_FIRST : 0) | (e->fin ? LINK_FLAG_FIN : 0));
    flow_add(c->up, head, sizeof(head));
    flow_add(c->up, e->data, e->len);
}

static void close_up(struct conn *c, unsigned code, const uint8_t *reason, size_t len)
{
    uint8_t head[LINK_HEADER + 2];
    link_header_put(head, LINK_CLOSE, (uint32_t)len + 2);
    head[LINK_HEADER] = (uint8_t)(code >> 8);
    head[LINK_HEADER + 1] = (uint8_t)code;
    flow_add(c->up, head, sizeof(head));
    flow_add(c->up, reason, len);
    c->agent_ended = c->agent_said_so = true;
}

static void event_take(struct conn *c, const struct wsc_event *e)
{
    struct ws *w = c->ws;
    switch (e->kind) {
    case WSC_GOT_PIECE:
        piece_up(c, e);
        break;
    case WSC_GOT_PING: /* the latest one is answered: enough, and bounded */
        w->owes_pong = true;
        w->pong_len = (uint8_t)e->len;
        if (e->len > 0)
            memcpy(w->pong, e->data, e->len);
        pong_put(c);
        break;
    case WSC_GOT_CLOSE:
        close_up(c, e->code, e->data, e->len);
        close_put(c, e->code, NULL, 0);
        break;
    case WSC_GOT_FAULT:
        close_up(c, WSC_CODE_INTERNAL, NULL, 0);
        close_put(c, e->code, NULL, 0);
        break;
    case WSC_GOT_MORE:
        break;
    }
}

static void ws_up(struct conn *c)
{
    struct ws *w = c->ws;
    struct wsc_event e = {.kind = WSC_GOT_PIECE};
    if (!w->rx_ended && !c->more_up) {
        enum flow_result r = flow_recv(&w->rx, c->agent_fd);
        w->rx_ended = r == FLOW_ENDED;
        c->dry = r == FLOW_AGAIN;
    }
    c->more_up = false;
    pong_put(c);
    while (e.kind != WSC_GOT_MORE && !c->agent_ended) {
        if (flow_room(c->up) < DATA_HEAD + CLOSE_ROOM) {
            c->more_up = true;
            return;
        }
        size_t room = flow_room(c->up) - DATA_HEAD;
        size_t used = wsc_reader_next(&w->reader, w->rx.data + w->rx.start, flow_len(&w->rx),
                                      room < LINK_PIECE_MAX ? room : LINK_PIECE_MAX, &e);
        event_take(c, &e);
        flow_drop(&w->rx, used);
    }
    c->agent_ended |= w->rx_ended;
}

static void ws_end(struct conn *c)
{
    free(c->ws);
}

static const struct codec ws_codec = {
    .begin = ws_begin,
    .shake = ws_shake,
    .up = ws_up,
    .down = ws_down,
    .bye = ws_bye,
    .end = ws_end,
};

static struct transport *ws_new(const char *word)
{
    struct conn_address a;
    const char *port = word + strlen("ws:");
    size_t digits = dial_port(port, &a);
    const char *path = port + digits;
    if (digits == 0 || path[0] != '/' || strlen(path) > WSC_REQUEST_MAX / 2) {
        fprintf(stderr, "leaseinit: not a port and a path: %s\n", word);
        return NULL;
    }
    struct ws_target *target = calloc(1, sizeof(*target) + strlen(path) + 1);
    if (target == NULL) {
        perror("leaseinit");
        return NULL;
    }
    snprintf(target->host, sizeof(target->host), "127.0.0.1:%.*s", (int)digits, port);
    memcpy(target->path, path, strlen(path));
    return dial_new(&transport_ws, &a, &ws_codec, target);
}

const struct transport_vtable transport_ws = DIAL_TRANSPORT("ws", ws_new);
