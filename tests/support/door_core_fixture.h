/*
 * A door's core driven by hand: no socket, no clock. Time is a variable, the gateway a few helpers,
 * clients an array of peers; what the core asks for is recorded.
 */
#ifndef TESTS_DOOR_CORE_FIXTURE_H
#define TESTS_DOOR_CORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../lease/door/core.h"
#include "token_forge.h"

#define GATEWAY_S INT64_C(1700000000)
#define S         INT64_C(1000000)
#define LIFE_S    INT64_C(7200) /* of the sandbox */
#define PEERS     16
#define SENT      256

struct fixture {
    struct door_core *core;
    struct keyset *signing, *other;
    struct id session, jti;
    int64_t now;
    struct door_peer peers[PEERS];
    int admitted;
    int closes;
    int challenges, random;
    bool flagged_first; /* at every close so far, no peer of that lease was unflagged */
    struct door_msg sent[SENT];
    size_t sent_n;
    struct err e;
};

/* --- what the core asks for ------------------------------------------------------------------ */

static inline void on_admitted(void *ctx, struct door_peer *peer)
{
    struct fixture *f = ctx;

    assert_int_equal(peer->state, PEER_ADMITTED);
    f->admitted++;
}

static inline void on_close(void *ctx, struct door_peer *peer, int code)
{
    struct fixture *f = ctx;

    assert_int_equal(peer->code, code);
    f->closes++;
    if (code == CLOSE_AGENT_ENDED)
        return;
    assert_true(peer->revoked);
    for (int i = 0; i < PEERS; i++)
        if (peer->lease && f->peers[i].lease == peer->lease && !f->peers[i].revoked)
            f->flagged_first = false;
}

static inline void on_challenge(void *ctx, struct door_peer *peer)
{
    struct fixture *f = ctx;

    assert_int_equal(peer->state, PEER_PROVING);
    f->challenges++;
}

static inline void on_random(void *ctx, void *to, size_t len)
{
    struct fixture *f = ctx;

    memset(to, ++f->random, len);
}

static inline void on_send(void *ctx, const struct door_msg *m)
{
    struct fixture *f = ctx;

    assert_true(f->sent_n < SENT);
    f->sent[f->sent_n++] = *m;
}

/* --- driving it ------------------------------------------------------------------------------- */

static inline struct id id_n(uint8_t n)
{
    return (struct id){{n, 1, 2, 3, 4, 5, 0x46, 7, 0x88, 9, 10, 11, 12, 13, 14, 15}};
}

static inline struct keyset *signer(const char *seed)
{
    struct keyset *ks = keyset_new();
    char path[] = "/tmp/test_door_core.XXXXXX";
    EVP_PKEY *key = forge_key(seed);
    struct err e;

    forge_key_file(key, path);
    assert_int_equal(keyset_add_signing_file(ks, path, &e), 0);
    unlink(path);
    EVP_PKEY_free(key);
    return ks;
}

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct door_core_config config = {.session_id = id_n(200),
                                      .boot_id = id_n(201),
                                      .ep = 7,
                                      .issuer = "iss",
                                      .node = "node",
                                      .leeway_s = 5,
                                      .ttl_max_s = 900,
                                      .stale_s = 3,
                                      .seal_s = 15,
                                      .life_s = LIFE_S};
    struct door_core_io io = {.ctx = f,
                              .admitted = on_admitted,
                              .challenge = on_challenge,
                              .random = on_random,
                              .close = on_close,
                              .send = on_send};

    f->now = 5 * S;
    f->session = config.session_id;
    f->jti = id_n(1);
    f->signing = signer("door-core");
    f->other = signer("door-core-other");
    f->flagged_first = true;
    f->core = door_core_new(&config, &io, f->now);
    *state = f;
    return f->core ? 0 : -1;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < PEERS; i++)
        door_core_gone(f->core, &f->peers[i], 1006);
    door_core_free(f->core);
    keyset_free(f->signing);
    keyset_free(f->other);
    free(f);
    return 0;
}

static inline int receive(struct fixture *f, const struct door_msg *m)
{
    return door_core_receive(f->core, m, f->now, &f->e);
}

static inline int64_t gateway_ms(const struct fixture *f)
{
    return GATEWAY_S * 1000 + (f->now - 5 * S) / 1000;
}

static inline int snapshot(struct fixture *f, int64_t seq, struct door_allow *allow, size_t n)
{
    struct key_public key;
    struct door_msg m = {.t = DOOR_SNAPSHOT,
                         .seq = seq,
                         .now = gateway_ms(f),
                         .stale_s = 3,
                         .seal_s = 15,
                         .allow = {allow, n},
                         .keys = {&key, 1}};

    keyset_get(f->signing, 0, &key);
    return receive(f, &m);
}

static inline struct door_msg hello(struct fixture *f)
{
    struct door_msg m;

    assert_int_equal(door_core_hello(f->core, f->now, &m, &f->e), 0);
    free(m.conns.items);
    free(m.consumed.items);
    return m;
}

static inline struct door_allow entry(struct id jti)
{
    return (struct door_allow){jti, GATEWAY_S + 120, SCOPE_READ | SCOPE_WRITE, 1, USE_MULTI};
}

/* A linked, synced door that knows lease f->jti. */
static inline void go_live(struct fixture *f)
{
    struct door_allow allow = entry(f->jti);

    hello(f);
    assert_int_equal(snapshot(f, 10, &allow, 1), 0);
    assert_int_equal(door_core_state(f->core), DOOR_LIVE);
}

static inline int op(struct fixture *f, struct door_msg m)
{
    m.t = DOOR_OP;
    m.seq = m.seq ? m.seq : door_core_applied(f->core) + 1;
    return receive(f, &m);
}

static inline int grant(struct fixture *f, struct door_allow a)
{
    return op(f, (struct door_msg){.op = DOOR_OP_GRANT,
                                   .jti = a.jti,
                                   .exp = a.exp,
                                   .scope = a.scope,
                                   .mc = a.mc,
                                   .use = a.use});
}

static inline int lease_revoke(struct fixture *f, struct id jti)
{
    return op(f, (struct door_msg){.op = DOOR_OP_REVOKE, .jti = jti, .code = CLOSE_REVOKED});
}

static inline void ping(struct fixture *f)
{
    struct door_msg m = {.t = DOOR_PING, .now = gateway_ms(f)};

    assert_int_equal(receive(f, &m), 0);
}

static inline void pass_time(struct fixture *f, int64_t us)
{
    f->now += us;
    door_core_tick(f->core, f->now);
}

/* Time passes, the gateway says its ping each second. */
static inline void pass_time_pinged(struct fixture *f, int64_t us)
{
    for (int64_t left = us; left > 0; left -= S) {
        f->now += left < S ? left : S;
        ping(f);
        door_core_tick(f->core, f->now);
    }
}

static inline struct token_claims claims(const struct fixture *f)
{
    return (struct token_claims){.iss = "iss",
                                 .session_id = f->session,
                                 .user_id = id_n(100),
                                 .chat_id = id_n(101),
                                 .lease_id = f->jti,
                                 .node = "node",
                                 .ep = 7,
                                 .rq = 10,
                                 .iat = GATEWAY_S,
                                 .nbf = GATEWAY_S,
                                 .exp = GATEWAY_S + 120,
                                 .mex = GATEWAY_S + 3600,
                                 .scope = SCOPE_READ | SCOPE_WRITE,
                                 .use = USE_MULTI,
                                 .mc = 1};
}

static inline struct door_peer *
present_signed(struct fixture *f, int i, const struct token_claims *cl, const struct keyset *by)
{
    struct buf token;

    buf_init(&token, TOKEN_MAX);
    assert_int_equal(token_mint(by, cl, &token, &f->e), 0);
    door_core_present(f->core, &f->peers[i], token.data, token.len, f->now);
    buf_done(&token);
    return &f->peers[i];
}

static inline struct door_peer *present(struct fixture *f, int i, const struct token_claims *cl)
{
    return present_signed(f, i, cl, f->signing);
}

static inline struct door_peer *admit(struct fixture *f, int i)
{
    struct token_claims cl = claims(f);
    struct door_peer *peer = present(f, i, &cl);

    assert_int_equal(peer->state, PEER_ADMITTED);
    return peer;
}

static inline void assert_refused(const struct door_peer *peer, int code)
{
    assert_int_equal(peer->state, PEER_REFUSED);
    assert_int_equal(peer->code, code);
    assert_true(peer->revoked);
}

static inline const struct door_msg *last_sent(const struct fixture *f, int t)
{
    for (size_t i = f->sent_n; i > 0; i--)
        if (f->sent[i - 1].t == t)
            return &f->sent[i - 1];
    return NULL;
}

#endif
