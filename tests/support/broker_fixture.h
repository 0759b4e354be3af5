/* A broker whose doors, store and clock are played by the test; what it says is recorded. */
#ifndef TESTS_BROKER_FIXTURE_H
#define TESTS_BROKER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <openssl/sha.h>

#include "leasehold/broker.h"

#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define START  1800000000000LL /* ms */
#define HEARD  20              /* ms behind its end: then a lease is asked for */

struct fixture {
    struct broker *broker;
    struct keyset *keys;
    struct lease_policy policy;
    struct id consumed; /* the last one */
    int consumed_n;
    struct config_lease limits;
    struct clock clock;
    int64_t wall_ms, boot_us;
    struct sandbox sandbox;
    struct arena *arena;
    /* what came out */
    struct door_msg sent[64];
    uint64_t sent_to[64];
    size_t sent_n;
    uint64_t closed_conn;
    int closed_code;
    struct id closed[512], expired[8192];
    size_t closed_n, expired_n, expired_calls, unused_n;
    struct id expiring, unconfirmed; /* the last ones told of */
    size_t expiring_n, unconfirmed_n;
    bool live;
    enum door_agent agent;
    int64_t activity;
    int64_t wake_ms;
    struct broker_event event; /* the last one */
    size_t events_n, over_rate_n, faults_n;
    char fault[128]; /* the last one */
    int ending_code;
    size_t ending_n;
};

static inline int64_t test_wall(void *ctx)
{
    return ((struct fixture *)ctx)->wall_ms;
}

static inline int64_t test_boot(void *ctx)
{
    return ((struct fixture *)ctx)->boot_us;
}

static inline void on_send(void *ctx, uint64_t conn, const char *data, size_t len)
{
    struct fixture *f = ctx;
    struct err e;

    assert_true(f->sent_n < 64);
    assert_int_equal(door_msg_decode(data, len, f->arena, &f->sent[f->sent_n], &e), 0);
    f->sent_to[f->sent_n++] = conn;
}

static inline void on_close(void *ctx, uint64_t conn, int code, const char *reason)
{
    struct fixture *f = ctx;

    (void)reason;
    f->closed_conn = conn;
    f->closed_code = code;
}

static inline void on_closed(void *ctx, const struct id *ids, size_t n)
{
    struct fixture *f = ctx;

    for (size_t i = 0; i < n && f->closed_n < 512; i++)
        f->closed[f->closed_n++] = ids[i];
}

static inline void on_expired(void *ctx, const struct lease_due *due, size_t n)
{
    struct fixture *f = ctx;

    assert_true(n <= BROKER_BATCH);
    f->expired_calls++;
    for (size_t i = 0; i < n && f->expired_n < 8192; i++) {
        f->expired[f->expired_n++] = due[i].lease_id;
        f->unused_n += due[i].unused;
    }
}

static inline void on_expiring(void *ctx, const struct lease_due *due, size_t n)
{
    struct fixture *f = ctx;

    assert_true(n > 0 && n <= BROKER_BATCH);
    f->expiring = due[n - 1].lease_id;
    f->expiring_n += n;
}

static inline void on_unconfirmed(void *ctx, const struct id *ids, size_t n)
{
    struct fixture *f = ctx;

    assert_true(n > 0 && n <= BROKER_BATCH);
    f->unconfirmed = ids[n - 1];
    f->unconfirmed_n += n;
}

static inline void on_session(void *ctx, const struct id *id, bool live, enum door_agent agent)
{
    struct fixture *f = ctx;

    (void)id;
    f->live = live;
    f->agent = agent;
}

static inline void on_activity(void *ctx, const struct id *id, int64_t last_ms)
{
    (void)id;
    ((struct fixture *)ctx)->activity = last_ms;
}

static inline void on_event(void *ctx, const struct broker_event *ev)
{
    struct fixture *f = ctx;

    f->event = *ev;
    f->event.verdict = NULL; /* borrowed for the call */
    f->events_n++;
    if (ev->kind == BROKER_DOOR_FAULT) {
        f->faults_n++;
        snprintf(f->fault, sizeof f->fault, "%s", ev->verdict);
    }
    f->over_rate_n += ev->over_rate;
}

static inline void on_consumed(void *ctx, const struct id *lease_id)
{
    struct fixture *f = ctx;

    f->consumed = *lease_id;
    f->consumed_n++;
}

static inline void on_ending(void *ctx, int code, size_t n)
{
    struct fixture *f = ctx;

    f->ending_code = code;
    f->ending_n += n;
}

static inline void on_wake(void *ctx, int64_t delay_ms)
{
    ((struct fixture *)ctx)->wake_ms = delay_ms;
}

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct broker_hooks hooks = {.ctx = f,
                                 .send = on_send,
                                 .close = on_close,
                                 .closed = on_closed,
                                 .expired = on_expired,
                                 .expiring = on_expiring,
                                 .unconfirmed = on_unconfirmed,
                                 .session = on_session,
                                 .activity = on_activity,
                                 .event = on_event,
                                 .consumed = on_consumed,
                                 .ending = on_ending,
                                 .wake = on_wake};
    struct err e;

    f->wall_ms = START;
    f->boot_us = 1000000;
    f->clock = (struct clock){test_wall, test_boot, f};
    f->policy = (struct lease_policy){.skew_s = 5, .seal_s = 15};
    f->limits = (struct config_lease){.stale_after_seconds = 3, .seal_after_seconds = 15};
    f->keys = keyset_new();
    f->arena = arena_new(1 << 20);
    f->broker = broker_new(&hooks, &f->clock, &f->policy, &f->limits, f->keys);
    f->sandbox = (struct sandbox){.generation = 7, .status = SANDBOX_RUNNING};
    id_random(&f->sandbox.session_id);
    id_random(&f->sandbox.chat_id);
    SHA256((const uint8_t *)SECRET, strlen(SECRET), f->sandbox.door_secret_hash);
    assert_int_equal(broker_load_session(f->broker, &f->sandbox, &e), 0);
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;

    broker_free(f->broker);
    keyset_free(f->keys);
    arena_free(f->arena);
    free(f);
    return 0;
}

static inline void door_says(struct fixture *f, uint64_t conn, const struct door_msg *m)
{
    struct buf b;

    buf_init(&b, 65536);
    door_msg_encode(m, &b);
    broker_door_message(f->broker, conn, b.data, b.len);
    buf_done(&b);
}

static inline void hello(struct fixture *f, uint64_t conn, int64_t ep, const char *secret)
{
    struct door_msg m = {.t = DOOR_HELLO,
                         .sid = f->sandbox.session_id,
                         .ep = ep,
                         .secret = (char *)secret,
                         .agent = DOOR_AGENT_UP};

    id_random(&m.boot_id);
    broker_door_open(f->broker, conn);
    door_says(f, conn, &m);
}

static inline struct lease make_lease(struct fixture *f, int64_t ttl_s, int64_t seq)
{
    struct lease l = {.session_id = f->sandbox.session_id,
                      .chat_id = f->sandbox.chat_id,
                      .scope = SCOPE_READ | SCOPE_WRITE,
                      .max_connections = 1,
                      .issued_at = f->wall_ms,
                      .expires_at = f->wall_ms + ttl_s * 1000,
                      .grant_seq = seq,
                      .ep = 7};
    id_random(&l.lease_id);
    return l;
}

static inline void apply(struct fixture *f, const struct change *c)
{
    broker_apply(f->broker, c, 1, f->boot_us);
}

static inline struct lease grant(struct fixture *f, int64_t ttl_s, int64_t seq)
{
    struct lease l = make_lease(f, ttl_s, seq);

    apply(f, &(struct change){.kind = CHANGE_GRANT, .seq = seq, .lease = l});
    return l;
}

static inline void revoke(struct fixture *f, struct lease *l, int64_t seq)
{
    l->state = LEASE_REVOKING;
    apply(f, &(struct change){.kind = CHANGE_REVOKE, .seq = seq, .code = 4403, .lease = *l});
}

static inline enum lease_state state_of(struct fixture *f, const struct lease *l)
{
    struct lease view = *l;

    broker_lease_view(f->broker, &view);
    return view.state;
}

#endif
