/* Ending a session: cut its clients, end its processes, record it. One path for every cause. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sessions_state.h"
#include "spools.h"

/* How long the door may take to confirm the cut before the processes are ended anyway. */
#define CUT_WAIT_MS 1000
#define CUT_LOOP_S  1 /* more for the loop to come to it */

int session_audit(struct store_tx *tx, const struct caller *caller, const char *action,
                  const struct sandbox *s, const char *outcome, struct err *e)
{
    return store_audit_deed(tx,
                            &(struct audit_deed){.caller = caller,
                                                 .action = action,
                                                 .kind = "sandbox",
                                                 .id = &s->session_id,
                                                 .outcome = outcome,
                                                 .detail = s->reason},
                            e);
}

bool session_ended_itself(const char *reason)
{
    static const char *const causes[] = {"door_lost", "oom",         "exited(",
                                         "signaled(", "engine_lost", "start_failed"};

    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        if (!strncmp(reason, causes[i], strlen(causes[i])))
            return true;
    return false;
}

int64_t session_expiry(int64_t max_expires_at, int64_t last_activity_at, int64_t idle_ttl_s)
{
    int64_t idle = last_activity_at + idle_ttl_s * 1000;

    return idle < max_expires_at ? idle : max_expires_at;
}

void session_touch(struct sandbox *s, int64_t now_ms, int64_t idle_ttl_s)
{
    if (idle_ttl_s)
        s->idle_ttl_s = idle_ttl_s;
    s->last_activity_at = now_ms;
    s->expires_at = session_expiry(s->max_expires_at, now_ms, s->idle_ttl_s);
}

/* --- a RUNTIME thread waits for what the broker, on the loop, is told by the door -------------- */

/* Of the waiting thread and of the loop; who leaves last frees it. The loop may never come to it: at
 * the end it does not turn any more while the lanes finish their work. */
struct cut_wait {
    struct job job;
    struct broker_wait wait;
    struct broker *broker;
    atomic_int owners;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* waits by the monotonic clock */
    bool over;              /* lock */
};

static void cut_leave(struct cut_wait *cw)
{
    if (atomic_fetch_sub(&cw->owners, 1) > 1)
        return;
    pthread_cond_destroy(&cw->changed);
    pthread_mutex_destroy(&cw->lock);
    free(cw);
}

static void cut_over(struct broker_wait *w)
{
    struct cut_wait *cw = (struct cut_wait *)((char *)w - offsetof(struct cut_wait, wait));

    pthread_mutex_lock(&cw->lock);
    cw->over = true;
    pthread_cond_signal(&cw->changed);
    pthread_mutex_unlock(&cw->lock);
    cut_leave(cw);
}

static void cut_ask(struct job *job)
{
    struct cut_wait *cw = (struct cut_wait *)((char *)job - offsetof(struct cut_wait, job));

    broker_wait(cw->broker, &cw->wait);
}

static struct cut_wait *cut_wait_new(struct services *s, const struct id *session_id)
{
    struct cut_wait *cw = calloc(1, sizeof *cw);
    pthread_condattr_t attr;

    if (!cw)
        return NULL;
    cw->job.done = cut_ask;
    cw->broker = s->broker;
    cw->owners = 2;
    cw->wait = (struct broker_wait){
        .session_id = *session_id, .timeout_ms = CUT_WAIT_MS, .done = cut_over};
    pthread_mutex_init(&cw->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&cw->changed, &attr);
    pthread_condattr_destroy(&attr);
    return cw;
}

/* Returns when the door has confirmed or the time is over; without memory at once: then the clients
 * are cut by the end of the door. */
static void wait_for_cut(struct services *s, const struct id *session_id)
{
    struct cut_wait *cw = cut_wait_new(s, session_id);
    struct timespec until;
    int rc = 0;

    if (!cw)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CUT_WAIT_MS / 1000 + CUT_LOOP_S;
    inbox_post(server_inbox(s->server), &cw->job);
    pthread_mutex_lock(&cw->lock);
    while (!cw->over && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&cw->changed, &cw->lock, &until);
    pthread_mutex_unlock(&cw->lock);
    cut_leave(cw);
}

/* --- rows ------------------------------------------------------------------------------------ */

struct stopping {
    const struct session_stop *o;
    struct sandbox sandbox;
    bool ended;      /* before we came */
    size_t leases_n; /* cut */
};

static bool is_terminal(const struct sandbox *s)
{
    return s->status == SANDBOX_STOPPED || s->status == SANDBOX_FAILED;
}

/* A retry keeps the first reason. */
static int begin_stopping(struct store_tx *tx, struct sandbox *s, const char *reason, struct err *e)
{
    snprintf(s->reason, sizeof s->reason, "%s", reason);
    s->status = SANDBOX_STOPPING;
    return store_sandbox_update(tx, s, e) || session_event(tx, s, e) ? -1 : 0;
}

static int stopping_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct stopping *st = arg;
    struct sandbox *s = &st->sandbox;
    struct lease_ending how = {
        .code = st->o->close_code, .reason = st->o->reason, .caller = st->o->caller};

    if (store_sandbox_get(tx, &st->o->session_id, s, e))
        return -1;
    st->ended = is_terminal(s);
    if (st->ended)
        return 0;
    if (s->status != SANDBOX_STOPPING && begin_stopping(tx, s, st->o->reason, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_STOPPING, .sandbox = *s});
    return lease_end_session(tx, s, &how, &st->leases_n, e);
}

static int ended_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct stopping *st = arg;
    struct sandbox *s = &st->sandbox;

    if (store_sandbox_get(tx, &st->o->session_id, s, e))
        return -1;
    s->status = st->o->status;
    if (!strcmp(s->reason, "start_failed") && !s->started_at) /* who began it has gone */
        snprintf(s->detail, sizeof s->detail, "the gateway did not bring the start to its end");
    if (store_sandbox_update(tx, s, e) || lease_close_session(tx, &s->session_id, s->reason, e) ||
        session_audit(tx, st->o->caller, "sandbox.stop", s, "ok", e) || session_event(tx, s, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_ENDED, .sandbox = *s});
    return 0;
}

/* What was said is taken into the history while the engine still removes. */
struct last_words_taken {
    struct services *s;
    const struct sandbox *sandbox;
    struct spool_last *last;
};

static void take_last_words(void *ctx)
{
    struct last_words_taken *t = ctx;

    t->last = spools_finish_begin(t->s, &t->sandbox->session_id, &t->sandbox->chat_id);
}

static int stop_host(struct services *s, struct stopping *st, struct err *e)
{
    struct last_words_taken taken = {.s = s, .sandbox = &st->sandbox};
    struct sandbox_door_gone gone = {.ctx = &taken, .fn = take_last_words};
    int rc = session_host_stop(s, &st->sandbox, st->o->grace_ms, &gone, st->o->trace, e);
    bool waited = taken.last != NULL;

    spools_finish_end(taken.last);
    if (!rc && !waited) /* what its tools did becomes known with their end */
        spools_finish(s, &st->o->session_id, &st->sandbox.chat_id);
    return rc;
}

static int stop(struct services *s, struct stopping *st, struct err *e)
{
    const struct session_stop *o = st->o;

    if (store_write_end(s->store, stopping_row, st, e))
        return -1;
    if (st->ended)
        return 0;
    if (st->leases_n)
        wait_for_cut(s, &o->session_id);
    if (stop_host(s, st, e))
        return -1;
    if (store_write_end(s->store, ended_row, st, e))
        return -1;
    if (!o->replacing)
        session_cleaned(s, &o->session_id, st->sandbox.reason, st->leases_n, o->trace);
    return 0;
}

int session_stop(struct services *s, const struct session_stop *o, struct sandbox *ret,
                 struct err *e)
{
    struct stopping st = {.o = o};

    if (stop(s, &st, e)) {
        session_clean_failed(s, &o->session_id, e, o->trace);
        return -1;
    }
    *ret = st.sandbox;
    return 0;
}
