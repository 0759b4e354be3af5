#include "retention.h"

#include <stdlib.h>

#include "chat_walk.h"
#include "chats.h"
#include "leasehold/chatdir.h"
#include "meters.h"
#include "usage.h"
#include "workspaces.h"

#define AT_ONCE 64 /* users of one look at the store */

const struct id retention_key = {{'r', 'e', 't', 'e', 'n', 't', 'i', 'o', 'n'}};

static const char *const kind_names[] = {"file", "workspace", "artifact"};

void retention_tell(const struct retention_round *r, enum retention_kind kind, const char *id,
                    const char *reason, int64_t size_bytes)
{
    if (r->item)
        r->item(r->ctx, &(struct retention_item){kind_names[kind], id, reason, size_bytes});
    if (r->dry_run)
        return;
    metric_add(meter(r->s->meters, METER_RETENTION_REMOVED), kind, 0, 1);
    metric_add(meter(r->s->meters, METER_RETENTION_BYTES), kind, 0, size_bytes);
    log_event(r->s->log, LOG_INFO, "retention_removed", LF_STR("kind", kind_names[kind]),
              LF_STR("id", id), LF_STR("reason", reason), LF_INT("bytes", size_bytes));
}

void retention_failed(const struct retention_round *r, enum retention_kind kind,
                      const struct id *id, const struct err *e)
{
    metric_add(meter(r->s->meters, METER_RETENTION_ERRORS), kind, 0, 1);
    log_error(r->s->log, "retention_failed", e, LF_STR("kind", kind_names[kind]), LF_ID("id", id));
}

/* A thing that is in use again, or gone, is no failure. */
static bool is_spared(const struct err *e)
{
    return e->code == ERR_CHAT_HAS_ACTIVE_SANDBOX || e->code == ERR_CONFLICT ||
           e->code == ERR_CHAT_NOT_FOUND || e->code == ERR_WORKSPACE_NOT_FOUND;
}

/* --- workspaces -------------------------------------------------------------------------------- */

struct idle {
    struct id user_id;
    int64_t before_ms; /* used last before this */
    int64_t active_at;
};

static int still_idle(struct store_tx *tx, void *arg, struct err *e)
{
    struct idle *idle = arg;
    bool delivers;

    if (store_workspace_active_at(tx, &idle->user_id, &idle->active_at, e) ||
        store_workspace_delivers(tx, &idle->user_id, &delivers, e))
        return -1;
    if (delivers)
        return err_set(e, ERR_CONFLICT, "an artifact is not delivered yet");
    return idle->active_at < idle->before_ms ? 0
                                             : err_set(e, ERR_CONFLICT, "the workspace is in use");
}

static int look_idle(struct store_tx *tx, void *arg, struct err *e)
{
    struct idle *idle = arg;

    return store_workspace_active_at(tx, &idle->user_id, &idle->active_at, e);
}

/* *ret_idle: it is, and it is gone, would go, or could not. */
static int end_idle(const struct retention_round *r, const struct id *user_id,
                    const struct store_usage *used, bool *ret_idle, struct err *e)
{
    const struct config *cfg = r->s->cfg;
    struct idle idle = {.user_id = *user_id,
                        .before_ms = clock_wall_ms(r->s->clock) -
                                     cfg->retention.workspace_idle_seconds * 1000};
    struct workspace_deletion d = {.caller = r->caller,
                                   .user_id = *user_id,
                                   .action = "retention.workspace",
                                   .detail = "idle",
                                   .may = still_idle,
                                   .arg = &idle};

    *ret_idle = false;
    if (store_read(r->s->store, look_idle, &idle, e))
        return -1;
    if (idle.active_at >= idle.before_ms)
        return 0;
    *ret_idle = true;
    if (r->dry_run ? workspace_deletable(r->s, &d, e) : workspace_delete(r->s, &d, e))
        return is_spared(e) ? 0 : -1;
    retention_tell(r, RETENTION_WORKSPACE, ID_STR(user_id), "idle", used->used_bytes);
    return 0;
}

/* --- chats ------------------------------------------------------------------------------------- */

static int clean_chats(const struct retention_round *r, const struct id *user_id, struct err *e)
{
    struct chat_walk chats = {.user_id = *user_id};
    struct err why;

    do {
        if (store_read(r->s->store, chat_walk_row, &chats, e))
            return -1;
        for (size_t i = 0; i < chats.n && !r->s->stopping; i++)
            if (retention_files(r, user_id, &chats.ids[i], &why) && !is_spared(&why))
                retention_failed(r, RETENTION_FILE, &chats.ids[i], &why);
    } while (chat_walk_goes_on(&chats) && !r->s->stopping);
    return 0;
}

/* --- a round ----------------------------------------------------------------------------------- */

struct users {
    struct id after;
    struct id ids[AT_ONCE];
    size_t n;
};

static int add_user(void *ctx, const struct workspace *w, struct err *e)
{
    struct users *users = ctx;

    (void)e;
    users->ids[users->n++] = users->after = w->user_id;
    return 0;
}

static int list_users(struct store_tx *tx, void *arg, struct err *e)
{
    struct users *users = arg;

    users->n = 0;
    return store_workspace_each(tx, &users->after, AT_ONCE, add_user, users, e);
}

struct totals {
    int64_t workspaces, over_quota, used_bytes;
};

static void add_totals(struct totals *t, const struct store_usage *u)
{
    t->workspaces++;
    t->over_quota += u->over_quota;
    t->used_bytes += u->used_bytes;
}

static void show_totals(const struct services *s, const struct totals *t)
{
    metric_set(meter(s->meters, METER_WORKSPACES), 0, 0, t->workspaces);
    metric_set(meter(s->meters, METER_WORKSPACES_OVER), 0, 0, t->over_quota);
    metric_set(meter(s->meters, METER_STORAGE_USED), 0, 0, t->used_bytes);
    metric_set(meter(s->meters, METER_STORAGE_QUOTA), 0, 0, s->cfg->storage.quota_bytes);
}

static int look_after(const struct retention_round *r, const struct id *user_id, struct totals *t,
                      struct err *e)
{
    struct store_usage used;
    bool idle;

    if (usage_scan(r->s, user_id, &used, e))
        return -1;
    add_totals(t, &used);
    if (end_idle(r, user_id, &used, &idle, e))
        return -1;
    return idle ? 0 : clean_chats(r, user_id, e);
}

static void sweep(const struct services *s)
{
    char path[4096];
    struct err e;

    if (chats_quarantine(s, path, sizeof path, &e) || chatdir_sweep(path, &e))
        log_error(s->log, "quarantine_failed", &e);
}

static int each_user(struct services *s, void (*each)(void *ctx, const struct id *user_id),
                     void *ctx, struct err *e)
{
    struct users users = {.n = 0};

    do {
        if (store_read(s->store, list_users, &users, e))
            return -1;
        for (size_t i = 0; i < users.n && !s->stopping; i++)
            each(ctx, &users.ids[i]);
    } while (users.n == AT_ONCE && !s->stopping);
    return 0;
}

struct pass {
    const struct retention_round *r;
    struct totals totals;
};

static void pass_user(void *ctx, const struct id *user_id)
{
    struct pass *p = ctx;
    struct err e;

    if (look_after(p->r, user_id, &p->totals, &e) && !is_spared(&e))
        retention_failed(p->r, RETENTION_WORKSPACE, user_id, &e);
}

int retention_round(const struct retention_round *r, struct err *e)
{
    struct pass p = {.r = r};
    struct err why;

    /* By the clock the sweep does it, so that no round waits for a store of objects that is away. Before
     * the workspaces, as what goes with those is no artifact that was due. */
    if (r->item && retention_artifacts(r, &why))
        retention_failed(r, RETENTION_ARTIFACT, &(struct id){0}, &why);
    if (each_user(r->s, pass_user, &p, e))
        return -1;
    show_totals(r->s, &p.totals);
    if (!r->dry_run)
        sweep(r->s);
    return 0;
}

/* --- by the clock ------------------------------------------------------------------------------ */

struct round {
    struct job job;
    void (*run)(struct services *s);
    struct retention *of;
    bool *under_way;
};

struct retention { /* loop */
    struct services *s;
    struct server_timer *timer;
    bool round, count; /* under way */
};

static void submit(struct retention *r, void (*run)(struct services *s), bool *under_way);

static void run_round(struct services *s)
{
    const struct retention_round r = {.s = s};
    struct err e;

    if (retention_round(&r, &e))
        log_error(s->log, "retention_failed", &e);
}

static void count_user(struct services *s, const struct id *user_id, struct totals *t)
{
    struct store_usage used;
    struct err e;

    if (!usage_scan(s, user_id, &used, &e))
        add_totals(t, &used);
    else if (e.code != ERR_WORKSPACE_NOT_FOUND)
        log_error(s->log, "usage_uncounted", &e, LF_ID("user_id", user_id));
}

struct counting {
    struct services *s;
    struct totals totals;
};

static void count_each(void *ctx, const struct id *user_id)
{
    struct counting *c = ctx;

    count_user(c->s, user_id, &c->totals);
}

static void run_count_all(struct services *s)
{
    struct counting c = {.s = s};
    struct err e;

    if (each_user(s, count_each, &c, &e))
        log_error(s->log, "usage_uncounted", &e);
    else
        show_totals(s, &c.totals);
}

struct active {
    struct id *users;
    size_t n;
};

static int add_active(void *ctx, const struct sandbox *s, struct err *e)
{
    struct active *a = ctx;

    for (size_t i = 0; i < a->n; i++)
        if (id_equal(&a->users[i], &s->user_id))
            return 0;
    struct id *more = reallocarray(a->users, a->n + 1, sizeof *more);
    if (!more)
        return err_set(e, ERR_INTERNAL, "no memory for the users of sandboxes");
    a->users = more;
    a->users[a->n++] = s->user_id;
    return 0;
}

static int list_active(struct store_tx *tx, void *arg, struct err *e)
{
    return store_sandbox_each_active(tx, add_active, arg, e);
}

static void run_count_active(struct services *s)
{
    struct active a = {0};
    struct totals unused = {0};
    struct err e;

    if (store_read(s->store, list_active, &a, &e))
        log_error(s->log, "usage_uncounted", &e);
    for (size_t i = 0; i < a.n && !s->stopping; i++)
        count_user(s, &a.users[i], &unused);
    free(a.users);
}

static void job_run(struct job *job)
{
    struct round *round = (struct round *)((char *)job - offsetof(struct round, job));

    round->run(round->of->s);
}

static void job_done(struct job *job)
{
    struct round *round = (struct round *)((char *)job - offsetof(struct round, job));

    *round->under_way = false;
    free(round);
}

/* One that has not ended, a full lane or no memory: the next time comes. */
static void submit(struct retention *r, void (*run)(struct services *s), bool *under_way)
{
    struct round *round =
        *under_way || !r->s->slow || r->s->draining ? NULL : calloc(1, sizeof *round);
    struct err e;

    if (!round)
        return;
    *round = (struct round){
        .job = {.run = job_run, .done = job_done}, .run = run, .of = r, .under_way = under_way};
    *under_way = !lane_submit_keyed(r->s->slow, &retention_key, &round->job, &e);
    if (!*under_way)
        free(round);
}

static void due(void *ctx)
{
    struct retention *r = ctx;

    submit(r, run_round, &r->round);
    server_timer_arm(r->timer, r->s->cfg->retention.interval_seconds * 1000);
}

void retention_start(struct retention *r)
{
    submit(r, run_count_all, &r->count);
    server_timer_arm(r->timer, r->s->cfg->retention.interval_seconds * 1000);
}

void retention_count_active(struct retention *r)
{
    submit(r, run_count_active, &r->count);
}

struct retention *retention_new(struct services *s)
{
    struct retention *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->s = s;
    r->timer = server_timer_new(s->server, due, r);
    if (r->timer)
        return r;
    free(r);
    return NULL;
}

void retention_free(struct retention *r)
{
    if (!r)
        return;
    server_timer_free(r->timer);
    free(r);
}
