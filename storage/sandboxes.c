#include <assert.h>

#include "list.h"

/* In the order of bind_fixed and bind_mutable; read back by read_sandbox. */
#define FIXED_COLUMNS "session_id, chat_id, user_id, workspace_id, created_at"
#define MUTABLE_COLUMNS                                                                            \
    "container_id, engine, node, profile, generation, status, reason, started_at,"                 \
    " last_activity_at, expires_at, max_expires_at, idle_ttl_s, uid, netns, userns, seccomp,"      \
    " door_secret_hash, door_pid, door_start, keep_pid, keep_start, door_port,"                    \
    " door_cert_sha256, network, detail"
#define FIXED_MARKS   "?, ?, ?, ?, ?"
#define MUTABLE_MARKS "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?"

#define SELECT_SANDBOX "SELECT " FIXED_COLUMNS ", " MUTABLE_COLUMNS ", log_seq FROM sandboxes "

/* Word for word the condition of the index sandboxes_active, or it would not be used. */
#define IS_ACTIVE "status IN ('starting', 'running', 'stopping')"

static void bind_fixed(struct stmt *st, const struct sandbox *s)
{
    bind_id(st, &s->session_id);
    bind_id(st, &s->chat_id);
    bind_id(st, &s->user_id);
    bind_id(st, &s->workspace_id);
    bind_int(st, s->created_at);
}

static void bind_mutable(struct stmt *st, const struct sandbox *s)
{
    bind_text(st, s->container_id);
    bind_text(st, s->engine);
    bind_text(st, s->node);
    bind_text(st, s->profile);
    bind_int(st, s->generation);
    bind_text(st, sandbox_status_names[s->status]);
    bind_text(st, s->reason);
    bind_int(st, s->started_at);
    bind_int(st, s->last_activity_at);
    bind_int(st, s->expires_at);
    bind_int(st, s->max_expires_at);
    bind_int(st, s->idle_ttl_s);
    bind_int(st, s->uid);
    bind_int(st, s->netns);
    bind_int(st, s->userns);
    bind_int(st, s->seccomp);
    bind_hash(st, s->door_secret_hash);
    bind_int(st, s->door_pid);
    bind_int(st, s->door_start);
    bind_int(st, s->keep_pid);
    bind_int(st, s->keep_start);
    bind_int(st, s->door_port);
    bind_text(st, s->door_cert_sha256);
    bind_text(st, s->network);
    bind_text(st, s->detail);
}

static void read_mutable(struct stmt *st, struct sandbox *s)
{
    column_text(st, s->container_id, sizeof(s->container_id));
    column_text(st, s->engine, sizeof(s->engine));
    column_text(st, s->node, sizeof(s->node));
    column_text(st, s->profile, sizeof(s->profile));
    s->generation = column_int(st);
    s->status = (enum sandbox_status)column_enum(st, sandbox_status_names);
    column_text(st, s->reason, sizeof(s->reason));
    s->started_at = column_int(st);
    s->last_activity_at = column_int(st);
    s->expires_at = column_int(st);
    s->max_expires_at = column_int(st);
    s->idle_ttl_s = column_int(st);
    s->uid = column_int(st);
    s->netns = column_bool(st);
    s->userns = column_bool(st);
    s->seccomp = column_bool(st);
    column_hash(st, s->door_secret_hash);
    s->door_pid = column_int(st);
    s->door_start = column_int(st);
    s->keep_pid = column_int(st);
    s->keep_start = column_int(st);
    s->door_port = column_int(st);
    column_text(st, s->door_cert_sha256, sizeof(s->door_cert_sha256));
    column_text(st, s->network, sizeof(s->network));
    column_text(st, s->detail, sizeof(s->detail));
}

static void read_sandbox(struct stmt *st, struct sandbox *s)
{
    *s = (struct sandbox){0};
    column_id(st, &s->session_id);
    column_id(st, &s->chat_id);
    column_id(st, &s->user_id);
    column_id(st, &s->workspace_id);
    s->created_at = column_int(st);
    read_mutable(st, s);
    s->log_seq = column_int(st);
}

/* The first row of a statement whose only parameter is an id. */
static int find_by_id(struct store_tx *tx, const char *sql, const struct id *id,
                      struct sandbox *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "sandbox", sql, e) != 0) {
        return -1;
    }
    bind_id(&st, id);
    struct sandbox s;
    int rc = stmt_first(&st, ERR_NOT_FOUND, e);
    if (rc == 0) {
        read_sandbox(&st, &s);
        if (tx->sessions != NULL) {
            s.log_seq = session_cache_seq(tx->sessions, &s.session_id, s.log_seq);
        }
    }
    if (stmt_end(&st, rc, e) != 0) {
        return -1;
    }
    *ret = s;
    return 0;
}

int store_sandbox_insert(struct store_tx *tx, const struct sandbox *s, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "sandbox",
                  "INSERT INTO sandboxes (" FIXED_COLUMNS ", " MUTABLE_COLUMNS ", log_seq)"
                  " VALUES (" FIXED_MARKS ", " MUTABLE_MARKS ", ?)",
                  e) != 0) {
        return -1;
    }
    bind_fixed(&st, s);
    bind_mutable(&st, s);
    bind_int(&st, s->log_seq);
    return stmt_run(&st, e);
}

int store_sandbox_update(struct store_tx *tx, const struct sandbox *s, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "sandbox",
                  "UPDATE sandboxes SET (" MUTABLE_COLUMNS ") = (" MUTABLE_MARKS ")"
                  " WHERE session_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_mutable(&st, s);
    bind_id(&st, &s->session_id);
    if (tx->sessions != NULL) {
        session_cache_forget_rows(tx->sessions);
    }
    return stmt_run_one(&st, ERR_NOT_FOUND, e);
}

static int get_row(struct store_tx *tx, const struct id *session_id, struct sandbox *ret,
                   struct err *e)
{
    return find_by_id(tx, SELECT_SANDBOX "WHERE session_id = ?", session_id, ret, e);
}

/* The row as this group of writes sees it, read at most once. */
static const struct sandbox *held(struct store_tx *tx, const struct id *session_id, struct err *e)
{
    struct sandbox s;
    const struct sandbox *found = session_cache_get(tx->sessions, session_id);
    if (found != NULL) {
        return found;
    }
    if (get_row(tx, session_id, &s, e) != 0 || session_cache_put(tx->sessions, &s, e) != 0) {
        return NULL;
    }
    return session_cache_get(tx->sessions, session_id);
}

int store_sandbox_get(struct store_tx *tx, const struct id *session_id, struct sandbox *ret,
                      struct err *e)
{
    if (tx->sessions == NULL) {
        return get_row(tx, session_id, ret, e);
    }
    const struct sandbox *found = held(tx, session_id, e);
    if (found == NULL) {
        return -1;
    }
    *ret = *found;
    return 0;
}

int store_sandbox_active(struct store_tx *tx, const struct id *chat_id, struct sandbox *ret,
                         struct err *e)
{
    return find_by_id(tx, SELECT_SANDBOX "WHERE chat_id = ? AND " IS_ACTIVE, chat_id, ret, e);
}

int store_session_next_seq(struct store_tx *tx, const struct id *session_id, int64_t *ret,
                           struct err *e)
{
    if (tx->sessions == NULL) {
        return err_set(e, ERR_INTERNAL, "number of a session's log taken in a read");
    }
    return held(tx, session_id, e) != NULL
               ? session_cache_next_seq(tx->sessions, session_id, ret, e)
               : -1;
}

/* One look-up a row, and none open during `each`: it may write to the table that is walked. */
int store_sandbox_each_active(struct store_tx *tx,
                              int (*each)(void *ctx, const struct sandbox *s, struct err *e),
                              void *ctx, struct err *e)
{
    struct sandbox s = {0};
    struct err last;
    for (;;) {
        struct id after = s.chat_id;
        if (find_by_id(
                tx, SELECT_SANDBOX "WHERE chat_id > ? AND " IS_ACTIVE " ORDER BY chat_id LIMIT 1",
                &after, &s, &last) != 0) {
            return stmt_walk_end(&last, e);
        }
        if (each(ctx, &s, e) != 0) {
            return -1;
        }
    }
}

/* --- list ------------------------------------------------------------------------------------- */

struct sandbox_walk {
    int (*each)(void *ctx, const struct sandbox *s, struct err *e);
    void *ctx;
};

static int walk_sandbox(struct stmt *st, void *arg, struct err *e)
{
    const struct sandbox_walk *w = arg;
    struct sandbox s;
    read_sandbox(st, &s);
    return w->each(w->ctx, &s, e);
}

/* `narrowest` names the index the rows are found by. */
#define LIST_SANDBOXES(narrowest)                                                                  \
    SELECT_SANDBOX "WHERE " narrowest LIST_OPTIONAL("user_id") LIST_OPTIONAL("status")             \
        LIST_SEEN LIST_PAGE("created_at", "session_id")

int store_sandbox_list(struct store_tx *tx, const struct store_list *l,
                       const struct store_filter *f,
                       int (*each)(void *ctx, const struct sandbox *s, struct err *e), void *ctx,
                       struct err *e)
{
    assert(f != NULL);
    struct sandbox_walk w = {.each = each, .ctx = ctx};
    const struct id *by = NULL;
    const char *sql = LIST_SANDBOXES("");
    if (!id_is_zero(&f->chat_id)) {
        by = &f->chat_id;
        sql = LIST_SANDBOXES("chat_id = ? AND ");
    } else if (!id_is_zero(&f->user_id)) {
        by = &f->user_id;
        sql = LIST_SANDBOXES("user_id = ? AND ");
    }
    struct stmt st;
    if (stmt_open(&st, tx->conn, "sandbox", sql, e) != 0) {
        return -1;
    }
    if (by != NULL) {
        bind_id(&st, by);
    }
    list_bind_optional_id(&st, &f->user_id);
    list_bind_optional(&st, f->names != NULL ? f->names[0] : NULL);
    list_bind_seen(&st, l);
    list_bind_page(&st, l);
    return list_walk(&st, walk_sandbox, &w, e);
}
