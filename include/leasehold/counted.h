/*
 * What the sum of a workspace holds of one file. An agent makes and grows files without a word; when
 * they go, only what was counted may be taken off the sum, or it would fall under what others hold.
 * Counted is a file that was put since the last scan, as it was put, and one that has not changed since
 * that scan began: a file's ctime is the kernel's, no agent can set it back.
 */
#ifndef LEASEHOLD_COUNTED_H
#define LEASEHOLD_COUNTED_H

#include "leasehold/chatfile.h"
#include "leasehold/model.h"
#include "leasehold/store.h"

/* The file was put just now, and its bytes are in the sum. */
int store_counted_put(struct store_tx *tx, const struct file *f, struct err *e) MUST_CHECK;

/* A scan that began at begun_ns has corrected the sum; 0: one that has not seen every file. */
int store_counted_scan(struct store_tx *tx, const struct id *user_id, int64_t begun_ns,
                       struct err *e) MUST_CHECK;

/* Of `gone`, which has left the disk: how many bytes the sum holds. file_id: its row, still there, or
 * zero. */
int store_counted_of(struct store_tx *tx, const struct id *user_id, const struct id *file_id,
                     const struct file_gone *gone, int64_t *ret, struct err *e) MUST_CHECK;

/* When the user's last scan began, and of the chat's files what was put since. Stays so while
 * store_usage_hold does. */
int store_counted_chat(struct store_tx *tx, const struct id *user_id, const struct id *chat_id,
                       int64_t *ret_scanned_ns, int64_t *ret_put_bytes, struct err *e) MUST_CHECK;

#endif
