#include "stmt.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "hex.h"

struct prepared {
    const char *sql;
    sqlite3_stmt *handle;
    bool in_use;
    UT_hash_handle hh;
};

static int prepared_new(struct conn *c, const char *sql, struct prepared **ret, struct err *e)
{
    struct prepared *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for a statement");
    }
    int rc = sqlite3_prepare_v3(c->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &p->handle, NULL);
    if (rc != SQLITE_OK) {
        free(p);
        (void)conn_fail(c, rc, "statement", e);
        return -1;
    }
    p->sql = sql;
    HASH_ADD_PTR(c->prepared, sql, p);
    *ret = p;
    return 0;
}

void prepared_free_all(struct prepared **cache)
{
    struct prepared *p, *next;
    HASH_ITER (hh, *cache, p, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(*cache, p);
        sqlite3_finalize(p->handle);
        free(p);
    }
}

int stmt_open(struct stmt *st, struct conn *conn, const char *what, const char *sql, struct err *e)
{
    st->conn = conn;
    st->what = what;
    st->handle = NULL;
    st->prepared = NULL;
    st->bound = st->read = st->ids_n = 0;
    st->bind_rc = SQLITE_OK;
    st->bad_read = NULL;
    struct prepared *p;
    HASH_FIND_PTR(conn->prepared, &sql, p);
    if (p == NULL && prepared_new(conn, sql, &p, e) != 0) {
        return -1;
    }
    assert(!p->in_use);
    p->in_use = true;
    st->prepared = p;
    st->handle = p->handle;
    return 0;
}

static void close_run(struct stmt *st)
{
    sqlite3_reset(st->handle);
    sqlite3_clear_bindings(st->handle);
    st->prepared->in_use = false;
    st->handle = NULL;
}

int stmt_end(struct stmt *st, int rc, struct err *e)
{
    close_run(st);
    if (rc == 0 && st->bad_read != NULL) {
        return err_set(e, ERR_INTERNAL, "stored %s, column %d: %s", st->what, st->read,
                       st->bad_read);
    }
    return rc;
}

int stmt_next(struct stmt *st, bool *ret_row, struct err *e)
{
    int rc = st->bind_rc;
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(st->handle);
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        conn_fail(st->conn, rc, st->what, e);
        return -1;
    }
    st->read = 0;
    *ret_row = rc == SQLITE_ROW;
    return 0;
}

int stmt_first(struct stmt *st, enum err_code absent, struct err *e)
{
    bool row;
    if (stmt_next(st, &row, e) != 0) {
        return -1;
    }
    return row ? 0 : err_set(e, absent, "no such %s", st->what);
}

int stmt_run(struct stmt *st, struct err *e)
{
    bool row;
    int rc = stmt_next(st, &row, e);
    return stmt_end(st, rc, e);
}

int stmt_exec(struct conn *conn, const char *sql, struct err *e)
{
    struct stmt st;
    return stmt_open(&st, conn, "transaction", sql, e) == 0 ? stmt_run(&st, e) : -1;
}

int stmt_run_one(struct stmt *st, enum err_code absent, struct err *e)
{
    struct conn *conn = st->conn;
    if (stmt_run(st, e) != 0) {
        return -1;
    }
    return sqlite3_changes(conn->db) == 1 ? 0 : err_set(e, absent, "no such %s", st->what);
}

int stmt_walk_end(const struct err *last, struct err *e)
{
    if (last->code == ERR_NOT_FOUND) {
        return 0;
    }
    *e = *last;
    return -1;
}

int stmt_end_with_int(struct stmt *st, enum err_code absent, int64_t *ret, struct err *e)
{
    int64_t v = 0;
    int rc = stmt_first(st, absent, e);
    if (rc == 0) {
        v = column_int(st);
    }
    if (stmt_end(st, rc, e) != 0) {
        return -1;
    }
    *ret = v;
    return 0;
}

/* --- binding ------------------------------------------------------------------------------- */

static void note_bind(struct stmt *st, int rc)
{
    if (st->bind_rc == SQLITE_OK) {
        st->bind_rc = rc;
    }
}

void bind_int(struct stmt *st, int64_t v)
{
    note_bind(st, sqlite3_bind_int64(st->handle, ++st->bound, v));
}

void bind_text(struct stmt *st, const char *s)
{
    note_bind(st,
              sqlite3_bind_text(st->handle, ++st->bound, s != NULL ? s : "", -1, SQLITE_STATIC));
}

void bind_text_len(struct stmt *st, const char *s, size_t len)
{
    note_bind(st, sqlite3_bind_text64(st->handle, ++st->bound, len > 0 ? s : "", len, SQLITE_STATIC,
                                      SQLITE_UTF8));
}

void bind_blob(struct stmt *st, const void *data, size_t len)
{
    note_bind(st, sqlite3_bind_blob64(st->handle, ++st->bound, data, len, SQLITE_STATIC));
}

void bind_id(struct stmt *st, const struct id *id)
{
    bool kept = st->ids_n < STMT_IDS;
    char *text = id_format(id, kept ? st->ids[st->ids_n++] : (char[ID_TEXT]){0});
    note_bind(st, sqlite3_bind_text(st->handle, ++st->bound, text, ID_TEXT - 1,
                                    kept ? SQLITE_STATIC : SQLITE_TRANSIENT));
}

void bind_id_or_null(struct stmt *st, const struct id *id)
{
    if (id_is_zero(id)) {
        note_bind(st, sqlite3_bind_null(st->handle, ++st->bound));
    } else {
        bind_id(st, id);
    }
}

void bind_hash(struct stmt *st, const uint8_t hash[static 32])
{
    char text[HASH_HEX];
    hash_to_hex(hash, text);
    note_bind(st, sqlite3_bind_text(st->handle, ++st->bound, text, HASH_HEX - 1, SQLITE_TRANSIENT));
}

/* --- reading ------------------------------------------------------------------------------- */

static void note_bad(struct stmt *st, const char *why)
{
    if (st->bad_read == NULL) {
        st->bad_read = why;
    }
}

int64_t column_int(struct stmt *st)
{
    return sqlite3_column_int64(st->handle, st->read++);
}

bool column_bool(struct stmt *st)
{
    return column_int(st) != 0;
}

const char *column_borrow(struct stmt *st, int *ret_len)
{
    int i = st->read++;
    const char *text = (const char *)sqlite3_column_text(st->handle, i);
    *ret_len = sqlite3_column_bytes(st->handle, i);
    return text != NULL ? text : "";
}

const uint8_t *column_blob(struct stmt *st, size_t *ret_len)
{
    int i = st->read++;
    const uint8_t *data = sqlite3_column_blob(st->handle, i);
    *ret_len = (size_t)sqlite3_column_bytes(st->handle, i);
    return data;
}

void column_text(struct stmt *st, char *ret, size_t size)
{
    int len;
    const char *text = column_borrow(st, &len);
    if ((size_t)len >= size) {
        note_bad(st, "too long");
        len = 0;
    }
    memcpy(ret, text, (size_t)len);
    ret[len] = '\0';
}

char *column_text_new(struct stmt *st, struct arena *arena)
{
    int len;
    const char *text = column_borrow(st, &len);
    char *copy = arena_strndup(arena, text, (size_t)len);
    if (copy == NULL) {
        note_bad(st, "no memory");
    }
    return copy;
}

void column_id(struct stmt *st, struct id *ret)
{
    int len;
    const char *text = column_borrow(st, &len);
    *ret = (struct id){{0}};
    if (len > 0 && !id_parse(text, (size_t)len, ret)) {
        note_bad(st, "not an id");
    }
}

void column_hash(struct stmt *st, uint8_t ret[static 32])
{
    int len;
    const char *text = column_borrow(st, &len);
    if (hash_from_hex(text, (size_t)len, ret) != 0) {
        note_bad(st, "not a hash");
        memset(ret, 0, 32);
    }
}

int column_enum(struct stmt *st, const char *const *names)
{
    int len;
    const char *text = column_borrow(st, &len);
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], text) == 0) {
            return i;
        }
    }
    note_bad(st, "unknown name");
    return 0;
}
