/*
 * A start that waits for its image. The thread that waits has stepped aside (lanes.h), so that neither
 * other starts nor ends wait for it; what is known of the image's way is kept here for those who ask
 * for the session, and each layer is an event.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "session_pull.h"
#include "sessions_state.h"

struct session_pull {
    struct session_pulls *pulls;
    struct services *s;
    const struct sandbox *sandbox;
    struct id session_id;
    struct pull_progress progress; /* lock; no image: it does not wait for one now */
    atomic_bool cancel;
    char reason[REASON_MAX]; /* lock; of who has stopped it, "": nobody */
    UT_hash_handle hh;
};

struct session_pulls {
    pthread_mutex_t lock;
    struct session_pull *sessions; /* lock */
    bool closed;                   /* lock */
};

struct session_pulls *session_pulls_new(void)
{
    struct session_pulls *ps = calloc(1, sizeof *ps);

    if (ps)
        pthread_mutex_init(&ps->lock, NULL);
    return ps;
}

void session_pulls_free(struct session_pulls *ps)
{
    if (!ps)
        return;
    pthread_mutex_destroy(&ps->lock);
    free(ps);
}

/* With the lock held. */
static struct session_pull *find(struct session_pulls *ps, const struct id *session_id)
{
    struct session_pull *p;

    HASH_FIND(hh, ps->sessions, session_id, sizeof *session_id, p);
    return p;
}

bool session_pulls_progress(struct session_pulls *ps, const struct id *session_id,
                            struct pull_progress *ret)
{
    struct session_pull *p;
    bool waits;

    pthread_mutex_lock(&ps->lock);
    p = find(ps, session_id);
    waits = p && p->progress.image;
    if (waits)
        *ret = p->progress;
    pthread_mutex_unlock(&ps->lock);
    return waits;
}

/* With the lock held. */
static void end(struct session_pull *p, const char *reason)
{
    if (!p->reason[0])
        snprintf(p->reason, sizeof p->reason, "%s", reason);
    atomic_store(&p->cancel, true);
}

void session_pulls_end(struct session_pulls *ps, const struct id *session_id, const char *reason)
{
    struct session_pull *p;

    pthread_mutex_lock(&ps->lock);
    p = find(ps, session_id);
    if (p)
        end(p, reason);
    pthread_mutex_unlock(&ps->lock);
}

void session_pulls_close(struct session_pulls *ps)
{
    struct session_pull *p, *next;

    pthread_mutex_lock(&ps->lock);
    ps->closed = true;
    HASH_ITER (hh, ps->sessions, p, next)
        atomic_store(&p->cancel, true);
    pthread_mutex_unlock(&ps->lock);
}

/* --- while it comes -------------------------------------------------------------------------- */

static void progress_put(struct session_pull *p, const struct engine_pull *now)
{
    pthread_mutex_lock(&p->pulls->lock);
    p->progress.layers = now->layers;
    p->progress.layers_done = now->layers_done;
    p->progress.bytes = now->bytes;
    p->progress.bytes_done = now->bytes_done;
    pthread_mutex_unlock(&p->pulls->lock);
}

static void on_progress(void *ctx, const struct engine_pull *now)
{
    progress_put(ctx, now);
}

struct layer_row {
    const struct sandbox *sandbox;
    struct pull_progress progress;
    const char *layer;
};

static int layer_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct layer_row *row = arg;

    return session_pull_event(tx, row->sandbox, &row->progress, row->layer, e);
}

static void on_layer(void *ctx, const struct engine_pull *now, const char *layer)
{
    struct session_pull *p = ctx;
    struct layer_row row = {.sandbox = p->sandbox, .layer = layer};
    struct err e;

    progress_put(p, now);
    row.progress = p->progress; /* no other thread writes it */
    if (store_write(p->s->store, layer_row, &row, &e))
        log_error(p->s->log, "sandbox_pull_untold", &e,
                  LF_ID("session_id", &p->sandbox->session_id));
}

/* --- the wait -------------------------------------------------------------------------------- */

struct session_pull *session_pull_expect(struct session_pulls *ps, const struct sandbox *sandbox)
{
    struct session_pull *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->pulls = ps;
    p->sandbox = sandbox;
    p->session_id = sandbox->session_id;
    pthread_mutex_lock(&ps->lock);
    HASH_ADD(hh, ps->sessions, session_id, sizeof p->session_id, p);
    pthread_mutex_unlock(&ps->lock);
    return p;
}

void session_pull_forget(struct session_pull *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->pulls->lock);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
    HASH_DEL(p->pulls->sessions, p);
    pthread_mutex_unlock(&p->pulls->lock);
    free(p);
}

static int enter(struct session_pull *p, const char *image, struct err *e)
{
    struct session_pulls *ps = p->pulls;
    bool may;

    pthread_mutex_lock(&ps->lock);
    may = !ps->closed && !atomic_load(&p->cancel);
    p->progress = (struct pull_progress){.image = (char *)(may ? image : NULL)};
    pthread_mutex_unlock(&ps->lock);
    return may ? 0 : err_set(e, ERR_BUSY, "the gateway is stopping");
}

static void leave(struct session_pull *p)
{
    pthread_mutex_lock(&p->pulls->lock);
    p->progress.image = NULL;
    pthread_mutex_unlock(&p->pulls->lock);
}

static int pull(struct session_pull *p, const char *image, struct err *e)
{
    struct engine_pull_wait wait = {.ctx = p,
                                    .progress = on_progress,
                                    .layer = on_layer,
                                    .cancel = &p->cancel,
                                    .timeout_ms = p->s->cfg->docker.pull_timeout_seconds * 1000};
    int rc;

    if (lane_aside_begin(p->s->runtime, e))
        return err_set(e, ERR_BUSY, "too many starts wait for their images already");
    rc = sandbox_host_pull(&p->s->host, image, &wait, e);
    lane_aside_end(p->s->runtime);
    return rc;
}

static void told(struct session_pull *p, const char *image, int64_t from_us, int rc,
                 const struct err *e)
{
    int64_t ms = (clock_boot_us(p->s->clock) - from_us) / 1000;

    log_event(p->s->log, rc ? LOG_WARNING : LOG_INFO, rc ? "image_pull_failed" : "image_pulled",
              LF_ID("session_id", &p->sandbox->session_id), LF_STR("image", image),
              LF_INT("layers", p->progress.layers_done), LF_INT("bytes", p->progress.bytes_done),
              LF_INT("ms", ms), LF_STR("detail", rc ? e->msg : NULL));
}

int session_pull(struct services *s, struct session_pull *p, const char *image,
                 char ret_stopped[static REASON_MAX], struct err *e)
{
    int64_t from_us = clock_boot_us(s->clock);
    int rc = -1;

    p->s = s;
    if (!enter(p, image, e)) {
        rc = pull(p, image, e);
        leave(p);
    }
    pthread_mutex_lock(&p->pulls->lock);
    snprintf(ret_stopped, REASON_MAX, "%s", rc ? p->reason : "");
    pthread_mutex_unlock(&p->pulls->lock);
    if (ret_stopped[0])
        err_set(e, ERR_SANDBOX_START_FAILED, "the session was stopped before image %.64s had come",
                image);
    else if (rc && atomic_load(&p->cancel))
        err_set(e, ERR_BUSY, "the gateway stopped before image %.64s had come", image);
    told(p, image, from_us, rc, e);
    return rc;
}
