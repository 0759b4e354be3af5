/*
 * How many leases are open (pending or active): of each session, of each user, in all; and the number
 * of the last lease. Kept by the writer as its writes go, so that a quota is checked exactly and costs
 * no query; counted from the rows at start. What a write did is undone with it. Writer thread only.
 */
#ifndef STORAGE_LEASE_COUNTS_H
#define STORAGE_LEASE_COUNTS_H

#include "conn.h"
#include "leasehold/model.h"

/* The same in SQL. */
#define LEASE_IS_OPEN "(state = 'pending' OR state = 'active')"

struct lease_tally;
struct lease_step;

struct lease_counts {
    struct lease_tally *tallies;
    int64_t all;
    int64_t last_n;           /* the highest number of a lease that was given */
    struct lease_step *steps; /* of the group that is being written */
    size_t n, size;
};

/* Counts the rows. */
int lease_counts_load(struct lease_counts *c, struct conn *conn, struct err *e) MUST_CHECK;
void lease_counts_free(struct lease_counts *c);

/* A lease of this session and user opens (1) or is open no more (-1). */
int lease_counts_add(struct lease_counts *c, const struct id *session_id, const struct id *user_id,
                     int64_t delta, struct err *e) MUST_CHECK;

int64_t lease_counts_of_session(const struct lease_counts *c, const struct id *session_id);
int64_t lease_counts_of_user(const struct lease_counts *c, const struct id *user_id);

/* Takes back all steps but the first `kept`. */
void lease_counts_undo(struct lease_counts *c, size_t kept);

/* The group is over: what stands, stands. */
void lease_counts_settle(struct lease_counts *c);

#endif
