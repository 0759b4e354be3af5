/*
 * One REST call at a time beside the stream: a thread waits for the gateway so that messages do not
 * wait with it. An eventfd tells when the answer is there. Called from one thread.
 */
#ifndef CLI_CALLER_H
#define CLI_CALLER_H

#include <stdbool.h>

#include "api.h"

struct caller;

struct caller *caller_new(const struct api_access *access, int wake_fd); /* NULL without memory */
void caller_free(struct caller *c); /* waits for a call under way, until its timeout */

bool caller_busy(struct caller *c); /* a call runs, or its answer was not taken yet */

/* Starts a call; not while busy. `path` and `body` (NULL: none) are copied, `method` is constant.
 * -1 without memory. */
int caller_start(struct caller *c, const char *method, const char *path, const struct buf *body,
                 long timeout_ms);

/* Moves the answer out once it is there. *ret_rc and *e are api_call's. */
bool caller_take(struct caller *c, struct api_answer *ret, int *ret_rc, struct err *e);

#endif
