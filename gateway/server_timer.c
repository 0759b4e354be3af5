/* Timers and descriptors on the server's loop. libuv frees nothing itself: a handle's memory goes
 * when the loop says that it is closed. */
#include <stdlib.h>

#include "server_state.h"

struct server_timer {
    uv_timer_t uv;
    struct server *server;
    uint64_t fired_in; /* a turn of the loop */
    void (*fire)(void *ctx);
    void *ctx;
};

struct server_watch {
    uv_poll_t uv;
    void (*fn)(void *ctx);
    void *ctx;
};

static void timer_closed(uv_handle_t *h)
{
    free((struct server_timer *)h->data);
}

/* libuv goes on while timers are due: one that is armed anew without a delay each time would have it do so
 * for ever. */
static void timer_fired(uv_timer_t *uv)
{
    struct server_timer *t = uv->data;
    if (t->fired_in == t->server->turns) {
        (void)uv_timer_start(uv, timer_fired, 1, 0);
        return;
    }
    t->fired_in = t->server->turns;
    t->fire(t->ctx);
}

struct server_timer *server_timer_new(struct server *s, void (*fire)(void *ctx), void *ctx)
{
    struct server_timer *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return NULL;
    }
    t->server = s;
    t->fired_in = UINT64_MAX;
    t->fire = fire;
    t->ctx = ctx;
    (void)uv_timer_init(&s->loop, &t->uv);
    t->uv.data = t;
    return t;
}

void server_timer_arm(struct server_timer *t, int64_t delay_ms)
{
    /* The loop's idea of now is from before the work of this turn. */
    uv_update_time(t->uv.loop);
    (void)uv_timer_start(&t->uv, timer_fired, delay_ms < 0 ? 0 : (uint64_t)delay_ms, 0);
}

void server_timer_stop(struct server_timer *t)
{
    (void)uv_timer_stop(&t->uv);
}

void server_timer_free(struct server_timer *t)
{
    if (t != NULL) {
        uv_close((uv_handle_t *)&t->uv, timer_closed);
    }
}

static void watch_closed(uv_handle_t *h)
{
    free((struct server_watch *)h->data);
}

static void watch_ready(uv_poll_t *uv, int status, int events)
{
    (void)status;
    (void)events;
    const struct server_watch *w = uv->data;
    (void)uv_poll_stop(uv);
    w->fn(w->ctx);
}

struct server_watch *server_watch_new(struct server *s, int fd, void (*fn)(void *ctx), void *ctx)
{
    struct server_watch *w = calloc(1, sizeof *w);
    if (w == NULL || uv_poll_init(&s->loop, &w->uv, fd) != 0) {
        free(w);
        return NULL;
    }
    w->fn = fn;
    w->ctx = ctx;
    w->uv.data = w;
    (void)uv_poll_start(&w->uv, UV_READABLE, watch_ready);
    return w;
}

void server_watch_free(struct server_watch *w)
{
    if (w != NULL) {
        uv_close((uv_handle_t *)&w->uv, watch_closed);
    }
}
