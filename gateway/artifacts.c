#include "artifacts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "leasehold/json.h"

#define EVENT_CAP 4096

struct artifacts {
    struct services *s;
    struct objects *store;
    struct orphans *orphans;
    struct objects_watch *watch;
    atomic_bool draining;
    char maker[OBJECT_MAKER_TEXT]; /* constant */
    struct server_timer *timer;    /* loop */
    struct job sweep;              /* loop, or the lane's */
    size_t errands;                /* loop */
    pthread_mutex_t lock;          /* guards the uploads */
    struct artifact_mark *uploads;
};

/* --- life ------------------------------------------------------------------------------------ */

static void sweep_run(struct job *job)
{
    struct artifacts *x = (struct artifacts *)((char *)job - offsetof(struct artifacts, sweep));

    artifact_sweep(x, x->s);
}

static void sweep_arm(struct artifacts *x)
{
    server_timer_arm(x->timer, x->s->cfg->retention.interval_seconds * 1000);
}

static void sweep_done(struct job *job)
{
    struct artifacts *x = (struct artifacts *)((char *)job - offsetof(struct artifacts, sweep));

    if (!artifacts_draining(x))
        sweep_arm(x);
}

static void sweep_due(void *ctx)
{
    struct artifacts *x = ctx;
    struct err e;

    if (artifacts_draining(x))
        return;
    x->sweep = (struct job){.run = sweep_run, .done = sweep_done};
    if (lane_submit(x->s->object, &x->sweep, &e))
        sweep_arm(x);
}

/* Takes the store, also when it fails. */
static struct artifacts *artifacts_new(struct services *s, struct objects *store)
{
    struct artifacts *x = calloc(1, sizeof *x);

    if (!x) {
        store->v->free(store);
        return NULL;
    }
    x->s = s;
    x->store = store;
    pthread_mutex_init(&x->lock, NULL);
    x->timer = server_timer_new(s->server, sweep_due, x);
    x->orphans = orphans_new();
    x->watch = objects_watch_new(s, store);
    if (!x->timer || !x->orphans || !x->watch) {
        artifacts_free(x);
        return NULL;
    }
    return x;
}

void artifacts_free(struct artifacts *x)
{
    if (!x)
        return;
    server_timer_free(x->timer);
    orphans_free(x->orphans);
    objects_watch_free(x->watch);
    x->store->v->free(x->store);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

static int installation_row(struct store_tx *tx, void *arg, struct err *e)
{
    return store_installation_id(tx, arg, e);
}

/* By app.instance, too: a copy of the metadata that runs under another name is not their maker. */
static int make_maker(struct artifacts *x, struct err *e)
{
    char id[INSTALLATION_TEXT], sum[65];
    const char *instance = x->s->cfg->app.instance;
    struct objects_check *check = objects_check_new();
    int rc = !check ? err_set(e, ERR_INTERNAL, "no memory for artifacts")
             : store_read(x->s->store, installation_row, id, e) ||
                     objects_check_add(check, instance, strlen(instance) + 1, e) ||
                     objects_check_add(check, id, strlen(id), e)
                 ? -1
                 : 0;

    if (!rc) {
        objects_check_sum(check, sum);
        snprintf(x->maker, sizeof x->maker, "%.*s", OBJECT_MAKER_TEXT - 1, sum);
    }
    objects_check_free(check);
    return rc;
}

const char *artifacts_maker(const struct artifacts *x)
{
    return x->maker;
}

int artifacts_open(struct services *s,
                   int (*objects_new)(const struct config *cfg, struct log *log,
                                      struct objects **ret, struct err *e),
                   struct err *e)
{
    struct objects *store;

    if (objects_new(s->cfg, s->log, &store, e))
        return -1;
    s->artifacts = artifacts_new(s, store);
    return s->artifacts ? make_maker(s->artifacts, e)
                        : err_set(e, ERR_INTERNAL, "no memory for artifacts");
}

size_t artifacts_errand_count(struct artifacts *x, int change)
{
    x->errands += (size_t)change;
    return x->errands;
}

struct objects *artifacts_store(const struct artifacts *x)
{
    return x->store;
}

bool artifacts_links_hold(const struct artifacts *x)
{
    return strcmp(x->store->v->name, "s3") == 0;
}

bool artifacts_ready(const struct artifacts *x, char *ret, size_t size)
{
    return objects_watch_ok(x->watch, ret, size);
}

struct orphans *artifacts_orphans(const struct artifacts *x)
{
    return x->orphans;
}

void artifacts_drain(struct artifacts *x)
{
    if (x)
        atomic_store(&x->draining, true);
}

void artifacts_stop(struct artifacts *x)
{
    artifacts_drain(x);
    if (x && x->store->v->stop)
        x->store->v->stop(x->store);
}

bool artifacts_draining(const struct artifacts *x)
{
    return atomic_load(&x->draining);
}

void artifacts_start(struct artifacts *x)
{
    server_timer_arm(x->timer, 0);
    objects_watch_start(x->watch);
}

/* --- uploads of this process ----------------------------------------------------------------- */

void artifacts_enter(struct artifacts *x, struct artifact_mark *m, const struct id *id)
{
    m->id = *id;
    pthread_mutex_lock(&x->lock);
    DL_APPEND(x->uploads, m);
    pthread_mutex_unlock(&x->lock);
}

void artifacts_leave(struct artifacts *x, struct artifact_mark *m)
{
    pthread_mutex_lock(&x->lock);
    DL_DELETE(x->uploads, m);
    pthread_mutex_unlock(&x->lock);
}

bool artifacts_is_entered(struct artifacts *x, const struct id *id)
{
    const struct artifact_mark *m;
    bool found = false;

    pthread_mutex_lock(&x->lock);
    DL_FOREACH (x->uploads, m)
        found = found || id_equal(&m->id, id);
    pthread_mutex_unlock(&x->lock);
    return found;
}

/* --- told ------------------------------------------------------------------------------------ */

static void put_text(struct buf *out, const char *name, const char *text)
{
    buf_printf(out, ",\"%s\":", name);
    if (*text)
        json_add_string(out, text, strlen(text));
    else
        buf_add_str(out, "null");
}

static void put_event(const struct artifact *a, struct buf *out)
{
    buf_printf(out, "{\"artifact_id\":\"%s\",\"chat_id\":\"%s\",\"user_id\":\"%s\"",
               ID_STR(&a->artifact_id), ID_STR(&a->chat_id), ID_STR(&a->user_id));
    put_text(out, "name", a->name);
    put_text(out, "state", artifact_state_names[a->state]);
    buf_printf(out, ",\"size_bytes\":%lld", (long long)a->size_bytes);
    put_text(out, "sha256", a->sha256);
    put_text(out, "channel", a->delivery.channel);
    put_text(out, "external_ref", a->delivery.external_ref);
    buf_add_char(out, '}');
}

static int append_event(struct store_tx *tx, const struct artifact *a, const char *name,
                        struct err *e)
{
    struct buf data;
    int rc;

    buf_init(&data, EVENT_CAP);
    put_event(a, &data);
    rc = buf_ok(&data) ? store_event_append(tx,
                                            &(struct store_event){.name = name,
                                                                  .user_id = a->user_id,
                                                                  .chat_id = a->chat_id,
                                                                  .data = data.data},
                                            e)
                       : err_set(e, ERR_INTERNAL, "no memory for an event");
    buf_done(&data);
    return rc;
}

int artifact_tell(struct store_tx *tx, const struct artifact_deed *d, const struct artifact *a,
                  struct err *e)
{
    const struct audit_deed deed = {.caller = d->caller,
                                    .actor = d->actor,
                                    .action = d->action,
                                    .kind = "artifact",
                                    .id = &a->artifact_id,
                                    .chat_id = &a->chat_id,
                                    .chat_name = a->name};

    return (d->event && append_event(tx, a, d->event, e)) || store_audit_deed(tx, &deed, e) ? -1
                                                                                            : 0;
}
