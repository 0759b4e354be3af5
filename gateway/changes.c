#include "changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifacts.h"
#include "leasehold/door_proto.h"
#include "meters.h"
#include "sessions.h"
#include "signing_keys.h"
#include "spools.h"

/* Leases that are changed at once; between two batches the loop may turn. */
#define BATCH_LEASES 64

/* --- from the writer to the loop ------------------------------------------------------------- */

struct batch {
    struct job job;
    struct services *s;
    int64_t committed_us;
    size_t n;
    struct change changes[];
};

static void count_changes(const struct services *s, const struct change *changes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (changes[i].kind == CHANGE_GRANT)
            metric_add(meter(s->meters, METER_LEASE_GRANTS), 0, 0, 1);
        else if (changes[i].kind == CHANGE_EXTEND)
            metric_add(meter(s->meters, METER_LEASE_RENEWALS), 0, 0, 1);
    }
}

static void batch_apply(struct job *job)
{
    struct batch *b = (struct batch *)((char *)job - offsetof(struct batch, job));

    count_changes(b->s, b->changes, b->n);
    broker_set_keys(b->s->broker, b->s->keys);
    broker_apply(b->s->broker, b->changes, b->n, b->committed_us);
    sessions_apply(b->s->sessions, b->changes, b->n);
    free(b);
}

static void batch_post(struct services *s, const struct change *changes, size_t n,
                       int64_t committed_us)
{
    struct batch *b = malloc(sizeof *b + n * sizeof *changes);

    /* A committed revocation that never reaches its door would be a broken promise. The next
     * start reads all of it from the store. */
    if (!b) {
        log_event(s->log, LOG_ERROR, "changes_lost", LF_STR("detail", "no memory; restarting"));
        abort();
    }
    *b = (struct batch){.job.done = batch_apply, .s = s, .committed_us = committed_us, .n = n};
    memcpy(b->changes, changes, n * sizeof *changes);
    inbox_post(server_inbox(s->server), &b->job);
}

static size_t batch_len(const struct change *changes, size_t n)
{
    size_t len = 0, leases = 0;

    while (len < n && leases < BATCH_LEASES) {
        leases += changes[len].kind == CHANGE_EXPIRE ? changes[len].expired.n : 1;
        len++;
    }
    return len;
}

void changes_post(void *ctx, const struct change *changes, size_t n)
{
    struct services *s = ctx;
    int64_t committed_us = clock_boot_us(s->clock);

    for (size_t i = 0; i < n; i++)
        if (changes[i].kind == CHANGE_KEYS)
            signing_keys_committed(s->signing);
    for (size_t i = 0, taken; i < n; i += taken) {
        taken = batch_len(changes + i, n - i);
        batch_post(s, changes + i, taken, committed_us);
    }
}

/* --- from the broker to the store ------------------------------------------------------------ */

struct lease_write {
    struct store_job job;
    struct services *s;
    int (*rule)(struct store_tx *tx, const struct id *ids, size_t n, struct err *e);
    size_t n;
    struct id ids[];
};

static int lease_write_run(struct store_tx *tx, void *arg, struct err *e)
{
    const struct lease_write *w = arg;

    return w->rule(tx, w->ids, w->n, e);
}

static void lease_write_done(struct job *job)
{
    struct lease_write *w =
        (struct lease_write *)((char *)job - offsetof(struct lease_write, job.job));

    if (w->job.rc) /* the broker asks again in a while */
        log_error(w->s->log, "lease_write_failed", &w->job.e);
    free(w);
}

static void lease_write(struct services *s, bool later,
                        int (*rule)(struct store_tx *tx, const struct id *ids, size_t n,
                                    struct err *e),
                        const struct id *ids, size_t n)
{
    struct lease_write *w = malloc(sizeof *w + n * sizeof *ids);
    struct err e;

    if (!w)
        return; /* the broker asks again in a while */
    *w = (struct lease_write){.s = s, .rule = rule, .n = n};
    memcpy(w->ids, ids, n * sizeof *ids);
    w->job = (struct store_job){.job.done = lease_write_done,
                                .fn = lease_write_run,
                                .arg = w,
                                .ends = true,
                                .sound = true,
                                .later = later};
    if (store_submit(s->store, &w->job, &e))
        free(w);
}

static void on_closed(void *ctx, const struct id *ids, size_t n)
{
    lease_write(ctx, true, lease_close, ids, n);
}

/* So many in one write: a revocation that comes meanwhile waits for them. */
#define DUE_ONCE 128

typedef int due_rule(struct store_tx *tx, const struct lease_due *due, size_t n, struct err *e);

struct due_write {
    struct store_job job;
    struct services *s;
    due_rule *rule;
    size_t n;
    struct lease_due due[];
};

static int due_run(struct store_tx *tx, void *arg, struct err *e)
{
    const struct due_write *w = arg;

    return w->rule(tx, w->due, w->n, e);
}

static void due_done(struct job *job)
{
    struct due_write *w = (struct due_write *)((char *)job - offsetof(struct due_write, job.job));

    if (w->job.rc) /* the broker asks again in a while */
        log_error(w->s->log, "lease_write_failed", &w->job.e);
    free(w);
}

static void due_write_one(struct services *s, due_rule *rule, const struct lease_due *due, size_t n)
{
    struct due_write *w = malloc(sizeof *w + n * sizeof *due);
    struct err e;

    if (!w)
        return; /* the broker asks again in a while */
    *w = (struct due_write){.s = s, .rule = rule, .n = n};
    memcpy(w->due, due, n * sizeof *due);
    w->job = (struct store_job){
        .job.done = due_done, .fn = due_run, .arg = w, .ends = true, .sound = true, .later = true};
    if (store_submit(s->store, &w->job, &e))
        free(w);
}

static void due_write(struct services *s, due_rule *rule, const struct lease_due *due, size_t n)
{
    for (size_t i = 0; i < n; i += DUE_ONCE)
        due_write_one(s, rule, due + i, n - i < DUE_ONCE ? n - i : DUE_ONCE);
}

static void on_expired(void *ctx, const struct lease_due *due, size_t n)
{
    due_write(ctx, lease_expire, due, n);
}

static void on_expiring(void *ctx, const struct lease_due *due, size_t n)
{
    due_write(ctx, lease_tell_expiring, due, n);
}

static void on_unconfirmed(void *ctx, const struct id *ids, size_t n)
{
    lease_write(ctx, true, lease_tell_unconfirmed, ids, n);
}

/* Should this write fail, the door and the broker still know. */
static void on_consumed(void *ctx, const struct id *lease_id)
{
    lease_write(ctx, false, lease_consume, lease_id, 1);
}

/* --- audit of what doors report -------------------------------------------------------------- */

struct door_audit {
    struct store_job job;
    struct services *s;
    struct broker_event ev;
    char verdict[112];
};

static const char *action_of(const struct broker_event *ev)
{
    switch (ev->kind) {
    case BROKER_ADMIT:
        return "lease.admit";
    case BROKER_CUT:
        return "lease.cut";
    case BROKER_DENY:
        return "lease.deny";
    case BROKER_ACK:
        return "lease.ack";
    case BROKER_DOOR_LIVE:
        return "door.live";
    case BROKER_DOOR_LOST:
        return "door.lost";
    case BROKER_UNRECORDED:
        return "history.lost";
    case BROKER_DOOR_FAULT:
        return "door.fault";
    }
    return "door.event";
}

static const char *outcome_of(const struct broker_event *ev)
{
    return ev->kind == BROKER_DENY ? "denied" : ev->kind == BROKER_DOOR_FAULT ? "failed" : "ok";
}

static void detail_of(const struct door_audit *a, char *ret, size_t size)
{
    const struct broker_event *ev = &a->ev;

    if (ev->kind == BROKER_CUT)
        snprintf(ret, size, "code=%lld in=%lld out=%lld", (long long)ev->code,
                 (long long)ev->bytes_in, (long long)ev->bytes_out);
    else if (ev->kind == BROKER_ACK)
        snprintf(ret, size, "cut=%lld latency_us=%lld door_us=%lld", (long long)ev->cut,
                 (long long)ev->latency_us, (long long)ev->door_latency_us);
    else
        snprintf(ret, size, "%s", a->verdict);
}

static int door_audit_run(struct store_tx *tx, void *arg, struct err *e)
{
    const struct door_audit *a = arg;
    bool of_lease = !id_is_zero(&a->ev.lease_id);
    char actor[64], detail[128];

    snprintf(actor, sizeof actor, "door:%s", ID_STR(&a->ev.session_id));
    detail_of(a, detail, sizeof detail);
    return store_audit_deed(
        tx,
        &(struct audit_deed){.actor = actor,
                             .action = action_of(&a->ev),
                             .kind = of_lease ? "lease" : "sandbox",
                             .id = of_lease ? &a->ev.lease_id : &a->ev.session_id,
                             .outcome = outcome_of(&a->ev),
                             .detail = detail},
        e);
}

static void audit_lost(struct services *s, const struct broker_event *ev, const struct err *e)
{
    log_error(s->log, "audit_lost", e, LF_STR("action", action_of(ev)),
              LF_ID("session_id", &ev->session_id), LF_ID("lease_id", &ev->lease_id));
    metric_add(meter(s->meters, METER_AUDIT_FAILURES), 0, 0, 1);
}

static void door_audit_done(struct job *job)
{
    struct door_audit *a =
        (struct door_audit *)((char *)job - offsetof(struct door_audit, job.job));

    if (a->job.rc)
        audit_lost(a->s, &a->ev, &a->job.e);
    free(a);
}

static void on_event(void *ctx, const struct broker_event *ev)
{
    struct services *s = ctx;
    struct door_audit *a;
    struct err e;

    meters_event(s->meters, ev);
    if (ev->over_rate)
        return; /* counted as dropped */
    a = calloc(1, sizeof *a);
    if (!a) {
        err_set(&e, ERR_INTERNAL, "no memory");
        audit_lost(s, ev, &e);
        return;
    }
    a->s = s;
    a->ev = *ev;
    snprintf(a->verdict, sizeof a->verdict, "%s", ev->verdict ? ev->verdict : "");
    if (ev->kind == BROKER_UNRECORDED)
        snprintf(a->verdict, sizeof a->verdict, "messages=%lld", (long long)ev->unrecorded);
    a->job = (struct store_job){.job.done = door_audit_done, .fn = door_audit_run, .arg = a};
    log_event(s->log, ev->kind == BROKER_DOOR_FAULT ? LOG_WARNING : LOG_INFO, action_of(ev),
              LF_ID("session_id", &ev->session_id), LF_ID("lease_id", &ev->lease_id),
              LF_INT("code", ev->code), LF_INT("cut", ev->cut),
              LF_INT("latency_us", ev->latency_us), LF_STR("verdict", a->verdict));
    if (store_submit(s->store, &a->job, &e)) {
        audit_lost(s, ev, &e);
        free(a);
    }
}

/* --- the rest of the hooks ------------------------------------------------------------------- */

static void on_send(void *ctx, uint64_t conn, const char *data, size_t len)
{
    struct services *s = ctx;

    (void)server_ws_send(s->server, conn, data, len); /* a failure closes: ws_closed follows */
}

static void on_close(void *ctx, uint64_t conn, int code, const char *reason)
{
    struct services *s = ctx;

    server_ws_close(s->server, conn, code, reason);
}

static void on_known(void *ctx, uint64_t conn)
{
    struct services *s = ctx;

    server_ws_proved(s->server, conn);
}

static void on_session(void *ctx, const struct id *session_id, bool door_live,
                       enum door_agent agent)
{
    struct services *s = ctx;

    sessions_door_state(s->sessions, session_id, door_live, agent);
}

static void on_activity(void *ctx, const struct id *session_id, int64_t last_ms)
{
    struct services *s = ctx;

    sessions_activity(s->sessions, session_id, last_ms);
    spools_activity(s->spools, session_id);
}

static void on_put(void *ctx, const struct id *session_id, int64_t n, const char *path,
                   const char *name)
{
    artifact_errand(ctx, session_id, n, path, name);
}

static void on_ending(void *ctx, int code, size_t n)
{
    const struct services *s = ctx;

    meters_ending(s->meters, code, n);
}

static void on_wake(void *ctx, int64_t delay_ms)
{
    struct services *s = ctx;

    server_timer_arm(s->broker_timer, delay_ms);
}

void changes_broker_hooks(struct services *s, struct broker_hooks *ret)
{
    *ret = (struct broker_hooks){
        .ctx = s,
        .send = on_send,
        .close = on_close,
        .known = on_known,
        .closed = on_closed,
        .expired = on_expired,
        .expiring = on_expiring,
        .unconfirmed = on_unconfirmed,
        .consumed = on_consumed,
        .session = on_session,
        .activity = on_activity,
        .event = on_event,
        .put = on_put,
        .ending = on_ending,
        .wake = on_wake,
    };
}
