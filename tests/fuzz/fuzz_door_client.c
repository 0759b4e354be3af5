/*
 * The door's client protocol on hostile bytes: client.c, client_auth.c and client_bridge.c over the
 * real core, with a hand-made libwebsockets, server, agent and clock around them. The input is how
 * they are driven: a byte of flags, then steps of one byte, a length and so many bytes (struct
 * step). `$T` in a message becomes a good token, `$B` one bound to a key, `$W` one that the door has
 * to wait for, `$P` the proof for `$B`.
 *
 * Held against each input: a client hears nothing before it is admitted but a challenge, then
 * `ready` first, then what it may read; nothing at all once it is revoked; the agent hears nothing
 * but whole, valid messages of clients that may write; frames come in order; nothing leaks.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../../lease/door/client.h"
#include "../support/token_forge.h"
#include "leasehold/agent_link.h"
#include "leasehold/json.h"

#define GATEWAY_S  INT64_C(1700000000)
#define APPLIED    10 /* of the snapshot; `$W` names the next */
#define INPUT_MAX  65536
#define AGENT_ROOM 4096

enum flag { FLAG_BRIDGED = 1, FLAG_READ_ONLY = 2, FLAG_WRITE_ONLY = 4 };

enum piece_flag { PIECE_BINARY = 1, PIECE_FIN = 2 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What stands for the server's, the agent's and libwebsockets' own structs. */
struct server {
    struct door_core *core;
    struct client *cl;
    struct lws_protocols protocols[3];
    const struct lws_protocols *protocol; /* of the upgrade */
    char declined[CLIENT_NAME_MAX];
    char *headers[4]; /* subprotocols, path, origin, authorization; NULL: it did not send it */
    int64_t now_us;
    unsigned scope; /* of the leases */
    bool bridged, full, choked, partial;
    bool binary, fin; /* the frame that is being delivered */
    bool up, offered; /* the bridge */
    bool wants_write, dead;
    bool challenged, ready, out_open; /* what the client has heard so far */
    bool in_open, in_text;            /* what the agent has */
    struct buf said;
    unsigned char piece[BRIDGE_ROOM + AGENT_ROOM];
    size_t piece_len;
    bool piece_first, piece_fin;
    int end_code;
};

/* One input at a time: what the stand-ins without a context of their own are about. */
static struct server *rig;
static struct keyset *keys;
static struct id session, plain, bound;
static char token_plain[TOKEN_MAX + 1], token_bound[TOKEN_MAX + 1], token_ahead[TOKEN_MAX + 1];
static char proof_text[512];

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* --- the tokens ------------------------------------------------------------------------------ */

static struct id id_n(uint8_t n)
{
    return (struct id){{n, 1, 2, 3, 4, 5, 0x46, 7, 0x88, 9, 10, 11, 12, 13, 14, 15}};
}

static void mint(struct id lease, int64_t rq, const char *jkt, char out[static TOKEN_MAX + 1])
{
    struct token_claims claims = {.iss = "iss",
                                  .session_id = session,
                                  .user_id = id_n(100),
                                  .chat_id = id_n(101),
                                  .lease_id = lease,
                                  .node = "node",
                                  .ep = 7,
                                  .rq = rq,
                                  .iat = GATEWAY_S,
                                  .nbf = GATEWAY_S,
                                  .exp = GATEWAY_S + 120,
                                  .mex = GATEWAY_S + 3600,
                                  .scope = SCOPE_READ | SCOPE_WRITE,
                                  .use = USE_MULTI,
                                  .mc = 1};
    struct buf token;
    struct err e;

    snprintf(claims.cnf_jkt, sizeof(claims.cnf_jkt), "%s", jkt);
    buf_init(&token, TOKEN_MAX);
    forge_require(token_mint(keys, &claims, &token, &e) == 0, "token_mint");
    memcpy(out, token.data, token.len);
    out[token.len] = '\0';
    buf_done(&token);
}

static void key_add(EVP_PKEY *key, struct keyset *to)
{
    char path[] = "/tmp/fuzz_door_client.XXXXXX";
    struct err e;

    forge_key_file(key, path);
    forge_require(keyset_add_signing_file(to, path, &e) == 0, "keyset_add_signing_file");
    unlink(path);
}

/* What the holder of the key answers to the one nonce there is here. */
static void prove(EVP_PKEY *key, const struct key_public *public)
{
    static const uint8_t nonce[PROOF_NONCE_BYTES];
    char text[PROOF_NONCE_TEXT], sig_text[128], said[256];
    uint8_t sig[64];
    int len;

    base64url_encode(nonce, sizeof(nonce), text);
    len = snprintf(said, sizeof(said), "%s.%s.%s", text, ID_STR(&session), ID_STR(&bound));
    forge_sign(key, said, (size_t)len, sig);
    forge_base64url(sig, sizeof(sig), sig_text);
    snprintf(proof_text, sizeof(proof_text),
             "\"jwk\":{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"},\"sig\":\"%s\"",
             public->x, public->y, sig_text);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    EVP_PKEY *signing = forge_key("test_door_client"), *holder = forge_key("holder");
    struct keyset *holders = keyset_new();
    struct key_public public;
    (void)argc, (void)argv;

    session = id_n(200);
    plain = id_n(1);
    bound = id_n(2);
    keys = keyset_new();
    key_add(signing, keys);
    key_add(holder, holders);
    keyset_get(holders, 0, &public);
    mint(plain, APPLIED, "", token_plain);
    mint(plain, APPLIED + 1, "", token_ahead);
    mint(bound, APPLIED, public.kid, token_bound);
    prove(holder, &public);
    keyset_free(holders);
    EVP_PKEY_free(signing);
    EVP_PKEY_free(holder);
    return 0;
}

/* --- the clock and the server ---------------------------------------------------------------- */

int64_t loop_now_us(void)
{
    return rig->now_us;
}

struct door_core *server_core(const struct server *s)
{
    return s->core;
}

struct agent *server_agent(const struct server *s)
{
    return (struct agent *)(uintptr_t)s;
}

struct spool *server_spool(const struct server *s)
{
    (void)s;
    return NULL;
}

char *server_declined(struct server *s)
{
    return s->declined;
}

const struct id *server_session(const struct server *s)
{
    (void)s;
    return &session;
}

bool server_origin_allowed(const struct server *s, const char *origin)
{
    (void)s;
    return strcmp(origin, "https://app.example") == 0;
}

void server_gone(struct server *s, struct client *cl)
{
    door_core_gone(s->core, &cl->peer, cl->peer_code ? cl->peer_code : CLIENT_VANISHED);
    client_free(cl);
    s->cl = NULL;
}

void server_drained(struct server *s, struct client *cl)
{
    require(s->cl == cl);
}

void server_flow(struct server *s)
{
    client_flow(s->cl);
}

/* --- the agent ------------------------------------------------------------------------------- */

struct bridges *agent_bridges(const struct agent *a)
{
    return rig->bridged ? (struct bridges *)(uintptr_t)a : NULL;
}

bool agent_is_full(const struct agent *a)
{
    (void)a;
    return rig->full;
}

static void require_may_write(void)
{
    const struct door_peer *peer = &rig->cl->peer;

    require(peer->state == PEER_ADMITTED && !peer->revoked && peer->code == 0);
    require(peer->scope & rig->scope & SCOPE_WRITE);
}

bool agent_line(struct agent *a, const char *text, size_t len)
{
    (void)a;
    require_may_write();
    require(!rig->bridged && len <= LINK_LINE_MAX);
    require(utf8_valid(text, len) && (len == 0 || !memchr(text, '\n', len)));
    return !rig->full;
}

struct bridge *bridge_new(struct bridges *bs, void *client)
{
    require(rig->bridged && client == rig->cl && !rig->cl->bridge);
    return rig->full ? NULL : (struct bridge *)bs;
}

void bridge_leave(struct bridge *b, bool deliver, int code, const void *reason, size_t len)
{
    (void)deliver, (void)code, (void)reason;
    require((struct server *)b == rig && len <= 123);
    rig->up = false;
}

bool bridge_is_up(const struct bridge *b)
{
    (void)b;
    return rig->up;
}

bool bridge_is_full(const struct bridge *b)
{
    (void)b;
    return rig->full;
}

bool bridge_send(struct bridge *b, const struct bridge_piece *piece)
{
    (void)b;
    require_may_write();
    require(rig->up && piece->first == !rig->in_open && piece->len <= CLIENT_RX_MAX);
    if (piece->first) {
        rig->in_text = piece->text;
        buf_reset(&rig->said);
    }
    rig->in_open = !piece->fin;
    buf_add(&rig->said, piece->data, piece->len);
    require(buf_ok(&rig->said));
    if (piece->fin && rig->in_text)
        require(utf8_valid(rig->said.data, rig->said.len));
    return !rig->choked;
}

enum bridge_said bridge_next(struct bridge *b, struct bridge_piece *ret, int *ret_code)
{
    (void)b;
    if (rig->end_code) {
        *ret_code = rig->end_code;
        return BRIDGE_END;
    }
    *ret = (struct bridge_piece){.text = true,
                                 .first = rig->piece_first,
                                 .fin = rig->piece_fin,
                                 .data = rig->piece + BRIDGE_ROOM,
                                 .len = rig->piece_len};
    return rig->offered ? BRIDGE_PIECE : BRIDGE_NOTHING;
}

void bridge_took(struct bridge *b)
{
    (void)b;
    require(rig->offered);
    rig->offered = false;
}

bool bridge_has_much(const struct bridge *b)
{
    (void)b;
    return rig->piece_len > AGENT_ROOM / 2;
}

/* --- libwebsockets --------------------------------------------------------------------------- */

static const char *header(enum lws_token_indexes h)
{
    switch ((int)h) {
    case WSI_TOKEN_PROTOCOL:
        return rig->headers[0];
    case WSI_TOKEN_GET_URI:
        return rig->headers[1];
    case WSI_TOKEN_ORIGIN:
        return rig->headers[2];
    case WSI_TOKEN_HTTP_AUTHORIZATION:
        return rig->headers[3];
    default:
        return NULL;
    }
}

int lws_hdr_total_length(struct lws *wsi, enum lws_token_indexes h)
{
    (void)wsi;
    return header(h) ? (int)strlen(header(h)) : 0;
}

int lws_hdr_copy(struct lws *wsi, char *dest, int len, enum lws_token_indexes h)
{
    int n = lws_hdr_total_length(wsi, h);

    if (n >= len)
        return -1;
    memcpy(dest, n > 0 ? header(h) : "", (size_t)n + 1);
    return n;
}

const struct lws_protocols *lws_get_protocol(struct lws *wsi)
{
    (void)wsi;
    return rig->protocol;
}

void *lws_get_opaque_user_data(const struct lws *wsi)
{
    (void)wsi;
    return rig->cl;
}

void lws_set_opaque_user_data(struct lws *wsi, void *data)
{
    (void)wsi;
    require(!data);
}

int lws_frame_is_binary(struct lws *wsi)
{
    (void)wsi;
    return rig->binary;
}

int lws_is_final_fragment(struct lws *wsi)
{
    (void)wsi;
    return rig->fin;
}

int lws_rx_flow_control(struct lws *wsi, int enable)
{
    (void)wsi, (void)enable;
    return 0;
}

int lws_callback_on_writable(struct lws *wsi)
{
    (void)wsi;
    rig->wants_write = true;
    return 0;
}

int lws_partial_buffered(struct lws *wsi)
{
    (void)wsi;
    return rig->partial;
}

int lws_send_pipe_choked(struct lws *wsi)
{
    (void)wsi;
    return rig->choked;
}

void lws_set_timeout(struct lws *wsi, enum pending_timeout reason, int secs)
{
    (void)wsi, (void)reason, (void)secs;
    rig->dead = true;
}

void lws_close_reason(struct lws *wsi, enum lws_close_status status, unsigned char *buf, size_t len)
{
    (void)wsi;
    require((int)status >= 1000 && (int)status < 5000 && utf8_valid((char *)buf, len) &&
            len <= 123);
}

static void require_heard(const char *text, size_t len)
{
    static const char ready[] = "{\"type\":\"ready\"", challenge[] = "{\"type\":\"challenge\"";

    if (rig->ready)
        return;
    if (len > strlen(ready) && memcmp(text, ready, strlen(ready)) == 0) {
        require(rig->cl->peer.state == PEER_ADMITTED);
        rig->ready = true;
        return;
    }
    require(!rig->challenged && len > strlen(challenge) &&
            memcmp(text, challenge, strlen(challenge)) == 0);
    rig->challenged = true;
}

int lws_write(struct lws *wsi, unsigned char *buf, size_t len, enum lws_write_protocol how)
{
    int kind = how & 0x1f;
    (void)wsi;

    memset(buf - LWS_PRE, 0xee, LWS_PRE); /* as libwebsockets may */
    if (!rig->cl->upgraded) {
        require(kind == LWS_WRITE_HTTP_HEADERS);
        return (int)len;
    }
    require(!rig->cl->peer.revoked && (kind == LWS_WRITE_CONTINUATION) == rig->out_open);
    if (!rig->out_open)
        require_heard((char *)buf, len);
    rig->out_open = how & LWS_WRITE_NO_FIN;
    return (int)len;
}

/* --- what the core asks for ------------------------------------------------------------------ */

static void core_admitted(void *ctx, struct door_peer *peer)
{
    (void)peer;
    client_admitted(((struct server *)ctx)->cl);
}

static void core_challenge(void *ctx, struct door_peer *peer)
{
    (void)peer;
    client_challenge(((struct server *)ctx)->cl);
}

static void core_random(void *ctx, void *to, size_t len)
{
    (void)ctx;
    memset(to, 0, len);
}

static void core_close(void *ctx, struct door_peer *peer, int code)
{
    require(peer->revoked || code == CLOSE_AGENT_ENDED || code == CLOSE_SLOW_READER);
    client_close(((struct server *)ctx)->cl, code);
}

static void core_send(void *ctx, const struct door_msg *m)
{
    (void)ctx, (void)m;
}

static void core_receive(struct door_msg m)
{
    struct err e;

    require(door_core_receive(rig->core, &m, rig->now_us, &e) == 0);
}

static void core_start(void)
{
    struct door_core_config config = {.session_id = session,
                                      .boot_id = id_n(201),
                                      .ep = 7,
                                      .issuer = "iss",
                                      .node = "node",
                                      .leeway_s = 5,
                                      .ttl_max_s = 900,
                                      .stale_s = 3,
                                      .seal_s = 15};
    struct door_core_io io = {.ctx = rig,
                              .admitted = core_admitted,
                              .challenge = core_challenge,
                              .random = core_random,
                              .close = core_close,
                              .send = core_send};
    struct door_allow allow[] = {{plain, GATEWAY_S + 120, rig->scope, 1, USE_MULTI},
                                 {bound, GATEWAY_S + 120, rig->scope, 1, USE_MULTI}};
    struct key_public public;
    struct door_msg hello;
    struct err e;

    rig->core = door_core_new(&config, &io, rig->now_us);
    require(rig->core && door_core_hello(rig->core, rig->now_us, &hello, &e) == 0);
    free(hello.conns.items);
    free(hello.consumed.items);
    keyset_get(keys, 0, &public);
    core_receive((struct door_msg){.t = DOOR_SNAPSHOT,
                                   .seq = APPLIED,
                                   .now = GATEWAY_S * 1000,
                                   .stale_s = 3,
                                   .seal_s = 15,
                                   .allow = {allow, 2},
                                   .keys = {&public, 1}});
}

/* --- the steps ------------------------------------------------------------------------------- */

struct step {
    char what;
    uint8_t flags;
    const char *data;
    size_t len;
};

static void call(enum lws_callback_reasons reason, void *in, size_t len)
{
    if (rig->cl && rig->protocol->callback((struct lws *)rig, reason, NULL, in, len) != 0)
        rig->dead = true;
}

/* The piece with its tokens, in memory of exactly its size. */
static char *expanded(const struct step *step, size_t *ret_len)
{
    struct buf out;
    char *exact;

    buf_init(&out, INPUT_MAX * 4);
    for (size_t i = 0; i < step->len; i++) {
        const char *with = NULL;
        char next = i + 1 < step->len && step->data[i] == '$' ? step->data[i + 1] : '\0';
        with = next == 'T' ? token_plain : next == 'B' ? token_bound : with;
        with = next == 'W' ? token_ahead : next == 'P' ? proof_text : with;
        if (with)
            buf_add_str(&out, with);
        else
            buf_add(&out, step->data + i, 1);
        i += with != NULL;
    }
    *ret_len = out.len > CLIENT_RX_MAX ? CLIENT_RX_MAX : out.len;
    exact = malloc(*ret_len + (*ret_len == 0));
    if (*ret_len > 0)
        memcpy(exact, out.data, *ret_len);
    buf_done(&out);
    return exact;
}

static void do_message(const struct step *step)
{
    size_t len;
    char *data = expanded(step, &len);

    if (rig->fin) /* of the last piece: a message begins */
        rig->binary = step->flags & PIECE_BINARY;
    rig->fin = step->flags & PIECE_FIN;
    call(LWS_CALLBACK_RECEIVE, data, len);
    free(data);
}

/* Header lines: subprotocols, path, origin, authorization; an empty one is not there. */
static void do_upgrade(const struct step *step)
{
    size_t len;
    char *data = expanded(step, &len), *lines = strndup(data, len), *at = lines;
    char upgrade[] = "websocket";

    for (size_t i = 0; i < 4; i++)
        rig->headers[i] = strsep(&at, "\n");
    for (size_t i = 0; i < 4; i++)
        rig->headers[i] = rig->headers[i] && rig->headers[i][0] ? rig->headers[i] : NULL;
    call(LWS_CALLBACK_HTTP_CONFIRM_UPGRADE, upgrade, strlen(upgrade));
    if (rig->declined[0] != '\0')
        rig->protocol = &rig->protocols[1];
    require(strlen(rig->declined) < CLIENT_NAME_MAX);
    if (!rig->dead)
        call(LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION, NULL, 0);
    if (!rig->dead)
        call(LWS_CALLBACK_ESTABLISHED, NULL, 0);
    memset(rig->headers, 0, sizeof(rig->headers));
    free(lines);
    free(data);
}

/* As server_line does it, or as a bridge has it ready. */
static void do_agent_says(const struct step *step)
{
    struct msg *m;

    if (!rig->bridged) {
        m = msg_new_text(step->data, step->len);
        if (door_core_pass_out(rig->core, &rig->cl->peer, msg_len(m), rig->now_us))
            client_send(rig->cl, m);
        msg_unref(m);
        return;
    }
    if (rig->offered || !rig->up)
        return;
    rig->piece_first = rig->piece_len == 0 || rig->piece_fin;
    rig->piece_fin = step->flags & PIECE_FIN;
    rig->piece_len = step->len < AGENT_ROOM ? step->len : AGENT_ROOM;
    memcpy(rig->piece + BRIDGE_ROOM, step->data, rig->piece_len);
    rig->offered = true;
    client_bridge_ops.readable(rig->cl);
}

static void do_bridge(const struct step *step)
{
    if (!rig->cl->bridge)
        return;
    if (!rig->up && step->what == 'u') {
        rig->up = true;
        client_bridge_ops.up(rig->cl);
    } else if (!rig->up && step->what == 'f') {
        client_bridge_ops.failed(rig->cl);
    } else if (rig->up && step->what == 'e') {
        rig->end_code = 1000 + step->flags;
        client_bridge_ops.readable(rig->cl);
    }
}

static void do_gateway(const struct step *step)
{
    struct door_msg m = {.t = DOOR_OP,
                         .seq = door_core_applied(rig->core) + 1,
                         .op = step->what == 'r' ? DOOR_OP_REVOKE : DOOR_OP_EXTEND,
                         .jti = step->flags & 1 ? bound : plain,
                         .exp = GATEWAY_S + 240,
                         .code = CLOSE_REVOKED};

    core_receive(m);
}

static void do_time(const struct step *step)
{
    rig->now_us += 1000 + INT64_C(20000) * step->flags;
    door_core_tick(rig->core, rig->now_us);
}

static void do_queues(const struct step *step)
{
    rig->full = step->flags & 1;
    rig->choked = step->flags & 2;
    rig->partial = step->flags & 4;
    client_flow(rig->cl);
}

static void do_step(struct step *step)
{
    char closes[125];
    size_t len = step->len < sizeof(closes) ? step->len : sizeof(closes);

    switch (step->what) {
    case 'm':
        do_message(step);
        break;
    case 'w':
        rig->wants_write = false;
        call(LWS_CALLBACK_SERVER_WRITEABLE, NULL, 0);
        break;
    case 'a':
        do_agent_says(step);
        break;
    case 'u':
    case 'f':
    case 'e':
        do_bridge(step);
        break;
    case 'r':
    case 'x':
        do_gateway(step);
        break;
    case 't':
        do_time(step);
        break;
    case 'q':
        do_queues(step);
        break;
    case 'd':
        door_core_agent(rig->core, DOOR_AGENT_ENDED, rig->now_us);
        break;
    case 'c':
        memcpy(closes, step->data, len);
        call(LWS_CALLBACK_WS_PEER_INITIATED_CLOSE, closes, len);
        rig->dead = true;
        break;
    default:
        break;
    }
}

/* What server_step does after every round. */
static void after_step(void)
{
    struct client *cl = rig->cl;

    if (rig->dead)
        return;
    if (cl->step == CLOSE_STEP_NONE && client_deadline_us(cl) <= rig->now_us)
        door_core_refuse(rig->core, &cl->peer, CLOSE_UNAUTHENTICATED, "no_token", rig->now_us);
    if (client_deadline_us(cl) <= rig->now_us || cl->step == CLOSE_STEP_FLUSH)
        client_step(cl, rig->now_us);
    require(cl->peer.state == PEER_ADMITTED || cl->in.len <= CLIENT_AUTH_MAX);
    require(cl->out_bytes <= 2 * 1024 * 1024);
}

static void run(const uint8_t *data, size_t size)
{
    static const char usual[] = CLIENT_PROTOCOL "\n/";
    struct step step = {.data = usual, .len = strlen(usual)};
    bool first = true;

    while (size >= 4 && !rig->dead) {
        size_t len = data[2] | (size_t)data[3] << 8;

        len = len < size - 4 ? len : size - 4;
        step = (struct step){(char)data[0], data[1], (const char *)data + 4, len};
        if (first && step.what != 'U')
            do_upgrade(&(struct step){.data = usual, .len = strlen(usual)});
        else if (first)
            do_upgrade(&step);
        if (!rig->dead && step.what != 'U')
            do_step(&step);
        after_step();
        first = false;
        data += 4 + len;
        size -= 4 + len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct server s = {.now_us = 5000000, .fin = true};

    if (size < 1 || size > INPUT_MAX)
        return -1;
    rig = &s;
    s.bridged = data[0] & FLAG_BRIDGED;
    s.scope = data[0] & FLAG_READ_ONLY ? SCOPE_READ : SCOPE_READ | SCOPE_WRITE;
    s.scope = data[0] & FLAG_WRITE_ONLY ? SCOPE_WRITE : s.scope;
    s.cl = calloc(1, sizeof(*s.cl));
    s.cl->server = &s;
    s.cl->counted = true;
    s.cl->auth_until_us = s.now_us + 2000000;
    buf_init(&s.cl->token, TOKEN_MAX);
    buf_init(&s.cl->in, CLIENT_AUTH_MAX);
    buf_init(&s.said, LINK_MESSAGE_MAX);
    client_protocols_fill(s.protocols, s.declined);
    s.protocol = &s.protocols[0];
    core_start();
    run(data + 1, size - 1);
    call(LWS_CALLBACK_WSI_DESTROY, NULL, 0);
    require(!s.cl);
    door_core_free(s.core);
    buf_done(&s.said);
    return 0;
}
