/*
 * One SQLite connection and the statements prepared on it. Used by one thread at a time (NOMUTEX).
 *
 * Only the writing connection ever checkpoints: SQLite before 3.51.3 can corrupt the file when two
 * connections write or checkpoint at once (the "WAL-reset" fault). Readers are opened read-only and
 * do not even checkpoint when they close.
 */
#ifndef STORAGE_CONN_H
#define STORAGE_CONN_H

#include <sqlite3.h>

#include "leasehold/err.h"

/* For the few locks that another connection can hold for a moment (recovery, a checkpoint that
 * truncates). Nobody but the writer takes the write lock. */
#define CONN_BUSY_TIMEOUT_MS 5000

/* CONN_LONE: the only connection to a file with a rollback journal, durable when a commit returns;
 * nothing but history.db is left beside it when it is closed. */
enum conn_mode { CONN_WRITE, CONN_READ, CONN_LONE };

struct prepared;

struct conn {
    sqlite3 *db;
    struct prepared *prepared; /* by address of the SQL text */
    int open_rc;               /* of a conn_open that failed: SQLite's extended code */
};

int conn_open(const char *path, enum conn_mode mode, struct conn *ret, struct err *e) MUST_CHECK;
void conn_close(struct conn *c); /* of a zeroed one: nothing */

/* Runs any number of statements that answer no rows; nothing is kept prepared. */
int conn_exec(struct conn *c, const char *sql, struct err *e) MUST_CHECK;

/* Ends the open transaction, if SQLite has not done so itself. */
void conn_rollback(struct conn *c);

/* Turns the result code of a failed call into an error and returns -1: a full disk is
 * ERR_STORAGE_FULL, a row that collides or lacks its parent ERR_CONFLICT, all else ERR_INTERNAL
 * with SQLite's words, which only the log may see. `what` names the thing for the caller. */
int conn_fail(struct conn *c, int rc, const char *what, struct err *e);

#endif
