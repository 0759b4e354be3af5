/*
 * What agents had run of their user's tools (leasehold/tool_link.h), on its way into the audit trail and
 * the metrics. leasetools records it in a file a session, <data_dir>/tool-runs/<session_id>; so nothing
 * is lost while the gateway is away. Taken in beside the spools of histories (spools.h).
 */
#ifndef GATEWAY_TOOL_RUNS_H
#define GATEWAY_TOOL_RUNS_H

#include "services.h"

#define TOOL_RUNS_DIR "tool-runs" /* in storage.data_dir */

/* RUNTIME lane. An empty file for a new session; its absolute path into `ret`. */
int tool_runs_make(const struct services *s, const struct id *session_id, char *ret, size_t size,
                   struct err *e) MUST_CHECK;

bool tool_runs_exist(const struct services *s, const struct id *session_id);

/* FILE lane, under the key of the session's chat: takes in what has come since the last time. `final`, or
 * a session that is over: nothing more will; then it is removed. No file is a success. After a crash the
 * last runs may be told twice. */
int tool_runs_take(struct services *s, const struct id *session_id, bool final,
                   struct err *e) MUST_CHECK;

#endif
