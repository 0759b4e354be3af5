/*
 * A chat's directory on disk: <root>/<user_id>/chats/<chat_id>/{history.db, history.md, files/}.
 * Only files/ is ever seen by a sandbox, so only there may a name be hostile. Blocks: FILE and
 * RUNTIME lanes only.
 */
#ifndef LEASEHOLD_CHATDIR_H
#define LEASEHOLD_CHATDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leasehold/err.h"
#include "leasehold/id.h"

/* Makes what is missing of it (idempotent, durable before it returns): history.db with its schema,
 * history.md with its heading "# <chat_id>", files/ owned by uid:gid (of the agents; ignored when
 * we are not root), 0700. Nothing above files/ is accessible to anybody but us. A symlink or a
 * foreign type anywhere on the way is ERR_CONFLICT, and nothing outside is touched. */
int chatdir_make(const char *root, const struct id *user_id, const struct id *chat_id, int64_t uid,
                 int64_t gid, struct err *e) MUST_CHECK;

/* The absolute path of files/ into `ret`, after checking that no part of it below root is a
 * symlink (openat2 RESOLVE_BENEATH | NO_SYMLINKS). ERR_CHAT_NOT_FOUND if it is not there. */
int chatdir_files_path(const char *root, const struct id *user_id, const struct id *chat_id,
                       char *ret, size_t size, struct err *e) MUST_CHECK;

/* Path of history.md (to be bound read-only). Same checks. */
int chatdir_history_md_path(const char *root, const struct id *user_id, const struct id *chat_id,
                            char *ret, size_t size, struct err *e) MUST_CHECK;

struct chatdir_usage {
    int64_t bytes;
    int64_t changed_bytes; /* of these, what agents may have changed since the time asked about */
    int64_t begun_ns;      /* what has a ctime before was counted as it is */
    bool partial;          /* there is more than one walk may look at: it is at least this */
};

/* Σ st_size of the files and histories of the user's chats, each inode once, no link followed, however
 * deep: what can be read of them, not the blocks they take, which holes and shared ones have less of.
 * Never more than CHATDIR_USAGE_MAX, of which sums can still be made. What agents change meanwhile may be
 * counted or not. */
#define CHATDIR_USAGE_MAX (INT64_C(1) << 53) /* what JSON takes for an integer */

/* A size as it is shown and summed: some file systems let a file have more. */
static inline int64_t chatdir_size_shown(int64_t size)
{
    return size < CHATDIR_USAGE_MAX ? size : CHATDIR_USAGE_MAX;
}
int chatdir_usage(const char *root, const struct id *user_id, struct chatdir_usage *ret,
                  struct err *e) MUST_CHECK;

/* The same of one chat alone; of its files also those that have changed since. */
int chatdir_chat_usage(const char *root, const struct id *user_id, const struct id *chat_id,
                       int64_t since_ns, struct chatdir_usage *ret, struct err *e) MUST_CHECK;

/* --- removal: out of the way at once, back if the row stays, taken apart later. The quarantine is
 * a directory on the same file system, made if it is missing. ---------------------------------- */

/* Durable before it returns; no directory is a success. */
int chatdir_quarantine(const char *root, const char *quarantine, const struct id *user_id,
                       const struct id *chat_id, struct err *e) MUST_CHECK;
int chatdir_restore(const char *root, const char *quarantine, const struct id *user_id,
                    const struct id *chat_id, struct err *e) MUST_CHECK;
int chatdir_destroy(const char *quarantine, const struct id *user_id, const struct id *chat_id,
                    struct err *e) MUST_CHECK;
/* What is left of a workspace without chats; one with a chat stays. To be swept behind it. */
int chatdir_remove_workspace(const char *root, const char *quarantine, const struct id *user_id,
                             struct err *e) MUST_CHECK;
/* --- files that lie idle ---------------------------------------------------------------------- */

struct chatdir_file {
    int dir; /* it stands in; borrowed */
    const char *name;
    bool is_top;     /* it stands in files/ itself */
    int64_t used_at; /* by the file system: last read, written or changed */
    int64_t size_bytes;
    int64_t ctime_ns;
    bool is_last_name; /* the bytes go with it */
};

struct chatdir_idle {
    int64_t before_ms;                                                   /* used_at before this */
    int (*file)(void *ctx, const struct chatdir_file *f, struct err *e); /* -1 ends it */
    void *ctx;
};

int chatdir_each_idle(const char *root, const struct id *user_id, const struct id *chat_id,
                      const struct chatdir_idle *idle, struct err *e) MUST_CHECK;

/* A file in the quarantine (which must be there), to be restored or forgotten: then it is swept. Only
 * while no sandbox can reach it. One that a crash has left in between stays, as held.<id>/file. */
struct chatdir_held {
    int dir, top; /* where it came from; the quarantine */
    char *name;
    struct id box;
};
int chatdir_quarantine_file(const char *quarantine, const struct chatdir_file *f,
                            struct chatdir_held *ret, struct err *e) MUST_CHECK;
int chatdir_restore_file(struct chatdir_held *h, struct err *e) MUST_CHECK;
void chatdir_forget_file(struct chatdir_held *h);
/* How many a crash has left. */
size_t chatdir_count_held(const char *quarantine);

/* Takes apart whatever removals have left in the quarantine but chats. */
int chatdir_sweep(const char *quarantine, struct err *e) MUST_CHECK;
/* What a killed gateway has left there. `each` may restore, not destroy. */
int chatdir_each_quarantined(const char *quarantine,
                             int (*each)(void *ctx, const struct id *user_id,
                                         const struct id *chat_id, struct err *e),
                             void *ctx, struct err *e) MUST_CHECK;

#endif
