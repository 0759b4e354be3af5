/*
 * history.md: written through one open file, always behind what history.db says of it, so that what
 * a crash has left behind is cut off and what is missing is written again. It is written in place:
 * sandboxes have it mounted.
 */
#ifndef STORAGE_HISTORY_MD_H
#define STORAGE_HISTORY_MD_H

#include "leasehold/buf.h"
#include "leasehold/history.h"

struct history_md {
    int fd;        /* -1: not open */
    int64_t bytes; /* that are right */
    int64_t ahead; /* written, not yet right: they are when the caller's transaction is committed */
    struct buf out;
};

/* Opens the file in the chat's directory. */
int history_md_open(int dir, struct history_md *ret, struct err *e) MUST_CHECK;
void history_md_close(struct history_md *md);

int history_md_size(const struct history_md *md, int64_t *ret, struct err *e) MUST_CHECK;
int history_md_cut(struct history_md *md, int64_t bytes,
                   struct err *e) MUST_CHECK; /* the rest goes */

int history_md_head(struct history_md *md, const struct id *chat_id, struct err *e) MUST_CHECK;
int history_md_add(struct history_md *md, const struct history_message *m,
                   struct err *e) MUST_CHECK;
int history_md_sync(struct history_md *md, struct err *e) MUST_CHECK; /* all added is on the disk */

void history_md_keep(struct history_md *md); /* what was added is right */
void history_md_drop(struct history_md *md); /* it is not */

#endif
