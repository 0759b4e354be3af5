/* A database of an earlier version keeps all that it holds. */
#include <sqlite3.h>

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

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup_closed, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(the_audit_trail_is_kept_with_its_hashes),
        T(a_chain_goes_on_over_the_migration),
        T(a_migration_hides_no_broken_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
