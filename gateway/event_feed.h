/*
 * Events on their way to the bots that have subscribed to them. One reader serves all: the newest
 * events stand in a ring, in the order of the log; who is behind the ring reads the log on the READ
 * lane, piece by piece as his socket takes it, until he has caught up with the ring. So no event is
 * lost between log and ring, none comes twice, and a reader that is far behind holds up nobody. What the
 * loop does of it at once is bounded, however many events a commit has and subscribers an event.
 *
 * Who may see what is asked at each delivery, of what is true then. Loop thread but for event_feed_post.
 */
#ifndef GATEWAY_EVENT_FEED_H
#define GATEWAY_EVENT_FEED_H

#include "services.h"

enum topic_kind { TOPIC_ALL, TOPIC_USER, TOPIC_CHAT, TOPIC_SESSION };

struct topic {
    enum topic_kind kind;
    struct id id;
};

#define EVENT_TOPICS_MAX 256 /* of a connection */

/* Where the log stands is read from the store, before the loop. */
int event_feed_new(struct services *s, struct event_feed **ret, struct err *e) MUST_CHECK;
void event_feed_free(struct event_feed *f); /* before the server; the lanes have ended */

/* store_options.logged; ctx is struct services *. Writer thread. */
void event_feed_post(void *ctx, const struct store_event_batch *batch);

/* seq of the last event. What the connection is still to have of it and of those before is sent, unless
 * it is behind. */
int64_t event_feed_newest(struct event_feed *f, uint64_t conn);

/* From now on the connection gets the events behind `since` of these topics (copied), and of no
 * others. `caller`: of now; what its key may see later is asked then. Without memory the connection
 * is closed with 1013. */
struct event_subscription {
    uint64_t conn;
    const struct topic *topics;
    size_t topics_n; /* 0: no more events */
    int64_t since;
    const struct caller *caller;
};
void event_feed_subscribe(struct event_feed *f, const struct event_subscription *o);

/* The key of the connection has changed: who is asked for all topics follows its users. */
void event_feed_rights_changed(struct event_feed *f, uint64_t conn, const struct caller *caller);

void event_feed_drop(struct event_feed *f, uint64_t conn); /* the connection has gone */

/* Removes a batch of the log that is too old, or too much. */
void event_feed_cleanup(struct services *s);

#endif
