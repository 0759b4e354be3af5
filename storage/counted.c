#include "leasehold/counted.h"

#include "stmt.h"
#include "tx.h"

int store_counted_put(struct store_tx *tx, const struct file *f, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "file",
                  "UPDATE files SET counted_bytes = ?, counted_scan ="
                  " (SELECT scan_n FROM workspaces WHERE user_id = ?) WHERE file_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, f->size_bytes);
    bind_id(&st, &f->user_id);
    bind_id(&st, &f->file_id);
    return stmt_run_one(&st, ERR_CHAT_FILE_NOT_FOUND, e);
}

int store_counted_scan(struct store_tx *tx, const struct id *user_id, int64_t begun_ns,
                       struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "workspace",
                  "UPDATE workspaces SET scan_n = scan_n + 1, scanned_ns = ? WHERE user_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, begun_ns);
    bind_id(&st, user_id);
    return stmt_run_one(&st, ERR_WORKSPACE_NOT_FOUND, e);
}

/* As it was put; -1: not since the last scan. */
static int put_bytes(struct store_tx *tx, const struct id *user_id, const struct id *file_id,
                     int64_t *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "file",
                  "SELECT COALESCE((SELECT counted_bytes FROM files WHERE file_id = ?"
                  " AND counted_scan = w.scan_n), -1) FROM workspaces w WHERE w.user_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, file_id);
    bind_id(&st, user_id);
    return stmt_end_with_int(&st, ERR_WORKSPACE_NOT_FOUND, ret, e);
}

static int scanned_ns(struct store_tx *tx, const struct id *user_id, int64_t *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "workspace", "SELECT scanned_ns FROM workspaces WHERE user_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, user_id);
    return stmt_end_with_int(&st, ERR_WORKSPACE_NOT_FOUND, ret, e);
}

int store_counted_of(struct store_tx *tx, const struct id *user_id, const struct id *file_id,
                     const struct file_gone *gone, int64_t *ret, struct err *e)
{
    int64_t put, scanned;
    if (put_bytes(tx, user_id, file_id, &put, e) != 0 ||
        scanned_ns(tx, user_id, &scanned, e) != 0) {
        return -1;
    }
    if (put >= 0) {
        *ret = put < gone->bytes ? put : gone->bytes;
    } else {
        *ret = gone->ctime_ns < scanned ? gone->bytes : 0;
    }
    return 0;
}

int store_counted_chat(struct store_tx *tx, const struct id *user_id, const struct id *chat_id,
                       int64_t *ret_scanned_ns, int64_t *ret_put_bytes, struct err *e)
{
    struct stmt st;
    if (scanned_ns(tx, user_id, ret_scanned_ns, e) != 0 ||
        stmt_open(&st, tx->conn, "file",
                  "SELECT COALESCE(SUM(counted_bytes), 0) FROM files WHERE chat_id = ?"
                  " AND counted_scan = (SELECT scan_n FROM workspaces WHERE user_id = ?)",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, chat_id);
    bind_id(&st, user_id);
    return stmt_end_with_int(&st, ERR_INTERNAL, ret_put_bytes, e);
}
