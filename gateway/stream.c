#include "stream.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "idempotency.h"
#include "route.h"
#include "services.h"

/* Who lets all of its bodies hang leaves room for the others: */
#define KEY_PART       4 /* of the places for one key … */
#define STRANGERS_PART 8 /* … and for all that have none, together */

struct streams {
    struct services *s;
    struct stream *first; /* all that have a place */
    struct stream *known; /* by connection */
    size_t n, max;
};

struct streams *streams_new(struct services *s, size_t max)
{
    struct streams *all = calloc(1, sizeof *all);

    if (all) {
        all->s = s;
        all->max = max;
    }
    return all;
}

void streams_free(struct streams *all)
{
    free(all);
}

/* --- places ---------------------------------------------------------------------------------- */

/* Those without a key count as one. */
static size_t held_by(const struct streams *all, const struct id *key_id)
{
    size_t n = 0;

    for (const struct stream *st = all->first; st; st = st->next)
        n += id_equal(&st->call->caller.key_id, key_id);
    return n;
}

static size_t share_of(const struct streams *all, const struct id *key_id)
{
    size_t share = all->max / (id_is_zero(key_id) ? STRANGERS_PART : KEY_PART);

    return share ? share : 1;
}

static int find_room(const struct streams *all, const struct id *key_id, struct err *e)
{
    size_t held;

    if (all->n >= all->max)
        return err_set(e, ERR_BUSY, "%zu bodies are on their way already", all->n);
    held = held_by(all, key_id);
    if (held >= share_of(all, key_id))
        return err_set(e, ERR_BUSY, "%zu bodies %s are on their way already", held,
                       id_is_zero(key_id) ? "by links" : "of this key");
    return 0;
}

int stream_enter(struct call *c, struct err *e)
{
    struct streams *all = c->s->streams;
    struct stream *st;

    if (!c->op->take && !c->op->give)
        return 0;
    if (find_room(all, &c->caller.key_id, e))
        return -1;
    st = call_alloc(c, sizeof *st);
    if (!st)
        return err_set(e, ERR_INTERNAL, "no memory for the request");
    st->all = all;
    st->call = c;
    st->conn = c->conn;
    st->takes_pipes = server_takes_pipes(c->s->server, c->conn);
    st->next = all->first;
    st->at = &all->first;
    if (st->next)
        st->next->at = &st->next;
    all->first = st;
    all->n++;
    c->stream = st;
    return 0;
}

void stream_leave(struct call *c)
{
    struct stream *st = c->stream;

    if (!st)
        return;
    stream_forget(st);
    *st->at = st->next;
    if (st->next)
        st->next->at = st->at;
    st->all->n--;
    c->stream = NULL;
}

void stream_know(struct stream *st)
{
    HASH_ADD(hh, st->all->known, conn, sizeof st->conn, st);
    st->known = true;
}

void stream_forget(struct stream *st)
{
    if (st->known)
        HASH_DEL(st->all->known, st);
    st->known = false;
}

void streams_drain(struct streams *all)
{
    struct stream *st, *next;

    for (st = all->first; st; st = next) {
        next = st->next; /* it may be gone with its last piece */
        if (st->known && st->call->streams && st->call->answer_len < 0)
            stream_out_drain(st);
    }
}

/* --- jobs ------------------------------------------------------------------------------------ */

struct stream *stream_of_job(struct job *job)
{
    return (struct stream *)((char *)job - offsetof(struct stream, job));
}

/* The lane has room for a job of every stream; without it, the call goes on here. */
void stream_submit(struct stream *st, void (*run)(struct job *), void (*done)(struct job *))
{
    struct err e;

    st->job = (struct job){.run = run, .done = done};
    st->busy = true;
    const struct services *s = st->all->s;
    struct lane *lane = st->call->op->lane == ON_OBJECT ? s->object : s->body;
    if (!lane_submit(lane, &st->job, &e))
        return;
    log_error(st->all->s->log, "body_lane", &e);
    st->call->rc = -1;
    st->call->e = e;
    done(&st->job);
}

void stream_ran(struct call *c)
{
    struct stream *st = c->stream;

    if (!st || c->rc || idempotency_replayed(c) || !(c->body_streams || c->streams))
        return;
    st->owes = true;
    if (!c->body_streams)
        stream_out_first(st);
}

bool stream_answers(const struct call *c)
{
    return c->stream && !c->rc && c->streams;
}

/* --- the server ------------------------------------------------------------------------------ */

static bool has_type(const struct http_request *r, const char *type)
{
    size_t n = strcspn(r->content_type, "; \t");

    return n == strlen(type) && !strncasecmp(r->content_type, type, n);
}

static bool query_has(const char *query, const char *name)
{
    size_t len = strlen(name);

    for (const char *p = query; *p; p += *p == '&') {
        size_t n = strcspn(p, "=&");
        if (n == len && !memcmp(p, name, n))
            return true;
        p += strcspn(p, "&");
    }
    return false;
}

bool streams_wanted(void *ctx, const struct http_request *r)
{
    const char *without;
    struct route route;
    struct err e;

    (void)ctx;
    if (route_find(ops_table, r->method, r->path, &route, &e) || !route.op->take)
        return false;
    without = route.op->takes_json_without;
    return !without || query_has(r->query, without) || !has_type(r, "application/json");
}

struct stream *stream_find(const struct services *s, uint64_t conn)
{
    struct stream *st = NULL;

    if (s->streams)
        HASH_FIND(hh, s->streams->known, &conn, sizeof conn, st);
    return st;
}

void streams_sent(void *ctx, uint64_t conn)
{
    struct stream *st = stream_find(ctx, conn);

    if (st)
        stream_out_sent(st);
}

void streams_gone(void *ctx, uint64_t conn)
{
    struct stream *st = stream_find(ctx, conn);

    if (!st)
        return;
    st->gone = true;
    if (st->call->streams)
        stream_out_gone(st);
    else
        stream_in_gone(st);
}

/* --- the end --------------------------------------------------------------------------------- */

void streams_stop(struct streams *all)
{
    struct stream *st, *next;

    for (st = all ? all->first : NULL; st; st = next) {
        bool answers = st->call->streams;

        next = st->next;
        if (st->owes && answers)
            stream_out_close(st);
        else if (st->owes)
            stream_in_undo(st);
        if (!st->known || st->busy)
            continue; /* it comes out of the inbox */
        if (answers)
            stream_out_stopped(st);
        else
            stream_in_stopped(st);
    }
}
