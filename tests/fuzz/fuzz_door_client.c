/*
 * The door's client protocol on hostile bytes: all of client*.c and wire.c over the real core, the
 * real readers and a real socket, with a hand-made loop, server, agent and clock around them. The
 * input is how they are driven: a byte of flags, then steps of one byte, a byte of flags, a length and
 * so many bytes (struct step). `$T` in what is sent becomes a good token, `$B` one bound to a key,
 * `$W` one that the door has to wait for, `$P` the proof for `$B`.
 *
 * Held against each input: what the client hears is one answer of HTTP, then whole frames in order;
 * before it is admitted a challenge at most, then `ready` first, then what it may read; no message at
 * all once it is revoked; the agent hears nothing but whole, valid messages of clients that may write;
 * nothing leaks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* What stands for the loop's, the server's and the agent's own structs. */
struct loop_fd {
    const struct loop_fd_ops *ops;
    void *ctx;
    int fd;
    bool reading, writing, closing;
};

struct server {
    struct door_core *core;
    struct client *cl;
    struct loop_fd watch;
    int fd; /* the client's own end */
    int64_t now_us;
    unsigned scope; /* of the leases */
    bool bridged, full, deaf, dirty;
    bool fin;                    /* of the last frame that was sent */
    bool up, offered;            /* the bridge */
    bool challenged, ready, cut; /* what the client has heard so far; that it may hear no more */
    struct buf heard;            /* of the head of the answer */
    bool answered, no_websocket;
    struct ws_reader reader;
    bool in_open, in_text; /* what the agent has */
    struct buf said;
    unsigned char piece[BRIDGE_ROOM + AGENT_ROOM];
    size_t piece_len;
    bool piece_first, piece_fin;
    int end_code;
    char scratch[CLIENT_RX_MAX];
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

struct loop *server_loop(const struct server *s)
{
    return (struct loop *)(uintptr_t)s;
}

struct ssl_ctx_st *server_tls(const struct server *s)
{
    (void)s;
    return NULL;
}

char *server_scratch(const struct server *s)
{
    return (char *)(uintptr_t)s->scratch;
}

void server_dirty(struct server *s, struct client *cl)
{
    require(s->cl == cl);
    s->dirty = true;
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
    return true;
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

/* --- the loop -------------------------------------------------------------------------------- */

struct loop_fd *loop_fd_add(struct loop *l, int fd, const struct loop_fd_ops *ops, void *ctx)
{
    (void)l;
    rig->watch = (struct loop_fd){.ops = ops, .ctx = ctx, .fd = fd, .reading = true};
    return &rig->watch;
}

void loop_fd_read(struct loop_fd *w, bool on)
{
    w->reading = on;
}

void loop_fd_write(struct loop_fd *w)
{
    w->writing = true;
}

void loop_fd_close(struct loop_fd *w)
{
    w->closing = true;
}

int loop_fd_get(const struct loop_fd *w)
{
    require(rig->cl || w->fd >= 0);
    return w->fd;
}

/* --- what the client hears -------------------------------------------------------------------- */

static void require_heard(const uint8_t *text, size_t len)
{
    static const char ready[] = "{\"type\":\"ready\"", challenge[] = "{\"type\":\"challenge\"";

    if (rig->ready)
        return;
    if (len > strlen(ready) && memcmp(text, ready, strlen(ready)) == 0) {
        rig->ready = true;
        return;
    }
    require(!rig->challenged && len > strlen(challenge) &&
            memcmp(text, challenge, strlen(challenge)) == 0);
    rig->challenged = true;
}

static void hear_frames(uint8_t *data, size_t len)
{
    struct ws_event e;

    do {
        size_t used = ws_reader_next(&rig->reader, data, len, SIZE_MAX, &e);

        data += used;
        len -= used;
        require(e.kind != WS_GOT_FAULT);
        if (e.kind == WS_GOT_PIECE) {
            require(!rig->cut);
            if (e.first)
                require_heard(e.data, e.len);
        }
    } while (e.kind != WS_GOT_MORE);
}

static void hear(uint8_t *data, size_t len)
{
    const char *end;

    if (rig->answered) {
        require(!rig->no_websocket);
        hear_frames(data, len);
        return;
    }
    buf_add(&rig->heard, data, len);
    end = memmem(rig->heard.data, rig->heard.len, "\r\n\r\n", 4);
    if (!end)
        return;
    rig->answered = true;
    rig->no_websocket = memcmp(rig->heard.data, "HTTP/1.1 101 ", 13) != 0;
    len = rig->heard.len - (size_t)(end + 4 - rig->heard.data);
    require(len == 0 || !rig->no_websocket);
    if (len > 0)
        hear_frames((uint8_t *)rig->heard.data + rig->heard.len - len, len);
}

static void listen_up(void)
{
    uint8_t piece[65536];
    ssize_t n;

    while (!rig->deaf && (n = recv(rig->fd, piece, sizeof(piece), MSG_DONTWAIT)) > 0)
        hear(piece, (size_t)n);
    rig->cut = !rig->deaf && rig->cl && rig->cl->peer.revoked;
}

/* One round of the loop. */
static void turn(void)
{
    struct client *cl = rig->cl;
    struct loop_fd *w = &rig->watch;
    bool write = w->writing;

    if (w->reading && !w->closing)
        w->ops->readable(w->ctx);
    w->writing = w->writing && !write;
    if (write && !w->closing)
        w->ops->writable(w->ctx);
    if (cl->step == CLOSE_STEP_NONE && client_deadline_us(cl) <= rig->now_us)
        door_core_refuse(rig->core, &cl->peer, CLOSE_UNAUTHENTICATED, "no_token", rig->now_us);
    if (client_deadline_us(cl) <= rig->now_us || cl->step == CLOSE_STEP_FLUSH)
        client_step(cl, rig->now_us);
    while (rig->dirty) {
        rig->dirty = false;
        client_stash_feed(cl);
        client_flush(cl);
    }
    require(cl->peer.state == PEER_ADMITTED || cl->in.len <= HTTP_HEAD_MAX);
    require(cl->out_bytes <= 2 * 1024 * 1024 && cl->stash.len <= CLIENT_RX_MAX);
    listen_up();
    if (!w->closing)
        return;
    close(w->fd);
    w->fd = -1;
    w->ops->ended(w->ctx);
    require(!rig->cl);
    listen_up();
}

/* Sends as much as the door takes. */
static void say(const char *data, size_t len)
{
    for (int idle = 0; rig->cl && len > 0 && idle < 3;) {
        ssize_t n = send(rig->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);

        idle = n > 0 ? 0 : idle + 1;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        turn();
    }
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
    *ret_len = out.len;
    exact = malloc(*ret_len + (*ret_len == 0));
    if (*ret_len > 0)
        memcpy(exact, out.data, *ret_len);
    buf_done(&out);
    return exact;
}

static void frame_say(unsigned first, const char *data, size_t len)
{
    struct ws_frame f = {.fin = first & 0x80,
                         .opcode = (enum ws_opcode)(first & 0xf),
                         .len = len,
                         .mask = {(uint8_t)len, 0xa5, 0, (uint8_t)first}};
    uint8_t head[WS_HEADER_MAX];
    size_t n = ws_frame_put_masked(head, &f);
    char *all = malloc(n + len);

    memcpy(all, head, n);
    memcpy(all + n, data, len);
    ws_frame_mask(all + n, len, f.mask, 0);
    say(all, n + len);
    free(all);
}

static void do_message(const struct step *step)
{
    size_t len;
    char *data = expanded(step, &len);
    unsigned opcode = step->flags & PIECE_BINARY ? WS_BINARY : WS_TEXT;

    if (!rig->fin) /* the last piece was not the message's last */
        opcode = WS_CONTINUATION;
    rig->fin = step->flags & PIECE_FIN;
    frame_say(opcode | (rig->fin ? 0x80u : 0), data, len);
    free(data);
}

static void do_bytes(const struct step *step)
{
    size_t len;
    char *data = expanded(step, &len);

    say(data, len);
    free(data);
}

/* Header lines: subprotocols, path, origin, authorization; an empty one is not there. */
static void do_upgrade(const struct step *step)
{
    static const char *const names[] = {"Sec-WebSocket-Protocol", NULL, "Origin", "Authorization"};
    size_t len;
    char *data = expanded(step, &len), *lines = strndup(data, len), *at = lines, *value[4];
    struct buf head;

    for (size_t i = 0; i < 4; i++)
        value[i] = strsep(&at, "\n");
    buf_init(&head, INPUT_MAX * 8);
    buf_printf(&head,
               "GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
               "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
               value[1] ? value[1] : "/");
    for (size_t i = 0; i < 4; i++)
        if (names[i] && value[i] && value[i][0])
            buf_printf(&head, "%s: %s\r\n", names[i], value[i]);
    buf_add_str(&head, "\r\n");
    say(head.data, head.len);
    buf_done(&head);
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
    rig->piece_first = rig->piece_fin;
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
        rig->end_code = step->flags & 1 ? 4000 + step->flags : 1000;
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
    rig->deaf = step->flags & 2;
    client_flow(rig->cl);
}

static void do_step(struct step *step)
{
    switch (step->what) {
    case 'm':
        do_message(step);
        break;
    case 'b':
        do_bytes(step);
        break;
    case 'p':
        frame_say(0x80u | WS_PING, step->data, step->len < 125 ? step->len : 125);
        break;
    case 'h':
        shutdown(rig->fd, SHUT_WR);
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
        frame_say(0x80u | WS_CLOSE, step->data, step->len < 125 ? step->len : 125);
        break;
    default:
        break;
    }
}

static void run(const uint8_t *data, size_t size)
{
    static const char usual[] = CLIENT_PROTOCOL "\n/";
    struct step step = {.data = usual, .len = strlen(usual)};
    bool first = true;

    while (size >= 4 && rig->cl) {
        size_t len = data[2] | (size_t)data[3] << 8;

        len = len < size - 4 ? len : size - 4;
        step = (struct step){(char)data[0], data[1], (const char *)data + 4, len};
        if (first && step.what != 'U' && step.what != 'b')
            do_upgrade(&(struct step){.data = usual, .len = strlen(usual)});
        else if (first && step.what == 'U')
            do_upgrade(&step);
        if (rig->cl && step.what != 'U')
            do_step(&step);
        if (rig->cl)
            turn();
        first = false;
        data += 4 + len;
        size -= 4 + len;
    }
}

/* Small buffers, so that they get full. */
static void connect_client(struct server *s)
{
    int pair[2], size = 4096;

    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    require(setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
    s->fd = pair[0];
    s->cl = client_new(s, pair[1]);
    require(s->cl);
    s->cl->counted = true;
    s->cl->auth_until_us = s->now_us + 2000000;
}

static void go_away(struct server *s)
{
    s->deaf = false;
    listen_up();
    close(s->fd);
    s->fd = -1;
    s->deaf = true;
    s->full = false;
    s->watch.reading = true;
    for (int i = 0; i < 3 && s->cl; i++) {
        s->now_us += 6000000;
        turn();
    }
    if (s->cl) { /* not read, it is only missed by the loop */
        require(s->cl->rx_paused);
        s->watch.closing = true;
        turn();
    }
    require(!s->cl);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct server s; /* it is large */

    if (size < 1 || size > INPUT_MAX)
        return -1;
    s = (struct server){.now_us = 5000000, .fin = true, .piece_fin = true};
    rig = &s;
    s.bridged = data[0] & FLAG_BRIDGED;
    s.scope = data[0] & FLAG_READ_ONLY ? SCOPE_READ : SCOPE_READ | SCOPE_WRITE;
    s.scope = data[0] & FLAG_WRITE_ONLY ? SCOPE_WRITE : s.scope;
    s.reader.message_max = LINK_MESSAGE_MAX;
    buf_init(&s.said, LINK_MESSAGE_MAX);
    buf_init(&s.heard, INPUT_MAX);
    core_start();
    connect_client(&s);
    run(data + 1, size - 1);
    if (s.cl)
        go_away(&s);
    else
        close(s.fd);
    door_core_free(s.core);
    buf_done(&s.said);
    buf_done(&s.heard);
    return 0;
}
