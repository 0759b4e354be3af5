/* What other modules of the store do with the rows of leases. */
#ifndef STORAGE_LEASES_H
#define STORAGE_LEASES_H

#include "tx.h"

/* Before the sessions of the chat are deleted; only inside a write. */
int leases_delete_of_chat(struct store_tx *tx, const struct id *chat_id, struct err *e) MUST_CHECK;

#endif
