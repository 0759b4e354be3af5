#include "leasehold/artifacts.h"

#include "list.h"

const char *const artifact_state_names[] = {
    [ARTIFACT_CREATED] = "created",
    [ARTIFACT_STORED] = "stored",
    [ARTIFACT_DELIVERED] = "delivered",
    [ARTIFACT_DELIVERY_FAILED] = "delivery_failed",
    [ARTIFACT_MARKED] = "marked_for_delete",
    [ARTIFACT_DELETED] = "deleted",
    NULL,
};

/* In the order of bind_fixed and bind_mutable; read back by read_artifact. */
#define FIXED_COLUMNS "artifact_id, chat_id, user_id, created_at, name, content_type, object_key"
#define FIXED_MARKS   "?, ?, ?, ?, ?, ?, ?"
#define MUTABLE_COLUMNS                                                                            \
    "size_bytes, sha256, state, stored_at, delivery_status, delivery_channel, delivery_ref,"       \
    " delivery_detail, delivery_attempts, delivery_at, delete_after, links_until, upload_id"
#define MUTABLE_MARKS   "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?"
#define SELECT_ARTIFACT "SELECT " FIXED_COLUMNS ", " MUTABLE_COLUMNS " FROM artifacts "

static void bind_fixed(struct stmt *st, const struct artifact *a)
{
    bind_id(st, &a->artifact_id);
    bind_id(st, &a->chat_id);
    bind_id(st, &a->user_id);
    bind_int(st, a->created_at);
    bind_text(st, a->name);
    bind_text(st, a->content_type);
    bind_text(st, a->object_key);
}

static void bind_mutable(struct stmt *st, const struct artifact *a)
{
    bind_int(st, a->size_bytes);
    bind_text(st, a->sha256);
    bind_text(st, artifact_state_names[a->state]);
    bind_int(st, a->stored_at);
    bind_text(st, a->delivery.status);
    bind_text(st, a->delivery.channel);
    bind_text(st, a->delivery.external_ref);
    bind_text(st, a->delivery.detail);
    bind_int(st, a->delivery.attempts);
    bind_int(st, a->delivery.at);
    bind_int(st, a->delete_after);
    bind_int(st, a->links_until);
    bind_text(st, a->upload_id);
}

static void read_artifact(struct stmt *st, struct artifact *a)
{
    *a = (struct artifact){0};
    column_id(st, &a->artifact_id);
    column_id(st, &a->chat_id);
    column_id(st, &a->user_id);
    a->created_at = column_int(st);
    column_text(st, a->name, sizeof(a->name));
    column_text(st, a->content_type, sizeof(a->content_type));
    column_text(st, a->object_key, sizeof(a->object_key));
    a->size_bytes = column_int(st);
    column_text(st, a->sha256, sizeof(a->sha256));
    a->state = (enum artifact_state)column_enum(st, artifact_state_names);
    a->stored_at = column_int(st);
    column_text(st, a->delivery.status, sizeof(a->delivery.status));
    column_text(st, a->delivery.channel, sizeof(a->delivery.channel));
    column_text(st, a->delivery.external_ref, sizeof(a->delivery.external_ref));
    column_text(st, a->delivery.detail, sizeof(a->delivery.detail));
    a->delivery.attempts = column_int(st);
    a->delivery.at = column_int(st);
    a->delete_after = column_int(st);
    a->links_until = column_int(st);
    column_text(st, a->upload_id, sizeof(a->upload_id));
}

/* --- one -------------------------------------------------------------------------------------- */

static int64_t counted(const struct artifact *a)
{
    return a->state == ARTIFACT_DELETED ? 0 : a->size_bytes;
}

/* A workspace that is gone has no sum. */
static int add_usage(struct store_tx *tx, const struct artifact *a, int64_t delta, bool enforce,
                     struct err *e)
{
    if (delta == 0 || store_usage_add(tx, &a->user_id, delta, enforce, e) == 0) {
        return 0;
    }
    return !enforce && e->code == ERR_WORKSPACE_NOT_FOUND ? 0 : -1;
}

int store_artifact_insert(struct store_tx *tx, const struct artifact *a, struct err *e)
{
    struct stmt st;
    if (add_usage(tx, a, counted(a), true, e) != 0 ||
        stmt_open(&st, tx->conn, "artifact",
                  "INSERT INTO artifacts (" FIXED_COLUMNS ", " MUTABLE_COLUMNS
                  ") VALUES (" FIXED_MARKS ", " MUTABLE_MARKS ")",
                  e) != 0) {
        return -1;
    }
    bind_fixed(&st, a);
    bind_mutable(&st, a);
    return stmt_run(&st, e);
}

int store_artifact_get(struct store_tx *tx, const struct id *artifact_id, struct artifact *ret,
                       struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "artifact", SELECT_ARTIFACT "WHERE artifact_id = ?", e) != 0) {
        return -1;
    }
    bind_id(&st, artifact_id);
    struct artifact a;
    int rc = stmt_first(&st, ERR_NOT_FOUND, e);
    if (rc == 0) {
        read_artifact(&st, &a);
    }
    if (stmt_end(&st, rc, e) != 0) {
        return -1;
    }
    *ret = a;
    return 0;
}

int store_artifact_update(struct store_tx *tx, const struct artifact *a, struct err *e)
{
    struct artifact before;
    struct stmt st;
    if (store_artifact_get(tx, &a->artifact_id, &before, e) != 0 ||
        add_usage(tx, a, counted(a) - counted(&before), false, e) != 0 ||
        stmt_open(&st, tx->conn, "artifact",
                  "UPDATE artifacts SET (" MUTABLE_COLUMNS ") = (" MUTABLE_MARKS
                  ") WHERE artifact_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_mutable(&st, a);
    bind_id(&st, &a->artifact_id);
    return stmt_run_one(&st, ERR_NOT_FOUND, e);
}

int store_artifact_forget(struct store_tx *tx, const struct id *artifact_id, struct err *e)
{
    struct artifact before;
    struct stmt st;
    if (store_artifact_get(tx, artifact_id, &before, e) != 0 ||
        add_usage(tx, &before, -counted(&before), false, e) != 0 ||
        stmt_open(&st, tx->conn, "artifact", "DELETE FROM artifacts WHERE artifact_id = ?", e) !=
            0) {
        return -1;
    }
    bind_id(&st, artifact_id);
    return stmt_run_one(&st, ERR_NOT_FOUND, e);
}

/* --- many ------------------------------------------------------------------------------------- */

struct artifact_walk {
    int (*each)(void *ctx, const struct artifact *a, struct err *e);
    void *ctx;
};

static int walk_artifact(struct stmt *st, void *arg, struct err *e)
{
    const struct artifact_walk *w = arg;
    struct artifact a;
    read_artifact(st, &a);
    return w->each(w->ctx, &a, e);
}

#define LIST_STATE "((? = '' AND state <> 'deleted') OR state = ?) AND "
#define LIST_TAIL  LIST_STATE LIST_SEEN LIST_PAGE("created_at", "artifact_id")

static const char list_of_chat[] =
    SELECT_ARTIFACT "WHERE chat_id = ? AND " LIST_OPTIONAL("user_id") LIST_TAIL;
static const char list_of_user[] = SELECT_ARTIFACT "WHERE user_id = ? AND " LIST_TAIL;
static const char list_of_all[] = SELECT_ARTIFACT "WHERE " LIST_TAIL;

int store_artifact_list(struct store_tx *tx, const struct store_list *l,
                        const struct store_filter *f,
                        int (*each)(void *ctx, const struct artifact *a, struct err *e), void *ctx,
                        struct err *e)
{
    struct artifact_walk w = {.each = each, .ctx = ctx};
    bool of_chat = !id_is_zero(&f->chat_id), of_user = !id_is_zero(&f->user_id);
    struct stmt st;
    if (stmt_open(&st, tx->conn, "artifact",
                  of_chat   ? list_of_chat
                  : of_user ? list_of_user
                            : list_of_all,
                  e) != 0) {
        return -1;
    }
    if (of_chat) {
        bind_id(&st, &f->chat_id);
        list_bind_optional_id(&st, &f->user_id);
    } else if (of_user) {
        bind_id(&st, &f->user_id);
    }
    list_bind_optional(&st, f->names != NULL ? f->names[0] : NULL);
    list_bind_seen(&st, l);
    list_bind_page(&st, l);
    return list_walk(&st, walk_artifact, &w, e);
}

static const char *const work_statements[] = {
    [ARTIFACT_WORK_CREATED] =
        SELECT_ARTIFACT "WHERE state = 'created' AND artifact_id > ? AND created_at <= ?"
                        " ORDER BY artifact_id LIMIT ?",
    [ARTIFACT_WORK_EXPIRED] = SELECT_ARTIFACT
    "WHERE state IN ('stored', 'delivered', 'delivery_failed') AND artifact_id > ?"
    " AND CASE WHEN links_until > delete_after THEN links_until ELSE delete_after END <= ?"
    " ORDER BY artifact_id LIMIT ?",
    [ARTIFACT_WORK_MARKED] = SELECT_ARTIFACT
    "WHERE state = 'marked_for_delete' AND artifact_id > ? AND delete_after <= ?"
    " ORDER BY artifact_id LIMIT ?",
};

int store_artifact_work(struct store_tx *tx, enum artifact_work work, const struct id *after,
                        int64_t limit,
                        int (*each)(void *ctx, const struct artifact *a, struct err *e), void *ctx,
                        struct err *e)
{
    struct artifact_walk w = {.each = each, .ctx = ctx};
    struct stmt st;
    if (stmt_open(&st, tx->conn, "artifact", work_statements[work], e) != 0) {
        return -1;
    }
    bind_id(&st, after);
    bind_int(&st, tx->now_ms);
    bind_int(&st, limit);
    return list_walk(&st, walk_artifact, &w, e);
}

int store_artifact_sum(struct store_tx *tx, const struct id *user_id, int64_t *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "artifact",
                  "SELECT COALESCE(SUM(size_bytes), 0) FROM artifacts"
                  " WHERE user_id = ? AND state <> 'deleted'",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, user_id);
    return stmt_end_with_int(&st, ERR_INTERNAL, ret, e);
}

int store_installation_id(struct store_tx *tx, char ret[static INSTALLATION_TEXT], struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "installation", "SELECT id FROM installation", e) != 0 ||
        stmt_first(&st, ERR_INTERNAL, e) != 0) {
        return -1;
    }
    column_text(&st, ret, INSTALLATION_TEXT);
    return stmt_end(&st, 0, e);
}

int store_artifact_mark_chat(struct store_tx *tx, const struct id *chat_id, bool links_hold,
                             struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "artifact",
                  "UPDATE artifacts SET state = 'marked_for_delete',"
                  " delete_after = CASE WHEN ? AND links_until > ? THEN links_until ELSE ? END"
                  " WHERE chat_id = ? AND state IN ('stored', 'delivered', 'delivery_failed')",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, links_hold);
    bind_int(&st, tx->now_ms);
    bind_int(&st, tx->now_ms);
    bind_id(&st, chat_id);
    return stmt_run(&st, e);
}
