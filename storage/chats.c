#include "stmt.h"
#include "tx.h"

#define CHAT_COLUMNS                                                                               \
    "chat_id, user_id, workspace_id, title, metadata, created_at, updated_at, generation"

static int workspace_find(struct store_tx *tx, const struct id *user_id, struct workspace *ret,
                          struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "workspace",
                  "SELECT workspace_id, user_id, created_at FROM workspaces WHERE user_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, user_id);
    struct workspace w;
    int rc = stmt_first(&st, ERR_WORKSPACE_NOT_FOUND, e);
    if (rc == 0) {
        column_id(&st, &w.workspace_id);
        column_id(&st, &w.user_id);
        w.created_at = column_int(&st);
    }
    if (stmt_end(&st, rc, e) != 0) {
        return -1;
    }
    *ret = w;
    return 0;
}

static int user_insert(struct store_tx *tx, const struct id *user_id, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "user",
                  "INSERT INTO users (user_id, created_at) VALUES (?, ?)"
                  " ON CONFLICT (user_id) DO NOTHING",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, user_id);
    bind_int(&st, tx->now_ms);
    return stmt_run(&st, e);
}

static int workspace_insert(struct store_tx *tx, const struct workspace *w, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "workspace",
                  "INSERT INTO workspaces (workspace_id, user_id, created_at) VALUES (?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, &w->workspace_id);
    bind_id(&st, &w->user_id);
    bind_int(&st, w->created_at);
    return stmt_run(&st, e);
}

int store_workspace_touch(struct store_tx *tx, const struct id *user_id, struct workspace *ret,
                          bool *ret_new, struct err *e)
{
    struct err found;
    if (workspace_find(tx, user_id, ret, &found) == 0) {
        *ret_new = false;
        return 0;
    }
    if (found.code != ERR_WORKSPACE_NOT_FOUND) {
        *e = found;
        return -1;
    }
    struct workspace w = {.user_id = *user_id, .created_at = tx->now_ms};
    id_random(&w.workspace_id);
    if (user_insert(tx, user_id, e) != 0 || workspace_insert(tx, &w, e) != 0) {
        return -1;
    }
    *ret = w;
    *ret_new = true;
    return 0;
}

int store_chat_insert(struct store_tx *tx, const struct chat *c, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "chat",
                  "INSERT INTO chats (" CHAT_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?)", e) != 0) {
        return -1;
    }
    bind_id(&st, &c->chat_id);
    bind_id(&st, &c->user_id);
    bind_id(&st, &c->workspace_id);
    bind_text(&st, c->title);
    bind_text(&st, c->metadata != NULL ? c->metadata : "{}");
    bind_int(&st, c->created_at);
    bind_int(&st, c->updated_at);
    bind_int(&st, c->generation);
    return stmt_run(&st, e);
}

int store_chat_get(struct store_tx *tx, const struct id *chat_id, struct arena *arena,
                   struct chat *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "chat", "SELECT " CHAT_COLUMNS " FROM chats WHERE chat_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, chat_id);
    struct chat c;
    int rc = stmt_first(&st, ERR_CHAT_NOT_FOUND, e);
    if (rc == 0) {
        column_id(&st, &c.chat_id);
        column_id(&st, &c.user_id);
        column_id(&st, &c.workspace_id);
        column_text(&st, c.title, sizeof(c.title));
        c.metadata = column_text_new(&st, arena);
        c.created_at = column_int(&st);
        c.updated_at = column_int(&st);
        c.generation = column_int(&st);
    }
    if (stmt_end(&st, rc, e) != 0) {
        return -1;
    }
    *ret = c;
    return 0;
}

int store_chat_bump_generation(struct store_tx *tx, const struct id *chat_id, int64_t *ret,
                               struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "chat",
                  "UPDATE chats SET generation = generation + 1 WHERE chat_id = ?"
                  " RETURNING generation",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, chat_id);
    return stmt_end_with_int(&st, ERR_CHAT_NOT_FOUND, ret, e);
}
