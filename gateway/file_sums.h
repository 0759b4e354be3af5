/*
 * Sums of files that are too long to be read for the request that asks about them: made beside, one
 * file at a time, with what processor and disk have left over. A file that changes meanwhile is left
 * off, and begun again when it is asked about the next time.
 */
#ifndef GATEWAY_FILE_SUMS_H
#define GATEWAY_FILE_SUMS_H

#include "leasehold/model.h"
#include "services.h"

struct file_sums;

struct file_sums *file_sums_new(struct services *s); /* NULL: no memory, or no thread */
/* When nobody asks any more, before the store's end: what is under way is left off. Takes NULL. */
void file_sums_close(struct file_sums *all);
void file_sums_free(struct file_sums *all); /* when the inbox is empty; takes NULL */

/* Any thread. A file as its row is, without a sum; nothing if it waits already, too many do, or it is
 * over 64 GiB. */
void file_sums_ask(struct file_sums *all, const struct file *f);

#endif
