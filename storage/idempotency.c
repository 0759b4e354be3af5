#include "stmt.h"
#include "tx.h"

#define COLUMNS                                                                                    \
    "key_id, idempotency_key, fingerprint, created_at, status, code, pointer, body, lease_id, "    \
    "iat,"                                                                                         \
    " expires_at, rq"

int store_idempotency_put(struct store_tx *tx, const struct idempotency *r, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "idempotency record",
                  "INSERT INTO idempotency (" COLUMNS ")"
                  " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                  " ON CONFLICT (key_id, idempotency_key) DO UPDATE SET"
                  " fingerprint = excluded.fingerprint, created_at = excluded.created_at,"
                  " status = excluded.status, code = excluded.code, pointer = excluded.pointer,"
                  " body = excluded.body, lease_id = excluded.lease_id, iat = excluded.iat,"
                  " expires_at = excluded.expires_at, rq = excluded.rq",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, &r->key_id);
    bind_text(&st, r->key);
    bind_hash(&st, r->fingerprint);
    bind_int(&st, r->created_at);
    bind_int(&st, r->status);
    bind_text(&st, r->code);
    bind_text(&st, r->pointer);
    bind_text(&st, r->body);
    bind_id_or_null(&st, &r->lease_id);
    bind_int(&st, r->iat);
    bind_int(&st, r->expires_at);
    bind_int(&st, r->rq);
    return stmt_run(&st, e);
}

static void read_record(struct stmt *st, struct arena *arena, struct idempotency *r)
{
    *r = (struct idempotency){0};
    column_id(st, &r->key_id);
    column_text(st, r->key, sizeof(r->key));
    column_hash(st, r->fingerprint);
    r->created_at = column_int(st);
    r->status = column_int(st);
    column_text(st, r->code, sizeof(r->code));
    column_text(st, r->pointer, sizeof(r->pointer));
    r->body = column_text_new(st, arena);
    column_id(st, &r->lease_id);
    r->iat = column_int(st);
    r->expires_at = column_int(st);
    r->rq = column_int(st);
}

int store_idempotency_get(struct store_tx *tx, const struct id *key_id, const char *key,
                          int64_t since, struct arena *arena, struct idempotency *ret,
                          struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "idempotency record",
                  "SELECT " COLUMNS " FROM idempotency"
                  " WHERE key_id = ? AND idempotency_key = ? AND created_at > ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, key_id);
    bind_text(&st, key);
    bind_int(&st, since);
    struct idempotency r;
    int rc = stmt_first(&st, ERR_NOT_FOUND, e);
    if (rc == 0) {
        read_record(&st, arena, &r);
    }
    if (stmt_end(&st, rc, e) != 0) {
        return -1;
    }
    *ret = r;
    return 0;
}

int store_idempotency_expire(struct store_tx *tx, int64_t until, int64_t limit, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "idempotency record",
                  "DELETE FROM idempotency WHERE (key_id, idempotency_key) IN"
                  " (SELECT key_id, idempotency_key FROM idempotency WHERE created_at <= ?"
                  " ORDER BY created_at LIMIT ?)",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, until);
    bind_int(&st, limit);
    return stmt_run(&st, e);
}

int store_idempotency_cut(struct store_tx *tx, int64_t most_ms, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "idempotency record",
                  "UPDATE idempotency SET created_at = ?1 WHERE created_at > ?1", e) != 0) {
        return -1;
    }
    bind_int(&st, most_ms);
    return stmt_run(&st, e);
}

int store_idempotency_forget(struct store_tx *tx, const struct id *key_id, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "idempotency record", "DELETE FROM idempotency WHERE key_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, key_id);
    return stmt_run(&st, e);
}
