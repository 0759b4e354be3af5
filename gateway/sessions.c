/* The loop's side of sessions: which run, are they alive, when is their time over. */
#include "sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "leasehold/door_proto.h"
#include "leasehold/process.h"
#include "sessions_state.h"

/* The store learns of activity at most this often a session. */
#define SAVE_ACTIVITY_MS 5000
#define WATCHES_MIN      16
#define END_WAIT_MS      1000

/* The server leaves a quarter of the descriptors to others (server.c); half of those are for the
 * processes of sandboxes. */
static size_t watches_max(void)
{
    const char *test = getenv("LEASEHOLD_TEST_WATCHES_MAX");
    struct rlimit limit;

    if (test)
        return strtoul(test, NULL, 10);
    return getrlimit(RLIMIT_NOFILE, &limit) ? WATCHES_MIN : limit.rlim_cur / 8 + WATCHES_MIN;
}

struct sessions *sessions_new(struct services *s)
{
    struct sessions *ss = calloc(1, sizeof *ss);

    if (!ss)
        return NULL;
    ss->s = s;
    ss->watches_max = watches_max();
    ss->ready = ready_new();
    ss->pulls = session_pulls_new();
    ss->reconcile = reconcile_new();
    if (!ss->ready || !ss->pulls || !ss->reconcile || sessions_idle_begin(ss)) {
        ready_free(ss->ready);
        session_pulls_free(ss->pulls);
        reconcile_free(ss->reconcile);
        free(ss);
        return NULL;
    }
    return ss;
}

static void unwatch(struct sessions *ss, struct server_watch **watch, int *fd)
{
    server_watch_free(*watch);
    *watch = NULL;
    if (*fd >= 0) {
        close(*fd);
        ss->watches--;
    }
    *fd = -1;
}

static void live_drop(struct sessions *ss, struct live *l)
{
    unwatch(ss, &l->keep_watch, &l->keep_fd);
    unwatch(ss, &l->door_watch, &l->door_fd);
    HASH_DEL(ss->live, l);
    free(l);
}

void sessions_free(struct sessions *ss)
{
    struct live *l, *next;

    if (!ss)
        return;
    HASH_ITER (hh, ss->live, l, next)
        live_drop(ss, l);
    sessions_idle_end(ss);
    ready_free(ss->ready);
    session_pulls_free(ss->pulls);
    reconcile_free(ss->reconcile);
    free(ss);
}

void sessions_draining(struct sessions *ss)
{
    session_pulls_close(ss->pulls);
}

void sessions_stopping(struct sessions *ss)
{
    ready_close(ss->ready);
    session_pulls_close(ss->pulls);
}

bool sessions_pull_progress(const struct sessions *ss, const struct id *session_id,
                            struct pull_progress *ret)
{
    return session_pulls_progress(ss->pulls, session_id, ret);
}

int sessions_wait_ready(void *ctx, const struct id *session_id, int64_t timeout_ms, struct err *e)
{
    struct sessions *ss = ctx;

    return ready_wait(ss->ready, session_id, timeout_ms, e);
}

/* --- a look at a session that may be dead or over, under its chat's key ------------------------ */

struct check {
    struct job job;
    struct sessions *ss;
    struct services *s;
    struct id session_id;
    bool suspect;
    struct cleanup_round *round; /* loop; NULL: for another reason than the clock */
    struct trace_context round_trace;
    bool cleaned;
};

static int get_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct sandbox *s = arg;

    return store_sandbox_get(tx, &s->session_id, s, e);
}

/* Decides by the row, not by what the loop saw: an open may have renewed it meanwhile. */
static bool verdict(struct services *s, const struct sandbox *row, struct session_stop *ret,
                    struct engine_status *status)
{
    int64_t now = clock_wall_ms(s->clock);
    struct err e;

    *ret = (struct session_stop){
        .session_id = row->session_id, .status = SANDBOX_FAILED, .close_code = CLOSE_AGENT_ENDED};
    if (row->status == SANDBOX_STOPPED || row->status == SANDBOX_FAILED)
        return false;
    if (row->status != SANDBOX_RUNNING) { /* its owner crashed or failed half way */
        ret->reason = row->reason[0] ? row->reason : "start_failed";
        ret->status = row->status == SANDBOX_STOPPING && !session_ended_itself(row->reason)
                          ? SANDBOX_STOPPED
                          : SANDBOX_FAILED;
        ret->close_code = CLOSE_REVOKED;
        return true;
    }
    if (sandbox_host_status(&s->host, row, status, &e)) {
        log_error(s->log, "sandbox_status_failed", &e, LF_ID("session_id", &row->session_id));
        return false; /* nothing is ever ended on the strength of an error */
    }
    ret->reason = status->reason;
    if (!status->alive)
        return true;
    ret->reason = row->max_expires_at <= now ? "max_ttl" : "idle";
    ret->status = SANDBOX_STOPPED;
    ret->close_code = CLOSE_IDLE;
    ret->grace_ms = 5000;
    return row->expires_at <= now;
}

/* The door has lost the agent of a session that is not watched: its supervisor notices a moment
 * later. */
static bool ends_soon(const struct sandbox *row)
{
    struct err e;
    int fd = process_open((pid_t)row->keep_pid, row->keep_start, &e);
    bool ended;

    if (fd < 0)
        return e.code == ERR_NOT_FOUND;
    ended = process_wait(fd, END_WAIT_MS) == 1;
    close(fd);
    return ended;
}

static bool is_to_end(const struct check *c, const struct sandbox *row, struct session_stop *ret,
                      struct engine_status *status)
{
    return verdict(c->s, row, ret, status) || (c->suspect && row->status == SANDBOX_RUNNING &&
                                               ends_soon(row) && verdict(c->s, row, ret, status));
}

static void check_end(struct check *c, const struct sandbox *row, const struct session_stop *how)
{
    struct session_stop stop = *how;
    struct sandbox ended;
    struct span span;
    struct err e;
    int rc;

    span_begin(c->s->tracer, &span, "usecase.cleanup_expired_sandbox", &c->round_trace);
    session_span_names(&span, row);
    stop.trace = &span.self;
    rc = session_stop(c->s, &stop, &ended, &e); /* has told; tried again in a while */
    c->cleaned = !rc;
    span_text(&span, "sandbox.result", rc ? "error" : "cleaned");
    span_text(&span, "sandbox.reason", stop.reason);
    span_end(&span, rc, &e);
}

static void check_run(struct job *job)
{
    struct check *c = (struct check *)((char *)job - offsetof(struct check, job));
    struct sandbox row = {.session_id = c->session_id};
    struct engine_status status;
    struct session_stop stop;
    struct err e;

    if (store_read(c->s->store, get_row, &row, &e))
        log_error(c->s->log, "sandbox_check_failed", &e, LF_ID("session_id", &c->session_id));
    else if (is_to_end(c, &row, &stop, &status))
        check_end(c, &row, &stop);
}

static void round_leave(struct cleanup_round *r)
{
    if (!r || --r->pending)
        return;
    span_number(&r->span, "sandbox.cleaned_count", (int64_t)r->cleaned);
    span_end(&r->span, 0, NULL);
    free(r);
}

static struct live *live_find(struct sessions *ss, const struct id *session_id)
{
    struct live *l;

    HASH_FIND(hh, ss->live, session_id, sizeof *session_id, l);
    return l;
}

static void check_submit(struct live *l);

static void check_done(struct job *job)
{
    struct check *c = (struct check *)((char *)job - offsetof(struct check, job));
    struct live *l = live_find(c->ss, &c->session_id);

    if (c->round)
        c->round->cleaned += c->cleaned;
    round_leave(c->round);
    free(c);
    if (!l)
        return;
    l->checking = false;
    if (l->check_again)
        check_submit(l);
}

/* A full lane or no memory: the next clean-up round asks again. */
static void check_submit(struct live *l)
{
    struct services *s = l->sessions->s;
    struct check *c;
    struct err e;

    l->check_again = l->checking; /* what the one under way has read may be too old */
    if (l->checking || !s->runtime)
        return;
    c = calloc(1, sizeof *c);
    if (!c)
        return;
    *c = (struct check){.job = {.run = check_run, .done = check_done},
                        .ss = l->sessions,
                        .s = s,
                        .session_id = l->session_id,
                        .suspect = l->suspect,
                        .round = l->sessions->round};
    if (c->round)
        c->round_trace = c->round->span.self;
    l->suspect = false;
    if (lane_submit_keyed(s->runtime, &l->chat_id, &c->job, &e)) {
        free(c);
        return;
    }
    l->checking = true;
    if (c->round)
        c->round->pending++;
}

/* --- watching -------------------------------------------------------------------------------- */

void session_look(struct live *l)
{
    l->doubtful = true;
    check_submit(l);
}

static void process_ended(void *ctx)
{
    session_look(ctx);
}

/* Beyond the cap a session is looked at when its door is lost or its agent ends, and in each
 * clean-up round. */
static void watch(struct live *l, int64_t pid, int64_t start, int *fd, struct server_watch **ret)
{
    struct sessions *ss = l->sessions;
    struct err e;

    if (ss->watches >= ss->watches_max) {
        l->doubtful = true;
        return;
    }
    *fd = process_open((pid_t)pid, start, &e);
    ss->watches += *fd >= 0;
    *ret = *fd < 0 ? NULL : server_watch_new(l->sessions->s->server, *fd, process_ended, l);
    if (!*ret) /* gone already: the look will find out how */
        session_look(l);
}

static void times_take(struct live *l, const struct sandbox *s)
{
    l->expires_at = s->expires_at;
    l->max_expires_at = s->max_expires_at;
    l->idle_ttl_s = s->idle_ttl_s;
    l->last_activity_at = l->saved_activity_at = s->last_activity_at;
}

/* Doubtful until it runs: a start or an end that nobody finishes is finished by the rounds. */
static struct live *live_add(struct sessions *ss, const struct sandbox *s)
{
    struct live *l = live_find(ss, &s->session_id);

    if (l)
        return l;
    l = calloc(1, sizeof *l);
    if (!l) { /* its door's end and its time are noticed by the next start only */
        log_event(ss->s->log, LOG_ERROR, "sandbox_unwatched", LF_ID("session_id", &s->session_id));
        return NULL;
    }
    l->sessions = ss;
    l->session_id = s->session_id;
    l->chat_id = s->chat_id;
    l->user_id = s->user_id;
    l->keep_fd = l->door_fd = -1;
    l->doubtful = true;
    times_take(l, s);
    HASH_ADD(hh, ss->live, session_id, sizeof l->session_id, l);
    return l;
}

static void live_run(struct sessions *ss, const struct sandbox *s)
{
    struct live *l = live_add(ss, s);

    if (!l)
        return;
    times_take(l, s);
    l->running = true;
    if (l->watched)
        return;
    l->watched = true;
    l->doubtful = false;
    if (s->keep_pid)
        watch(l, s->keep_pid, s->keep_start, &l->keep_fd, &l->keep_watch);
    watch(l, s->door_pid, s->door_start, &l->door_fd, &l->door_watch);
}

static void apply_one(struct sessions *ss, const struct change *c)
{
    struct live *l;

    if (c->kind == CHANGE_SESSION_STARTING)
        (void)live_add(ss, &c->sandbox);
    else if (c->kind == CHANGE_SESSION_RUNNING)
        live_run(ss, &c->sandbox);
    else if (c->kind == CHANGE_SESSION_STOPPING && (l = live_find(ss, &c->sandbox.session_id)))
        l->doubtful = true, l->running = false;
    else if (c->kind == CHANGE_SESSION_ENDED && (l = live_find(ss, &c->sandbox.session_id)))
        live_drop(ss, l);
}

void sessions_apply(struct sessions *ss, const struct change *changes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        apply_one(ss, &changes[i]);
}

void sessions_door_state(struct sessions *ss, const struct id *session_id, bool door_live,
                         enum door_agent agent)
{
    struct live *l = live_find(ss, session_id);

    ready_set(ss->ready, session_id, door_live && agent == DOOR_AGENT_UP);
    if (!l)
        return;
    if (l->running && l->doubtful && !(door_live && agent == DOOR_AGENT_UP)) {
        l->suspect = true;
        check_submit(l);
    } else if (agent == DOOR_AGENT_ENDED) {
        session_look(l);
    }
}

void sessions_interrupt(struct sessions *ss, const struct caller *caller,
                        const struct id *session_id, const char *reason)
{
    struct live *l = live_find(ss, session_id);

    if (l && caller_may_see(caller, &l->user_id))
        session_pulls_end(ss->pulls, session_id, reason);
}

void sessions_counts(const struct sessions *ss, struct sessions_counts *ret)
{
    struct live *l, *next;

    *ret = (struct sessions_counts){.watches = ss->watches};
    HASH_ITER (hh, ss->live, l, next)
        ret->running += l->running;
}

/* --- time ------------------------------------------------------------------------------------ */

struct save {
    struct store_job job;
    struct id session_id;
    int64_t last_ms;
};

static int save_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct save *sv = arg;
    struct sandbox s;

    if (store_sandbox_get(tx, &sv->session_id, &s, e))
        return -1;
    if (s.status != SANDBOX_RUNNING || s.last_activity_at >= sv->last_ms)
        return 0;
    s.last_activity_at = sv->last_ms;
    s.expires_at = session_expiry(s.max_expires_at, s.last_activity_at, s.idle_ttl_s);
    return store_sandbox_update(tx, &s, e);
}

static void save_done(struct job *job)
{
    free((char *)job - offsetof(struct save, job.job));
}

static void save_activity(struct sessions *ss, struct live *l)
{
    struct save *sv = calloc(1, sizeof *sv);
    struct err e;

    if (!sv)
        return;
    /* A session that is in use must not be ended as idle because the disk is full. */
    sv->job = (struct store_job){.job.done = save_done, .fn = save_row, .arg = sv, .ends = true};
    sv->session_id = l->session_id;
    sv->last_ms = l->last_activity_at;
    if (store_submit(ss->s->store, &sv->job, &e))
        free(sv);
    else
        l->saved_activity_at = l->last_activity_at;
}

void sessions_activity(struct sessions *ss, const struct id *session_id, int64_t last_ms)
{
    struct live *l = live_find(ss, session_id);

    if (!l || last_ms <= l->last_activity_at)
        return;
    l->last_activity_at = last_ms;
    l->expires_at = session_expiry(l->max_expires_at, last_ms, l->idle_ttl_s);
    if (last_ms - l->saved_activity_at >= SAVE_ACTIVITY_MS)
        save_activity(ss, l);
}

void sessions_cleanup(struct sessions *ss)
{
    int64_t now = clock_wall_ms(ss->s->clock);
    struct cleanup_round *round = calloc(1, sizeof *round); /* without memory there is no span */
    struct live *l, *next;

    if (round) {
        round->pending = 1;
        span_begin(ss->s->tracer, &round->span, "usecase.cleanup_expired_sandboxes", NULL);
    }
    ss->round = round;
    HASH_ITER (hh, ss->live, l, next) {
        if (l->doubtful || l->expires_at <= now) {
            if (l->last_activity_at > l->saved_activity_at)
                save_activity(ss, l);
            check_submit(l);
        }
    }
    ss->round = NULL;
    round_leave(round);
    reconcile_round(ss);
}

/* --- adoption -------------------------------------------------------------------------------- */

struct adoption {
    struct sessions *ss;
    struct id *orphans; /* open leases of no live session */
    size_t orphans_n;
};

static int adopt_session(void *ctx, const struct sandbox *s, struct err *e)
{
    struct adoption *a = ctx;
    struct live *l;

    if (broker_load_session(a->ss->s->broker, s, e))
        return -1;
    if (s->status == SANDBOX_RUNNING) {
        live_run(a->ss, s); /* looks at it, if a process of it is gone */
        return 0;
    }
    l = live_add(a->ss, s);
    if (l)
        check_submit(l);
    return 0;
}

static int adopt_lease(void *ctx, const struct lease *l, struct err *e)
{
    struct adoption *a = ctx;
    struct id *more;
    struct id chat;

    if (broker_session_chat(a->ss->s->broker, &l->session_id, &chat))
        return broker_load_lease(a->ss->s->broker, l, e);
    more = reallocarray(a->orphans, a->orphans_n + 1, sizeof *more);
    if (!more)
        return err_set(e, ERR_INTERNAL, "no memory to load the leases");
    a->orphans = more;
    a->orphans[a->orphans_n++] = l->lease_id;
    return 0;
}

static int adopt_rows(struct store_tx *tx, void *arg, struct err *e)
{
    return store_sandbox_each_active(tx, adopt_session, arg, e) ||
                   store_lease_each_open(tx, adopt_lease, arg, e)
               ? -1
               : 0;
}

static int close_orphans(struct store_tx *tx, void *arg, struct err *e)
{
    const struct adoption *a = arg;

    return lease_close(tx, a->orphans, a->orphans_n, e);
}

int sessions_adopt(struct sessions *ss, struct err *e)
{
    struct adoption a = {.ss = ss};
    int rc = store_read(ss->s->store, adopt_rows, &a, e);

    if (!rc && a.orphans_n)
        rc = store_write_end(ss->s->store, close_orphans, &a, e);
    free(a.orphans);
    if (rc)
        return -1;
    broker_clock_behind(ss->s->broker, store_clock_behind_ms(ss->s->store));
    reconcile_at_start(ss);
    return reconcile_watch(ss, e);
}
