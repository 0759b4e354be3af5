/*
 * The audit trail of accesses. What changes something has an entry in the transaction of the change
 * (store_audit_deed); every other access to a thing, and every refusal, gets one here, by the row of its
 * operation: what is read is not held up for it. Entries gather for a moment and are written together;
 * audit.list and audit.verify see all that was answered before them.
 *
 * Loop thread.
 */
#ifndef GATEWAY_TRAIL_H
#define GATEWAY_TRAIL_H

#include "op.h"

struct trail;

struct trail *trail_new(struct services *s);
void trail_free(struct trail *t); /* after the store's end */

/* The call is over: its entry, unless it has one. */
void trail_call(struct trail *t, const struct call *c);

/* Of which chat it was an access; false: of none, or not of a single one. */
bool trail_chat(const struct call *c, struct id *ret);

/* Hands to the store what has gathered: a write that is submitted later finds it there. */
void trail_flush(struct trail *t);

/* At the end, when the loop turns no more: writes what is left. Blocks. */
void trail_close(struct trail *t);

#endif
