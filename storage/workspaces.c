/* Workspaces as a whole: all of them, how long they lie idle, their end. */
#include "list.h"

struct workspace_walk {
    int (*each)(void *ctx, const struct workspace *w, struct err *e);
    void *ctx;
};

static int walk_workspace(struct stmt *st, void *arg, struct err *e)
{
    const struct workspace_walk *walk = arg;
    struct workspace w;
    column_id(st, &w.workspace_id);
    column_id(st, &w.user_id);
    w.created_at = column_int(st);
    return walk->each(walk->ctx, &w, e);
}

int store_workspace_each(struct store_tx *tx, const struct id *after_user, int64_t limit,
                         int (*each)(void *ctx, const struct workspace *w, struct err *e),
                         void *ctx, struct err *e)
{
    struct workspace_walk walk = {.each = each, .ctx = ctx};
    struct stmt st;
    if (stmt_open(&st, tx->conn, "workspace",
                  "SELECT workspace_id, user_id, created_at FROM workspaces WHERE user_id > ?"
                  " ORDER BY user_id LIMIT ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, after_user);
    bind_int(&st, limit);
    return list_walk(&st, walk_workspace, &walk, e);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int store_workspace_active_at(struct store_tx *tx, const struct id *user_id, int64_t *ret,
                              struct err *e)
{
    struct stmt st;
    int64_t at = 0;
    if (stmt_open(&st, tx->conn, "workspace",
                  "SELECT created_at, last_active_at,"
                  " (SELECT COALESCE(MAX(updated_at), 0) FROM chats c WHERE c.user_id = w.user_id),"
                  " (SELECT COALESCE(MAX(last_activity_at), 0) FROM sandboxes s"
                  "  WHERE s.user_id = w.user_id),"
                  " (SELECT COALESCE(MAX(created_at), 0) FROM sandboxes s"
                  "  WHERE s.user_id = w.user_id)"
                  " FROM workspaces w WHERE user_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, user_id);
    int rc = stmt_first(&st, ERR_WORKSPACE_NOT_FOUND, e);
    for (int i = 0; rc == 0 && i < 5; i++) {
        at = later(at, column_int(&st));
    }
    if (stmt_end(&st, rc, e) != 0) {
        return -1;
    }
    *ret = at;
    return 0;
}

int store_workspace_seen(struct store_tx *tx, const struct id *chat_id, int64_t at, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "workspace",
                  "UPDATE workspaces SET last_active_at = ? WHERE last_active_at < ?"
                  " AND user_id = (SELECT user_id FROM chats WHERE chat_id = ?)",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, at);
    bind_int(&st, at);
    bind_id(&st, chat_id);
    return stmt_run(&st, e);
}

int store_workspace_delivers(struct store_tx *tx, const struct id *user_id, bool *ret,
                             struct err *e)
{
    struct stmt st;
    int64_t n;
    if (stmt_open(&st, tx->conn, "artifact",
                  "SELECT COUNT(*) FROM artifacts WHERE user_id = ?"
                  " AND state IN ('created', 'stored', 'delivery_failed')",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, user_id);
    if (stmt_end_with_int(&st, ERR_INTERNAL, &n, e) != 0) {
        return -1;
    }
    *ret = n > 0;
    return 0;
}

int store_workspace_delete(struct store_tx *tx, const struct id *user_id, struct err *e)
{
    int64_t chats;
    struct stmt st;
    if (store_chat_count(tx, user_id, &chats, e) != 0) {
        return -1;
    }
    if (chats > 0) {
        return err_set(e, ERR_CONFLICT, "the workspace has chats");
    }
    if (stmt_open(&st, tx->conn, "workspace", "DELETE FROM workspaces WHERE user_id = ?", e) != 0) {
        return -1;
    }
    bind_id(&st, user_id);
    return stmt_run_one(&st, ERR_WORKSPACE_NOT_FOUND, e);
}
