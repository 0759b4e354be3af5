/* Who waits for a starting session's door and agent: set by the loop, waited for by RUNTIME threads. */
#ifndef GATEWAY_READY_H
#define GATEWAY_READY_H

#include <stdbool.h>
#include <stdint.h>

#include "leasehold/err.h"
#include "leasehold/id.h"

struct ready;

struct ready *ready_new(void);
void ready_free(struct ready *r);

/* Between these two the session's state is kept. -1: no memory. */
int ready_expect(struct ready *r, const struct id *session_id);
void ready_forget(struct ready *r, const struct id *session_id);

void ready_set(struct ready *r, const struct id *session_id, bool is_ready); /* loop thread */

/* All waits end, also those to come: ERR_BUSY. */
void ready_close(struct ready *r);

/* ERR_SANDBOX_START_FAILED when the time is over. */
int ready_wait(struct ready *r, const struct id *session_id, int64_t timeout_ms,
               struct err *e) MUST_CHECK;

#endif
