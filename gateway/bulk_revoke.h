/*
 * Ending many leases, in bounded steps: what is to end is collected in the first write, and ended by
 * as many writes as it takes, each durable and short, with others' writes between them. Then the
 * doors can be waited for. Whatever ends leases in numbers goes this way: a selector, an API key or
 * a signing key that is no more.
 *
 * An operation (ON_WRITE) whose `run` calls bulk_collect once and bulk_write each time, and whose
 * `after` begins with bulk_continue. What is issued meanwhile stays, unless the operation has made
 * sure that nothing can be issued.
 */
#ifndef GATEWAY_BULK_REVOKE_H
#define GATEWAY_BULK_REVOKE_H

#include "ops.h"
#include "services.h"

#define BULK_BATCH 256 /* leases ended by one write */

struct bulk_door {
    struct bulk *bulk;
    struct id session_id;
    size_t end;     /* its leases stand before this place among the ids, behind the former door's */
    size_t revoked; /* of them by this call; moved to the front of its place */
    struct broker_wait wait;
};

struct bulk {
    struct call *call;
    struct lease_ending how;
    struct id *ids;
    size_t n, size;
    struct bulk_door *doors;
    size_t doors_n, doors_size;
    size_t next, next_door; /* not ended yet */
    size_t revoked;
    bool whole_sessions; /* all of each session is to end: one log entry for each does */
    size_t waiting;
    struct revoke_door *answers;
};

/* For c->state; freed with the call. NULL without memory. `reason` is the call's. */
struct bulk *bulk_new(struct call *c, const char *reason);

/* Adds a lease; those of a session must come together. */
int bulk_add(struct bulk *b, const struct lease *l, struct err *e) MUST_CHECK;

/* Adds all that match and that the caller sees. */
int bulk_collect(struct bulk *b, const struct store_match *m, struct err *e) MUST_CHECK;

/* Ends the next leases (call->tx). */
int bulk_write(struct bulk *b, struct err *e) MUST_CHECK;

/* Instead of both: adds and ends one, as it was read in this very write. */
int bulk_write_one(struct bulk *b, const struct lease *lease, struct err *e) MUST_CHECK;

/* From `after`: false when the operation runs again, because there is more to end. */
bool bulk_continue(struct bulk *b);

/* Fills *ret as it stands. */
void bulk_answer(struct bulk *b, struct lease_revoked *ret);

/* Waits for every door that has something to cut, fills the call's result (struct lease_revoked) and
 * sets its status. True: that is done; false: call_finish comes behind it. */
bool bulk_wait(struct bulk *b, int64_t timeout_ms);

#endif
