/* The gateway's process: store, broker, what runs between them, its ends and starts. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "invariants.h"
#include "leasehold/arena.h"
#include "sim.h"

#define GROUP_MAX 12

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void wake(void *ctx)
{
    struct sim *s = ctx;

    s->gw.drain_at_us = earlier(s->gw.drain_at_us, s->boot_us + rng_range(&s->rng, 0, 500));
}

/* --- committed changes, from the writer to the loop -------------------------------------------- */

struct batch {
    struct job job;
    struct sim *sim;
    int64_t committed_us;
    size_t n;
    struct change changes[];
};

static void batch_apply(struct job *job)
{
    struct batch *b = (struct batch *)((char *)job - offsetof(struct batch, job));
    struct gateway *gw = &b->sim->gw;

    if (!gw->dying) {
        broker_set_keys(gw->broker, gw->keys);
        broker_apply(gw->broker, b->changes, b->n, b->committed_us);
    }
    free(b);
}

/* The set is swapped with the commit; the broker may still look at the former one. */
static void keys_swap(struct sim *s)
{
    struct gateway *gw = &s->gw;

    if (!gw->pending_keys)
        return;
    gw->former[gw->former_n++ % FORMER_KEYS] = gw->keys;
    keyset_free(gw->former[gw->former_n % FORMER_KEYS]);
    gw->former[gw->former_n % FORMER_KEYS] = NULL;
    gw->keys = gw->pending_keys;
    gw->pending_keys = NULL;
}

void gateway_group_committed(struct sim *s)
{
    struct op *op;

    DL_FOREACH (s->gw.group, op) {
        facts_commit(s, op, s->boot_us);
        op->in_group = false;
        s->gw.audit_n = op->audit_n;
    }
    s->gw.group = NULL;
    keys_swap(s);
}

/* On the writer: the one thread there is. */
static void changed(void *ctx, const struct change *changes, size_t n)
{
    struct sim *s = ctx;
    struct batch *b = malloc(sizeof *b + n * sizeof *changes);
    const struct op *op;
    size_t of_ops = 0;

    if (!b)
        abort();
    DL_FOREACH (s->gw.group, op)
        of_ops += op->changes_n;
    if (of_ops != n)
        sim_fail(s, "invariant_05", "%zu changes came out of a group that made %zu", n, of_ops);
    gateway_group_committed(s);
    *b = (struct batch){.job.done = batch_apply, .sim = s, .committed_us = s->boot_us, .n = n};
    memcpy(b->changes, changes, n * sizeof *changes);
    inbox_post(s->gw.inbox, &b->job);
}

/* --- hooks of the broker ----------------------------------------------------------------------- */

static void on_send(void *ctx, uint64_t conn, const char *data, size_t len)
{
    net_send_to_door(ctx, conn, data, len);
}

static void on_close(void *ctx, uint64_t conn, int code, const char *reason)
{
    (void)code;
    (void)reason;
    net_gateway_closes(ctx, conn);
}

static void submit_ids(struct sim *s, enum op_kind kind, const struct id *ids, size_t n)
{
    struct op *op;

    if (s->gw.dying)
        return;
    op = op_new(s, kind, -1);
    op->ids = malloc(n * sizeof *ids);
    if (!op->ids)
        abort();
    memcpy(op->ids, ids, n * sizeof *ids);
    op->ids_n = n;
    op->job.ends = true;
    gateway_submit(s, op);
}

static void on_closed(void *ctx, const struct id *ids, size_t n)
{
    submit_ids(ctx, OP_CLOSE, ids, n);
}

static void on_expired(void *ctx, const struct lease_due *due, size_t n)
{
    struct sim *s = ctx;
    struct op *op;

    s->tick_expired += n;
    s->tick_calls++;
    s->seen[SEEN_EXPIRED]++;
    if (s->gw.dying)
        return;
    op = op_new(s, OP_EXPIRE, -1);
    op->due = malloc(n * sizeof *due);
    if (!op->due)
        abort();
    memcpy(op->due, due, n * sizeof *due);
    op->due_n = n;
    op->job.ends = op->job.later = true;
    gateway_submit(s, op);
}

static void on_consumed(void *ctx, const struct id *lease_id)
{
    struct sim *s = ctx;

    s->seen[SEEN_CONSUMED]++;
    submit_ids(s, OP_CONSUME, lease_id, 1);
}

static void on_session(void *ctx, const struct id *session_id, bool live, enum door_agent agent)
{
    struct sim *s = ctx;
    int at = facts_session(s, session_id);
    struct session_sim *x;
    struct op *op;

    if (at < 0 || !live || agent != DOOR_AGENT_UP || s->gw.dying)
        return;
    x = &s->sessions[at];
    if (x->row.status != SANDBOX_STARTING || x->running_asked)
        return;
    x->running_asked = true;
    op = op_new(s, OP_SESSION_RUN, -1);
    op->session = at;
    gateway_submit(s, op);
}

static void on_activity(void *ctx, const struct id *session_id, int64_t last_ms)
{
    (void)ctx;
    (void)session_id;
    (void)last_ms;
}

/* A door of ours says nothing that its gateway takes for a lie, whatever was lost or came late. */
static void on_event(void *ctx, const struct broker_event *ev)
{
    if (ev->kind == BROKER_DOOR_FAULT)
        sim_fail(ctx, "honest doors", "%s", ev->verdict);
}

/* A turn takes its time: what comes meanwhile comes between two parts of what the broker does in parts. */
static void on_wake(void *ctx, int64_t delay_ms)
{
    struct sim *s = ctx;

    if (!delay_ms)
        delay_ms = rng_range(&s->rng, 0, 20);
    s->gw.wake_at_us = s->boot_us + delay_ms * MS;
}

static struct broker *broker_make(struct sim *s)
{
    struct broker_hooks hooks = {.ctx = s,
                                 .send = on_send,
                                 .close = on_close,
                                 .closed = on_closed,
                                 .expired = on_expired,
                                 .consumed = on_consumed,
                                 .session = on_session,
                                 .activity = on_activity,
                                 .event = on_event,
                                 .wake = on_wake};

    struct broker *b = broker_new(&hooks, &s->clock, &s->policy, &s->limits, s->gw.keys);

    if (b)
        broker_set_slice(b, (size_t)rng_range(&s->rng, 1, 3));
    return b;
}

/* --- writes ------------------------------------------------------------------------------------ */

static void job_done(struct job *job)
{
    struct op *op = (struct op *)((char *)job - offsetof(struct op, job.job));

    if (!op->sim->gw.dying)
        op_answered(op);
    else if (!op->in_group)
        op_free(op); /* never ran; who asked is left without an answer */
}

void gateway_submit(struct sim *s, struct op *op)
{
    struct err e;

    op->job.fn = op_run;
    op->job.arg = op;
    op->job.job.done = job_done;
    if (!s->gw.up || store_submit(s->gw.store, &op->job, &e)) {
        op_free(op);
        return;
    }
    if (s->gw.turn_at_us == NEVER)
        s->gw.turn_at_us = s->boot_us + rng_range(&s->rng, 50, 4000);
}

/* The store lives, and what the group did is taken back. */
void gateway_group_failed(struct sim *s)
{
    struct op *op;

    DL_FOREACH (s->gw.group, op)
        op->in_group = false;
    s->gw.group = NULL;
    keyset_free(s->gw.pending_keys);
    s->gw.pending_keys = NULL;
    s->seen[SEEN_FULL]++;
}

static void turn(struct sim *s)
{
    s->gw.turn_at_us = NEVER;
    sim_disk_fill(s->disk, s->boot_us < s->full_until_us);
    (void)store_turn(s->gw.store);
    if (sim_disk_ended(s->disk)) {
        s->seen[SEEN_KILL_IN_WRITE]++;
        gateway_end(s, rng_one_in(&s->rng, 3) ? DISK_POWER_OFF : DISK_KILLED);
        return;
    }
    if (s->gw.group && s->gw.group->job.rc)
        gateway_group_failed(s);
    gateway_group_committed(s);
    if (store_depth(s->gw.store))
        s->gw.turn_at_us = s->boot_us + rng_range(&s->rng, 50, 1000);
}

/* --- sessions ---------------------------------------------------------------------------------- */

static void waited(struct broker_wait *w)
{
    struct sim_wait *sw = (struct sim_wait *)((char *)w - offsetof(struct sim_wait, wait));
    struct sim *s = sw->sim;
    int at = facts_session(s, &w->session_id);

    if (!s->gw.dying && at >= 0)
        s->sessions[at].kill_at_us = s->boot_us;
    free(sw);
}

void gateway_wait(struct sim *s, int session)
{
    struct sim_wait *sw = calloc(1, sizeof *sw);

    if (!sw)
        abort();
    sw->sim = s;
    sw->wait = (struct broker_wait){
        .session_id = s->sessions[session].row.session_id, .timeout_ms = 1000, .done = waited};
    broker_wait(s->gw.broker, &sw->wait);
}

/* The processes of a session that is being stopped, then its row. */
static void sessions_end(struct sim *s)
{
    for (int i = 0; i < s->sessions_n; i++) {
        struct session_sim *x = &s->sessions[i];
        struct op *op;

        if (x->stop_at_us <= s->boot_us) {
            x->stop_at_us = NEVER;
            session_stop(s, i);
        }
        if (x->kill_at_us > s->boot_us)
            continue;
        x->kill_at_us = NEVER;
        if (x->ended)
            continue;
        door_die(s, &x->zombie);
        door_die(s, &x->door);
        op = op_new(s, OP_SESSION_END, -1);
        op->session = i;
        op->job.ends = true;
        gateway_submit(s, op);
    }
}

static int64_t sessions_due_us(const struct sim *s)
{
    int64_t due = NEVER;

    for (int i = 0; i < s->sessions_n; i++)
        due = earlier(due, earlier(s->sessions[i].stop_at_us, s->sessions[i].kill_at_us));
    return due;
}

void session_stop(struct sim *s, int session)
{
    struct session_sim *x = &s->sessions[session];
    struct op *op;

    if (x->ending_asked || x->ended || !x->known)
        return;
    x->ending_asked = true;
    op = op_new(s, OP_SESSION_STOP, -1);
    op->session = session;
    op->job.ends = true;
    gateway_submit(s, op);
}

/* --- start ------------------------------------------------------------------------------------- */

static int store_make(struct sim *s, struct err *e)
{
    struct store_options o = {.path = s->path,
                              .log = s->log,
                              .inbox = s->gw.inbox,
                              .readers = 1,
                              .group_max = GROUP_MAX,
                              .changed = changed,
                              .changed_ctx = s,
                              .clock = &s->clock,
                              .manual = true};

    return store_open(&o, &s->gw.store, e);
}

static int first_rows(struct store_tx *tx, void *arg, struct err *e)
{
    struct sim *s = arg;

    for (int i = 0; i < SIM_USERS; i++)
        id_random(&s->users[i]);
    for (int i = 0; i < SIM_CHATS; i++) {
        struct chat *c = &s->chats[i];
        struct workspace w;
        bool made;

        *c = (struct chat){.user_id = s->users[i % SIM_USERS], .created_at = store_now_ms(tx)};
        id_random(&c->chat_id);
        if (store_workspace_touch(tx, &c->user_id, &w, &made, e))
            return -1;
        c->workspace_id = w.workspace_id;
        if (store_chat_insert(tx, c, e))
            return -1;
    }
    for (int i = 0; i < SIM_APIS; i++) {
        struct api *a = &s->apis[i];

        a->row = (struct api_key){
            .role = i ? ROLE_BOT : ROLE_ADMIN, .limited = i > 1, .created_at = store_now_ms(tx)};
        id_random(&a->row.key_id);
        snprintf(a->row.name, sizeof a->row.name, "api %d", i);
        memset(a->row.secret_hash, i, sizeof a->row.secret_hash);
        if (a->row.limited) {
            a->users[0] = s->users[i % SIM_USERS];
            a->users[1] = s->users[(i + 1) % SIM_USERS];
            a->row.allowed_users = (struct list){a->users, 2};
        }
        if (store_api_key_insert(tx, &a->row, e))
            return -1;
    }
    for (int i = 0; i < 2; i++) {
        struct signing_key *k = &s->signers[i].row;

        s->signers[i].used = true;
        k->state = i ? SIGNING_KEY_NEXT : SIGNING_KEY_SIGNING;
        k->created_at = store_now_ms(tx);
        k->signing_at = i ? 0 : k->created_at;
        if (store_signing_key_insert(tx, k, e))
            return -1;
    }
    return 0;
}

static int load_session(void *ctx, const struct sandbox *row, struct err *e)
{
    return broker_load_session(((struct sim *)ctx)->gw.broker, row, e);
}

static int load_lease(void *ctx, const struct lease *l, struct err *e)
{
    return broker_load_lease(((struct sim *)ctx)->gw.broker, l, e);
}

static int load_rows(struct store_tx *tx, void *arg, struct err *e)
{
    return store_sandbox_each_active(tx, load_session, arg, e) ||
                   store_lease_each_open(tx, load_lease, arg, e)
               ? -1
               : 0;
}

static int look_audit(struct store_tx *tx, void *arg, struct err *e)
{
    int64_t *found = arg;

    return store_audit_verify(tx, &found[0], &found[1], e);
}

/* As authentication loads them. */
static void apis_load(struct sim *s)
{
    for (int i = 0; i < SIM_APIS; i++) {
        struct api *a = &s->apis[i];

        a->cached = a->row;
        memcpy(a->cached_users, a->users, sizeof a->users);
    }
}

/* How far the trail has come tells what was committed. */
int gateway_audit_learn(struct sim *s, struct store *store, struct err *e)
{
    int64_t audit[2];

    if (store_read(store, look_audit, audit, e))
        return -1;
    if (audit[1])
        sim_fail(s, "invariant_05", "the audit chain is broken at %lld", (long long)audit[1]);
    facts_learn(s, audit[0]);
    s->gw.audit_n = audit[0];
    return 0;
}

static int load(struct sim *s, struct err *e)
{
    if (!s->apis[0].row.created_at && store_write(s->gw.store, first_rows, s, e))
        return -1;
    if (gateway_audit_learn(s, s->gw.store, e))
        return -1;
    if (gateway_keys_make(s, NULL, 0, &s->gw.keys, e))
        return -1;
    s->gw.broker = broker_make(s);
    if (store_read(s->gw.store, load_rows, s, e))
        return -1;
    broker_clock_behind(s->gw.broker, store_clock_behind_ms(s->gw.store));
    return 0;
}

/* What a start finds unfinished, or without its processes. */
static void reconcile(struct sim *s)
{
    for (int i = 0; i < s->sessions_n; i++) {
        struct session_sim *x = &s->sessions[i];

        if (!x->known || x->ended)
            continue;
        x->running_asked = x->ending_asked = false;
        x->stop_at_us = x->kill_at_us = NEVER;
        if (x->row.status != SANDBOX_RUNNING || !x->door.alive)
            session_stop(s, i);
    }
}

void gateway_start(struct sim *s)
{
    struct gateway *gw = &s->gw;
    struct op *limbo = gw->group;
    int64_t audit_n = gw->audit_n, operator_at_us = gw->operator_at_us;
    struct err e;

    *gw = (struct gateway){.group = limbo,
                           .audit_n = audit_n,
                           .wake_at_us = NEVER,
                           .turn_at_us = NEVER,
                           .drain_at_us = NEVER,
                           .restart_at_us = NEVER,
                           .operator_at_us = operator_at_us};
    gw->inbox = inbox_new(wake, s);
    if (!gw->inbox)
        abort();
    if (store_make(s, &e) || load(s, &e)) {
        if (!sim_disk_ended(s->disk))
            sim_fail(s, "invariant_05", "the store does not open again: %s", e.msg);
        gateway_end(s, rng_one_in(&s->rng, 3) ? DISK_POWER_OFF : DISK_KILLED);
        return;
    }
    gw->up = true;
    gw->up_since_us = s->boot_us;
    gw->wake_at_us = s->boot_us;
    apis_load(s);
    sim_trace(s, "gateway up");
    invariants_started(s);
    reconcile(s);
}

/* --- end --------------------------------------------------------------------------------------- */

static void keys_free(struct gateway *gw)
{
    keyset_free(gw->keys);
    keyset_free(gw->pending_keys);
    for (int i = 0; i < FORMER_KEYS; i++)
        keyset_free(gw->former[i]);
    gw->keys = gw->pending_keys = NULL;
    memset(gw->former, 0, sizeof gw->former);
}

static void take_apart(struct sim *s)
{
    struct gateway *gw = &s->gw;

    broker_free(gw->broker);
    store_close(gw->store);
    while (inbox_drain(gw->inbox, 1000)) {
    }
    inbox_free(gw->inbox);
    keys_free(gw);
    gw->broker = NULL;
    gw->store = NULL;
    gw->inbox = NULL;
    gw->up = gw->dying = false;
    gw->turn_at_us = gw->drain_at_us = gw->wake_at_us = NEVER;
}

static void unlock(const struct sim *s)
{
    char lock[100];

    snprintf(lock, sizeof lock, "%s.lock", s->path);
    unlink(lock); /* it was no clean end */
}

/* A store that is closed: if its disk has ended, that was no clean end. */
void gateway_disk_back(struct sim *s)
{
    enum disk_end how = rng_one_in(&s->rng, 3) ? DISK_POWER_OFF : DISK_KILLED;
    struct sim_door *d;

    if (!sim_disk_ended(s->disk)) {
        sim_disk_end_at(s->disk, 0);
        sim_disk_fill(s->disk, false);
        return;
    }
    unlock(s);
    sim_disk_restore(s->disk, how);
    for (int at = 0; how == DISK_POWER_OFF && (d = door_next(s, &at));)
        door_die(s, d);
}

void gateway_stop(struct sim *s)
{
    sim_trace(s, "gateway stops");
    s->gw.dying = true;
    take_apart(s);
    gateway_disk_back(s);
    net_gateway_dead(s);
}

void gateway_end(struct sim *s, enum disk_end how)
{
    struct gateway *gw = &s->gw;
    struct sim_door *d;

    sim_trace(s, "gateway ends: %s", how == DISK_POWER_OFF ? "power off" : "killed");
    gw->dying = true;
    sim_disk_end_now(s->disk);
    take_apart(s);
    unlock(s);
    sim_disk_restore(s->disk, how);
    net_gateway_dead(s);
    gw->restart_at_us =
        s->boot_us + (rng_one_in(&s->rng, 4) ? rng_range(&s->rng, SEC, 25 * SEC)
                                             : rng_range(&s->rng, 10 * MS, 900 * MS));
    if (how != DISK_POWER_OFF)
        return;
    s->seen[SEEN_POWER_OFF]++;
    for (int at = 0; (d = door_next(s, &at));)
        door_die(s, d);
}

/* --- time -------------------------------------------------------------------------------------- */

int64_t gateway_due_us(const struct sim *s)
{
    const struct gateway *gw = &s->gw;

    if (!gw->up)
        return gw->restart_at_us;
    return earlier(earlier(earlier(gw->turn_at_us, gw->drain_at_us), gw->operator_at_us),
                   earlier(gw->wake_at_us, sessions_due_us(s)));
}

/* No door has heard of a gateway for so long that it lets somebody in, when the mark is lowered. */
static void stop_for_reset(struct sim *s)
{
    gateway_stop(s);
    s->gw.operator_at_us = NEVER;
    s->gw.reset_due = true;
    s->gw.restart_at_us =
        s->boot_us + s->limits.stale_after_seconds * SEC + rng_range(&s->rng, SEC, 30 * SEC);
}

/* Broken off, it is done again; now and then behind a start that finds it half done. */
static void start_or_reset(struct sim *s)
{
    struct gateway *gw = &s->gw;

    if (!gw->reset_due) {
        gateway_start(s);
        return;
    }
    gw->reset_due = false;
    gw->restart_at_us = s->boot_us + rng_range(&s->rng, 10 * MS, 900 * MS);
    if (reset_clock(s) || s->failed)
        return;
    if (!s->resting && rng_one_in(&s->rng, 3))
        gw->operator_at_us = s->boot_us + rng_range(&s->rng, SEC, 10 * SEC);
    else
        gw->reset_due = true;
}

void gateway_event(struct sim *s)
{
    struct gateway *gw = &s->gw;
    int64_t now = s->boot_us;

    if (!gw->up) {
        start_or_reset(s);
    } else if (gw->operator_at_us <= now) {
        stop_for_reset(s);
    } else if (gw->drain_at_us <= now) {
        gw->drain_at_us = NEVER;
        if (inbox_drain(gw->inbox, 64))
            wake(s);
    } else if (gw->turn_at_us <= now) {
        turn(s);
    } else if (gw->wake_at_us <= now) {
        gw->wake_at_us = NEVER;
        s->tick_calls = s->tick_expired = 0;
        broker_tick(gw->broker);
        invariants_ticked(s);
    } else {
        sessions_end(s);
    }
}
