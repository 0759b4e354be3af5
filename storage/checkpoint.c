#include "checkpoint.h"

/* So far may the log grow past readers that keep it in use before the writer waits for them. */
#define PRESSING_STEPS   8
#define PRESSING_WAIT_MS 100

static int note_commit(void *ctx, sqlite3 *db, const char *name, int pages)
{
    (void)db;
    (void)name;
    struct checkpoint *cp = ctx;
    if (pages < cp->wal_pages) {
        cp->due_pages = cp->step; /* the log was begun anew */
    }
    cp->wal_pages = pages;
    return SQLITE_OK;
}

void checkpoint_init(struct checkpoint *cp, struct conn *conn, struct log *log)
{
    *cp = (struct checkpoint){
        .conn = conn, .log = log, .due_pages = CHECKPOINT_PAGES, .step = CHECKPOINT_PAGES};
    cp->wal_pages = 1; /* an earlier run may have left some */
    sqlite3_wal_hook(conn->db, note_commit, cp);
}

static void run(struct checkpoint *cp, int mode, int wait_ms)
{
    sqlite3 *db = cp->conn->db;
    int pages = 0, done = 0;
    sqlite3_busy_timeout(db, wait_ms);
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, mode, &pages, &done);
    sqlite3_busy_timeout(db, CONN_BUSY_TIMEOUT_MS);

    if (rc == SQLITE_OK && mode != SQLITE_CHECKPOINT_PASSIVE) {
        cp->wal_pages = 0; /* nobody reads it: the next commit begins it anew */
        cp->due_pages = cp->step;
    } else {
        cp->due_pages = cp->wal_pages + cp->step;
    }
    int fault = rc == SQLITE_BUSY ? SQLITE_OK : rc; /* a reader was in the way: next time */
    if (fault != cp->last_rc && fault != SQLITE_OK) {
        struct err e;
        conn_fail(cp->conn, rc, "checkpoint", &e);
        log_error(cp->log, "store_checkpoint_failed", &e, LF_INT("wal_pages", cp->wal_pages));
    }
    cp->last_rc = fault;
}

void checkpoint_keep_log(struct checkpoint *cp, int step)
{
    cp->keep_log = true;
    cp->step = step < CHECKPOINT_PAGES ? step : CHECKPOINT_PAGES;
    cp->due_pages = cp->step;
}

bool checkpoint_is_due(const struct checkpoint *cp)
{
    return cp->wal_pages >= cp->due_pages;
}

static int whole_mode(const struct checkpoint *cp)
{
    return cp->keep_log ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_TRUNCATE;
}

void checkpoint_after_commit(struct checkpoint *cp)
{
    if (!checkpoint_is_due(cp)) {
        return;
    }
    if (cp->wal_pages < PRESSING_STEPS * cp->step) {
        run(cp, SQLITE_CHECKPOINT_PASSIVE, 0);
    } else {
        run(cp, whole_mode(cp), PRESSING_WAIT_MS);
    }
}

void checkpoint_when_idle(struct checkpoint *cp)
{
    run(cp, whole_mode(cp), 0);
}

void checkpoint_truncate(struct checkpoint *cp)
{
    run(cp, SQLITE_CHECKPOINT_TRUNCATE, 0);
}

bool checkpoint_is_pending(const struct checkpoint *cp)
{
    return cp->wal_pages > 0;
}
