/* The broker and its doors: who they are, what they are told, what they report. Everything from a
 * door is checked: a door runs beside untrusted code. */
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "broker_state.h"
#include "leasehold/ws_frame.h"

/* One message of a door, decoded: a snapshot is never received, so this is small. */
#define DECODE_CAP (256 * 1024)

static struct door *door_find(const struct broker *b, uint64_t conn)
{
    struct door *d;

    HASH_FIND(hh, b->doors, &conn, sizeof conn, d);
    return d;
}

static void door_send(struct broker *b, struct door *d, const struct door_msg *m)
{
    buf_reset(&b->out);
    door_msg_encode(m, &b->out);
    if (buf_ok(&b->out))
        b->hooks.send(b->hooks.ctx, d->conn, b->out.data, b->out.len);
}

void broker_push(struct broker *b, struct session *s, const struct door_msg *m)
{
    if (m->t == DOOR_OP && broker_snapshot_holds(b, s, m))
        return;
    if (s->door)
        door_send(b, s->door, m);
}

void broker_push_op(struct broker *b, struct session *s, const struct door_msg *op)
{
    /* A gap (an operation that there was no memory for) makes what came before worthless. */
    if (!s->recent_from || s->recent[(op->seq - 1) % RECENT_OPS].seq != op->seq - 1)
        s->recent_from = op->seq;
    s->recent[op->seq % RECENT_OPS] = *op;
    if (op->seq - s->recent_from >= RECENT_OPS)
        s->recent_from = op->seq - RECENT_OPS + 1;
    broker_push(b, s, op);
}

static void connections_gone(struct broker *b, struct session *s)
{
    struct lease_node *n, *next;

    DL_FOREACH_SAFE2(s->connected, n, next, connected_next)
    broker_count_connections(b, n, 0);
}

/* The session has no live door any more. */
static void session_unlink(struct broker *b, struct session *s)
{
    s->door = NULL;
    broker_snapshot_drop(b, s);
    connections_gone(b, s);
    b->hooks.session(b->hooks.ctx, &s->session_id, false, s->agent);
    b->hooks.event(b->hooks.ctx,
                   &(struct broker_event){.kind = BROKER_DOOR_LOST, .session_id = s->session_id});
}

static void stranger_enter(struct broker *b, struct door *d)
{
    DL_APPEND(b->strangers, d);
    b->doors_unknown++;
}

static void stranger_leave(struct broker *b, struct door *d)
{
    DL_DELETE(b->strangers, d);
    b->doors_unknown--;
}

static void door_forget(struct broker *b, struct door *d)
{
    struct session *s = d->session;

    HASH_DEL(b->doors, d);
    if (!d->said_hello)
        stranger_leave(b, d);
    if (s && s->door == d)
        session_unlink(b, s);
    free(d);
}

static void door_refuse(struct broker *b, struct door *d, int code, const char *reason)
{
    uint64_t conn = d->conn;

    door_forget(b, d);
    b->hooks.close(b->hooks.ctx, conn, code, reason);
}

/* What a session's door has said cannot be. Only a door comes to this, which has had to say hello for each
 * of its links: so it cannot fill the audit trail. */
static void door_fault(struct broker *b, struct door *d, const struct session *s, const char *why)
{
    b->hooks.event(b->hooks.ctx, &(struct broker_event){.kind = BROKER_DOOR_FAULT,
                                                        .session_id = s->session_id,
                                                        .verdict = why});
    door_refuse(b, d, WS_CODE_PROTOCOL, "not what a door can say");
}

/* A door says hello at once: of too many it is the oldest that is none. */
void broker_door_open(struct broker *b, uint64_t conn)
{
    struct door *d = calloc(1, sizeof *d);

    if (!d) { /* a door comes again in a while */
        b->hooks.close(b->hooks.ctx, conn, 1013, "too many");
        return;
    }
    if (b->doors_unknown == DOORS_UNKNOWN_MAX)
        door_refuse(b, b->strangers, 1013, "too many");
    stranger_enter(b, d);
    d->conn = conn;
    d->opened_us = d->heard_us = clock_boot_us(b->clock);
    HASH_ADD(hh, b->doors, conn, sizeof d->conn, d);
}

void broker_door_closed(struct broker *b, uint64_t conn)
{
    struct door *d = door_find(b, conn);

    if (d)
        door_forget(b, d);
}

void broker_retire(struct broker *b, const struct id *session_id)
{
    struct session *s = broker_session_find(b, session_id);

    if (s)
        broker_push(b, s, &(struct door_msg){.t = DOOR_RETIRE});
}

void broker_doors_tick(struct broker *b, int64_t now_us)
{
    struct door *d, *next;
    struct door_msg ping = {.t = DOOR_PING, .now = clock_wall_ms(b->clock)};

    HASH_ITER (hh, b->doors, d, next) {
        if (!d->session && now_us - d->opened_us > DOOR_HELLO_US)
            door_refuse(b, d, 4401, "no hello");
        else if (now_us - d->heard_us > DOOR_SILENT_US)
            door_refuse(b, d, 1001, "silent");
        else if (d->session)
            door_send(b, d, &ping);
    }
}

/* --- hello ----------------------------------------------------------------------------------- */

struct key_public *broker_keys_list(const struct broker *b, struct list *ret)
{
    size_t n = keyset_count(b->keys);
    struct key_public *keys = calloc(n + 1, sizeof *keys);

    for (size_t i = 0; keys && i < n; i++)
        keyset_get(b->keys, i, &keys[i]);
    *ret = (struct list){keys, n};
    return keys;
}

void broker_push_keys(struct broker *b, struct session *s, int64_t seq)
{
    struct door_msg m = {.t = DOOR_OP, .op = DOOR_OP_KEYS, .seq = seq};
    struct key_public *keys = broker_keys_list(b, &m.keys);

    if (keys) /* else the door sees the gap behind it, and asks for a snapshot */
        broker_push(b, s, &m);
    free(keys);
}

/* Is everything after what it has applied still known, to the door that had its snapshot from us? */
static bool delta_possible(const struct session *s, const struct door_msg *hello)
{
    if (id_is_zero(&s->boot_id) || !id_equal(&s->boot_id, &hello->boot_id))
        return false;
    return hello->applied == s->seq ||
           (hello->applied < s->seq && s->recent_from && hello->applied + 1 >= s->recent_from &&
            s->recent[s->seq % RECENT_OPS].seq == s->seq);
}

static void delta_send(struct broker *b, struct session *s, int64_t from)
{
    broker_push(b, s,
                &(struct door_msg){.t = DOOR_DELTA,
                                   .from = from,
                                   .seq = s->seq,
                                   .now = clock_wall_ms(b->clock),
                                   .stale_s = b->limits->stale_after_seconds,
                                   .seal_s = b->limits->seal_after_seconds});
    for (int64_t seq = from + 1; seq <= s->seq; seq++)
        broker_push(b, s, &s->recent[seq % RECENT_OPS]);
}

static bool secret_matches(const struct session *s, const char *secret)
{
    uint8_t hash[SHA256_DIGEST_LENGTH];

    SHA256((const uint8_t *)secret, strlen(secret), hash);
    return CRYPTO_memcmp(hash, s->secret_hash, sizeof hash) == 0;
}

static bool rate_take(struct rate *r, int64_t now_us, int64_t per_second, int64_t burst)
{
    int64_t cost_us = 1000000 / per_second;

    if (r->paid_us < now_us)
        r->paid_us = now_us;
    if (r->paid_us + cost_us - now_us > burst * cost_us)
        return false;
    r->paid_us += cost_us;
    return true;
}

static void counts_set(struct broker *b, struct session *s, const struct list *conns)
{
    const struct door_conn *c = conns->items;
    struct lease_node *n;

    connections_gone(b, s);
    for (size_t i = 0; i < conns->n; i++) {
        n = broker_lease_find(b, &c[i].jti);
        if (n && n->session == s)
            broker_count_connections(b, n, c[i].n);
    }
}

/* The row follows; until then, and should its write fail, what stands here goes into snapshots. */
static void consume(struct broker *b, const struct session *s, const struct id *lease_id)
{
    struct lease_node *n = broker_lease_find(b, lease_id);

    if (!n || n->session != s || n->l.use != USE_ONCE || n->l.consumed_at)
        return;
    n->l.consumed_at = clock_wall_ms(b->clock);
    b->hooks.consumed(b->hooks.ctx, lease_id);
}

/* A door that let in while no gateway was there tells of it when it is connected again. */
static void consumed_set(struct broker *b, const struct session *s, const struct list *consumed)
{
    const struct id *ids = consumed->items;

    for (size_t i = 0; i < consumed->n; i++)
        consume(b, s, &ids[i]);
}

static void agent_set(struct broker *b, struct session *s, enum door_agent agent)
{
    s->agent = agent;
    b->hooks.session(b->hooks.ctx, &s->session_id, s->door != NULL, agent);
}

/* What it has more than was confirmed it confirms behind what it is told now. */
static void acked_lower(struct broker *b, struct session *s, int64_t applied)
{
    if (applied >= s->acked)
        return;
    s->acked = applied;
    broker_await_anew(b, s);
}

static void on_hello(struct broker *b, struct door *d, const struct door_msg *m)
{
    struct session *s = broker_session_find(b, &m->sid);
    const char *fault;
    bool again;

    if (!s || m->ep < s->ep) { /* unknown, or an older generation: it has nothing to guard */
        door_send(b, d, &(struct door_msg){.t = DOOR_RETIRE});
        door_refuse(b, d, CLOSE_OLD_GENERATION, "unknown session");
        return;
    }
    if (m->ep != s->ep || !secret_matches(s, m->secret)) {
        door_refuse(b, d, CLOSE_UNAUTHENTICATED, "bad secret");
        return;
    }
    if (!rate_take(&s->hellos, clock_boot_us(b->clock), HELLO_PER_S, HELLO_BURST)) {
        door_refuse(b, d, 1013, "too often"); /* it comes again in a while */
        return;
    }
    fault = broker_claim_fault(b, s, m);
    if (fault) {
        door_fault(b, d, s, fault);
        return;
    }
    if (s->door) { /* its older connection, not noticed as dead yet */
        struct door *old = s->door;

        s->door = NULL;
        broker_snapshot_drop(b, s);
        old->session = NULL;
        door_refuse(b, old, 1001, "replaced");
    }
    d->session = s;
    d->said_hello = true;
    stranger_leave(b, d);
    if (b->hooks.known)
        b->hooks.known(b->hooks.ctx, d->conn);
    again = s->had_door;
    s->had_door = true;
    s->door = d;
    d->boot_id = m->boot_id;
    acked_lower(b, s, m->applied);
    counts_set(b, s, &m->conns);
    consumed_set(b, s, &m->consumed);
    if (delta_possible(s, m))
        delta_send(b, s, m->applied);
    else
        broker_snapshot_want(b, s);
    b->hooks.event(b->hooks.ctx, &(struct broker_event){.kind = BROKER_DOOR_LIVE,
                                                        .session_id = s->session_id,
                                                        .again = again});
    agent_set(b, s, (enum door_agent)m->agent);
}

/* --- reports --------------------------------------------------------------------------------- */

static int64_t at_most(int64_t claimed, int64_t known)
{
    return claimed < known ? claimed : known;
}

static void on_ack(struct broker *b, struct session *s, const struct door_msg *m)
{
    int64_t now_us = clock_boot_us(b->clock), latency_us = 0;
    struct pending_cut *c, *next;

    if (m->seq > s->seq || m->seq < s->acked)
        return; /* never acknowledge what was not said */
    s->acked = m->seq;
    DL_FOREACH_SAFE (s->cuts, c, next) {
        if (c->seq > m->seq)
            break;
        if (now_us - c->committed_us > latency_us)
            latency_us = now_us - c->committed_us;
        DL_DELETE(s->cuts, c);
        free(c);
    }
    if (latency_us) {
        s->last_cut = m->cut;
        s->last_latency_us = latency_us;
        b->hooks.event(b->hooks.ctx, &(struct broker_event){
                                         .kind = BROKER_ACK,
                                         .session_id = s->session_id,
                                         .cut = m->cut,
                                         .latency_us = latency_us,
                                         .door_latency_us = at_most(m->latency_us, latency_us)});
    }
    broker_waits_acked(b, s, m->cut, latency_us);
    broker_confirm(b, s);
}

static void on_deny(struct broker *b, struct session *s, const struct door_msg *m)
{
    bool allowed = rate_take(&s->denials, clock_boot_us(b->clock), DENY_PER_S, DENY_BURST);

    b->hooks.event(b->hooks.ctx, &(struct broker_event){.kind = BROKER_DENY,
                                                        .session_id = s->session_id,
                                                        .lease_id = m->jti,
                                                        .verdict = m->verdict,
                                                        .over_rate = !allowed});
}

static void on_connection(struct broker *b, struct session *s, const struct door_msg *m)
{
    struct lease_node *n = broker_lease_find(b, &m->jti);
    bool admitted = m->t == DOOR_ADMIT;
    bool allowed = rate_take(&s->traffic, clock_boot_us(b->clock), TRAFFIC_PER_S, TRAFFIC_BURST);

    if (n && n->session == s)
        broker_count_connections(b, n, n->l.connections + (admitted ? 1 : -1));
    if (admitted)
        consume(b, s, &m->jti);
    b->hooks.event(b->hooks.ctx,
                   &(struct broker_event){.kind = admitted ? BROKER_ADMIT : BROKER_CUT,
                                          .session_id = s->session_id,
                                          .lease_id = m->jti,
                                          .code = m->code,
                                          .bytes_in = m->bytes_in,
                                          .bytes_out = m->bytes_out,
                                          .over_rate = !allowed});
}

/* Each time it has doubled: so a door cannot fill the audit trail. */
static void unrecorded_take(struct broker *b, struct session *s, int64_t unrecorded)
{
    if (unrecorded / 2 < s->unrecorded || unrecorded <= s->unrecorded)
        return;
    s->unrecorded = unrecorded;
    b->hooks.event(b->hooks.ctx, &(struct broker_event){.kind = BROKER_UNRECORDED,
                                                        .session_id = s->session_id,
                                                        .unrecorded = unrecorded});
}

static void on_activity(struct broker *b, struct session *s, const struct door_msg *m)
{
    int64_t last = m->last_in > m->last_out ? m->last_in : m->last_out;
    int64_t now = clock_wall_ms(b->clock);

    counts_set(b, s, &m->conns);
    unrecorded_take(b, s, m->unrecorded);
    if (last)
        b->hooks.activity(b->hooks.ctx, &s->session_id, at_most(last, now));
}

void broker_put_done(struct broker *b, const struct id *session_id, int64_t n, const char *artifact,
                     const char *fault)
{
    struct session *s = broker_session_find(b, session_id);

    if (s)
        broker_push(b, s,
                    &(struct door_msg){.t = DOOR_PUT_DONE,
                                       .n = n,
                                       .artifact = (char *)(uintptr_t)artifact,
                                       .fault = (char *)(uintptr_t)fault});
}

static void on_put(struct broker *b, struct session *s, const struct door_msg *m)
{
    if (!b->hooks.put || !rate_take(&s->puts, clock_boot_us(b->clock), PUT_PER_S, PUT_BURST))
        broker_put_done(b, &s->session_id, m->n, "", "busy: too many files at once");
    else
        b->hooks.put(b->hooks.ctx, &s->session_id, m->n, m->path, m->name);
}

static void on_message(struct broker *b, struct door *d, const struct door_msg *m)
{
    struct session *s = d->session;
    const char *fault = m->t == DOOR_HELLO ? "a second hello" : broker_claim_fault(b, s, m);

    if (fault) {
        door_fault(b, d, s, fault);
        return;
    }
    switch ((enum door_msg_type)m->t) {
    case DOOR_ACK:
        on_ack(b, s, m);
        break;
    case DOOR_AGENT:
        agent_set(b, s, (enum door_agent)m->agent);
        break;
    case DOOR_ACTIVITY:
        on_activity(b, s, m);
        break;
    case DOOR_ADMIT:
    case DOOR_CLOSE:
        on_connection(b, s, m);
        break;
    case DOOR_DENY:
        on_deny(b, s, m);
        break;
    case DOOR_PUT:
        on_put(b, s, m);
        break;
    case DOOR_PING:
        d->time_ms = at_most(m->now, clock_wall_ms(b->clock));
        break;
    default:
        break;
    }
}

static void on_malformed(struct broker *b, struct door *d, const struct err *e)
{
    char why[sizeof "malformed " + sizeof e->pointer];

    if (!d->session) {
        door_refuse(b, d, WS_CODE_PROTOCOL, "malformed");
        return;
    }
    snprintf(why, sizeof why, "malformed%s%s", e->pointer[0] ? " " : "", e->pointer);
    door_fault(b, d, d->session, why);
}

void broker_door_message(struct broker *b, uint64_t conn, const char *data, size_t len)
{
    struct door *d = door_find(b, conn);
    struct arena *arena;
    struct door_msg m;
    struct err e;

    if (!d)
        return;
    arena = arena_new(DECODE_CAP);
    d->heard_us = clock_boot_us(b->clock);
    err_clear(&e);
    if (!arena || door_msg_decode(data, len, arena, &m, &e))
        on_malformed(b, d, &e);
    else if (d->session)
        on_message(b, d, &m);
    else if (m.t == DOOR_HELLO)
        on_hello(b, d, &m);
    else
        door_refuse(b, d, CLOSE_UNAUTHENTICATED, "hello first");
    arena_free(arena);
}
