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

/* --- as somebody with the file in hand would ---------------------------------------------------- */

static sqlite3 *open_by_hand(struct fixture *f)
{
    sqlite3 *db;
    store_close(f->store);
    f->store = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    return db;
}

static void tamper(struct fixture *f, const char *sql)
{
    sqlite3 *db = open_by_hand(f);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    fixture_open(f);
}

/* The block that begins with entry `first_n`. */
static size_t block_get(struct fixture *f, int first_n, uint8_t *ret, size_t size)
{
    sqlite3 *db = open_by_hand(f);
    sqlite3_stmt *st;
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT entries FROM audit_blocks WHERE first_n = ?", -1, &st, NULL),
        SQLITE_OK);
    sqlite3_bind_int(st, 1, first_n);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    size_t len = (size_t)sqlite3_column_bytes(st, 0);
    assert_true(len <= size);
    memcpy(ret, sqlite3_column_blob(st, 0), len);
    sqlite3_finalize(st);
    sqlite3_close(db);
    fixture_open(f);
    return len;
}

static void block_put(struct fixture *f, int first_n, const uint8_t *block, size_t len)
{
    sqlite3 *db;
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "UPDATE audit_blocks SET entries = ? WHERE first_n = ?",
                                        -1, &st, NULL),
                     SQLITE_OK);
    sqlite3_bind_blob(st, 1, block, (int)len, SQLITE_STATIC);
    sqlite3_bind_int(st, 2, first_n);
    assert_int_equal(sqlite3_step(st), SQLITE_DONE);
    sqlite3_finalize(st);
    sqlite3_close(db);
}

/* --- the chain ---------------------------------------------------------------------------------- */

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

/* Also of a length, a number or a hash: nothing in the file is not covered. */
static void any_changed_byte_is_found_in_its_entry(void **state)
{
    struct fixture *f = *state;
    uint8_t block[4096];
    fixture_write(f, add_rows, NULL);
    size_t len = block_get(f, 1, block, sizeof(block));
    size_t entry = (len - 32 - 1) / ROWS; /* the number of the tenth is a byte longer */
    for (size_t i = 0; i < len; i += 3) {
        block[i] ^= 1;
        block_put(f, 1, block, len);
        int64_t broken = i < 32 ? 1 : (int64_t)((i - 32) / entry) + 1;
        broken = broken > ROWS ? ROWS : broken;
        assert_chain(f, broken - 1, broken);
        block[i] ^= 1;
    }
    block_put(f, 1, block, len);
    assert_chain(f, ROWS, 0);
}

static void an_entry_that_is_cut_out_is_missed(void **state)
{
    struct fixture *f = *state;
    uint8_t block[4096], cut[4096];
    fixture_write(f, add_rows, NULL);
    size_t len = block_get(f, 1, block, sizeof(block));
    size_t entry = (len - 32 - 1) / ROWS, at = 32 + 3 * entry;
    memcpy(cut, block, at);
    memcpy(cut + at, block + at + entry, len - at - entry);
    block_put(f, 1, cut, len - entry);
    assert_chain(f, 3, 4);
    block_put(f, 1, block, len - 1 - entry); /* the last one, from the end of its block */
    assert_chain(f, ROWS - 1, ROWS);
    block_put(f, 1, block, 40);
    assert_chain(f, 0, 1);
}

static void what_a_row_says_of_its_block_must_be_so(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *change, *back;
        int64_t broken;
    } changes[] = {
        {"UPDATE audit_blocks SET first_n = 12 WHERE first_n = 11",
         "UPDATE audit_blocks SET first_n = 11 WHERE first_n = 12", 11},
        {"UPDATE audit_blocks SET last_n = 21 WHERE first_n = 11",
         "UPDATE audit_blocks SET last_n = 20 WHERE first_n = 11", 21},
        {"UPDATE audit_blocks SET min_at = 6 WHERE first_n = 11",
         "UPDATE audit_blocks SET min_at = 5 WHERE first_n = 11", 11},
        {"UPDATE audit_blocks SET max_at = 4 WHERE first_n = 11",
         "UPDATE audit_blocks SET max_at = 5 WHERE first_n = 11", 11},
        {"CREATE TABLE saved AS SELECT * FROM audit_blocks;"
         "DELETE FROM audit_blocks WHERE first_n = 11",
         "DELETE FROM audit_blocks; INSERT INTO audit_blocks SELECT * FROM saved; DROP TABLE saved",
         11},
    };
    for (int i = 0; i < 3; i++) {
        fixture_write(f, add_rows, NULL);
    }
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        assert_chain(f, 3 * ROWS, 0);
        tamper(f, changes[i].change);
        assert_chain(f, changes[i].broken - 1, changes[i].broken);
        tamper(f, changes[i].back);
    }
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
    uint8_t block[4096], text[32 + sizeof(form) - 1] = {0}, hash[32];
    memcpy(text + 32, form, sizeof(form) - 1);
    SHA256(text, sizeof(text), hash);
    fixture_write(f, add_rows, NULL);
    assert_true(block_get(f, 1, block, sizeof(block)) > sizeof(text) + sizeof(hash));
    assert_memory_equal(block, text, sizeof(text));
    assert_memory_equal(block + sizeof(text), hash, sizeof(hash));
}

/* --- lists -------------------------------------------------------------------------------------- */

static int add_mixed(struct store_tx *tx, void *arg, struct err *e)
{
    const int *from = arg;
    for (int i = *from; i < *from + ROWS; i++) {
        char object[32];
        snprintf(object, sizeof(object), "lease:%d", i % 3);
        struct audit_entry a = fixture_audit_entry(object);
        a.at = 1000 + i;
        a.action = i % 2 ? "odd" : "even";
        a.actor = i < 15 ? "early" : "late";
        if (store_audit(tx, &a, e) != 0) {
            return -1;
        }
    }
    return 0;
}

struct listed {
    struct store_audit_list ask;
    int64_t n[100];
    size_t found;
    uint8_t last_hash[32];
    struct store_audit_seen seen;
};

static int note_row(void *ctx, const struct audit_row *row, struct err *e)
{
    struct listed *l = ctx;
    (void)e;
    char object[32];
    snprintf(object, sizeof(object), "lease:%d", (int)(row->n - 1) % 3);
    assert_string_equal(row->entry.object, object);
    assert_int_equal(row->entry.at, 1000 + row->n - 1);
    assert_string_equal(row->entry.address, "127.0.0.1");
    assert_string_equal(row->entry.detail, "");
    if (l->found > 0 && l->n[l->found - 1] == row->n - 1) {
        assert_memory_equal(row->prev, l->last_hash, sizeof(row->prev));
    }
    memcpy(l->last_hash, row->hash, sizeof(row->hash));
    l->n[l->found++] = row->n;
    return 0;
}

static int list_fn(struct store_tx *tx, void *arg, struct err *e)
{
    struct listed *l = arg;
    l->found = 0;
    return store_audit_list(tx, &l->ask, note_row, l, &l->seen, e);
}

static struct listed list(struct fixture *f, struct store_audit_list ask)
{
    struct listed l = {.ask = ask};
    l.ask.limit = ask.limit ? ask.limit : 100;
    fixture_read(f, list_fn, &l);
    return l;
}

static void entries_are_listed_by_what_and_when(void **state)
{
    struct fixture *f = *state;
    for (int from = 0; from < 3 * ROWS; from += ROWS) {
        fixture_write(f, add_mixed, &from);
    }
    struct listed all = list(f, (struct store_audit_list){0});
    assert_int_equal(all.found, 30);
    assert_int_equal(all.n[29], 30);
    assert_false(all.seen.more);
    assert_int_equal(all.seen.n, 30);
    assert_int_equal(list(f, (struct store_audit_list){.action = "odd"}).found, 15);
    assert_int_equal(list(f, (struct store_audit_list){.actor = "late"}).n[0], 16);
    assert_int_equal(list(f, (struct store_audit_list){.object = "lease:2"}).found, 10);
    assert_int_equal(list(f, (struct store_audit_list){.object = "lease:"}).found, 0);
    assert_int_equal(list(f, (struct store_audit_list){.action = "odd", .object = "lease:1"}).found,
                     5);
    struct listed span = list(f, (struct store_audit_list){.since = 1005, .until = 1025});
    assert_int_equal(span.found, 20);
    assert_int_equal(span.n[0], 6);
    assert_int_equal(span.n[19], 25);
}

static void a_list_goes_on_where_it_ended(void **state)
{
    struct fixture *f = *state;
    struct store_audit_list ask = {.action = "even", .limit = 4};
    int64_t found = 0;
    bool more = true;
    for (int from = 0; from < 3 * ROWS; from += ROWS) {
        fixture_write(f, add_mixed, &from);
    }
    while (more) {
        struct listed page = list(f, ask);
        for (size_t i = 0; i < page.found; i++) {
            assert_int_equal(page.n[i], 1 + 2 * found++);
        }
        ask.after = page.seen.n;
        more = page.seen.more;
    }
    assert_int_equal(found, 15);
}

static int add_long(struct store_tx *tx, void *arg, struct err *e)
{
    static char detail[5000];
    memset(detail, 'd', sizeof(detail) - 1);
    for (int i = 0; i < *(int *)arg; i++) {
        struct audit_entry a = fixture_audit_entry("long");
        a.detail = detail;
        if (store_audit(tx, &a, e) != 0) {
            return -1;
        }
    }
    return 0;
}

static void a_large_write_is_listed_and_holds(void **state)
{
    struct fixture *f = *state;
    fixture_write(f, add_long, &(int){100});
    fixture_write(f, add_rows, NULL);
    assert_chain(f, 100 + ROWS, 0);
    fixture_reopen(f);
    fixture_write(f, add_long, &(int){1});
    assert_chain(f, 100 + ROWS + 1, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(an_empty_trail_is_whole),
        T(a_trail_goes_on_over_a_restart),
        T(any_changed_byte_is_found_in_its_entry),
        T(an_entry_that_is_cut_out_is_missed),
        T(what_a_row_says_of_its_block_must_be_so),
        T(the_hash_is_the_documented_one),
        T(entries_are_listed_by_what_and_when),
        T(a_list_goes_on_where_it_ended),
        T(a_large_write_is_listed_and_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
