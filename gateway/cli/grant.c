#include "grant.h"

#include <string.h>

#include "leasehold/clock.h"

#include "secret_file.h"

#define ARENA_CAP (1024UL * 1024)

void grant_init(struct grant *g)
{
    *g = (struct grant){0};
}

void grant_done(struct grant *g)
{
    if (g->view != NULL) {
        explicit_bzero(g->view->token, strlen(g->view->token));
    }
    arena_free(g->arena);
    *g = (struct grant){0};
}

static bool is_id(const char *s)
{
    struct id id;
    return s != NULL && id_parse(s, strlen(s), &id);
}

static bool complete(const struct grant_view *v)
{
    return v != NULL && v->lease != NULL && is_id(v->lease->lease_id) &&
           is_id(v->lease->session_id) && v->lease->issued_at != 0 && v->lease->expires_at != 0 &&
           v->renew_after != 0 && v->token != NULL && secret_valid(v->token) &&
           v->endpoint != NULL && v->endpoint->url != NULL;
}

static const struct grant_view *decode(const struct api_answer *a, bool opened, struct arena *arena,
                                       struct err *e)
{
    const struct view *view = opened ? &view_opened : &view_grant;
    void *obj = arena_alloc(arena, view->size);
    if (obj == NULL) {
        err_set(e, ERR_INTERNAL, "no memory");
        return NULL;
    }
    if (api_answer_read(a, view->fields, obj, arena, e) < 0) {
        return NULL;
    }
    const struct grant_view *v = opened ? ((struct opened_view *)obj)->grant : obj;
    if (!complete(v)) {
        err_set(e, ERR_INTERNAL, "the gateway's answer lacks a part of the grant");
        return NULL;
    }
    return v;
}

/* The gateway's time when it issued the lease, which it tells in whole seconds: our own time if it
 * fits, else the end of that second, so that a renewal is early rather than late. */
static int64_t issue_time_ms(const struct lease_view *lease)
{
    int64_t ours = clock_wall_ms(&clock_system);
    int64_t last = lease->issued_at + 999;
    return ours >= lease->issued_at && ours <= last ? ours : last;
}

int grant_read(struct grant *g, const struct api_answer *a, bool opened, bool renewed,
               int64_t now_ms, struct err *e)
{
    struct arena *arena = arena_new(ARENA_CAP);
    if (arena == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    const struct grant_view *v = decode(a, opened, arena, e);
    if (v == NULL) {
        arena_free(arena);
        return -1;
    }
    int64_t offset_ms = renewed ? g->offset_ms : issue_time_ms(v->lease) - now_ms;
    grant_done(g);
    *g = (struct grant){.arena = arena, .view = v, .offset_ms = offset_ms};
    return 0;
}

int64_t grant_renew_at_ms(const struct grant *g)
{
    return g->view->renew_after - g->offset_ms;
}

int64_t grant_expires_at_ms(const struct grant *g)
{
    return g->view->lease->expires_at - g->offset_ms;
}
