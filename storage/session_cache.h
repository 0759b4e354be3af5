/*
 * The sessions that the writes of one group work on: their rows, read once for all of them, and the
 * numbers of their logs, which are written once at the end of the group. What a write did is undone
 * with it. Writer thread only.
 */
#ifndef STORAGE_SESSION_CACHE_H
#define STORAGE_SESSION_CACHE_H

#include "conn.h"
#include "leasehold/model.h"

struct session_entry;

struct session_cache {
    struct session_entry *entries;
    struct session_entry **steps; /* whose number was raised, in order */
    size_t n, size;
};

/* The row as the group sees it; NULL: not held. */
const struct sandbox *session_cache_get(const struct session_cache *c, const struct id *session_id);

/* A row that was read. -1 without memory. */
int session_cache_put(struct session_cache *c, const struct sandbox *s, struct err *e) MUST_CHECK;

/* The number that the group has come to, of a session whose row says log_seq. */
int64_t session_cache_seq(const struct session_cache *c, const struct id *session_id,
                          int64_t log_seq);

/* Raises the number of a session that is held. */
int session_cache_next_seq(struct session_cache *c, const struct id *session_id, int64_t *ret,
                           struct err *e) MUST_CHECK;

/* Rows have changed: they are read again. Their numbers stay. */
void session_cache_forget_rows(struct session_cache *c);

/* Takes back all steps but the first `kept`, and forgets the rows. */
void session_cache_undo(struct session_cache *c, size_t kept);

/* Writes the numbers inside the open transaction. */
int session_cache_write(struct session_cache *c, struct conn *conn, struct err *e) MUST_CHECK;

/* The group is over. */
void session_cache_reset(struct session_cache *c);
void session_cache_free(struct session_cache *c);

#endif
