/*
 * Directories of chats that were read from just now, kept open: a small file costs more to find than
 * to send. Any thread. For reading alone: what changes a chat's files opens its directory itself.
 *
 * A chat that goes is forgotten under its lane, before another of its id can be made; what was put in
 * the place of one from outside is seen a second later.
 */
#ifndef GATEWAY_CHAT_DIRS_H
#define GATEWAY_CHAT_DIRS_H

#include "leasehold/chatfile.h"

struct chat_dirs;
struct chat_dir;

struct chat_dirs *chat_dirs_new(void);      /* NULL: no memory */
void chat_dirs_free(struct chat_dirs *all); /* none is taken any more; takes NULL */

/* *ret_dir is borrowed until the answer is given back; errors as of chatfiles_open. */
int chat_dirs_take(struct chat_dirs *all, const char *root, const struct id *user_id,
                   const struct id *chat_id, struct chat_dir **ret, struct chatfiles *ret_dir,
                   struct err *e) MUST_CHECK;
void chat_dirs_give(struct chat_dirs *all, struct chat_dir *d); /* takes NULL */

/* Its directory has been moved away: who takes it from here on looks again. */
void chat_dirs_forget(struct chat_dirs *all, const struct id *chat_id);

#endif
