/* One running operation: to its lane and back. */
#include <string.h>

#include "activity.h"
#include "idempotency.h"
#include "identity.h"
#include "limits.h"
#include "meters.h"
#include "op.h"
#include "services.h"
#include "spans.h"
#include "stream.h"
#include "trail.h"

/* Arguments, result and everything between them of one call. */
#define CALL_ARENA_CAP (4u * 1024 * 1024)

/* How long a call may wait for its turn. Behind another operation on its chat that may be a whole
 * start of a sandbox, with the end of the former one before it. */
#define WAIT_S       30
#define WAIT_START_S 15 /* and the start timeout */

struct call *call_new(struct services *s)
{
    struct arena *arena = arena_new_of(s->arenas, CALL_ARENA_CAP);
    struct call *c = arena ? arena_alloc(arena, sizeof *c) : NULL;

    if (!c) {
        arena_free(arena);
        return NULL;
    }
    c->s = s;
    c->arena = arena;
    c->started_us = clock_boot_us(s->clock);
    return c;
}

void call_free(struct call *c)
{
    if (!c)
        return;
    if (c->drop)
        c->drop(c);
    stream_leave(c);
    arena_free(c->arena);
}

static void log_call(const struct call *c)
{
    bool fault = c->rc && err_code_http(c->e.code) >= 500;

    log_event(c->s->log, fault ? LOG_ERROR : LOG_INFO, "request",
              LF_STR("op", c->op ? c->op->name : NULL), LF_INT("status", c->status),
              LF_STR("request_id", c->request_id), LF_STR("address", c->caller.address),
              LF_ID("key_id", &c->caller.key_id),
              LF_STR("code", c->rc ? err_code_name(c->e.code) : NULL),
              LF_STR("detail", c->rc ? c->e.msg : NULL), LF_INT("errno", c->rc ? c->e.sys : 0),
              LF_INT("us", clock_boot_us(c->s->clock) - c->started_us), LF_TRACE(&c->trace));
}

/* The reply of a call that was answered early, by another. */
static void answered(struct call *c)
{
    (void)c;
}

static void count_call(const struct call *c)
{
    if (c->reply != answered)
        meters_request(c->s->meters, c->op, c->status, clock_boot_us(c->s->clock) - c->started_us);
}

/* A path that is none, a link that does not hold: 401 was counted where the proof was looked at, and
 * who gets 416 has been let in. */
static bool refused_a_stranger(const struct call *c)
{
    bool open = !c->op || (c->op->role == ROLE_NONE && c->op->audit[0].kind);
    int status = c->rc ? err_code_http(c->e.code) : 0;

    return open && id_is_zero(&c->caller.key_id) && status >= 400 && status < 500 &&
           status != 401 && status != 416 && status != 429;
}

static void count_refusal(struct call *c)
{
    struct err over;

    if (refused_a_stranger(c) && limits_refusal(c->s->limits, c->caller.address,
                                                clock_boot_us(c->s->clock), &c->retry_s, &over))
        c->e = over;
}

void call_finish(struct call *c)
{
    count_refusal(c);
    if (c->rc)
        c->status = err_code_http(c->e.code);
    else if (!c->status)
        c->status = c->op->status;
    if (c->idempotent && !idempotency_settle(c))
        return; /* comes again when the answer is recorded */
    if (c->reply != answered) {
        trail_call(c->s->trail, c);
        activity_call(c->s->activity, c);
    }
    if (stream_answers(c)) {
        stream_answer(c); /* call_close follows */
        return;
    }
    log_call(c);
    count_call(c);
    c->reply(c);
    call_free(c);
}

void call_close(struct call *c)
{
    log_call(c);
    count_call(c);
    call_free(c);
}

void call_fail(struct call *c, const struct err *e)
{
    c->rc = -1;
    c->e = *e;
    call_finish(c);
}

/* --- lanes ----------------------------------------------------------------------------------- */

static void call_ran(struct call *c)
{
    if (!c->rc && c->body_streams && !idempotency_replayed(c))
        stream_body(c); /* call_finish follows */
    else if (c->rc || idempotency_replayed(c) || !c->op->after || c->op->after(c))
        call_finish(c);
}

static enum meter_lane meter_lane_of(const struct call *c)
{
    switch (idempotency_lane(c)) {
    case ON_WRITE:
        return METER_WRITE;
    case ON_FILE:
        return METER_FILE;
    case ON_RUNTIME:
        return METER_RUNTIME;
    case ON_SLOW:
        return METER_SLOW;
    case ON_OBJECT:
        return METER_OBJECT;
    case ON_LOOP:
    case ON_READ:
    case ON_SCRAPE:
        break;
    }
    return METER_READ;
}

/* Nobody waits for it any more, and it would only hold up the next. */
static int too_late(const struct call *c, struct err *e)
{
    metric_add(meter(c->s->meters, METER_LANE_EXPIRED), meter_lane_of(c), 0, 1);
    return err_set(e, ERR_BUSY, "the time of the call was over before its turn came");
}

static int call_run(struct call *c, struct err *e)
{
    if (c->s->stopping)
        return err_set(e, ERR_BUSY, "the gateway is stopping");
    if (clock_boot_us(c->s->clock) > c->deadline_us)
        return too_late(c, e);
    return c->idempotent ? idempotency_run(c, e) : c->op->run(c, e);
}

static int run_in_tx(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    int rc;

    c->tx = tx;
    rc = call_run(c, e);
    c->tx = NULL;
    return rc;
}

static struct call *call_of(struct job *job)
{
    return (struct call *)((char *)job - offsetof(struct call, job));
}

static void read_run(struct job *job)
{
    struct call *c = call_of(job);

    c->rc = store_read(c->s->store, run_in_tx, c, &c->e);
}

static void lane_run(struct job *job)
{
    struct call *c = call_of(job);

    c->rc = call_run(c, &c->e);
    stream_ran(c); /* a small file is one job */
}

static void lane_done(struct job *job)
{
    call_ran(call_of(job));
}

static void sign_run(struct job *job)
{
    struct call *c = call_of(job);

    c->op->sign(&c, 1);
}

/* From `job` on, those that are signed alike; the next that is not. */
static struct job *sign_alike(struct job *job)
{
    struct call *calls[CALL_SIGN_MAX];
    size_t n = 0;

    do {
        calls[n++] = call_of(job);
        job = job->next;
    } while (job && n < CALL_SIGN_MAX && call_of(job)->op->sign == calls[0]->op->sign);
    calls[0]->op->sign(calls, n);
    return job;
}

void call_sign_all(struct job *first)
{
    while (first)
        first = sign_alike(first);
}

/* --- a write that is signed ------------------------------------------------------------------ */

static struct call *call_of_store(struct job *job)
{
    return (struct call *)((char *)job - offsetof(struct call, store_job.job));
}

static void write_done(struct job *job)
{
    struct call *c = call_of_store(job);

    c->rc = c->store_job.rc;
    c->e = c->store_job.e;
    call_ran(c);
}

/* On the loop, for the commit and for the signature. */
static void part_done(struct call *c)
{
    if (++c->parts < 2)
        return;
    if (c->store_job.rc) {
        c->rc = c->store_job.rc;
        c->e = c->store_job.e;
    }
    call_ran(c);
}

static void signed_done(struct job *job)
{
    part_done(call_of(job));
}

static void committed_done(struct job *job)
{
    part_done(call_of_store(job));
}

/* The disk of the commit and a CPU for the signature work beside each other. */
static void write_ran(struct store_job *j)
{
    struct call *c = call_of_store(&j->job);
    struct err e;

    c->parts = 0;
    c->job = (struct job){.run = sign_run, .done = signed_done};
    c->signs = !idempotency_replayed(c) && !lane_submit(c->s->sign, &c->job, &e);
}

/* Should the lane not have taken it, it is signed here: what was written is to be answered. */
static void write_committed(struct store_job *j)
{
    struct call *c = call_of_store(&j->job);

    j->job.done = c->signs ? committed_done : write_done;
    if (!c->signs && !j->rc && !idempotency_replayed(c)) {
        sign_run(&c->job);
        j->rc = c->rc;
        j->e = c->e;
    }
    inbox_post(server_inbox(c->s->server), &j->job);
}

static int submit(struct call *c, struct err *e)
{
    enum op_lane lane = idempotency_lane(c);
    struct services *s = c->s;
    struct id key;

    c->job.owner = c->caller.key_id;
    c->job.done = lane_done;
    c->job.run = lane == ON_READ ? read_run : lane_run;
    switch (lane) {
    case ON_READ:
        return lane_submit(s->read, &c->job, e);
    case ON_FILE:
        if (!c->op->key)
            return lane_submit(s->file, &c->job, e);
        c->op->key(c, &key);
        return lane_submit_keyed(s->file, &key, &c->job, e);
    case ON_RUNTIME:
        c->op->key(c, &key);
        return lane_submit_keyed(s->runtime, &key, &c->job, e);
    case ON_SLOW:
        c->op->key(c, &key);
        return lane_submit_keyed(s->slow, &key, &c->job, e);
    case ON_OBJECT:
        return lane_submit(s->object, &c->job, e);
    case ON_WRITE:
        c->store_job = (struct store_job){.job.done = write_done,
                                          .fn = run_in_tx,
                                          .arg = c,
                                          .ends = c->op->ends,
                                          .sound = c->op->sound,
                                          .ran = c->op->sign ? write_ran : NULL,
                                          .committed = c->op->sign ? write_committed : NULL};
        return store_submit(s->store, &c->store_job, e);
    case ON_SCRAPE:
        meters_collect(s);
        return lane_submit(s->scrape, &c->job, e);
    case ON_LOOP:
        break;
    }
    c->rc = call_run(c, &c->e);
    call_ran(c);
    return 0;
}

static int64_t wait_s(const struct call *c)
{
    const struct config *cfg = c->s->cfg;
    bool images = c->op->pulls && cfg->sandbox.engine == ENGINE_DOCKER;

    if (c->op->timeout_s)
        return c->op->timeout_s;
    if (c->op->lane != ON_RUNTIME)
        return WAIT_S;
    return cfg->sandbox.start_timeout_seconds + WAIT_START_S +
           (images ? cfg->docker.pull_timeout_seconds : 0);
}

void call_start(struct call *c)
{
    struct err e;

    if (c->op->role > ROLE_NONE && !auth_recorded(c->s->auth, &c->caller.key_id)) {
        identity_record(c); /* comes again */
        return;
    }
    c->deadline_us = c->started_us + wait_s(c) * 1000000;
    if (stream_enter(c, &e)) {
        call_fail(c, &e);
        return;
    }
    if (c->op->prepare)
        c->op->prepare(c);
    if (c->op->out_size && !(c->result = call_alloc(c, c->op->out_size))) {
        err_set(&e, ERR_INTERNAL, "no memory for the answer");
        call_fail(c, &e);
    } else if ((c->idempotent && idempotency_claim(c, &e)) || submit(c, &e)) {
        call_fail(c, &e);
    }
}

void call_again(struct call *c)
{
    struct err e;

    if (submit(c, &e))
        call_fail(c, &e);
}

/* --- an answer before the end ---------------------------------------------------------------- */

static void early_done(struct job *job)
{
    call_finish(call_of(job));
}

/* What the new call borrows of c lives until c comes out of the inbox, behind it. */
void call_answer_early(struct call *c)
{
    struct call *early = call_new(c->s);
    struct arena *arena;

    if (!early)
        return;
    arena = early->arena;
    *early = *c;
    early->arena = arena;
    early->drop = NULL;
    early->result = call_alloc(early, c->op->out_size);
    if (!early->result) {
        call_free(early);
        return;
    }
    memcpy(early->result, c->result, c->op->out_size);
    early->job = (struct job){.done = early_done};
    c->idempotent = NULL;
    c->reply = answered;
    inbox_post(server_inbox(c->s->server), &early->job);
}
