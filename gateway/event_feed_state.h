/* Shared by the files of event_feed.h: event_feed.c (ring, subscribers, delivery), event_topics.c (who
 * is to be asked for which event), event_catchup.c (who is behind the ring). */
#ifndef GATEWAY_EVENT_FEED_STATE_H
#define GATEWAY_EVENT_FEED_STATE_H

#include <uthash.h>

#include "event_feed.h"

/* An event as it is sent, with what decides who gets it. */
struct feed_event {
    struct feed_event *next; /* of a list that was read */
    int64_t seq;
    struct id user_id, chat_id, session_id;
    size_t len;
    char text[];
};

#define FEED_RING 4096 /* events: a power of two */

/* What one commit put into the log, as text: an event is made of a line of it when somebody is to have
 * it, which nobody may. */
struct feed_lines;

/* An event, or its line. */
struct feed_slot {
    struct feed_event *ev;
    struct feed_lines *lines; /* of which `line` is one */
    const char *line;
    size_t len;
};

struct topic_ref;

struct subscriber {
    uint64_t conn;
    struct id key_id;
    struct topic *topics; /* as asked for */
    size_t topics_n;
    int64_t cursor;  /* seq of what was delivered or passed over; nothing below comes any more */
    uint64_t number; /* of the subscription: a later one of the connection has another */
    bool live;       /* it gets events as they come; else it reads the log */
    bool behind;     /* and stands among those that do */
    bool reading;    /* a job is under way */
    struct topic_ref *refs;         /* in the index */
    struct subscriber *prev, *next; /* of those behind */
    UT_hash_handle hh;
};

/* An event on its way to those it concerns: how far that has come. */
struct feed_walk {
    const struct feed_event *ev; /* stands in the ring; NULL: none is on its way */
    enum topic_kind kind;
    struct topic_ref *next; /* of this kind's; NULL: the next kind's */
};

struct event_feed {
    struct services *s;
    struct feed_walk walk;
    struct feed_slot ring[FEED_RING]; /* seq n stands at n % FEED_RING */
    int64_t oldest, newest;           /* in the ring; none: oldest = newest + 1 */
    struct subscriber *subscribers;
    struct topic_entry *index;
    struct subscriber *behind;
    size_t behind_n, reading_n;
    uint64_t last_number;
    struct server_timer *timer; /* armed while somebody behind waits for his socket or for a turn */
};

/* NULL without memory. */
struct feed_event *feed_event_new(const struct store_event *ev);

struct subscriber *subscriber_find(const struct event_feed *f, uint64_t conn);

/* Sends it if the key may see it, and moves the cursor. */
void feed_deliver(struct event_feed *f, struct subscriber *sub, const struct feed_event *ev);

/* To the connection: what lies before `oldest` is lost to it. */
void feed_tell_gap(struct event_feed *f, struct subscriber *sub, int64_t oldest);

/* Of events looked at or delivered, in a piece of work of the loop. */
#define FEED_SLICE 64

/* Delivers what stands in the ring behind the cursor, of *left events at most, and counts them down. At its
 * end the subscriber is live: whether it is comes back. Only if feed_ring_has. */
bool feed_go_live(struct event_feed *f, struct subscriber *sub, size_t *left);
bool feed_ring_has(const struct event_feed *f, const struct subscriber *sub); /* all behind it */

/* --- event_topics.c --- */

bool topics_match(const struct topic *topics, size_t n, const struct feed_event *ev);

/* Enters the subscriber in the index. -1 without memory. */
int topics_enter(struct event_feed *f, struct subscriber *sub, const struct caller *caller);
void topics_leave(struct event_feed *f, struct subscriber *sub);

/* From now on the newest of the ring, f->walk.ev, is on its way to every live subscriber that is to be
 * asked, perhaps twice to one. topics_walk calls feed_deliver for *left of them at most, and counts them
 * down. False: there are more. */
void topics_walk_begin(struct event_feed *f, const struct feed_event *ev);
bool topics_walk(struct event_feed *f, size_t *left);

/* The same for this one alone, at once: its topics or its rights are about to be others. */
void topics_walk_settle(struct event_feed *f, struct subscriber *sub);

/* --- event_catchup.c --- */

void catchup_begin(struct event_feed *f, struct subscriber *sub);
void catchup_end(struct event_feed *f, struct subscriber *sub); /* gone, or subscribed anew */
void catchup_turn(void *ctx);                                   /* of the timer */

#endif
