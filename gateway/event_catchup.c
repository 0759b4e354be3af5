/* Subscribers that are behind: what stands in the ring they have from there, a slice at a time; who is
 * behind the ring reads the log, a piece at a time. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "event_feed_state.h"

#define READING_MAX 2            /* pieces at once: others need the READ lane, too */
#define SCAN_MAX    4096         /* events looked at for a piece */
#define PIECE_BYTES (256 * 1024) /* of those that were asked for */
#define SOCKET_LOW  (256 * 1024) /* what may still wait on the socket when the next is read */
#define TURN_MS     20
#define RING_TURN   (FEED_SLICE * 8) /* events of the ring that are looked at in a turn of the loop */

#define CLOSE_INTERNAL 1011

struct piece {
    struct job job;
    struct event_feed *f;
    uint64_t conn, number;
    struct topic *topics;
    size_t topics_n;
    int64_t after; /* everything up to here has been looked at */
    /* found */
    struct feed_event *first, **end;
    int64_t gap; /* the oldest there was, if that is not the next; else 0 */
    size_t seen, bytes;
    int rc;
    struct err e;
};

static void piece_free(struct piece *p)
{
    struct feed_event *ev, *next;

    LL_FOREACH_SAFE (p->first, ev, next)
        free(ev);
    free(p->topics);
    free(p);
}

static int piece_take(struct piece *p, struct feed_event *fe)
{
    if (!topics_match(p->topics, p->topics_n, fe)) {
        free(fe);
        return 0;
    }
    *p->end = fe;
    p->end = &fe->next;
    p->bytes += fe->len;
    return p->bytes >= PIECE_BYTES;
}

static int piece_each(void *ctx, const struct store_event *ev, struct err *e)
{
    struct piece *p = ctx;
    struct feed_event *fe = feed_event_new(ev);

    if (!fe)
        return err_set(e, ERR_INTERNAL, "no memory for the events");
    if (!p->seen && ev->seq != p->after + 1)
        p->gap = ev->seq;
    p->after = ev->seq;
    p->seen++;
    return piece_take(p, fe) || p->seen == SCAN_MAX;
}

static int piece_read(struct store_tx *tx, void *arg, struct err *e)
{
    struct piece *p = arg;

    return store_event_each(tx, p->after, piece_each, p, e);
}

static void piece_run(struct job *job)
{
    struct piece *p = (struct piece *)((char *)job - offsetof(struct piece, job));

    p->rc = store_read(p->f->s->store, piece_read, p, &p->e);
}

/* --- on the loop ----------------------------------------------------------------------------- */

static void leave_behind(struct event_feed *f, struct subscriber *sub)
{
    DL_DELETE(f->behind, sub);
    f->behind_n--;
    sub->behind = false;
}

static void to_the_end(struct event_feed *f, struct subscriber *sub) /* each in turn */
{
    DL_DELETE(f->behind, sub);
    DL_APPEND(f->behind, sub);
}

static void piece_deliver(struct event_feed *f, struct subscriber *sub, const struct piece *p)
{
    const struct feed_event *ev;

    if (p->gap)
        feed_tell_gap(f, sub, p->gap);
    LL_FOREACH (p->first, ev)
        feed_deliver(f, sub, ev);
    sub->cursor = p->after;
}

/* It may come back and try again. */
static void piece_failed(struct event_feed *f, struct subscriber *sub, const struct piece *p)
{
    log_error(f->s->log, "events_unread", &p->e);
    leave_behind(f, sub);
    server_ws_close(f->s->server, sub->conn, CLOSE_INTERNAL, "the events cannot be read");
}

static void piece_done(struct job *job)
{
    struct piece *p = (struct piece *)((char *)job - offsetof(struct piece, job));
    struct event_feed *f = p->f;
    struct subscriber *sub = subscriber_find(f, p->conn);

    f->reading_n--;
    if (sub && sub->number == p->number) {
        sub->reading = false;
        if (p->rc)
            piece_failed(f, sub, p);
        else
            piece_deliver(f, sub, p);
    }
    piece_free(p);
    catchup_turn(f);
}

/* A full lane or no memory: the next turn tries again. */
static void read_piece(struct event_feed *f, struct subscriber *sub)
{
    struct piece *p = calloc(1, sizeof *p);
    struct err e;

    if (!p)
        return;
    *p = (struct piece){.job = {.run = piece_run, .done = piece_done},
                        .f = f,
                        .conn = sub->conn,
                        .number = sub->number,
                        .topics = calloc(sub->topics_n, sizeof *p->topics),
                        .topics_n = sub->topics_n,
                        .after = sub->cursor};
    p->end = &p->first;
    if (p->topics)
        memcpy(p->topics, sub->topics, sub->topics_n * sizeof *p->topics);
    if (!p->topics || lane_submit(f->s->read, &p->job, &e)) {
        piece_free(p);
        return;
    }
    sub->reading = true;
    f->reading_n++;
    to_the_end(f, sub);
}

static void catch_up(struct event_feed *f, struct subscriber *sub, size_t *left)
{
    if (sub->reading || server_ws_waiting(f->s->server, sub->conn) > SOCKET_LOW)
        return;
    if (!feed_ring_has(f, sub)) {
        if (f->reading_n < READING_MAX)
            read_piece(f, sub);
    } else if (feed_go_live(f, sub, left)) {
        leave_behind(f, sub);
    } else {
        to_the_end(f, sub);
    }
}

void catchup_turn(void *ctx)
{
    struct event_feed *f = ctx;
    struct subscriber *sub, *next;
    size_t looks = f->behind_n, left = RING_TURN;

    DL_FOREACH_SAFE (f->behind, sub, next) {
        if (!left || !looks--)
            break;
        catch_up(f, sub, &left);
    }
    if (f->behind)
        server_timer_arm(f->timer, left ? TURN_MS : 0);
}

/* Not at once: many may come in one turn. */
void catchup_begin(struct event_feed *f, struct subscriber *sub)
{
    DL_APPEND(f->behind, sub);
    f->behind_n++;
    sub->behind = true;
    server_timer_arm(f->timer, 0);
}

void catchup_end(struct event_feed *f, struct subscriber *sub)
{
    if (sub->behind)
        leave_behind(f, sub);
}
