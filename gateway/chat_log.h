/*
 * One piece of work on a chat's history, for whoever does it: a broken history.db is set aside and
 * reported, and what the work adds to the workspace is known. FILE lane, under the chat's key; blocks.
 */
#ifndef GATEWAY_CHAT_LOG_H
#define GATEWAY_CHAT_LOG_H

#include "leasehold/history.h"
#include "services.h"

struct chat_log {
    struct services *s;
    struct history_place place;
    struct history *history;
    int64_t bytes_before;
    bool renewed; /* by chat_log_each */
};

/* ERR_CHAT_NOT_FOUND: the chat has no directory. Until chat_log_close the user's sum is held
 * (store.h). */
int chat_log_open(struct chat_log *l, struct services *s, const struct id *user_id,
                  const struct id *chat_id, struct err *e) MUST_CHECK;

/* As history_append, once more in a new file if this one turns out to be damaged. */
int chat_log_append(struct chat_log *l, struct history_message *messages, size_t messages_n,
                    const struct history_spool *spool, struct err *e) MUST_CHECK;

/* As history_each. One that turns out to be damaged is set aside: -1 and `renewed`, and what was read
 * is not valid any more; the new one can be asked. */
int chat_log_each(struct chat_log *l, int64_t after, int64_t limit,
                  int (*each)(void *ctx, const struct history_message *m, struct err *e), void *ctx,
                  struct err *e) MUST_CHECK;

/* The bytes that have come to both files since it was opened or this was asked; for the write that
 * records what was done (store_usage_add). */
int64_t chat_log_added(struct chat_log *l);

/* Counts what has not been asked for yet. Of one that could not be opened: nothing. */
void chat_log_close(struct chat_log *l);

/* An entry of the trail and of the log about what went wrong with what was said. */
void chat_log_tell(struct services *s, const char *action, const char *kind, const struct id *id,
                   const char *detail);

#endif
