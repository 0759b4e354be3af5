/*
 * What nobody has used for long goes by itself: files of chats, workspaces; and artifacts, of which the
 * sweep of artifacts.h takes care between the rounds that are asked for. A round looks at every
 * workspace, a chat at a time; it counts what they hold on the way. What is to go is looked at again
 * under the chat's lock, where nothing can be started, and an error leaves its thing where it is.
 *
 * Functions without a word are for the loop thread.
 */
#ifndef GATEWAY_RETENTION_H
#define GATEWAY_RETENTION_H

#include "services.h"

struct retention;

struct retention *retention_new(struct services *s); /* NULL without memory */
void retention_free(struct retention *r);

/* From now on a round each retention.interval_seconds; the sums of all workspaces at once. */
void retention_start(struct retention *r);

/* Counts anew what the users of active sandboxes hold. */
void retention_count_active(struct retention *r);

/* --- one round, on the SLOW lane under retention_key; blocks ---------------------------------- */

struct retention_item {
    const char *kind; /* "file", "workspace", "artifact" */
    const char *id;
    const char *reason;
    int64_t size_bytes;
};

struct retention_round {
    struct services *s;
    const struct caller *caller; /* NULL: the gateway itself */
    bool dry_run;                /* tells only */
    void (*item)(void *ctx,
                 const struct retention_item *item); /* that went, or would; may be NULL */
    void *ctx;
};

extern const struct id retention_key;

/* -1 only when workspaces cannot be listed; else what failed is in the log, and stays. */
int retention_round(const struct retention_round *r, struct err *e) MUST_CHECK;

/* --- between the files ------------------------------------------------------------------------ */

/* Files of a chat that lie idle. */
int retention_files(const struct retention_round *r, const struct id *user_id,
                    const struct id *chat_id, struct err *e) MUST_CHECK;

/* Artifacts whose time is over. */
int retention_artifacts(const struct retention_round *r, struct err *e) MUST_CHECK;

enum retention_kind { RETENTION_FILE, RETENTION_WORKSPACE, RETENTION_ARTIFACT };
void retention_tell(const struct retention_round *r, enum retention_kind kind, const char *id,
                    const char *reason, int64_t size_bytes);
void retention_failed(const struct retention_round *r, enum retention_kind kind,
                      const struct id *id, const struct err *e);

#endif
