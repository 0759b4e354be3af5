/*
 * The events of the group that is being written: collected as its writes go, one row at its end.
 * What a write appended is undone with it, so that the numbers have no gaps. Writer thread only.
 */
#ifndef STORAGE_EVENTS_H
#define STORAGE_EVENTS_H

#include "conn.h"
#include "leasehold/buf.h"
#include "leasehold/store.h"

struct event_group {
    int64_t last_seq;  /* given out */
    int64_t saved_seq; /* in the rows of earlier groups */
    int64_t at;        /* of the newest event */
    struct buf lines;
};

struct event_mark {
    int64_t last_seq;
    size_t len;
};

/* Where the log of the store has come to. */
int event_group_load(struct event_group *g, struct conn *c, struct err *e) MUST_CHECK;
void event_group_free(struct event_group *g);

struct event_mark event_group_mark(const struct event_group *g);
void event_group_undo(struct event_group *g, struct event_mark mark);

/* The row of the group, if anything happened. Before its commit. */
int event_group_write(struct event_group *g, struct conn *c, struct err *e) MUST_CHECK;

/* The events of the group, borrowed until the reset; false: none. */
bool event_group_batch(const struct event_group *g, struct store_event_batch *ret);

/* The group is over: what was appended stands, or has been undone. */
void event_group_reset(struct event_group *g);

#endif
