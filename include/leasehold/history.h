/*
 * The history of one chat: history.db, the source of truth, and history.md, its readable projection,
 * which changes in the same step (docs/history.md). One user at a time for a chat: the FILE lane
 * under the chat's key. Blocks. A handle is open for one piece of work and never kept.
 */
#ifndef LEASEHOLD_HISTORY_H
#define LEASEHOLD_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leasehold/err.h"
#include "leasehold/id.h"

enum history_role { HISTORY_USER, HISTORY_AGENT, HISTORY_SYSTEM, HISTORY_TOOL };
extern const char *const history_role_names[];

/* Strings are borrowed. Of what is appended, seq, message_id and `is` are answers; content may be
 * any bytes: what is not UTF-8, and NUL, becomes U+FFFD. */
struct history_message {
    int64_t seq; /* 1, 2, 3 … in the chat */
    struct id message_id;
    int64_t at;
    enum history_role role;
    const char *author; /* without control characters */
    const char *content;
    size_t content_len;
    int64_t n;             /* in its session's spool; 0: it did not come from one */
    const char *client_id; /* appended once in a chat; NULL: none. Not read back */
    enum history_is {
        HISTORY_IS_NEW,
        HISTORY_IS_KNOWN, /* by its client_id: nothing was added, seq, message_id and at tell of it */
        HISTORY_IS_ANOTHER, /* the same, but its role, author or content differs */
    } is;
};

struct history_place {
    const char *root; /* of the chats' directories */
    struct id user_id, chat_id;
    int64_t uid, gid; /* of agents, who may read history.md */
};

struct history;

/* Opens it, made anew if it is missing, brought to the newest schema, history.md put right after a
 * crash. ERR_CHAT_NOT_FOUND: the chat has no directory. *ret_damaged is always set: did it fail
 * because history.db is damaged? */
int history_open(const struct history_place *p, struct history **ret, bool *ret_damaged,
                 struct err *e) MUST_CHECK;
void history_close(struct history *h); /* NULL: nothing */

/* Did a call fail because the file is damaged? */
bool history_is_damaged(const struct history *h);

/* A damaged one, closed: out of the way under the name that is answered. The next open makes a new
 * one, which goes on behind what history.md holds. */
#define HISTORY_BROKEN_NAME 64
int history_move_aside(const struct history_place *p, int64_t now_ms,
                       char ret[static HISTORY_BROKEN_NAME], struct err *e) MUST_CHECK;

/* How far a session's spool has come in. */
struct history_spool {
    struct id session_id;
    int64_t n;     /* of the last message taken in */
    int64_t bytes; /* of the spool behind which to read on */
    int64_t lost;  /* messages that never reached the spool */
};
/* Zero n and bytes when nothing of it has come in. */
int history_spool_get(struct history *h, const struct id *session_id, struct history_spool *ret,
                      struct err *e) MUST_CHECK;

/* Appends all of them or none, to both files, durable before it returns. With `spool` their n must
 * be above what has come in of it, and rise; where it stands now is kept in the same step. */
int history_append(struct history *h, struct history_message *messages, size_t messages_n,
                   const struct history_spool *spool, struct err *e) MUST_CHECK;

/* Those with seq > after, in order, `limit` at most; stops at the first -1 of `each`. */
int history_each(struct history *h, int64_t after, int64_t limit,
                 int (*each)(void *ctx, const struct history_message *m, struct err *e), void *ctx,
                 struct err *e) MUST_CHECK;

/* What both files take on the disk, as they are now; 0 of one that is missing. */
struct history_bytes {
    int64_t db, md;
};
int history_bytes(const struct history_place *p, struct history_bytes *ret,
                  struct err *e) MUST_CHECK;

/* The readable projection, for as long as the history is open: borrowed, its bytes up to *ret_bytes
 * are right. */
int history_md_fd(const struct history *h, int64_t *ret_bytes);

/* Writes history.md again, out of history.db. */
int history_md_rebuild(struct history *h, struct err *e) MUST_CHECK;

#endif
