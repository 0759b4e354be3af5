/*
 * The spools of sessions on their way into the chats' histories (docs/history.md), and what their agents
 * had run of their users' tools (tool_runs.h) into the audit trail. Both are taken
 * in by jobs on the FILE lane, one chat at a time: when its door reports activity, when its session
 * ends, and, for what was left over, at start and in the clean-up rounds.
 */
#ifndef GATEWAY_SPOOLS_H
#define GATEWAY_SPOOLS_H

#include "services.h"

/* Loop thread, at start and end. */
struct spools *spools_new(struct services *s);
void spools_free(struct spools *sp);
void spools_drain(struct spools *sp); /* nothing more is taken in */

/* Loop thread. */
void spools_activity(struct spools *sp, const struct id *session_id);
void spools_cleanup(struct spools *sp);

/* --- RUNTIME lane ------------------------------------------------------------------------------ */

/* The spool of a new session for its door, or -1: then nothing is recorded, which is no reason not
 * to start it. *ret_max: bytes that may wait in it. */
int spools_open(struct services *s, const struct id *session_id, int64_t *ret_max);

/* The door has ended: all that it has recorded is taken into the history. The end waits for that, not for
 * ever. NULL: there is nothing, or what was run for the agent is not over yet. */
struct spool_last *spools_finish_begin(struct services *s, const struct id *session_id,
                                       const struct id *chat_id);
void spools_finish_end(struct spool_last *l); /* NULL: nothing */

/* Door and sandbox have ended: waits (not for ever) until all that it has recorded is in the history. */
void spools_finish(struct services *s, const struct id *session_id, const struct id *chat_id);

#endif
