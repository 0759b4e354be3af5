/*
 * When the write-ahead log goes back into the database file. The writer alone does it, between two
 * commits: without waiting whenever the log has grown by CHECKPOINT_PAGES, with a short wait for
 * the readers when it has grown far beyond, and all of it when there is nothing else to do. A log
 * whose blocks are kept is then written over from its start, any other is cut.
 */
#ifndef STORAGE_CHECKPOINT_H
#define STORAGE_CHECKPOINT_H

#include <stdbool.h>

#include "conn.h"
#include "leasehold/log.h"

#define CHECKPOINT_PAGES 1000

struct checkpoint {
    struct conn *conn;
    struct log *log;
    int wal_pages; /* in the log after the last commit; not known before the first */
    int due_pages; /* when there are so many, it is time */
    int step;      /* pages from one to the next */
    bool keep_log;
    int last_rc; /* so that a lasting fault is logged once */
};

/* Watches the commits of the connection; both are borrowed. */
void checkpoint_init(struct checkpoint *cp, struct conn *conn, struct log *log);
void checkpoint_keep_log(struct checkpoint *cp, int step); /* CHECKPOINT_PAGES at most */
bool checkpoint_is_due(const struct checkpoint *cp);
void checkpoint_after_commit(struct checkpoint *cp); /* if it is due */
void checkpoint_when_idle(struct checkpoint *cp);
void checkpoint_truncate(struct checkpoint *cp);
bool checkpoint_is_pending(const struct checkpoint *cp); /* has an idle one anything to do? */

#endif
