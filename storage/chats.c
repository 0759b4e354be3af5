#include "leasehold/artifacts.h"
#include "leases.h"
#include "list.h"

#define CHAT_COLUMNS                                                                               \
    "chat_id, user_id, workspace_id, title, created_at, updated_at, generation, metadata"

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

int store_workspace_get(struct store_tx *tx, const struct id *user_id, struct workspace *ret,
                        struct err *e)
{
    return workspace_find(tx, user_id, ret, e);
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
    bind_int(&st, c->created_at);
    bind_int(&st, c->updated_at);
    bind_int(&st, c->generation);
    bind_text(&st, c->metadata != NULL ? c->metadata : "{}");
    return stmt_run(&st, e);
}

/* All but the metadata, which comes last. */
static void read_chat(struct stmt *st, struct chat *c)
{
    *c = (struct chat){0};
    column_id(st, &c->chat_id);
    column_id(st, &c->user_id);
    column_id(st, &c->workspace_id);
    column_text(st, c->title, sizeof(c->title));
    c->created_at = column_int(st);
    c->updated_at = column_int(st);
    c->generation = column_int(st);
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
        read_chat(&st, &c);
        c.metadata = column_text_new(&st, arena);
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

int store_chat_count(struct store_tx *tx, const struct id *user_id, int64_t *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "chat", "SELECT COUNT(*) FROM chats WHERE user_id = ?", e) != 0) {
        return -1;
    }
    bind_id(&st, user_id);
    return stmt_end_with_int(&st, ERR_INTERNAL, ret, e);
}

/* --- removal ---------------------------------------------------------------------------------- */

static int delete_by_chat(struct store_tx *tx, const char *sql, const struct id *chat_id,
                          struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "chat", sql, e) != 0) {
        return -1;
    }
    bind_id(&st, chat_id);
    return stmt_run(&st, e);
}

int store_chat_delete(struct store_tx *tx, const struct id *chat_id, bool links_hold, struct err *e)
{
    if (leases_delete_of_chat(tx, chat_id, e) != 0 ||
        delete_by_chat(tx, "DELETE FROM sandboxes WHERE chat_id = ?", chat_id, e) != 0 ||
        delete_by_chat(tx, "DELETE FROM files WHERE chat_id = ?", chat_id, e) != 0 ||
        store_artifact_mark_chat(tx, chat_id, links_hold, e) != 0) {
        return -1;
    }
    if (tx->sessions != NULL) {
        session_cache_forget_rows(tx->sessions);
    }
    struct stmt st;
    if (stmt_open(&st, tx->conn, "chat", "DELETE FROM chats WHERE chat_id = ?", e) != 0) {
        return -1;
    }
    bind_id(&st, chat_id);
    return stmt_run_one(&st, ERR_CHAT_NOT_FOUND, e);
}

/* --- list ------------------------------------------------------------------------------------- */

struct chat_walk {
    int (*each)(void *ctx, const struct chat *c, struct err *e);
    void *ctx;
};

static int walk_chat(struct stmt *st, void *arg, struct err *e)
{
    const struct chat_walk *w = arg;
    struct chat c;
    int len;
    read_chat(st, &c);
    c.metadata = (char *)(uintptr_t)column_borrow(st, &len);
    return w->each(w->ctx, &c, e);
}

int store_chat_list(struct store_tx *tx, const struct store_list *l, const struct store_filter *f,
                    int (*each)(void *ctx, const struct chat *c, struct err *e), void *ctx,
                    struct err *e)
{
    struct chat_walk w = {.each = each, .ctx = ctx};
    bool of_user = !id_is_zero(&f->user_id);
    struct stmt st;
    if (stmt_open(&st, tx->conn, "chat",
                  of_user ? "SELECT " CHAT_COLUMNS
                            " FROM chats WHERE user_id = ? AND " LIST_SEEN LIST_PAGE("created_at",
                                                                                     "chat_id")
                          : "SELECT " CHAT_COLUMNS
                            " FROM chats WHERE " LIST_SEEN LIST_PAGE("created_at", "chat_id"),
                  e) != 0) {
        return -1;
    }
    if (of_user) {
        bind_id(&st, &f->user_id);
    }
    list_bind_seen(&st, l);
    list_bind_page(&st, l);
    return list_walk(&st, walk_chat, &w, e);
}
