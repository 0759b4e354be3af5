/*
 * Deleting a chat: its directory goes out of the way first, then its rows, then what was in it. A
 * crash between is put right at the next start: a directory in the quarantine whose chat still has
 * a row goes back, any other is taken apart.
 */
#ifndef GATEWAY_CHATS_H
#define GATEWAY_CHATS_H

#include "services.h"

struct chat_deletion {
    const struct caller *caller; /* NULL: the gateway itself */
    struct id user_id, chat_id;
    const char *action, *detail; /* of its entry in the trail */
    /* Asked last, in the write that takes the rows: may it go? NULL: yes. */
    int (*may)(struct store_tx *tx, void *arg, struct err *e);
    void *arg;
};

/* Whether it may go as it is now: ERR_CHAT_NOT_FOUND (also: not the caller's), for a sandbox
 * ERR_CHAT_HAS_ACTIVE_SANDBOX, for a live lease ERR_CONFLICT, and what `may` says. Fills user_id. */
int chat_deletable(struct store_tx *tx, struct chat_deletion *d, struct err *e) MUST_CHECK;

/* On the RUNTIME lane, under the chat's key; blocks. What uses its files and history is on the FILE lane
 * under the same key, and so is the removal itself. */
int chat_delete(struct services *s, struct chat_deletion *d, struct err *e) MUST_CHECK;

/* <data_dir>/quarantine */
int chats_quarantine(const struct services *s, char *ret, size_t size, struct err *e) MUST_CHECK;

/* Before the loop. */
int chats_recover(struct services *s, struct err *e) MUST_CHECK;

#endif
