/* The audit chain: docs/audit.md. */
#include <openssl/sha.h>
#include <sqlite3.h>

#include "../support/store_fixture.h"

enum { ROWS = 10 };

static int add_rows(struct store_tx *tx, void *arg, struct err *e)
{
    (void)arg;
    for (int i = 0; i < ROWS; i++) {
        struct audit_entry a = fixture_audit_entry("lease:1");
        if (store_audit(tx, &a, e) != 0) {
            return -1;
        }
    }
    return 0;
}

static int verify_audit(struct store_tx *tx, void *arg, struct err *e)
{
    int64_t *checked_and_broken = arg;
    return store_audit_verify(tx, &checked_and_broken[0], &checked_and_broken[1], e);
}

static void assert_chain(struct fixture *f, int64_t checked, int64_t first_broken)
{
    int64_t audit[2];
    fixture_read(f, verify_audit, audit);
    assert_int_equal(audit[0], checked);
    assert_int_equal(audit[1], first_broken);
}

/* With the store closed, as somebody with the file in hand would. */
static void tamper(struct fixture *f, const char *sql)
{
    sqlite3 *db;
    store_close(f->store);
    f->store = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    fixture_open(f);
}

static void an_empty_trail_is_whole(void **state)
{
    assert_chain(*state, 0, 0);
}

static void a_trail_goes_on_over_a_restart(void **state)
{
    struct fixture *f = *state;
    fixture_write(f, add_rows, NULL);
    fixture_reopen(f);
    fixture_write(f, add_rows, NULL);
    assert_chain(f, 2 * ROWS, 0);
}

static void any_change_of_a_row_is_found_there(void **state)
{
    struct fixture *f = *state;
    static const char *const changes[] = {
        "UPDATE audit SET at = at + 1 WHERE n = 4",
        "UPDATE audit SET actor = 'x' WHERE n = 4",
        "UPDATE audit SET outcome = 'denied' WHERE n = 4",
        "UPDATE audit SET outcome = outcome || substr(address, 1, 1),"
        " address = substr(address, 2) WHERE n = 4",
        "UPDATE audit SET detail = 'x' WHERE n = 4",
        "UPDATE audit SET prev = hash WHERE n = 4",
        "UPDATE audit SET hash = 'no hash' WHERE n = 4",
        "DELETE FROM audit WHERE n = 4",
    };
    fixture_write(f, add_rows, NULL);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        assert_chain(f, ROWS, 0);
        tamper(f, "CREATE TABLE saved AS SELECT * FROM audit");
        tamper(f, changes[i]);
        assert_chain(f, 3, 4);
        tamper(f, "DELETE FROM audit; INSERT INTO audit SELECT * FROM saved; DROP TABLE saved");
    }
}

static void two_rows_that_change_places_are_found(void **state)
{
    struct fixture *f = *state;
    fixture_write(f, add_rows, NULL);
    tamper(f, "UPDATE audit SET n = 100 WHERE n = 5; UPDATE audit SET n = 5 WHERE n = 6;"
              "UPDATE audit SET n = 6 WHERE n = 100");
    assert_chain(f, 4, 5);
}

/* The documented form, computed by other means. */
static void the_hash_is_the_documented_one(void **state)
{
    struct fixture *f = *state;
    static const char form[] = "\0\0\0\1"
                               "1"
                               "\0\0\0\1"
                               "5"
                               "\0\0\0\7"
                               "gateway"
                               "\0\0\0\4"
                               "test"
                               "\0\0\0\7"
                               "lease:1"
                               "\0\0\0\2"
                               "ok"
                               "\0\0\0\11"
                               "127.0.0.1"
                               "\0\0\0\1"
                               "r"
                               "\0\0\0\0";
    unsigned char text[32 + sizeof(form) - 1] = {0}, hash[32];
    memcpy(text + 32, form, sizeof(form) - 1);
    SHA256(text, sizeof(text), hash);
    char expected[65];
    for (size_t i = 0; i < sizeof(hash); i++) {
        snprintf(expected + 2 * i, 3, "%02x", hash[i]);
    }

    sqlite3 *db;
    sqlite3_stmt *st;
    fixture_write(f, add_rows, NULL);
    store_close(f->store);
    f->store = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT hash FROM audit WHERE n = 1", -1, &st, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(st, 0), expected);
    sqlite3_finalize(st);
    sqlite3_close(db);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(an_empty_trail_is_whole),
        T(a_trail_goes_on_over_a_restart),
        T(any_change_of_a_row_is_found_there),
        T(two_rows_that_change_places_are_found),
        T(the_hash_is_the_documented_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
