/*
 * Recording: the door's end of the spool (leasehold/spool.h). A message is one write to a local
 * file, before and whatever becomes of its delivery. What does not fit (the disk is full, or the
 * gateway has not ingested for so long that the cap is reached) is counted, never an error for who
 * speaks. Loop thread only; every call takes NULL: nothing is recorded then.
 */
#ifndef LEASEHOLD_DOOR_SPOOL_H
#define LEASEHOLD_DOOR_SPOOL_H

#include "leasehold/buf.h"
#include "leasehold/log.h"
#include "leasehold/spool.h"

struct spool;

/* Borrows the descriptor of an empty spool. `max_bytes`: how much may wait for the gateway. */
struct spool *spool_new(int fd, int64_t max_bytes, struct log *log, struct err *e);
void spool_free(struct spool *s);

/* A text message of a user (or of the agent: NULL). */
void spool_message(struct spool *s, const struct id *user_id, const char *text, size_t len);

/* A message that comes in pieces, one direction of one client. Zeroed at first. */
struct spool_parts {
    struct buf text;
    bool too_long;
};
void spool_piece(struct spool *s, struct spool_parts *parts, const struct id *user_id,
                 const void *piece, size_t len, bool fin);
void spool_parts_done(struct spool_parts *parts);

int64_t spool_unrecorded(const struct spool *s); /* messages, so far */

/* No more will be said: what was lost at the end is told by the spool as well. */
void spool_end(struct spool *s);

#endif
