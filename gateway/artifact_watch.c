/* Is the store of objects there? Asked every now and then, so that whoever wants to know need not wait. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "artifacts.h"
#include "meters.h"

#define ASK_MS       30000
#define ASK_AGAIN_MS 5000 /* while it is away */

struct objects_watch {
    struct services *s;
    struct objects *store;
    struct server_timer *timer; /* loop */
    struct job job;             /* loop, or the lane's */
    pthread_mutex_t lock;
    bool known, ok;                            /* lock */
    char detail[sizeof((struct err *)0)->msg]; /* lock; of why not */
};

static void keep(struct objects_watch *w, bool ok, const char *detail)
{
    pthread_mutex_lock(&w->lock);
    w->known = true;
    w->ok = ok;
    snprintf(w->detail, sizeof w->detail, "%s", detail);
    pthread_mutex_unlock(&w->lock);
}

static void ask(struct objects_watch *w)
{
    struct err e = {0};
    bool ok = !w->store->v->check(w->store, &e), was_ok = w->ok, was_known = w->known;

    metric_set(meter(w->s->meters, METER_OBJECT_STORE_UP), 0, 0, ok);
    keep(w, ok, ok ? "" : e.code == ERR_INTERNAL ? "the log says why" : e.msg);
    if (!ok && (was_ok || !was_known))
        log_error(w->s->log, "object_store_away", &e);
    if (ok && !was_ok && was_known)
        log_event(w->s->log, LOG_INFO, "object_store_back");
}

static void ask_run(struct job *job)
{
    ask((struct objects_watch *)((char *)job - offsetof(struct objects_watch, job)));
}

static void ask_done(struct job *job)
{
    struct objects_watch *w =
        (struct objects_watch *)((char *)job - offsetof(struct objects_watch, job));

    if (!artifacts_draining(w->s->artifacts))
        server_timer_arm(w->timer, w->ok ? ASK_MS : ASK_AGAIN_MS);
}

static void ask_due(void *ctx)
{
    struct objects_watch *w = ctx;
    struct err e;

    if (artifacts_draining(w->s->artifacts))
        return;
    w->job = (struct job){.run = ask_run, .done = ask_done};
    if (lane_submit(w->s->object, &w->job, &e))
        server_timer_arm(w->timer, ASK_AGAIN_MS);
}

struct objects_watch *objects_watch_new(struct services *s, struct objects *store)
{
    struct objects_watch *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->s = s;
    w->store = store;
    pthread_mutex_init(&w->lock, NULL);
    w->timer = server_timer_new(s->server, ask_due, w);
    if (!w->timer) {
        objects_watch_free(w);
        return NULL;
    }
    /* What is on our own disk answers at once; for another we would have to wait. */
    if (!store->v->shared)
        ask(w);
    return w;
}

void objects_watch_free(struct objects_watch *w)
{
    if (!w)
        return;
    server_timer_free(w->timer);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void objects_watch_start(struct objects_watch *w)
{
    server_timer_arm(w->timer, w->known ? ASK_MS : 0);
}

bool objects_watch_ok(struct objects_watch *w, char *ret, size_t size)
{
    bool ok;

    pthread_mutex_lock(&w->lock);
    ok = w->ok;
    snprintf(ret, size, "%s%s%s", w->store->v->name, ok ? "" : ": ",
             w->known ? w->detail : "it has not answered yet");
    pthread_mutex_unlock(&w->lock);
    return ok;
}
