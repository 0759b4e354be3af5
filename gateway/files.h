/*
 * What the operations on files share: one change at a time in a chat, room in a workspace for what
 * is still arriving, and when a file was last read. Any thread, unless said otherwise.
 */
#ifndef GATEWAY_FILES_H
#define GATEWAY_FILES_H

#include "chat_dirs.h"
#include "op.h"

struct files;
struct file_sums;

struct files *files_new(struct services *s); /* loop */
void files_close(struct files *all);         /* at the end, when the loop turns no more: blocks */
void files_free(struct files *all);          /* loop; takes NULL */

/* Changes of a chat's files are one at a time, from the disk to the row. Blocks. */
void files_lock(struct files *all, const struct id *chat_id);
void files_unlock(struct files *all, const struct id *chat_id);

/* Keeps `bytes` of the user's quota for what arrives; ERR_WORKSPACE_QUOTA_EXCEEDED. The store's own
 * check is exact; this one spares an upload that would not fit its way. */
int files_reserve(struct services *s, const struct id *user_id, int64_t bytes,
                  struct err *e) MUST_CHECK;
void files_unreserve(struct files *all, const struct id *user_id, int64_t bytes);

/* It was read now. Written down in a second; files_complete knows it at once. */
void files_read_now(struct services *s, const struct id *file_id);

/* Fills what is not in the row: the newest reading, and when the file expires. */
void files_complete(struct services *s, struct file *f);

struct chat_dirs *files_dirs(struct files *all);
struct file_sums *files_sums(struct files *all);

const char *file_type_of(const char *name); /* of one that came without: by its ending */

/* --- a file as it stands on disk (file_sync.c). Blocks. --------------------------------------- */

/* An opened file, and its row brought up to date with it. */
struct file_look {
    struct chat chat;
    bool only_reads;       /* before the look: a directory that is kept open will do */
    struct chatfiles dir;  /* fds -1: not open */
    struct files *files;   /* of the gateway, with it */
    struct chat_dir *kept; /* which it is borrowed from; NULL: its own */
    int fd;
    struct file file; /* sha256 "": too long to be known already */
};

void file_look_init(struct file_look *l);
void file_look_done(struct file_look *l);

/* The chat, if the caller may see it, and its directory. */
int file_look_chat(struct call *c, const struct id *chat_id, struct file_look *ret,
                   struct err *e) MUST_CHECK;
/* And a file of it; ERR_CHAT_FILE_NOT_FOUND. Of the chat only the ids are sure to be there. */
int file_look_at(struct call *c, const struct id *chat_id, const char *name, struct file_look *ret,
                 struct err *e) MUST_CHECK;
/* Brings all rows of the chat up to date: what agents have made, changed and removed. */
int file_look_all(struct call *c, struct file_look *l, struct err *e) MUST_CHECK;

/* "file.put" or "file.deleted". */
int file_event(struct store_tx *tx, const char *name, const struct file *f,
               struct err *e) MUST_CHECK;

#endif
