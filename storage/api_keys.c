#include "list.h"

#define KEY_COLUMNS                                                                                \
    "key_id, name, role, secret_hash, limited, default_user, created_at, expires_at,"              \
    " last_used_at, revoked_at, as_of"

#define SELECT_KEY "SELECT " KEY_COLUMNS " FROM api_keys "

static int key_insert(struct store_tx *tx, const struct api_key *k, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "API key",
                  "INSERT INTO api_keys (" KEY_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, &k->key_id);
    bind_text(&st, k->name);
    bind_text(&st, role_names[k->role]);
    bind_hash(&st, k->secret_hash);
    bind_int(&st, k->limited);
    bind_id_or_null(&st, &k->default_user);
    bind_int(&st, k->created_at);
    bind_int(&st, k->expires_at);
    bind_int(&st, k->last_used_at);
    bind_int(&st, k->revoked_at);
    bind_int(&st, k->as_of);
    return stmt_run(&st, e);
}

/* A user named twice is kept once, in the first place. */
static int key_user_insert(struct store_tx *tx, const struct id *key_id, size_t place,
                           const struct id *user_id, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "API key",
                  "INSERT INTO api_key_users (key_id, place, user_id) VALUES (?, ?, ?)"
                  " ON CONFLICT (key_id, user_id) DO NOTHING",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, key_id);
    bind_int(&st, (int64_t)place);
    bind_id(&st, user_id);
    return stmt_run(&st, e);
}

static int users_insert(struct store_tx *tx, const struct api_key *k, struct err *e)
{
    const struct id *users = k->allowed_users.items;
    for (size_t i = 0; i < k->allowed_users.n; i++) {
        if (key_user_insert(tx, &k->key_id, i, &users[i], e) != 0) {
            return -1;
        }
    }
    return 0;
}

int store_api_key_insert(struct store_tx *tx, const struct api_key *k, struct err *e)
{
    return key_insert(tx, k, e) != 0 || users_insert(tx, k, e) != 0 ? -1 : 0;
}

static int key_update(struct store_tx *tx, const struct api_key *k, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "API key",
                  "UPDATE api_keys SET (name, role, limited, default_user, expires_at,"
                  " last_used_at, revoked_at, as_of) = (?, ?, ?, ?, ?, ?, ?, ?) WHERE key_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_text(&st, k->name);
    bind_text(&st, role_names[k->role]);
    bind_int(&st, k->limited);
    bind_id_or_null(&st, &k->default_user);
    bind_int(&st, k->expires_at);
    bind_int(&st, k->last_used_at);
    bind_int(&st, k->revoked_at);
    bind_int(&st, k->as_of);
    bind_id(&st, &k->key_id);
    return stmt_run_one(&st, ERR_NOT_FOUND, e);
}

int store_api_key_update(struct store_tx *tx, const struct api_key *k, struct err *e)
{
    struct stmt st;
    if (key_update(tx, k, e) != 0 ||
        stmt_open(&st, tx->conn, "API key", "DELETE FROM api_key_users WHERE key_id = ?", e) != 0) {
        return -1;
    }
    bind_id(&st, &k->key_id);
    return stmt_run(&st, e) != 0 || users_insert(tx, k, e) != 0 ? -1 : 0;
}

int store_api_key_used(struct store_tx *tx, const struct id *key_id, int64_t at, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "API key",
                  "UPDATE api_keys SET last_used_at = ? WHERE key_id = ? AND last_used_at < ?",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, at);
    bind_id(&st, key_id);
    bind_int(&st, at);
    return stmt_run(&st, e);
}

static int has_user(struct store_tx *tx, const struct id *key_id, const struct id *user_id,
                    int64_t *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "API key",
                  "SELECT EXISTS (SELECT 1 FROM api_key_users WHERE key_id = ? AND user_id = ?)",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, key_id);
    bind_id(&st, user_id);
    return stmt_end_with_int(&st, ERR_INTERNAL, ret, e);
}

/* What says until when a key acts. */
struct key_term {
    enum role role;
    int64_t expires_at, revoked_at;
    bool limited;
};

static int read_term(struct store_tx *tx, const struct id *key_id, struct key_term *ret,
                     bool *ret_there, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "API key",
                  "SELECT role, expires_at, revoked_at, limited FROM api_keys WHERE key_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, key_id);
    int rc = stmt_next(&st, ret_there, e);
    if (rc == 0 && *ret_there) {
        ret->role = (enum role)column_enum(&st, role_names);
        ret->expires_at = column_int(&st);
        ret->revoked_at = column_int(&st);
        ret->limited = column_bool(&st);
    }
    return stmt_end(&st, rc, e);
}

int store_api_key_may(struct store_tx *tx, const struct id *key_id, const struct id *user_id,
                      int64_t *ret_until, struct err *e)
{
    struct key_term t = {0};
    int64_t may = 1;
    bool there;
    if (read_term(tx, key_id, &t, &there, e) != 0 ||
        (t.limited && has_user(tx, key_id, user_id, &may, e) != 0)) {
        return -1;
    }
    bool acts = there && t.revoked_at == 0 && (t.role == ROLE_BOT || t.role == ROLE_ADMIN) &&
                (t.expires_at == 0 || t.expires_at > tx->now_ms);
    *ret_until = !acts || may == 0 ? 0 : t.expires_at == 0 ? INT64_MAX : t.expires_at;
    return 0;
}

static int count_users(struct store_tx *tx, const struct id *key_id, int64_t *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "API key", "SELECT COUNT(*) FROM api_key_users WHERE key_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, key_id);
    return stmt_end_with_int(&st, ERR_INTERNAL, ret, e);
}

static int read_users(struct store_tx *tx, const struct id *key_id, struct list *users,
                      struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "API key",
                  "SELECT user_id FROM api_key_users WHERE key_id = ? ORDER BY place", e) != 0) {
        return -1;
    }
    bind_id(&st, key_id);
    struct id *items = users->items;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < users->n; i++) {
        rc = stmt_first(&st, ERR_INTERNAL, e);
        if (rc == 0) {
            column_id(&st, &items[i]);
        }
    }
    return stmt_end(&st, rc, e);
}

static int load_users(struct store_tx *tx, struct arena *arena, struct api_key *k, struct err *e)
{
    int64_t n;
    if (count_users(tx, &k->key_id, &n, e) != 0) {
        return -1;
    }
    k->allowed_users = (struct list){.n = (size_t)n};
    if (n == 0) {
        return 0;
    }
    k->allowed_users.items = arena_alloc(arena, (size_t)n * sizeof(struct id));
    if (k->allowed_users.items == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for the users of an API key");
    }
    return read_users(tx, &k->key_id, &k->allowed_users, e);
}

static void read_key(struct stmt *st, struct api_key *k)
{
    *k = (struct api_key){0};
    column_id(st, &k->key_id);
    column_text(st, k->name, sizeof(k->name));
    k->role = (enum role)column_enum(st, role_names);
    column_hash(st, k->secret_hash);
    k->limited = column_bool(st);
    column_id(st, &k->default_user);
    k->created_at = column_int(st);
    k->expires_at = column_int(st);
    k->last_used_at = column_int(st);
    k->revoked_at = column_int(st);
    k->as_of = column_int(st);
}

static int find_key(struct store_tx *tx, const char *sql, const struct id *id, struct arena *arena,
                    struct api_key *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "API key", sql, e) != 0) {
        return -1;
    }
    bind_id(&st, id);
    struct api_key k;
    int rc = stmt_first(&st, ERR_NOT_FOUND, e);
    if (rc == 0) {
        read_key(&st, &k);
    }
    if (stmt_end(&st, rc, e) != 0 || load_users(tx, arena, &k, e) != 0) {
        return -1;
    }
    *ret = k;
    return 0;
}

int store_api_key_get(struct store_tx *tx, const struct id *key_id, struct arena *arena,
                      struct api_key *ret, struct err *e)
{
    return find_key(tx, SELECT_KEY "WHERE key_id = ?", key_id, arena, ret, e);
}

int store_api_key_each(struct store_tx *tx, struct arena *arena,
                       int (*each)(void *ctx, const struct api_key *k, struct err *e), void *ctx,
                       struct err *e)
{
    struct api_key k = {0};
    struct err last;
    for (;;) {
        struct id after = k.key_id;
        if (find_key(tx, SELECT_KEY "WHERE key_id > ? ORDER BY key_id LIMIT 1", &after, arena, &k,
                     &last) != 0) {
            return stmt_walk_end(&last, e);
        }
        if (each(ctx, &k, e) != 0) {
            return -1;
        }
    }
}

struct key_walk {
    int (*each)(void *ctx, const struct api_key *k, struct err *e);
    void *ctx;
};

static int walk_key(struct stmt *st, void *arg, struct err *e)
{
    const struct key_walk *w = arg;
    struct api_key k;
    read_key(st, &k);
    return w->each(w->ctx, &k, e);
}

int store_api_key_list(struct store_tx *tx, const struct store_list *l,
                       int (*each)(void *ctx, const struct api_key *k, struct err *e), void *ctx,
                       struct err *e)
{
    struct key_walk w = {.each = each, .ctx = ctx};
    struct stmt st;
    if (stmt_open(&st, tx->conn, "API key",
                  SELECT_KEY "WHERE 1 = 1 " LIST_PAGE("created_at", "key_id"), e) != 0) {
        return -1;
    }
    list_bind_page(&st, l);
    return list_walk(&st, walk_key, &w, e);
}
