/*
 * The thread that reads the engine's events. It only tells: a stream loses events (its ring holds
 * 256, and slow readers are skipped), and with live-restore a death during an outage is never told.
 * So every connection begins with "changed", upon which all is listed and compared.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "docker.h"
#include "leasehold/clock.h"

#define LINE_MAX_BYTES (256u * 1024)
#define AGAIN_MS       200
#define AGAIN_MAX_MS   2000
#define OVERLAP_S      5 /* the engine answers a moment before it subscribes us */

struct reading {
    struct engine_docker *d;
    struct buf line;
    int64_t last_s; /* of the newest event */
    bool connected;
};

struct actor {
    struct docker_labels attributes;
};

struct event {
    char *type, *action;
    struct actor actor;
    int64_t time_s;
};

static const struct field attribute_fields[] = {
    DOCKER_STR(LABEL_INSTANCE, struct docker_labels, instance),
    DOCKER_STR(LABEL_RUN_DIR, struct docker_labels, run_dir),
    DOCKER_STR(LABEL_SESSION, struct docker_labels, session),
    DOCKER_STR(LABEL_KIND, struct docker_labels, kind),
    {0},
};

static const struct field actor_fields[] = {
    DOCKER_OBJECT("Attributes", struct actor, attributes, attribute_fields),
    {0},
};

static const struct field event_fields[] = {
    DOCKER_STR("Type", struct event, type),
    DOCKER_STR("Action", struct event, action),
    DOCKER_OBJECT("Actor", struct event, actor, actor_fields),
    DOCKER_INT("time", struct event, time_s),
    {0},
};

static void event_take(struct reading *r, const struct event *ev)
{
    static const char *const ends[] = {"die", "died", "destroy", "remove", "oom"};
    struct id session;
    if (ev->time_s > r->last_s)
        r->last_s = ev->time_s;
    if (strcmp(ev->type, "container") != 0 ||
        !docker_is_ours(r->d, &ev->actor.attributes, &session))
        return;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        if (strcmp(ev->action, ends[i]) == 0) {
            r->d->watch.ended(r->d->watch.ctx, &session);
            return;
        }
    }
}

static void line_take(struct reading *r)
{
    struct arena *arena = arena_new(2 * LINE_MAX_BYTES);
    struct event ev = {0};
    struct err ignored;
    if (arena != NULL && r->line.len > 0 && buf_ok(&r->line) &&
        json_decode_foreign(r->line.data, r->line.len, event_fields, &ev, arena, &ignored) == 0)
        event_take(r, &ev);
    arena_free(arena);
    buf_reset(&r->line);
}

static enum http_client_body events_head(void *ctx, long status)
{
    struct reading *r = ctx;
    struct engine_docker *d = r->d;
    if (status != 200)
        return HTTP_CLIENT_COLLECT;
    r->connected = true;
    pthread_mutex_lock(&d->lock);
    d->reachable = true;
    pthread_mutex_unlock(&d->lock);
    d->watch.changed(d->watch.ctx);
    return HTTP_CLIENT_STREAM;
}

static bool events_data(void *ctx, const char *data, size_t len)
{
    struct reading *r = ctx;
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n')
            line_take(r);
        else
            buf_add_char(&r->line, data[i]);
    }
    return true;
}

/* Podman matches no filter by action, so they are chosen here. */
static void path_write(const struct reading *r, struct buf *path)
{
    const char *instance = r->d->cfg->app.instance;
    char label[256];
    struct buf filter;
    buf_init(&filter, 4096);
    snprintf(label, sizeof(label), LABEL_INSTANCE "=%s", instance);
    buf_add_str(&filter, "{\"type\":[\"container\"],\"label\":[");
    json_add_string(&filter, label, strlen(label));
    buf_add_str(&filter, "]}");
    buf_printf(path, "/events?since=%lld&filters=", (long long)(r->last_s - OVERLAP_S));
    docker_url_add(path, buf_ok(&filter) ? filter.data : "", false);
    buf_done(&filter);
}

/* Until the stream ends; always an error. */
static int events_read(struct reading *r, struct err *e)
{
    struct engine_docker *d = r->d;
    struct http_client_sink sink = {.ctx = r, .head = events_head, .data = events_data};
    struct docker_answer answer;
    struct buf path;
    buf_init(&path, 8192);
    docker_answer_init(&answer);
    path_write(r, &path);
    struct docker_call c = {.method = "GET",
                            .path = path.data,
                            .sink = &sink,
                            .cancel = &d->stopping,
                            .timeout_ms = HTTP_CLIENT_NO_DEADLINE};
    int rc = docker_api_call_on(d->api, d->events, &c, &answer, e);
    if (rc == 0 && answer.status != 200)
        rc = docker_answer_refused(&answer, ERR_ENGINE_UNAVAILABLE, "its events", e);
    else if (rc == 0)
        rc = err_set(e, ERR_ENGINE_UNAVAILABLE, "the engine ended the stream of its events");
    buf_reset(&r->line);
    docker_answer_done(&answer);
    buf_done(&path);
    return rc;
}

/* True: go on. */
static bool wait_again(struct engine_docker *d, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&d->lock);
    int rc = 0;
    while (rc == 0 && !atomic_load(&d->stopping))
        rc = pthread_cond_timedwait(&d->stop_told, &d->lock, &until);
    pthread_mutex_unlock(&d->lock);
    return !atomic_load(&d->stopping);
}

static void tell_lost(struct engine_docker *d, const struct err *why)
{
    pthread_mutex_lock(&d->lock);
    d->reachable = false;
    snprintf(d->problem, sizeof(d->problem), "%s", why->msg);
    pthread_mutex_unlock(&d->lock);
    d->watch.lost(d->watch.ctx, why);
}

static void *watch_run(void *arg)
{
    struct engine_docker *d = arg;
    struct reading r = {.d = d, .last_s = clock_wall_ms(&clock_system) / 1000};
    int64_t again_ms = AGAIN_MS;
    bool lost = false;
    struct err e;
    buf_init(&r.line, LINE_MAX_BYTES);
    do {
        r.connected = false;
        if (docker_info_refresh(d, &e) == 0)
            (void)!events_read(&r, &e);
        if (r.connected)
            again_ms = AGAIN_MS;
        lost = lost && !r.connected;
        if (!lost && !atomic_load(&d->stopping))
            tell_lost(d, &e);
        lost = true;
        again_ms = again_ms * 2 < AGAIN_MAX_MS ? again_ms * 2 : AGAIN_MAX_MS;
    } while (wait_again(d, again_ms / 2));
    buf_done(&r.line);
    return NULL;
}

int docker_watch_start(struct engine_docker *d, const struct engine_watch *w, struct err *e)
{
    d->watch = *w;
    d->events = docker_api_client_take(d->api, e);
    if (d->events == NULL)
        return -1;
    int rc = pthread_create(&d->thread, NULL, watch_run, d);
    if (rc != 0)
        return err_sys(e, ERR_INTERNAL, rc, "no thread for the engine's events");
    d->watching = true;
    return 0;
}

void docker_watch_stop(struct engine_docker *d)
{
    if (d->watching) {
        pthread_mutex_lock(&d->lock);
        atomic_store(&d->stopping, true);
        pthread_cond_signal(&d->stop_told);
        pthread_mutex_unlock(&d->lock);
        http_client_wake(d->events);
        pthread_join(d->thread, NULL);
        d->watching = false;
    }
    http_client_free(d->events);
    d->events = NULL;
}
