#include "conn.h"

#include <errno.h>

#include "log_vfs.h"
#include "stmt.h"

/* mmap_size 0: a file that is truncated below a mapping kills the process by SIGBUS. automatic_index:
 * SQLite would read a whole table to index it for one statement. */
static const char common_pragmas[] = "PRAGMA wal_autocheckpoint = 0;"
                                     "PRAGMA automatic_index = OFF;"
                                     "PRAGMA mmap_size = 0;"
                                     "PRAGMA temp_store = MEMORY;"
                                     "PRAGMA trusted_schema = OFF;"
                                     "PRAGMA cell_size_check = ON;";

static const char writer_pragmas[] = "PRAGMA journal_mode = WAL;"
                                     "PRAGMA synchronous = FULL;"
                                     "PRAGMA foreign_keys = ON;"
                                     "PRAGMA cache_size = -16384;"; /* KiB */

static const char reader_pragmas[] = "PRAGMA query_only = ON;";

/* EXTRA: the removal of the journal is the commit, and must not come undone. */
static const char lone_pragmas[] = "PRAGMA synchronous = EXTRA;";

static const char *const mode_pragmas[] = {
    [CONN_WRITE] = writer_pragmas, [CONN_READ] = reader_pragmas, [CONN_LONE] = lone_pragmas};

static int configure(struct conn *c, enum conn_mode mode, struct err *e)
{
    sqlite3_extended_result_codes(c->db, 1);
    sqlite3_busy_timeout(c->db, CONN_BUSY_TIMEOUT_MS);
    sqlite3_db_config(c->db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    if (mode == CONN_READ) {
        sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    }
    if (conn_exec(c, common_pragmas, e) != 0) {
        return -1;
    }
    return conn_exec(c, mode_pragmas[mode], e);
}

int conn_open(const char *path, enum conn_mode mode, struct conn *ret, struct err *e)
{
    struct conn c = {0};
    int flags = mode == CONN_READ ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    flags |= mode == CONN_LONE ? SQLITE_OPEN_NOFOLLOW : 0;
    const char *vfs = mode == CONN_WRITE && log_vfs_register() == 0 ? LOG_VFS : NULL;
    int rc = sqlite3_open_v2(path, &c.db, flags | SQLITE_OPEN_NOMUTEX, vfs);
    int failed = rc != SQLITE_OK ? conn_fail(&c, rc, "database", e) : configure(&c, mode, e);
    if (failed != 0) {
        *ret = (struct conn){.open_rc = c.db != NULL ? sqlite3_extended_errcode(c.db) : rc};
        conn_close(&c);
        return -1;
    }
    *ret = c;
    return 0;
}

void conn_close(struct conn *c)
{
    prepared_free_all(&c->prepared);
    sqlite3_close(c->db);
    c->db = NULL;
}

int conn_exec(struct conn *c, const char *sql, struct err *e)
{
    int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : conn_fail(c, rc, "database", e);
}

void conn_rollback(struct conn *c)
{
    if (sqlite3_get_autocommit(c->db) == 0) {
        sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
    }
}

/* Of the file that a commit writes; 0: there was none. */
static int log_errno(struct conn *c)
{
    sqlite3_file *log = NULL;
    int sys = 0;
    if (sqlite3_file_control(c->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) == SQLITE_OK &&
        log != NULL && log->pMethods != NULL) {
        (void)log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &sys);
    }
    return sys;
}

/* Of an I/O error; else 0. SQLite does not ask for that of a COMMIT. */
static int errno_of(struct conn *c, int rc)
{
    int sys = rc == SQLITE_IOERR_WRITE || rc == SQLITE_IOERR_FSYNC ? log_errno(c) : 0;
    return sys != 0 || (rc & 0xff) != SQLITE_IOERR ? sys : sqlite3_system_errno(c->db);
}

/* The VFS answers SQLITE_FULL to a write without room, but plain I/O errors to the calls beside. */
static int is_full(int rc, int sys)
{
    return (rc & 0xff) == SQLITE_FULL || rc == SQLITE_IOERR_SHMSIZE || sys == ENOSPC ||
           sys == EDQUOT;
}

int conn_fail(struct conn *c, int rc, const char *what, struct err *e)
{
    int sys = errno_of(c, rc);
    if (is_full(rc, sys)) {
        return err_set(e, ERR_STORAGE_FULL, "no room for the %s", what);
    }
    switch (rc) {
    case SQLITE_CONSTRAINT_UNIQUE:
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_ROWID:
        return err_set(e, ERR_CONFLICT, "such a %s exists", what);
    case SQLITE_CONSTRAINT_FOREIGNKEY:
        return err_set(e, ERR_CONFLICT, "what the %s belongs to does not exist", what);
    default:
        break;
    }
    if ((rc & 0xff) == SQLITE_BUSY) {
        return err_set(e, ERR_BUSY, "the store is locked");
    }
    const char *text = c->db != NULL ? sqlite3_errmsg(c->db) : sqlite3_errstr(rc);
    return sys != 0 ? err_sys(e, ERR_INTERNAL, sys, "sqlite %d, %s: %s", rc, what, text)
                    : err_set(e, ERR_INTERNAL, "sqlite %d, %s: %s", rc, what, text);
}
