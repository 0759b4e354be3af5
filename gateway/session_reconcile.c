/*
 * The engine's word against the store's: what it has of ours is listed at the start, whenever the
 * engine can be asked again, and in each clean-up round. A session whose sandbox is not among what
 * lives is looked at; a sandbox without a session is marked, and removed when it is still one after
 * a grace that is longer than any start. Nothing is ever ended on the strength of an error.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sessions_state.h"

struct seen {
    struct engine_seen s;
    UT_hash_handle hh;
};

struct orphan {
    struct id session_id;
    int64_t since_us;
    bool going; /* a job removes it */
    bool seen;  /* in this round */
    UT_hash_handle hh;
};

struct reconcile {
    atomic_bool listed; /* once, since the start */
    bool swept;         /* run directories without a session, once; a round at a time */
    /* loop */
    bool running, again;
    bool failing; /* told */
    struct orphan *orphans;
    char told[ENGINE_WARNINGS_MAX][160]; /* warnings in the log */
};

struct reconcile *reconcile_new(void)
{
    return calloc(1, sizeof(struct reconcile));
}

void reconcile_free(struct reconcile *r)
{
    struct orphan *o, *next;

    if (!r)
        return;
    HASH_ITER (hh, r->orphans, o, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(r->orphans, o);
        free(o);
    }
    free(r);
}

bool sessions_listed(const struct sessions *ss)
{
    return atomic_load(&ss->reconcile->listed);
}

/* --- what the store says --------------------------------------------------------------------- */

static int get_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct sandbox *s = arg;

    return store_sandbox_get(tx, &s->session_id, s, e);
}

/* True only if it is sure. */
static bool is_over(struct services *s, const struct id *session_id)
{
    struct sandbox row = {.session_id = *session_id};
    struct err e;

    if (store_read(s->store, get_row, &row, &e))
        return e.code == ERR_NOT_FOUND;
    return row.status == SANDBOX_STOPPED || row.status == SANDBOX_FAILED;
}

static bool session_known(void *ctx, const struct id *session_id)
{
    return !is_over(ctx, session_id);
}

static void session_swept(void *ctx, const struct id *session_id, const struct err *e)
{
    struct services *s = ctx;

    if (e)
        session_clean_failed(s, session_id, e, NULL);
    else
        session_cleaned(s, session_id, "orphan", 0, NULL);
}

/* --- a round: the part that may block -------------------------------------------------------- */

struct round {
    struct job job;
    struct sessions *ss;
    struct seen *seen;
    bool failed;
    struct err e;
    int swept; /* run directories; -1: not in this round */
    struct span span;
};

static int see(void *ctx, const struct engine_seen *s, struct err *e)
{
    struct round *r = ctx;
    struct seen *n = calloc(1, sizeof *n), *old;

    if (!n)
        return err_set(e, ERR_INTERNAL, "no memory for the list of sandboxes");
    n->s = *s;
    HASH_FIND(hh, r->seen, &s->session_id, sizeof s->session_id, old);
    if (old && old->s.alive) { /* a second one of the session: one that lives is enough */
        free(n);
        return 0;
    }
    if (old) {
        HASH_DEL(r->seen, old);
        free(old);
    }
    HASH_ADD(hh, r->seen, s.session_id, sizeof n->s.session_id, n);
    return 0;
}

static void round_ask(struct round *r)
{
    struct services *s = r->ss->s;
    struct reconcile *rec = r->ss->reconcile;
    struct sandbox_sweep sweep = {.ctx = s, .known = session_known, .swept = session_swept};

    r->swept = -1;
    span_begin(s->tracer, &r->span, "adapter.sandbox.reconcile_sessions", NULL);
    r->failed = session_host_list(s, see, r, &r->span.self, &r->e) < 0;
    /* Opens wait for this, so a run directory without a row is nobody's. */
    if (!r->failed && !rec->swept) {
        r->swept = sandbox_host_sweep(&s->host, &sweep, &r->e);
        r->failed = r->swept < 0;
        rec->swept = !r->failed;
    }
    if (!r->failed)
        atomic_store(&rec->listed, true);
}

static void round_run(struct job *job)
{
    round_ask((struct round *)((char *)job - offsetof(struct round, job)));
}

/* --- orphans --------------------------------------------------------------------------------- */

struct removal {
    struct job job;
    struct sessions *ss;
    struct id session_id;
};

/* Looks again: at the store, and by the engine's own word for what runs out of the run directory. */
static void removal_run(struct job *job)
{
    struct removal *m = (struct removal *)((char *)job - offsetof(struct removal, job));
    struct services *s = m->ss->s;
    struct sandbox gone = {.session_id = m->session_id};
    struct err e;

    if (!is_over(s, &m->session_id))
        return;
    if (session_host_stop(s, &gone, 0, NULL, NULL, &e))
        session_clean_failed(s, &m->session_id, &e, NULL);
    else
        session_cleaned(s, &m->session_id, "orphan", 0, NULL);
}

static void removal_done(struct job *job)
{
    struct removal *m = (struct removal *)((char *)job - offsetof(struct removal, job));
    struct orphan *o;

    HASH_FIND(hh, m->ss->reconcile->orphans, &m->session_id, sizeof m->session_id, o);
    if (o)
        o->going = false; /* one that is still there is tried again */
    free(m);
}

static void orphan_remove(struct sessions *ss, struct orphan *o)
{
    struct removal *m = calloc(1, sizeof *m);
    struct err e;

    if (!m)
        return;
    *m = (struct removal){
        .job = {.run = removal_run, .done = removal_done}, .ss = ss, .session_id = o->session_id};
    if (lane_submit_keyed(ss->s->runtime, &o->session_id, &m->job, &e))
        free(m); /* a full lane: the next round */
    else
        o->going = true;
}

/* Longer than clocks differ and the slowest start takes. */
static int64_t grace_us(const struct config *cfg)
{
    return (cfg->sandbox.start_timeout_seconds + cfg->lease.clock_skew_seconds) * 1000000;
}

static void orphan_mark(struct sessions *ss, const struct id *session_id)
{
    struct reconcile *rec = ss->reconcile;
    struct orphan *o;

    HASH_FIND(hh, rec->orphans, session_id, sizeof *session_id, o);
    if (!o) {
        o = calloc(1, sizeof *o);
        if (!o)
            return;
        o->session_id = *session_id;
        o->since_us = clock_boot_us(ss->s->clock);
        HASH_ADD(hh, rec->orphans, session_id, sizeof o->session_id, o);
        log_event(ss->s->log, LOG_WARNING, "sandbox_orphaned", LF_ID("session_id", session_id));
    }
    o->seen = true;
}

static void orphans_go(struct sessions *ss)
{
    int64_t now_us = clock_boot_us(ss->s->clock);
    struct orphan *o, *next;

    HASH_ITER (hh, ss->reconcile->orphans, o, next) {
        if (!o->seen && !o->going) {
            /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
            HASH_DEL(ss->reconcile->orphans, o);
            free(o);
            continue;
        }
        o->seen = false;
        if (!o->going && ss->s->runtime && now_us - o->since_us >= grace_us(ss->s->cfg))
            orphan_remove(ss, o);
    }
}

/* --- a round: the part on the loop ----------------------------------------------------------- */

static void seen_free(struct round *r)
{
    struct seen *n, *next;

    HASH_ITER (hh, r->seen, n, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(r->seen, n);
        free(n);
    }
}

static void compare(struct round *r)
{
    struct live *l, *next_live;
    struct seen *n, *next;

    HASH_ITER (hh, r->ss->live, l, next_live) {
        HASH_FIND(hh, r->seen, &l->session_id, sizeof l->session_id, n);
        if (l->running && !(n && n->s.alive))
            session_look(l);
    }
    HASH_ITER (hh, r->seen, n, next) {
        HASH_FIND(hh, r->ss->live, &n->s.session_id, sizeof n->s.session_id, l);
        if (!l)
            orphan_mark(r->ss, &n->s.session_id);
    }
    orphans_go(r->ss);
}

static void round_apply(struct round *r)
{
    struct reconcile *rec = r->ss->reconcile;
    struct services *s = r->ss->s;

    if (r->failed && !rec->failing)
        log_error(s->log, "sandbox_list_failed", &r->e);
    rec->failing = r->failed;
    if (!r->failed) {
        span_number(&r->span, "sandbox.discovered_count", HASH_COUNT(r->seen));
        span_number(&r->span, "sandbox.active_count", HASH_COUNT(r->ss->live));
    }
    span_end(&r->span, r->failed ? -1 : 0, &r->e);
    if (r->failed)
        return;
    if (r->swept >= 0)
        log_event(s->log, LOG_INFO, "sandbox_reconciled", LF_INT("active", HASH_COUNT(r->ss->live)),
                  LF_INT("discovered", HASH_COUNT(r->seen)), LF_INT("orphans_removed", r->swept),
                  LF_TRACE(&r->span.self));
    compare(r);
}

static void round_done(struct job *job)
{
    struct round *r = (struct round *)((char *)job - offsetof(struct round, job));
    struct sessions *ss = r->ss;

    ss->reconcile->running = false;
    round_apply(r);
    seen_free(r);
    free(r);
    if (ss->reconcile->again)
        reconcile_round(ss);
}

void reconcile_round(struct sessions *ss)
{
    struct reconcile *rec = ss->reconcile;
    struct round *r;
    struct err e;

    rec->again = rec->running; /* what the one under way has heard may be too old */
    if (rec->running || !ss->s->runtime)
        return;
    r = calloc(1, sizeof *r);
    if (!r)
        return;
    r->job = (struct job){.run = round_run, .done = round_done};
    r->ss = ss;
    if (lane_submit(ss->s->runtime, &r->job, &e))
        free(r); /* a full lane: the next round */
    else
        rec->running = true;
}

void reconcile_at_start(struct sessions *ss)
{
    struct round r = {.ss = ss};

    round_ask(&r);
    round_apply(&r);
    seen_free(&r);
}

/* --- what the engine tells by itself --------------------------------------------------------- */

struct told {
    struct job job;
    struct sessions *ss;
    struct id session_id; /* zero: all may have changed */
};

static void warnings_tell(struct sessions *ss)
{
    struct engine *g = ss->s->host.engine;
    struct reconcile *rec = ss->reconcile;
    struct engine_info info;
    struct err e;

    if (g->v->info(g, &info, &e))
        return;
    for (size_t i = 0; i < info.warnings_n; i++) {
        if (!strcmp(rec->told[i], info.warnings[i]))
            continue;
        memcpy(rec->told[i], info.warnings[i], sizeof rec->told[i]);
        log_event(ss->s->log, LOG_WARNING, "engine_warning", LF_STR("detail", info.warnings[i]));
    }
}

static void told_done(struct job *job)
{
    struct told *t = (struct told *)((char *)job - offsetof(struct told, job));
    struct live *l;

    if (t->ss->s->stopping) {
        /* Nothing more is to be looked at, and the engine may be gone. */
    } else if (id_is_zero(&t->session_id)) {
        warnings_tell(t->ss);
        reconcile_round(t->ss);
    } else {
        HASH_FIND(hh, t->ss->live, &t->session_id, sizeof t->session_id, l);
        if (l && l->running)
            session_look(l);
    }
    free(t);
}

/* Without memory the next round finds out. */
static void tell(struct sessions *ss, const struct id *session_id)
{
    struct told *t = calloc(1, sizeof *t);

    if (!t)
        return;
    t->job = (struct job){.done = told_done};
    t->ss = ss;
    if (session_id)
        t->session_id = *session_id;
    inbox_post(server_inbox(ss->s->server), &t->job);
}

static void engine_ended(void *ctx, const struct id *session_id)
{
    tell(ctx, session_id);
}

static void engine_changed(void *ctx)
{
    struct sessions *ss = ctx;

    log_event(ss->s->log, LOG_INFO, "engine_connected");
    tell(ss, NULL);
}

static void engine_lost(void *ctx, const struct err *why)
{
    struct sessions *ss = ctx;

    log_error(ss->s->log, "engine_unavailable", why);
}

int reconcile_watch(struct sessions *ss, struct err *e)
{
    struct engine *g = ss->s->host.engine;
    struct engine_watch w = {
        .ctx = ss, .ended = engine_ended, .changed = engine_changed, .lost = engine_lost};

    return g->v->watch(g, &w, e);
}
