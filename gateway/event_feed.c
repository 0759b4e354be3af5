#include "event_feed_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "leasehold/json.h"

#define CLOSE_NO_MEMORY 1013
#define GAP_CAP         128
#define CLEANUP_ROWS    100 /* of a write: others wait behind it */

/* --- events ---------------------------------------------------------------------------------- */

/* There is room. */
static char *put(char *at, const char *s)
{
    size_t len = strlen(s);

    memcpy(at, s, len + 1);
    return at + len;
}

struct feed_event *feed_event_new(const struct store_event *ev)
{
    char at[TIME_TEXT], digits[INT_TEXT];
    size_t size = sizeof "{\"event\":\"\",\"seq\":,\"at\":\"\",\"data\":}" + strlen(ev->name) +
                  INT_TEXT + TIME_TEXT + strlen(ev->data);
    struct feed_event *fe = malloc(sizeof *fe + size);
    char *end;

    if (!fe)
        return NULL;
    *fe = (struct feed_event){.seq = ev->seq,
                              .user_id = ev->user_id,
                              .chat_id = ev->chat_id,
                              .session_id = ev->session_id};
    end = put(put(fe->text, "{\"event\":\""), ev->name);
    end = put(put(end, "\",\"seq\":"), int_format(ev->seq, digits));
    end = put(put(end, ",\"at\":\""), time_format(ev->at, at));
    end = put(put(put(end, "\",\"data\":"), ev->data), "}");
    fe->len = (size_t)(end - fe->text);
    return fe;
}

/* --- the ring -------------------------------------------------------------------------------- */

struct feed_lines {
    struct job job; /* from the writer to the loop */
    struct event_feed *f;
    int64_t next_seq, last_seq; /* not in the ring yet */
    const char *next;           /* the line of next_seq */
    size_t len;
    size_t refs; /* slots that hold a line of it, and the job until it is finished */
    char text[];
};

static void lines_unref(struct feed_lines *l)
{
    if (--l->refs == 0)
        free(l);
}

static struct feed_slot *slot(struct event_feed *f, int64_t seq)
{
    return &f->ring[(size_t)seq % FEED_RING];
}

static void slot_clear(struct feed_slot *s)
{
    if (s->lines)
        lines_unref(s->lines);
    free(s->ev);
    *s = (struct feed_slot){0};
}

static void ring_put(struct event_feed *f, int64_t seq, struct feed_slot what)
{
    struct feed_slot *at = slot(f, seq);

    slot_clear(at);
    *at = what;
    f->newest = seq;
    if (f->newest - f->oldest >= FEED_RING)
        f->oldest = f->newest - FEED_RING + 1;
}

/* An event that its readers never hear of would be a broken promise; the next life reads it from the
 * log. */
static void events_lost(struct services *s)
{
    log_event(s->log, LOG_ERROR, "changes_lost", LF_STR("detail", "no memory; restarting"));
    abort();
}

static int event_make(void *ctx, const struct store_event *ev, struct err *e)
{
    struct feed_event **ret = ctx;

    *ret = feed_event_new(ev);
    return *ret ? 0 : err_set(e, ERR_INTERNAL, "no memory for an event");
}

static const struct feed_event *ring_event(struct event_feed *f, int64_t seq)
{
    struct feed_slot *s = slot(f, seq);
    const struct store_event_batch line = {
        .first_seq = seq, .last_seq = seq, .text = s->line, .len = s->len};
    struct err e;

    if (s->ev)
        return s->ev;
    if (store_event_batch_each(&line, 0, event_make, &s->ev, &e) || !s->ev || s->ev->seq != seq)
        events_lost(f->s);
    lines_unref(s->lines);
    s->lines = NULL;
    return s->ev;
}

/* --- life ------------------------------------------------------------------------------------ */

static int tail_each(void *ctx, const struct store_event *ev, struct err *e)
{
    struct feed_event *fe = feed_event_new(ev);

    if (!fe)
        return err_set(e, ERR_INTERNAL, "no memory for the events");
    ring_put(ctx, fe->seq, (struct feed_slot){.ev = fe});
    return 0;
}

/* All that connected to an earlier life will come back at once: what they have missed stands here
 * already. */
static int tail_read(struct store_tx *tx, void *arg, struct err *e)
{
    struct event_feed *f = arg;
    struct store_event_range range;
    int64_t from;

    if (store_event_range(tx, &range, e))
        return -1;
    from = range.newest - FEED_RING + 1;
    f->oldest = from > range.oldest ? from : range.oldest;
    f->newest = f->oldest - 1;
    return store_event_each(tx, f->newest, tail_each, f, e);
}

int event_feed_new(struct services *s, struct event_feed **ret, struct err *e)
{
    struct event_feed *f = calloc(1, sizeof *f);

    if (!f)
        return err_set(e, ERR_INTERNAL, "no memory for the events");
    f->s = s;
    f->timer = server_timer_new(s->server, catchup_turn, f);
    if (!f->timer)
        err_set(e, ERR_INTERNAL, "no memory for the events");
    if (!f->timer || store_read(s->store, tail_read, f, e)) {
        event_feed_free(f);
        return -1;
    }
    *ret = f;
    return 0;
}

static void subscriber_free(struct event_feed *f, struct subscriber *sub)
{
    catchup_end(f, sub);
    topics_leave(f, sub);
    HASH_DEL(f->subscribers, sub);
    free(sub->topics);
    free(sub);
}

void event_feed_free(struct event_feed *f)
{
    struct subscriber *sub, *next;

    if (!f)
        return;
    HASH_ITER (hh, f->subscribers, sub, next)
        subscriber_free(f, sub);
    for (size_t i = 0; i < FEED_RING; i++)
        slot_clear(&f->ring[i]);
    server_timer_free(f->timer);
    free(f);
}

/* --- from the writer ------------------------------------------------------------------------- */

/* The next event goes into the ring, and sets out for those it concerns. */
static void line_apply(struct feed_lines *l)
{
    struct event_feed *f = l->f;
    const char *end = memchr(l->next, '\n', l->len - (size_t)(l->next - l->text));

    if (!end) {
        events_lost(f->s);
        return;
    }
    l->refs++;
    ring_put(f, l->next_seq,
             (struct feed_slot){.lines = l, .line = l->next, .len = (size_t)(end - l->next)});
    if (f->subscribers)
        topics_walk_begin(f, ring_event(f, l->next_seq));
    l->next = end + 1;
    l->next_seq++;
}

/* A slice of it: a commit may have thousands of events, and an event thousands of subscribers. What was
 * posted behind it waits, so that an answer never goes before the events of its call. */
static void lines_apply(struct job *job)
{
    struct feed_lines *l = (struct feed_lines *)((char *)job - offsetof(struct feed_lines, job));
    size_t left = FEED_SLICE;

    while (topics_walk(l->f, &left)) {
        if (l->next_seq > l->last_seq) {
            lines_unref(l);
            return;
        }
        if (!left)
            break;
        left--;
        line_apply(l);
    }
    inbox_again(server_inbox(l->f->s->server), job);
}

void event_feed_post(void *ctx, const struct store_event_batch *batch)
{
    struct services *s = ctx;
    struct feed_lines *l = malloc(sizeof *l + batch->len);

    if (!l) {
        events_lost(s);
        return;
    }
    *l = (struct feed_lines){.job.done = lines_apply,
                             .f = s->events,
                             .next_seq = batch->first_seq,
                             .last_seq = batch->last_seq,
                             .next = l->text,
                             .len = batch->len,
                             .refs = 1};
    memcpy(l->text, batch->text, batch->len);
    inbox_post(server_inbox(s->server), &l->job);
}

int64_t event_feed_newest(struct event_feed *f, uint64_t conn)
{
    struct subscriber *sub = subscriber_find(f, conn);

    if (sub)
        topics_walk_settle(f, sub);
    return f->newest;
}

/* --- delivery -------------------------------------------------------------------------------- */

void feed_deliver(struct event_feed *f, struct subscriber *sub, const struct feed_event *ev)
{
    if (ev->seq <= sub->cursor)
        return;
    sub->cursor = ev->seq;
    if (auth_sees(f->s->auth, &sub->key_id, clock_wall_ms(f->s->clock), &ev->user_id))
        (void)server_ws_send(f->s->server, sub->conn, ev->text, ev->len); /* a failure closes */
}

void feed_tell_gap(struct event_feed *f, struct subscriber *sub, int64_t oldest)
{
    char text[GAP_CAP];
    int len = snprintf(text, sizeof text, "{\"event\":\"gap\",\"data\":{\"oldest\":%" PRId64 "}}",
                       oldest);

    (void)server_ws_send(f->s->server, sub->conn, text, (size_t)len);
    sub->cursor = oldest - 1;
}

bool feed_ring_has(const struct event_feed *f, const struct subscriber *sub)
{
    return sub->cursor >= f->oldest - 1;
}

bool feed_go_live(struct event_feed *f, struct subscriber *sub, size_t *left)
{
    while (sub->cursor < f->newest && *left) {
        const struct feed_event *ev = ring_event(f, sub->cursor + 1);

        --*left;
        if (topics_match(sub->topics, sub->topics_n, ev))
            feed_deliver(f, sub, ev);
        sub->cursor = ev->seq;
    }
    sub->live = sub->cursor >= f->newest;
    return sub->live;
}

/* --- subscribers ----------------------------------------------------------------------------- */

struct subscriber *subscriber_find(const struct event_feed *f, uint64_t conn)
{
    struct subscriber *sub;

    HASH_FIND(hh, f->subscribers, &conn, sizeof conn, sub);
    return sub;
}

void event_feed_drop(struct event_feed *f, uint64_t conn)
{
    struct subscriber *sub = subscriber_find(f, conn);

    if (sub)
        subscriber_free(f, sub);
}

static struct subscriber *subscriber_new(struct event_feed *f, const struct event_subscription *o)
{
    struct subscriber *sub = calloc(1, sizeof *sub);

    if (!sub)
        return NULL;
    sub->topics = calloc(o->topics_n, sizeof *sub->topics);
    if (!sub->topics) {
        free(sub);
        return NULL;
    }
    memcpy(sub->topics, o->topics, o->topics_n * sizeof *sub->topics);
    sub->topics_n = o->topics_n;
    sub->conn = o->conn;
    sub->key_id = o->caller->key_id;
    sub->cursor = o->since;
    sub->number = ++f->last_number;
    HASH_ADD(hh, f->subscribers, conn, sizeof sub->conn, sub);
    return sub;
}

void event_feed_subscribe(struct event_feed *f, const struct event_subscription *o)
{
    struct subscriber *sub;
    size_t left = FEED_SLICE;

    event_feed_drop(f, o->conn);
    if (!o->topics_n)
        return;
    sub = subscriber_new(f, o);
    if (!sub || topics_enter(f, sub, o->caller)) {
        event_feed_drop(f, o->conn);
        server_ws_close(f->s->server, o->conn, CLOSE_NO_MEMORY, "no memory");
        return;
    }
    if (sub->cursor > f->newest) /* it knows another log than this one */
        feed_tell_gap(f, sub, f->newest + 1);
    if (!feed_ring_has(f, sub) || !feed_go_live(f, sub, &left))
        catchup_begin(f, sub);
}

void event_feed_rights_changed(struct event_feed *f, uint64_t conn, const struct caller *caller)
{
    struct subscriber *sub = subscriber_find(f, conn);

    if (!sub)
        return;
    topics_walk_settle(f, sub);
    topics_leave(f, sub);
    if (topics_enter(f, sub, caller)) {
        event_feed_drop(f, conn);
        server_ws_close(f->s->server, conn, CLOSE_NO_MEMORY, "no memory");
    }
}

/* --- age ------------------------------------------------------------------------------------- */

struct cleanup {
    struct store_job job;
    struct services *s;
    int64_t removed;
};

static int cleanup_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct cleanup *c = arg;
    const struct config_retention *cfg = &c->s->cfg->retention;

    return store_event_expire(tx, store_now_ms(tx) - cfg->events_seconds * 1000, cfg->events_max,
                              CLEANUP_ROWS, &c->removed, e);
}

static void cleanup_done(struct job *job)
{
    struct cleanup *c = (struct cleanup *)((char *)job - offsetof(struct cleanup, job.job));

    if (!c->job.rc && c->removed == CLEANUP_ROWS - 1 && !c->s->stopping)
        event_feed_cleanup(c->s);
    free(c);
}

/* No memory or a full queue: the next round comes. */
void event_feed_cleanup(struct services *s)
{
    struct cleanup *c = calloc(1, sizeof *c);
    struct err e;

    if (!c)
        return;
    *c = (struct cleanup){
        .job = {.job.done = cleanup_done, .fn = cleanup_row, .arg = c, .ends = true}, .s = s};
    if (store_submit(s->store, &c->job, &e))
        free(c);
}
