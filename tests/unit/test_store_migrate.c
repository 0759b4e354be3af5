/* A database of an earlier version keeps all that it holds. */
#include <sqlite3.h>

#include "../../storage/migrate.h"
#include "../../storage/stmt.h"
#include "../../storage/tx.h"
#include "../support/store_fixture.h"

static char *file_text(const char *path)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    return text;
}

static void exec(sqlite3 *db, const char *sql)
{
    char *why = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s", why);
    }
}

/* What a gateway of that version left, as SQL. Returned open. */
static sqlite3 *make_version_7(struct fixture *f)
{
    sqlite3 *db;
    char *sql = file_text(TEST_DATA "/version7.sql");
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    exec(db, sql);
    free(sql);
    return db;
}

/* --- the audit trail ---------------------------------------------------------------------------- */

#define ENTRIES 26

struct entry {
    int64_t at;
    char object[64], detail[64], hash[65];
};

static void rows_of_version_7(sqlite3 *db, struct entry ret[static ENTRIES])
{
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT at, object, detail, hash FROM audit ORDER BY n",
                                        -1, &st, NULL),
                     SQLITE_OK);
    for (int i = 0; i < ENTRIES; i++) {
        assert_int_equal(sqlite3_step(st), SQLITE_ROW);
        ret[i].at = sqlite3_column_int64(st, 0);
        snprintf(ret[i].object, sizeof(ret[i].object), "%s", sqlite3_column_text(st, 1));
        snprintf(ret[i].detail, sizeof(ret[i].detail), "%s", sqlite3_column_text(st, 2));
        snprintf(ret[i].hash, sizeof(ret[i].hash), "%s", sqlite3_column_text(st, 3));
    }
    assert_int_equal(sqlite3_step(st), SQLITE_DONE);
    sqlite3_finalize(st);
}

struct listed {
    struct entry entries[ENTRIES];
    int64_t n;
    int64_t checked, broken;
};

static int note_row(void *ctx, const struct audit_row *row, struct err *e)
{
    struct listed *l = ctx;
    struct entry *entry = &l->entries[l->n];
    (void)e;
    assert_true(l->n < ENTRIES);
    assert_int_equal(row->n, ++l->n);
    entry->at = row->entry.at;
    snprintf(entry->object, sizeof(entry->object), "%s", row->entry.object);
    snprintf(entry->detail, sizeof(entry->detail), "%s", row->entry.detail);
    for (size_t i = 0; i < sizeof(row->hash); i++) {
        snprintf(entry->hash + 2 * i, 3, "%02x", row->hash[i]);
    }
    return 0;
}

static int list_and_verify(struct store_tx *tx, void *arg, struct err *e)
{
    struct listed *l = arg;
    struct store_audit_seen seen;
    struct store_audit_list ask = {.limit = 1000};
    return store_audit_list(tx, &ask, note_row, l, &seen, e) != 0 ||
                   store_audit_verify(tx, &l->checked, &l->broken, e) != 0
               ? -1
               : 0;
}

static int audit_one(struct store_tx *tx, void *arg, struct err *e)
{
    (void)arg;
    struct audit_entry a = fixture_audit_entry("later");
    return store_audit(tx, &a, e);
}

static void the_audit_trail_is_kept_with_its_hashes(void **state)
{
    struct fixture *f = *state;
    struct entry before[ENTRIES];
    struct listed after = {0};
    sqlite3 *db = make_version_7(f);
    rows_of_version_7(db, before);
    sqlite3_close(db);
    fixture_open(f);
    fixture_read(f, list_and_verify, &after);
    assert_int_equal(after.checked, ENTRIES);
    assert_int_equal(after.broken, 0);
    for (int i = 0; i < ENTRIES; i++) {
        assert_int_equal(after.entries[i].at, before[i].at);
        assert_string_equal(after.entries[i].object, before[i].object);
        assert_string_equal(after.entries[i].detail, before[i].detail);
        assert_string_equal(after.entries[i].hash, before[i].hash);
    }
}

static int verify_only(struct store_tx *tx, void *arg, struct err *e)
{
    struct listed *l = arg;
    return store_audit_verify(tx, &l->checked, &l->broken, e);
}

static void a_chain_goes_on_over_the_migration(void **state)
{
    struct fixture *f = *state;
    struct listed l;
    sqlite3_close(make_version_7(f));
    fixture_open(f);
    fixture_write(f, audit_one, NULL);
    fixture_reopen(f);
    fixture_write(f, audit_one, NULL);
    fixture_read(f, verify_only, &l);
    assert_int_equal(l.checked, ENTRIES + 2);
    assert_int_equal(l.broken, 0);
}

static void a_migration_hides_no_broken_entry(void **state)
{
    static const struct {
        const char *sql;
        int64_t broken;
    } changes[] = {
        {"UPDATE audit SET actor = 'nobody' WHERE n = 4", 4},
        {"UPDATE audit SET hash = 'no hash' WHERE n = 7", 7},
        {"DELETE FROM audit WHERE n = 9", 9},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct fixture *f = fixture_new();
        struct listed l;
        sqlite3 *db = make_version_7(f);
        exec(db, changes[i].sql);
        sqlite3_close(db);
        fixture_open(f);
        fixture_read(f, verify_only, &l);
        assert_int_equal(l.broken, changes[i].broken);
        fixture_free(f);
    }
}

/* --- leases ------------------------------------------------------------------------------------- */

#define LEASES 8

struct lease_rows {
    struct lease rows[LEASES];
    size_t n;
    struct store_filter filter;
};

static int note_lease(void *ctx, const struct lease *l, struct err *e)
{
    struct lease_rows *r = ctx;
    (void)e;
    assert_true(r->n < LEASES);
    r->rows[r->n++] = *l;
    return 0;
}

static int list_leases(struct store_tx *tx, void *arg, struct err *e)
{
    struct lease_rows *r = arg;
    struct caller anybody = {0};
    struct store_list ask = {.limit = 100, .caller = &anybody};
    r->n = 0;
    return store_lease_list(tx, &ask, &r->filter, note_lease, r, e);
}

static void assert_same_row(sqlite3_stmt *st, const struct lease *l)
{
    assert_string_equal((const char *)sqlite3_column_text(st, 0), ID_STR(&l->lease_id));
    assert_string_equal((const char *)sqlite3_column_text(st, 1), ID_STR(&l->session_id));
    assert_string_equal((const char *)sqlite3_column_text(st, 2), ID_STR(&l->api_key_id));
    assert_string_equal((const char *)sqlite3_column_text(st, 3), lease_state_names[l->state]);
    assert_string_equal((const char *)sqlite3_column_text(st, 4), l->revoked_reason);
    assert_int_equal(sqlite3_column_int64(st, 5), l->expires_at);
    assert_int_equal(sqlite3_column_int64(st, 6), l->grant_seq);
    assert_string_equal((const char *)sqlite3_column_text(st, 7), l->kid);
    assert_string_equal((const char *)sqlite3_column_text(st, 8), l->renewed_kid);
}

static void every_lease_is_kept_in_the_order_of_issue(void **state)
{
    struct fixture *f = *state;
    struct lease_rows r = {0};
    sqlite3 *db = make_version_7(f), *before;
    sqlite3_stmt *st;
    char copy[100];
    snprintf(copy, sizeof(copy), "%s.copy", f->path);
    assert_int_equal(sqlite3_open(copy, &before), SQLITE_OK);
    sqlite3_backup *backup = sqlite3_backup_init(before, "main", db, "main");
    assert_int_equal(sqlite3_backup_step(backup, -1), SQLITE_DONE);
    sqlite3_backup_finish(backup);
    sqlite3_close(db);

    fixture_open(f);
    fixture_read(f, list_leases, &r);
    assert_int_equal(r.n, LEASES);
    assert_int_equal(sqlite3_prepare_v2(before,
                                        "SELECT lease_id, session_id, api_key_id, state,"
                                        " revoked_reason, expires_at, grant_seq, kid, renewed_kid"
                                        " FROM leases ORDER BY issued_at, lease_id",
                                        -1, &st, NULL),
                     SQLITE_OK);
    for (size_t i = 0; i < LEASES; i++) {
        assert_int_equal(sqlite3_step(st), SQLITE_ROW);
        assert_same_row(st, &r.rows[i]);
    }
    sqlite3_finalize(st);
    sqlite3_close(before);
}

static void leases_are_found_by_their_chat_session_and_user(void **state)
{
    struct fixture *f = *state;
    struct lease_rows all = {0};
    sqlite3_close(make_version_7(f));
    fixture_open(f);
    fixture_read(f, list_leases, &all);
    const struct lease *first = &all.rows[0];
    const struct store_filter filters[] = {
        {.chat_id = first->chat_id},
        {.session_id = first->session_id},
        {.chat_id = first->chat_id, .session_id = first->session_id},
        {.chat_id = first->chat_id, .user_id = first->user_id}};
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        struct lease_rows r = {.filter = filters[i]};
        fixture_read(f, list_leases, &r);
        assert_int_equal(r.n, LEASES / 2);
        for (size_t k = 0; k < r.n; k++) {
            assert_true(id_equal(&r.rows[k].session_id, &first->session_id));
            assert_true(k == 0 || r.rows[k].n > r.rows[k - 1].n);
        }
    }
}

static int64_t count_leases(const struct fixture *f, const char *which)
{
    char sql[256];
    sqlite3 *db;
    sqlite3_stmt *st;
    snprintf(sql, sizeof(sql), "SELECT COUNT(*) FROM leases WHERE %s", which);
    assert_int_equal(sqlite3_open_v2(f->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

static void what_was_closed_stands_among_the_open_no_more(void **state)
{
    struct fixture *f = *state;
    sqlite3 *db = make_version_7(f);
    assert_int_equal(sqlite3_exec(db,
                                  "UPDATE leases SET state = 'closed' WHERE lease_id ="
                                  " (SELECT MIN(lease_id) FROM leases)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    fixture_open(f);
    int64_t closed = count_leases(f, "closed = 1");
    assert_true(closed > 0);
    assert_int_equal(closed, count_leases(f, "state = 'closed'"));
    assert_int_equal(LEASES - closed, count_leases(f, "closed = 0"));
}

/* --- CHECKs ------------------------------------------------------------------------------------- */

/* Migration 20 as it was for a while: where leases had been closed it ran by a connection that ignored
 * CHECKs, as all did then. */
static const char first_20[] =
    "DROP INDEX leases_open;"
    "DROP INDEX leases_of_key;"
    "ALTER TABLE leases ADD COLUMN closed INTEGER NOT NULL DEFAULT 0"
    " CHECK ((closed = 1 AND state = 'closed') OR (closed = 0 AND state <> 'closed'));"
    "UPDATE leases SET closed = 1 WHERE state = 'closed';"
    "CREATE INDEX leases_of_key ON leases (api_key_id, n) WHERE closed = 0;"
    "CREATE INDEX leases_open ON leases (session_id, n) WHERE closed = 0;";

static void migrate_by_first_20(const char *path)
{
    struct migration table[21] = {0};
    struct conn c;
    struct err e;
    int64_t applied;
    memcpy(table, migrations, 20 * sizeof(table[0]));
    assert_int_equal(table[19].version, 20);
    table[19].sql = first_20;
    assert_int_equal(conn_open(path, CONN_WRITE, &c, &e), 0);
    assert_int_equal(conn_exec(&c, "PRAGMA ignore_check_constraints = ON", &e), 0);
    assert_int_equal(migrate(&c, table, &applied, &e), 0);
    conn_close(&c);
}

static void a_database_of_the_first_migration_20_goes_on(void **state)
{
    struct fixture *f = *state;
    struct lease_rows r = {0};
    sqlite3_close(make_version_7(f));
    migrate_by_first_20(f->path);
    fixture_open(f);
    fixture_read(f, list_leases, &r);
    assert_int_equal(r.n, LEASES);
}

static int check_whole(struct store_tx *tx, void *arg, struct err *e)
{
    struct stmt st;
    char found[256] = "";
    (void)arg;
    assert_int_equal(stmt_open(&st, tx->conn, "check", "PRAGMA integrity_check", e), 0);
    int rc = stmt_first(&st, ERR_INTERNAL, e);
    if (rc == 0) {
        column_text(&st, found, sizeof(found));
        assert_string_equal(found, "ok");
    }
    return stmt_end(&st, rc, e);
}

static int write_nonsense(struct store_tx *tx, void *arg, struct err *e)
{
    return conn_exec(tx->conn, arg, e);
}

static void rows_of_an_earlier_version_hold_what_sqlite_checks(void **state)
{
    static const char *const nonsense[] = {
        "UPDATE leases SET state = 'nonsense'", "UPDATE leases SET use_kind = ''",
        "UPDATE leases SET closed = 1 - closed", "UPDATE sandboxes SET status = 'nonsense'"};
    struct fixture *f = *state;
    struct err e;
    sqlite3_close(make_version_7(f));
    fixture_open(f);
    fixture_read(f, check_whole, NULL);
    for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
        char *sql = (char *)(uintptr_t)nonsense[i];
        assert_int_equal(store_write(f->store, write_nonsense, sql, &e), -1);
        assert_non_null(strstr(e.msg, "CHECK constraint failed"));
    }
}

/* --- blocks ------------------------------------------------------------------------------------- */

#define UNNAMED(owner)                                                                             \
    "NOT EXISTS (SELECT 1 FROM lease_blocks WHERE owner_id = " owner " AND block = n / 128)"

static void leases_of_an_earlier_version_are_named_in_their_blocks(void **state)
{
    struct fixture *f = *state;
    sqlite3_close(make_version_7(f));
    fixture_open(f);
    assert_int_equal(count_leases(f, "1 = 1"), LEASES);
    assert_int_equal(count_leases(f, UNNAMED("session_id")), 0);
    assert_int_equal(count_leases(f, UNNAMED("user_id")), 0);
    assert_int_equal(count_leases(f, "api_key_id IS NOT NULL AND " UNNAMED("api_key_id")), 0);
    assert_int_equal(
        count_leases(f, "closed = 0 AND n / 128 NOT IN (SELECT block FROM lease_open_blocks)"), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup_closed, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(the_audit_trail_is_kept_with_its_hashes),
        T(a_chain_goes_on_over_the_migration),
        T(a_migration_hides_no_broken_entry),
        T(every_lease_is_kept_in_the_order_of_issue),
        T(leases_are_found_by_their_chat_session_and_user),
        T(what_was_closed_stands_among_the_open_no_more),
        T(a_database_of_the_first_migration_20_goes_on),
        T(rows_of_an_earlier_version_hold_what_sqlite_checks),
        T(leases_of_an_earlier_version_are_named_in_their_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
