/*
 * A backup: one SQLite file that holds the metadata as of one moment and the history of every chat,
 * each as of a moment between that one and the end of the backup. Put in the place of the metadata it
 * is what the next start begins with; histories that are not on the disk are written there then.
 *
 * Blocks; not for the loop and the writer.
 */
#ifndef LEASEHOLD_BACKUP_H
#define LEASEHOLD_BACKUP_H

#include "leasehold/history.h"
#include "leasehold/store.h"

struct backup;

/* Copies the metadata to a new file. *returns new*; the file is the caller's to remove. */
int backup_begin(struct store *s, const char *path, struct backup **ret, struct err *e) MUST_CHECK;

/* The chats that the copy has. `each` may add its history. */
int backup_each_chat(struct backup *b,
                     int (*each)(void *ctx, const struct id *user_id, const struct id *chat_id,
                                 struct err *e),
                     void *ctx, struct err *e) MUST_CHECK;

/* Under the chat's key. A chat without a directory, or whose history.db is damaged, has none to add:
 * *ret_added is false. */
int backup_add_history(struct backup *b, const struct history_place *p, bool *ret_added,
                       struct err *e) MUST_CHECK;

/* Whole, checked and durable. */
int backup_end(struct backup *b, struct err *e) MUST_CHECK;
void backup_free(struct backup *b); /* NULL: nothing */

/* At start, before anything else: what a backup in the place of the metadata brings along. Chats that
 * have a history.db keep theirs. `place`: root, uid and gid. */
int backup_restore(struct store *s, const struct history_place *place, int64_t *ret_restored,
                   struct err *e) MUST_CHECK;

#endif
