#include "list.h"

/* In the order of bind_key and read_key. */
#define KEY_COLUMNS "kid, x, y, file, state, created_at, signing_at, retired_at, ended_at"

static void read_key(struct stmt *st, struct signing_key *k)
{
    *k = (struct signing_key){0};
    column_text(st, k->kid, sizeof(k->kid));
    column_text(st, k->x, sizeof(k->x));
    column_text(st, k->y, sizeof(k->y));
    column_text(st, k->file, sizeof(k->file));
    k->state = (enum signing_key_state)column_enum(st, signing_key_state_names);
    k->created_at = column_int(st);
    k->signing_at = column_int(st);
    k->retired_at = column_int(st);
    k->ended_at = column_int(st);
}

static void bind_state(struct stmt *st, const struct signing_key *k)
{
    bind_text(st, signing_key_state_names[k->state]);
    bind_int(st, k->created_at);
    bind_int(st, k->signing_at);
    bind_int(st, k->retired_at);
    bind_int(st, k->ended_at);
}

int store_signing_key_insert(struct store_tx *tx, const struct signing_key *k, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "signing key",
                  "INSERT INTO signing_keys (" KEY_COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_text(&st, k->kid);
    bind_text(&st, k->x);
    bind_text(&st, k->y);
    bind_text(&st, k->file);
    bind_state(&st, k);
    return stmt_run(&st, e);
}

int store_signing_key_update(struct store_tx *tx, const struct signing_key *k, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "signing key",
                  "UPDATE signing_keys SET (state, created_at, signing_at, retired_at, ended_at) ="
                  " (?, ?, ?, ?, ?) WHERE kid = ?",
                  e) != 0) {
        return -1;
    }
    bind_state(&st, k);
    bind_text(&st, k->kid);
    return stmt_run_one(&st, ERR_NOT_FOUND, e);
}

struct key_walk {
    int (*each)(void *ctx, const struct signing_key *k, struct err *e);
    void *ctx;
};

static int walk_key(struct stmt *st, void *arg, struct err *e)
{
    const struct key_walk *w = arg;
    struct signing_key k;
    read_key(st, &k);
    return w->each(w->ctx, &k, e);
}

int store_signing_key_each(struct store_tx *tx,
                           int (*each)(void *ctx, const struct signing_key *k, struct err *e),
                           void *ctx, struct err *e)
{
    struct key_walk w = {.each = each, .ctx = ctx};
    struct stmt st;
    if (stmt_open(&st, tx->conn, "signing key",
                  "SELECT " KEY_COLUMNS " FROM signing_keys ORDER BY created_at, kid", e) != 0) {
        return -1;
    }
    return list_walk(&st, walk_key, &w, e);
}
