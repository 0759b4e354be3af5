/*
 * Appending to histories: what many clients say in one chat becomes durable in one commit.
 *
 * On the loop the appends of a chat wait in its queue while one batch of it is on the FILE lane,
 * under the chat's key; the next batch takes all that has come meanwhile. So a lone message waits for
 * nobody, and the more there are the larger the batches grow.
 */
#ifndef GATEWAY_HISTORY_QUEUE_H
#define GATEWAY_HISTORY_QUEUE_H

#include "op.h"

struct history_queues;

struct history_queues *history_queues_new(struct services *s);
void history_queues_free(struct history_queues *q);

/* Takes a history.append; call_finish follows. Loop thread. */
void history_queue_add(struct history_queues *q, struct call *c);

#endif
