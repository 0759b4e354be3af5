#include "checkpoint.h"

/* So far may the log grow past readers that keep it in use before the writer waits for them. */
#define PRESSING_PAGES   (8 * CHECKPOINT_PAGES)
#define PRESSING_WAIT_MS 100

static int note_commit(void *ctx, sqlite3 *db, const char *name, int pages)
{
    (void)db;
    (void)name;
    struct checkpoint *cp = ctx;
    if (pages < cp->wal_pages) {
        cp->due_pages = CHECKPOINT_PAGES; /* the log was begun anew */
    }
    cp->wal_pages = pages;
    return SQLITE_OK;
}

void checkpoint_init(struct checkpoint *cp, struct conn *conn, struct log *log)
{
    *cp = (struct checkpoint){.conn = conn, .log = log, .due_pages = CHECKPOINT_PAGES};
    sqlite3_wal_hook(conn->db, note_commit, cp);
}

static void run(struct checkpoint *cp, int mode, int wait_ms)
{
    sqlite3 *db = cp->conn->db;
    int pages = 0, done = 0;
    sqlite3_busy_timeout(db, wait_ms);
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, mode, &pages, &done);
    sqlite3_busy_timeout(db, CONN_BUSY_TIMEOUT_MS);

    if (rc == SQLITE_OK && mode == SQLITE_CHECKPOINT_TRUNCATE) {
        cp->wal_pages = 0;
        cp->due_pages = CHECKPOINT_PAGES;
    } else {
        cp->due_pages = cp->wal_pages + CHECKPOINT_PAGES;
    }
    int fault = rc == SQLITE_BUSY ? SQLITE_OK : rc; /* a reader was in the way: next time */
    if (fault != cp->last_rc && fault != SQLITE_OK) {
        struct err e;
        conn_fail(cp->conn, rc, "checkpoint", &e);
        log_error(cp->log, "store_checkpoint_failed", &e, LF_INT("wal_pages", cp->wal_pages));
    }
    cp->last_rc = fault;
}

void checkpoint_after_commit(struct checkpoint *cp)
{
    if (cp->wal_pages < cp->due_pages) {
        return;
    }
    if (cp->wal_pages < PRESSING_PAGES) {
        run(cp, SQLITE_CHECKPOINT_PASSIVE, 0);
    } else {
        run(cp, SQLITE_CHECKPOINT_TRUNCATE, PRESSING_WAIT_MS);
    }
}

void checkpoint_when_idle(struct checkpoint *cp)
{
    run(cp, SQLITE_CHECKPOINT_TRUNCATE, 0);
}

bool checkpoint_is_pending(const struct checkpoint *cp)
{
    return cp->wal_pages > 0;
}
