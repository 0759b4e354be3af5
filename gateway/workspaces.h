/* Deleting a workspace with all that is in it: chat by chat, each as chats.h does it. */
#ifndef GATEWAY_WORKSPACES_H
#define GATEWAY_WORKSPACES_H

#include "services.h"

struct workspace_deletion {
    const struct caller *caller; /* NULL: the gateway itself */
    struct id user_id;
    const char *action, *detail; /* of the entries in the trail */
    /* Asked for each chat and for the workspace, in the write that takes it. NULL: it may go. */
    int (*may)(struct store_tx *tx, void *arg, struct err *e);
    void *arg;
};

/* On the SLOW lane, under the user's key; blocks. A sandbox or lease in any of its chats, an error, or
 * `may` stops it: what went before stays gone, the rest stays. */
int workspace_delete(struct services *s, struct workspace_deletion *d, struct err *e) MUST_CHECK;

/* Whether every chat of it may go as it is now. */
int workspace_deletable(struct services *s, struct workspace_deletion *d, struct err *e) MUST_CHECK;

#endif
