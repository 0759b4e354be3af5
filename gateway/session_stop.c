/* Ending a session: cut its clients, end its processes, record it. One path for every cause. */
#include <pthread.h>
#include <stdio.h>

#include "sessions_state.h"

/* How long the door may take to confirm the cut before the processes are ended anyway. */
#define CUT_WAIT_MS 1000

int session_audit(struct store_tx *tx, const struct caller *caller, const char *action,
                  const struct sandbox *s, const char *outcome, struct err *e)
{
    char object[sizeof "sandbox:" + ID_TEXT];
    char actor[ID_TEXT] = "gateway";

    if (caller && !id_is_zero(&caller->key_id))
        id_format(&caller->key_id, actor);
    snprintf(object, sizeof object, "sandbox:%s", ID_STR(&s->session_id));
    return store_audit(
        tx,
        &(struct audit_entry){.at = store_now_ms(tx),
                              .actor = actor,
                              .action = action,
                              .object = object,
                              .outcome = outcome,
                              .address = caller && caller->address ? caller->address : "",
                              .request_id = caller && caller->request_id ? caller->request_id : "",
                              .detail = s->reason},
        e);
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

struct cut_wait {
    struct job job;
    struct broker_wait wait;
    struct broker *broker;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over; /* lock */
};

static void cut_over(struct broker_wait *w)
{
    struct cut_wait *cw = (struct cut_wait *)((char *)w - offsetof(struct cut_wait, wait));

    pthread_mutex_lock(&cw->lock);
    cw->over = true;
    pthread_cond_signal(&cw->changed);
    pthread_mutex_unlock(&cw->lock);
}

static void cut_ask(struct job *job)
{
    struct cut_wait *cw = (struct cut_wait *)((char *)job - offsetof(struct cut_wait, job));

    broker_wait(cw->broker, &cw->wait);
}

/* Returns when the door has confirmed or the time is over; the broker always answers. */
static void wait_for_cut(struct services *s, const struct id *session_id)
{
    struct cut_wait cw = {
        .job.done = cut_ask,
        .broker = s->broker,
        .wait = {.session_id = *session_id, .timeout_ms = CUT_WAIT_MS, .done = cut_over}};

    pthread_mutex_init(&cw.lock, NULL);
    pthread_cond_init(&cw.changed, NULL);
    inbox_post(server_inbox(s->server), &cw.job);
    pthread_mutex_lock(&cw.lock);
    while (!cw.over)
        pthread_cond_wait(&cw.changed, &cw.lock);
    pthread_mutex_unlock(&cw.lock);
    pthread_cond_destroy(&cw.changed);
    pthread_mutex_destroy(&cw.lock);
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
    if (s->status != SANDBOX_STOPPING) /* a retry keeps the first reason */
        snprintf(s->reason, sizeof s->reason, "%s", st->o->reason);
    s->status = SANDBOX_STOPPING;
    if (store_sandbox_update(tx, s, e))
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
    if (store_sandbox_update(tx, s, e) || lease_close_session(tx, &s->session_id, s->reason, e) ||
        session_audit(tx, st->o->caller, "sandbox.stop", s, "ok", e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_ENDED, .sandbox = *s});
    return 0;
}

int session_stop(struct services *s, const struct session_stop *o, struct sandbox *ret,
                 struct err *e)
{
    struct stopping st = {.o = o};

    if (store_write(s->store, stopping_row, &st, e))
        return -1;
    if (!st.ended) {
        if (st.leases_n)
            wait_for_cut(s, &o->session_id);
        if (sandbox_host_stop(&s->host, &st.sandbox, o->grace_ms, e)) {
            log_error(s->log, "sandbox_clean_failed", e, LF_ID("session_id", &o->session_id));
            e->code = ERR_SANDBOX_STOP_FAILED;
            return -1;
        }
        if (store_write(s->store, ended_row, &st, e))
            return -1;
        log_event(s->log, LOG_INFO, "sandbox_cleaned", LF_ID("session_id", &o->session_id),
                  LF_STR("reason", st.sandbox.reason), LF_INT("leases", st.leases_n));
    }
    *ret = st.sandbox;
    return 0;
}
