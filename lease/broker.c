/* The broker: life, committed changes, time. */
#include "leasehold/broker.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "broker_state.h"

struct broker *broker_new(const struct broker_hooks *hooks, const struct clock *clock,
                          const struct lease_policy *policy, const struct config_lease *limits,
                          const struct keyset *keys)
{
    struct broker *b = calloc(1, sizeof *b);

    if (!b)
        return NULL;
    b->hooks = *hooks;
    b->clock = clock;
    b->policy = policy;
    b->limits = limits;
    b->keys = keys;
    b->asked_round = 1;
    b->slice = SNAPSHOT_SLICE;
    buf_init(&b->out, DOOR_CONTROL_MAX);
    buf_init(&b->snapshot.text, DOOR_CONTROL_MAX);
    buf_init(&b->snapshot.held, DOOR_CONTROL_MAX);
    return b;
}

static void asked_answered(struct broker *b, struct lease_node *n)
{
    if (n->asked == b->asked_round && n->asked)
        b->asked--;
    n->asked = 0;
}

/* Frees the node; it is in no state any more. */
static void lease_drop(struct broker *b, struct lease_node *n)
{
    broker_snapshot_forget(b, n);
    asked_answered(b, n);
    broker_uncount(b, n);
    broker_await_no_more(n);
    heap_remove(&b->due, &n->due);
    DL_DELETE(n->session->leases, n);
    HASH_DEL(b->leases, n);
    free(n);
}

static void session_drop(struct broker *b, struct session *s)
{
    struct lease_node *n, *next;
    struct pending_cut *c, *next_cut;

    broker_snapshot_drop(b, s);
    DL_FOREACH_SAFE (s->leases, n, next)
        lease_drop(b, n);
    DL_FOREACH_SAFE (s->cuts, c, next_cut)
        free(c);
    if (s->door)
        s->door->session = NULL;
    HASH_DEL(b->sessions, s);
    free(s);
}

void broker_free(struct broker *b)
{
    struct session *s, *next;
    struct door *d, *next_door;

    if (!b)
        return;
    broker_waits_end(b);
    HASH_ITER (hh, b->sessions, s, next)
        session_drop(b, s);
    HASH_ITER (hh, b->doors, d, next_door) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(b->doors, d);
        free(d);
    }
    heap_done(&b->due);
    broker_snapshot_done(b);
    buf_done(&b->out);
    free(b);
}

struct session *broker_session_find(const struct broker *b, const struct id *session_id)
{
    struct session *s;

    HASH_FIND(hh, b->sessions, session_id, sizeof *session_id, s);
    return s;
}

struct lease_node *broker_lease_find(const struct broker *b, const struct id *lease_id)
{
    struct lease_node *n;

    HASH_FIND(hh, b->leases, lease_id, sizeof *lease_id, n);
    return n;
}

/* --- state from the store -------------------------------------------------------------------- */

/* NULL without memory. */
static struct session *session_add(struct broker *b, const struct sandbox *sandbox)
{
    struct session *s = broker_session_find(b, &sandbox->session_id);

    if (s)
        return s;
    s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->session_id = sandbox->session_id;
    s->chat_id = sandbox->chat_id;
    s->ep = sandbox->generation;
    s->seq = sandbox->log_seq;
    memcpy(s->secret_hash, sandbox->door_secret_hash, sizeof s->secret_hash);
    HASH_ADD(hh, b->sessions, session_id, sizeof s->session_id, s);
    return s;
}

int broker_load_session(struct broker *b, const struct sandbox *s, struct err *e)
{
    return session_add(b, s) ? 0 : err_set(e, ERR_INTERNAL, "no memory for a session");
}

/* Now, as the heap counts. */
static int64_t lease_now_ms(struct broker *b)
{
    struct lease_time *t = &b->time;
    int64_t wall_ms = clock_wall_ms(b->clock), boot_us = clock_boot_us(b->clock);
    int64_t expected_ms = t->wall_ms + (boot_us - t->boot_us) / 1000;

    if (t->boot_us && wall_ms < expected_ms && wall_ms + b->policy->skew_s * 1000 >= expected_ms)
        return wall_ms +
               t->ahead_ms; /* a small step: whether more follow shows from where it was */
    if (t->boot_us && wall_ms < expected_ms)
        t->ahead_ms += expected_ms - wall_ms;
    t->wall_ms = wall_ms;
    t->boot_us = boot_us;
    return wall_ms + t->ahead_ms;
}

void broker_clock_behind(struct broker *b, int64_t behind_ms)
{
    if (behind_ms > b->policy->skew_s * 1000)
        b->time.ahead_ms += behind_ms;
    broker_rearm(b);
}

/* When nothing can hold the token any more, whatever became of its door: then an ending lease is
 * closed without a confirmation. */
static int64_t dead_at_ms(const struct broker *b, const struct lease_node *n)
{
    return n->l.expires_at + n->ahead_ms + (b->policy->skew_s + b->policy->seal_s) * 1000;
}

static bool lease_ending(const struct lease *l)
{
    return l->state == LEASE_REVOKING || l->state == LEASE_EXPIRING;
}

/* The last quarter of a term begins, or its last seconds. */
static int64_t expiring_at_ms(struct broker *b, const struct lease_node *n)
{
    int64_t ends_ms = n->l.expires_at + n->ahead_ms, left = ends_ms - lease_now_ms(b);
    int64_t before = left / 4 < LEASE_EXPIRING_MS ? left / 4 : LEASE_EXPIRING_MS;

    return left > 0 ? ends_ms - before : ends_ms + EXPIRED_HEARD_MS;
}

int broker_load_lease(struct broker *b, const struct lease *l, struct err *e)
{
    struct session *s = broker_session_find(b, &l->session_id);
    struct lease_node *n;

    if (!s)
        return err_set(e, ERR_INTERNAL, "lease %s has no live session", ID_STR(&l->lease_id));
    n = calloc(1, sizeof *n);
    if (!n)
        return err_set(e, ERR_INTERNAL, "no memory for a lease");
    n->l = *l;
    n->ahead_ms = b->time.ahead_ms;
    n->active_seq = l->grant_seq;
    n->session = s;
    n->shown = b->snapshot.number; /* what is under way is of the time before */
    n->due.index = HEAP_NONE;
    n->due.tie = l->n; /* so that those that end together are written where they stand together */
    if (lease_ending(l)) { /* the door confirms with the snapshot of its next connection */
        n->ending_seq = s->seq;
        n->ending_us = clock_boot_us(b->clock);
    }
    if (heap_put(&b->due, &n->due, lease_ending(l) ? dead_at_ms(b, n) : expiring_at_ms(b, n))) {
        free(n);
        return err_set(e, ERR_INTERNAL, "no memory for a lease");
    }
    HASH_ADD(hh, b->leases, l.lease_id, sizeof n->l.lease_id, n);
    DL_APPEND(s->leases, n);
    broker_count_lease(b, n);
    broker_await(s, n);
    return 0;
}

/* --- changes --------------------------------------------------------------------------------- */

static void apply_grant(struct broker *b, struct session *s, const struct change *c)
{
    struct err e;

    if (broker_load_lease(b, &c->lease, &e))
        return; /* no memory: never pushed, so never admitted; the row runs out by itself */
    broker_push_op(b, s,
                   &(struct door_msg){.t = DOOR_OP,
                                      .op = DOOR_OP_GRANT,
                                      .seq = c->seq,
                                      .jti = c->lease.lease_id,
                                      .exp = c->lease.expires_at / 1000,
                                      .scope = c->lease.scope,
                                      .mc = c->lease.max_connections,
                                      .use = c->lease.use});
}

/* The row of a change knows nothing of live connections, and perhaps not yet of the use. */
static void lease_take(struct lease_node *n, const struct lease *l)
{
    int64_t connections = n->l.connections, consumed_at = n->l.consumed_at;

    n->l = *l;
    n->l.consumed_at = consumed_at ? consumed_at : l->consumed_at;
    n->l.connections = connections;
}

static void apply_extend(struct broker *b, struct session *s, const struct change *c)
{
    struct lease_node *n = broker_lease_find(b, &c->lease.lease_id);

    if (!n)
        return;
    broker_snapshot_keep(b, n);
    lease_take(n, &c->lease);
    asked_answered(b, n);
    n->ahead_ms = b->time.ahead_ms;
    n->warned = false;
    (void)heap_put(&b->due, &n->due, expiring_at_ms(b, n)); /* in the heap already: cannot fail */
    broker_push_op(b, s,
                   &(struct door_msg){.t = DOOR_OP,
                                      .op = DOOR_OP_EXTEND,
                                      .seq = c->seq,
                                      .jti = n->l.lease_id,
                                      .exp = n->l.expires_at / 1000});
}

static void mark_ending(struct broker *b, struct lease_node *n, int64_t seq, int64_t committed_us)
{
    broker_snapshot_keep(b, n);
    asked_answered(b, n);
    n->ending_seq = seq;
    n->ending_us = committed_us;
    if (dead_at_ms(b, n) < n->due.key) /* else it is moved when it comes up, if it is there still */
        (void)heap_put(&b->due, &n->due, dead_at_ms(b, n));
    broker_count_lease(b, n);
    broker_await(n->session, n);
}

static void tell_ending(struct broker *b, int code, size_t n)
{
    if (n && b->hooks.ending)
        b->hooks.ending(b->hooks.ctx, code, n);
}

static void remember_cut(struct session *s, int64_t seq, int64_t committed_us)
{
    struct pending_cut *cut = calloc(1, sizeof *cut);

    if (!cut) /* only its latency goes unmeasured */
        return;
    cut->seq = seq;
    cut->committed_us = committed_us;
    DL_APPEND(s->cuts, cut);
}

static void apply_revoke(struct broker *b, struct session *s, const struct change *c,
                         int64_t committed_us)
{
    struct lease_node *n = broker_lease_find(b, &c->lease.lease_id);

    broker_push_op(b, s,
                   &(struct door_msg){.t = DOOR_OP,
                                      .op = DOOR_OP_REVOKE,
                                      .seq = c->seq,
                                      .jti = c->lease.lease_id,
                                      .code = c->code});
    remember_cut(s, c->seq, committed_us);
    if (!n)
        return;
    tell_ending(b, c->code, !n->ending_seq);
    broker_snapshot_keep(b, n);
    lease_take(n, &c->lease);
    mark_ending(b, n, c->seq, committed_us);
}

static void expired_push(struct broker *b, struct session *s, const struct change *c)
{
    const struct change_expired *x = &c->expired;
    struct door_msg op = {.t = DOOR_OP, .seq = c->seq, .code = c->code};

    if (x->n == 1) { /* kept for a door that comes back */
        op.op = DOOR_OP_REVOKE;
        op.jti = x->ids[0];
        broker_push_op(b, s, &op);
    } else {
        op.op = DOOR_OP_REVOKE_LIST;
        op.jtis = (struct list){(void *)(uintptr_t)x->ids, x->n};
        broker_push(b, s, &op);
    }
}

static void apply_expire(struct broker *b, struct session *s, const struct change *c,
                         int64_t committed_us)
{
    const struct change_expired *x = &c->expired;
    bool confirmed_later = false;
    size_t ended = 0;

    expired_push(b, s, c);
    for (size_t i = 0; i < x->n; i++) {
        struct lease_node *n = broker_lease_find(b, &x->ids[i]);

        if (!n)
            continue;
        ended += !n->ending_seq;
        if (x->closed & 1U << i) {
            lease_drop(b, n);
            continue;
        }
        n->l.state = LEASE_EXPIRING;
        mark_ending(b, n, c->seq, committed_us);
        confirmed_later = true;
    }
    if (confirmed_later)
        remember_cut(s, c->seq, committed_us);
    tell_ending(b, c->code, ended);
}

static void apply_revoke_all(struct broker *b, struct session *s, const struct change *c,
                             int64_t committed_us)
{
    struct lease_node *n;
    size_t ended = 0;

    broker_push(
        b, s,
        &(struct door_msg){.t = DOOR_OP, .op = DOOR_OP_REVOKE_ALL, .seq = c->seq, .code = c->code});
    remember_cut(s, c->seq, committed_us);
    DL_FOREACH (s->leases, n) {
        if (n->ending_seq)
            continue;
        n->l.state = LEASE_REVOKING;
        mark_ending(b, n, c->seq, committed_us);
        ended++;
    }
    tell_ending(b, c->code, ended);
}

static void apply_ended(struct broker *b, struct session *s)
{
    broker_waits_session_gone(b, s);
    if (s->door)
        broker_push(b, s, &(struct door_msg){.t = DOOR_RETIRE});
    session_drop(b, s);
}

static const struct id *session_of(const struct change *c)
{
    if (c->kind == CHANGE_GRANT || c->kind == CHANGE_EXTEND || c->kind == CHANGE_REVOKE)
        return &c->lease.session_id;
    return c->kind == CHANGE_EXPIRE ? &c->expired.session_id : &c->sandbox.session_id;
}

static void apply_one(struct broker *b, const struct change *c, int64_t committed_us)
{
    struct session *s = broker_session_find(b, session_of(c));
    struct lease_node *n;

    if (c->kind == CHANGE_SESSION_STARTING) {
        session_add(b, &c->sandbox); /* without memory its door retires: the start fails in time */
        return;
    }
    if (c->kind == CHANGE_LEASE_CLOSED) {
        n = broker_lease_find(b, &c->lease.lease_id);
        if (n)
            lease_drop(b, n);
        return;
    }
    if (!s)
        return;
    if (c->seq)
        s->seq = c->seq;
    if (c->kind == CHANGE_GRANT)
        apply_grant(b, s, c);
    else if (c->kind == CHANGE_EXTEND)
        apply_extend(b, s, c);
    else if (c->kind == CHANGE_REVOKE)
        apply_revoke(b, s, c, committed_us);
    else if (c->kind == CHANGE_EXPIRE)
        apply_expire(b, s, c, committed_us);
    else if (c->kind == CHANGE_REVOKE_ALL)
        apply_revoke_all(b, s, c, committed_us);
    else if (c->kind == CHANGE_KEYS)
        broker_push_keys(b, s, c->seq);
    else if (c->kind == CHANGE_SESSION_ENDED)
        apply_ended(b, s);
}

void broker_set_keys(struct broker *b, const struct keyset *keys)
{
    b->keys = keys;
}

void broker_apply(struct broker *b, const struct change *changes, size_t n, int64_t committed_us)
{
    (void)lease_now_ms(b); /* a step is seen before a lease of the time behind it comes */
    for (size_t i = 0; i < n; i++)
        apply_one(b, &changes[i], committed_us);
    broker_rearm(b);
}

/* --- time ------------------------------------------------------------------------------------ */

struct due_batch {
    struct id closed[BROKER_BATCH];
    struct lease_due expiring[BROKER_BATCH], expired[BROKER_BATCH];
    size_t expiring_n, expired_n, closed_n;
};

static void ask(struct broker *b, struct lease_node *n)
{
    if (n->asked != b->asked_round)
        b->asked++;
    n->asked = b->asked_round;
    b->asked_us = clock_boot_us(b->clock);
}

/* Its door has said in order: whom it let in, who has left, and that it knows the time to be behind exp,
 * from where on it lets nobody in. Then it has nothing to confirm. Of a door that is away or has not
 * said that yet nothing is known. */
static bool is_unused(const struct lease_node *n)
{
    const struct session *s = n->session;

    return s->door && s->door->time_ms >= n->l.expires_at && !n->l.connections;
}

static struct lease_due due_of(const struct lease_node *n)
{
    return (struct lease_due){.lease_id = n->l.lease_id,
                              .session_id = n->l.session_id,
                              .chat_id = n->l.chat_id,
                              .user_id = n->l.user_id,
                              .n = n->l.n,
                              .expires_at = n->l.expires_at,
                              .unused = is_unused(n)};
}

static void due_sort(struct broker *b, struct lease_node *n, int64_t now_ms,
                     struct due_batch *batch)
{
    int64_t again = now_ms + STORE_RETRY_MS;

    if (n->ending_seq && dead_at_ms(b, n) > now_ms) {
        again = dead_at_ms(b, n);
    } else if (n->ending_seq) {
        batch->closed[batch->closed_n++] = n->l.lease_id;
        ask(b, n);
    } else if (n->l.expires_at + n->ahead_ms + EXPIRED_HEARD_MS <= now_ms) {
        batch->expired[batch->expired_n++] = due_of(n);
        ask(b, n);
    } else {
        if (!n->warned)
            batch->expiring[batch->expiring_n++] = due_of(n);
        n->warned = true;
        again = n->l.expires_at + n->ahead_ms + EXPIRED_HEARD_MS;
    }
    (void)heap_put(&b->due, &n->due, again);
}

/* When asking may go on after the store owes so much; 0: now. */
static int64_t asked_until_us(const struct broker *b)
{
    return b->asked < ASKED_MAX ? 0 : b->asked_us + STORE_RETRY_MS * 1000;
}

/* Collects what is due, at most a batch of each kind, and puts every node back for a retry: only
 * the change that the store sends back moves it on. */
static void due_collect(struct broker *b, int64_t now_ms, struct due_batch *batch)
{
    if (asked_until_us(b) && asked_until_us(b) <= clock_boot_us(b->clock)) {
        b->asked = 0; /* those writes have failed: each lease is due again by itself */
        b->asked_round++;
    }
    for (size_t looked = 0;
         looked < LOOKED_MAX && batch->expiring_n < BROKER_BATCH &&
         batch->expired_n < BROKER_BATCH && batch->closed_n < BROKER_BATCH && !asked_until_us(b);
         looked++) {
        struct heap_node *h = heap_min(&b->due);

        if (!h || h->key > now_ms)
            return;
        due_sort(b, (struct lease_node *)((char *)h - offsetof(struct lease_node, due)), now_ms,
                 batch);
    }
}

/* With each second that begins, too: leases end with one, and doors that know the time to be behind that
 * save the store a write for each of them (is_unused). */
static int64_t ping_next_us(const struct broker *b, int64_t now_us)
{
    int64_t us = b->limits->stale_after_seconds * 1000000 / PINGS_PER_STALE;
    int64_t second_us = (1000 - clock_wall_ms(b->clock) % 1000) * 1000;

    us = us < PING_MOST_US ? us : PING_MOST_US;
    return now_us + (us < second_us ? us : second_us);
}

void broker_tick(struct broker *b)
{
    struct due_batch batch;
    int64_t now_us = clock_boot_us(b->clock);

    batch.expiring_n = batch.expired_n = batch.closed_n = 0;
    due_collect(b, lease_now_ms(b), &batch);
    if (batch.expired_n)
        b->hooks.expired(b->hooks.ctx, batch.expired, batch.expired_n);
    if (batch.expiring_n && b->hooks.expiring)
        b->hooks.expiring(b->hooks.ctx, batch.expiring, batch.expiring_n);
    if (batch.closed_n)
        b->hooks.closed(b->hooks.ctx, batch.closed, batch.closed_n);
    broker_snapshot_tick(b);
    broker_waits_tick(b, now_us);
    if (now_us >= b->next_ping_us) {
        broker_doors_tick(b, now_us);
        broker_late(b);
        b->next_ping_us = ping_next_us(b, now_us);
    }
    broker_rearm(b);
}

void broker_rearm(struct broker *b)
{
    int64_t now_us = clock_boot_us(b->clock);
    int64_t delay_us = b->next_ping_us - now_us;
    struct heap_node *h = heap_min(&b->due);
    struct broker_wait *w;

    if (h) {
        int64_t due_us = (h->key - lease_now_ms(b)) * 1000;
        int64_t wait_us = asked_until_us(b) ? asked_until_us(b) - now_us : 0;

        due_us = due_us > wait_us ? due_us : wait_us;
        delay_us = due_us < delay_us ? due_us : delay_us;
    }
    for (w = b->waits; w; w = w->next)
        if (w->deadline_us - now_us < delay_us)
            delay_us = w->deadline_us - now_us;
    if (b->snapshots)
        delay_us = 0;
    b->hooks.wake(b->hooks.ctx, delay_us > 0 ? (delay_us + 999) / 1000 : 0);
}

/* --- questions ------------------------------------------------------------------------------- */

void broker_lease_view(const struct broker *b, struct lease *l)
{
    const struct lease_node *n = broker_lease_find(b, &l->lease_id);

    if (!n || l->state == LEASE_CLOSED)
        return;
    l->state = broker_lease_state(b, n);
    l->connections = n->l.connections;
}

bool broker_session_ready(const struct broker *b, const struct id *session_id)
{
    const struct session *s = broker_session_find(b, session_id);

    return s && s->door && s->agent == DOOR_AGENT_UP;
}

bool broker_session_chat(const struct broker *b, const struct id *session_id, struct id *ret)
{
    const struct session *s = broker_session_find(b, session_id);

    if (!s)
        return false;
    *ret = s->chat_id;
    return true;
}
