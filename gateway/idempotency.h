/*
 * Idempotency-Key: a POST sent again is answered again, not done again (docs/api.md).
 *
 * On the loop a key is claimed while its request runs, so that a second one is told to wait. On the
 * lane the record of an earlier answer is looked up before `run`. The record of this answer commits
 * in the operation's own last write (idempotency_record), so that no crash separates what was done
 * from the memory of it; an answer that makes nothing is recorded behind `after`. What was claimed
 * only is forgotten by a crash: then nothing was made either.
 *
 * A record holds no secret. A lease's token is minted again with the same jti, iat, exp and rq; a
 * new API key's text is gone. Of the request it holds SHA-256 of operation and arguments, which are
 * encoded anew from their table, so that spelling does not matter.
 *
 * Only REST has such keys. Functions without a word are for the loop thread.
 */
#ifndef GATEWAY_IDEMPOTENCY_H
#define GATEWAY_IDEMPOTENCY_H

#include "op.h"

#define IDEMPOTENCY_LIFE_MS 86400000

/* Notes the header of a POST in c->idempotent; 422 if it is not 1 to 128 visible ASCII. */
int idempotency_take(struct call *c, const struct http_request *r, struct err *e) MUST_CHECK;

/* The arguments were decoded: they are what a repetition is compared by. */
int idempotency_bind(struct call *c, struct err *e) MUST_CHECK;

/* They were refused with *e. Without a key -1; else 0: started, the call is refused with it after the
 * same look-up as any other, and the refusal recorded. */
int idempotency_refuse(struct call *c, const struct err *e) MUST_CHECK;

/* ERR_IDEMPOTENCY_IN_PROGRESS, or …_KEY_REUSED by a request that still runs. */
int idempotency_claim(struct call *c, struct err *e) MUST_CHECK;

enum op_lane idempotency_lane(const struct call *c);

/* On the lane: answers from the record, or runs the operation. */
int idempotency_run(struct call *c, struct err *e) MUST_CHECK;

/* What a streamed body says, told by the operation's `end`: it counts like the arguments. Lane. */
void idempotency_body(struct call *c, const char *const *parts, size_t n);

/* Behind the `end` of a call that only compares: answers from the record, or refuses. Lane. */
int idempotency_compare(struct call *c, struct err *e) MUST_CHECK;

/* Was it answered from a record? */
bool idempotency_replayed(const struct call *c);

/* In the operation's last write: records c->result and c->status. Without a key nothing. */
int idempotency_record(struct call *c, struct store_tx *tx, struct err *e) MUST_CHECK;

/* Records what has not been yet, then gives the key free. false: call_finish comes again. */
bool idempotency_settle(struct call *c);

/* Removes a batch of records that are too old. */
void idempotency_cleanup(struct services *s);

/* --- decisions, without I/O ------------------------------------------------------------------ */

bool idempotency_key_valid(const char *key);

/* Is an answer of this outcome kept? Successes and refusals are, but for 429, which says "later". */
bool idempotency_keeps(int rc, const struct err *e);

/* `body` with the first "token":null replaced by the token. Returns it in the arena, NULL without
 * memory. An answer with a grant has no member of free form, so that it is the token's. */
char *idempotency_put_token(struct arena *arena, const char *body, const char *token);

#endif
