/*
 * Deleting a chat: its directory goes out of the way first, then its rows, then what was in it. A
 * crash between is put right at the next start: a directory in the quarantine whose chat still has
 * a row goes back, any other is taken apart.
 */
#ifndef GATEWAY_CHATS_H
#define GATEWAY_CHATS_H

#include "services.h"

/* On the RUNTIME lane, under the chat's key; blocks. What uses its files and history is on the FILE lane
 * under the same key, and so is the removal itself. The rows go by `row`, inside a write, which may
 * still refuse. */
int chats_delete(struct services *s, const struct id *user_id, const struct id *chat_id,
                 store_fn row, void *arg, struct err *e) MUST_CHECK;

/* Before the loop. */
int chats_recover(struct services *s, struct err *e) MUST_CHECK;

#endif
