/* All chats of a user, some at a time: what is done with them may make or delete some. Any thread. */
#ifndef GATEWAY_CHAT_WALK_H
#define GATEWAY_CHAT_WALK_H

#include <stdbool.h>

#include "leasehold/store.h"

#define CHAT_WALK 64

struct chat_walk {
    struct id user_id; /* the others are zero before the first step */
    struct store_place after;
    struct id ids[CHAT_WALK]; /* the n next ones */
    size_t n;
};

/* The next ones, the oldest first; a store_fn as well (arg: the walk). */
int chat_walk_row(struct store_tx *tx, void *arg, struct err *e) MUST_CHECK;

/* Were these not the last ones? */
bool chat_walk_goes_on(const struct chat_walk *w);

#endif
