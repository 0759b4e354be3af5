/*
 * A page of a history costs what stands on it, not what stands in the chat: no statement of it walks a
 * table or sorts, by SQLite's own count, and its plan is a search by the key.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <ftw.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/chatdir.h"
#include "leasehold/history.h"

enum { FEW = 1000, MANY = 100000, PAGE = 100 };

struct cost {
    int scanned, sorts, steps;
    char sql[256]; /* of the one with most rows: the page's */
    int rows;
};

static struct cost cost;

/* In place of SQLite's, which storage/stmt.c ends every run of a statement with. */
int sqlite3_reset(sqlite3_stmt *handle)
{
    int (*reset)(sqlite3_stmt *);
    *(void **)&reset = dlsym(RTLD_NEXT, "sqlite3_reset");
    int steps = sqlite3_stmt_status(handle, SQLITE_STMTSTATUS_VM_STEP, 1);
    cost.scanned += sqlite3_stmt_status(handle, SQLITE_STMTSTATUS_FULLSCAN_STEP, 1);
    cost.sorts += sqlite3_stmt_status(handle, SQLITE_STMTSTATUS_SORT, 1);
    cost.steps += steps;
    if (steps > cost.rows) {
        cost.rows = steps;
        snprintf(cost.sql, sizeof(cost.sql), "%s", sqlite3_sql(handle));
    }
    return reset(handle);
}

struct chat {
    char root[64], db[240];
    struct history_place place;
};

/* Rows as the gateway's own, all said to stand in history.md already. */
static void fill(const struct chat *c, int messages)
{
    char sql[512];
    sqlite3 *db;
    snprintf(sql, sizeof(sql),
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
             " INSERT INTO messages (seq, message_id, at, role, author, content)"
             " SELECT i, printf('%%08x-0000-4000-8000-%%012x', i, i), 1800000000000 + i, 'user', "
             "'me', 'message ' || i FROM n;"
             " UPDATE projection SET md_seq = %d, md_bytes = 39;",
             messages, messages);
    assert_int_equal(sqlite3_open(c->db, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void make(struct chat *c, int messages)
{
    struct err e;
    memset(c, 0, sizeof(*c));
    strcpy(c->root, "/tmp/leasehold-history-page-XXXXXX");
    assert_non_null(mkdtemp(c->root));
    c->place = (struct history_place){.root = c->root, .uid = getuid(), .gid = getgid()};
    id_random(&c->place.user_id);
    id_random(&c->place.chat_id);
    assert_int_equal(
        chatdir_make(c->root, &c->place.user_id, &c->place.chat_id, c->place.uid, c->place.gid, &e),
        0);
    snprintf(c->db, sizeof(c->db), "%s/%s/chats/%s/history.db", c->root, ID_STR(&c->place.user_id),
             ID_STR(&c->place.chat_id));
    fill(c, messages);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int count(void *ctx, const struct history_message *m, struct err *e)
{
    (void)e;
    int64_t *expected = ctx;
    assert_int_equal(m->seq, ++*expected);
    return 0;
}

/* As the gateway reads one: opened, a page, closed. */
static struct cost page_cost(const struct chat *c, int64_t after)
{
    struct history *h;
    bool damaged;
    struct err e;
    int64_t last = after;
    assert_int_equal(history_open(&c->place, &h, &damaged, &e), 0);
    memset(&cost, 0, sizeof(cost));
    assert_int_equal(history_each(h, after, PAGE, count, &last, &e), 0);
    assert_int_equal(last, after + PAGE);
    history_close(h);
    return cost;
}

static void a_page_costs_the_same_in_a_long_history(void **state)
{
    struct chat few, many;
    (void)state;
    make(&few, FEW);
    make(&many, MANY);
    struct cost least = page_cost(&few, 0);
    const int64_t places[] = {0, MANY / 2, MANY - PAGE};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        struct cost one = page_cost(&many, places[i]);
        assert_int_equal(one.scanned, 0);
        assert_int_equal(one.sorts, 0);
        assert_in_range(one.steps, PAGE, least.steps + PAGE);
    }
    nftw(few.root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    nftw(many.root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* What opening one reads: the last number, how far history.md is. */
static void opening_a_long_history_walks_nothing(void **state)
{
    struct chat few, many;
    struct history *h;
    bool damaged;
    struct err e;
    int steps[2];
    (void)state;
    make(&few, FEW);
    make(&many, MANY);
    const struct chat *const both[] = {&few, &many};
    for (size_t i = 0; i < 2; i++) {
        memset(&cost, 0, sizeof(cost));
        assert_int_equal(history_open(&both[i]->place, &h, &damaged, &e), 0);
        history_close(h);
        steps[i] = cost.steps;
    }
    assert_int_equal(steps[0], steps[1]);
    nftw(few.root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    nftw(many.root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void the_plan_of_a_page_is_a_search_by_its_key(void **state)
{
    struct chat c;
    char sql[320];
    sqlite3 *db;
    sqlite3_stmt *plan;
    (void)state;
    make(&c, FEW);
    snprintf(sql, sizeof(sql), "EXPLAIN QUERY PLAN %s", page_cost(&c, 0).sql);
    assert_non_null(strstr(sql, "FROM messages"));
    assert_int_equal(sqlite3_open(c.db, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &plan, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(plan), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(plan, 3),
                        "SEARCH messages USING INTEGER PRIMARY KEY (rowid>?)");
    assert_int_equal(sqlite3_step(plan), SQLITE_DONE); /* and nothing beside it */
    sqlite3_finalize(plan);
    sqlite3_close(db);
    nftw(c.root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_costs_the_same_in_a_long_history),
        cmocka_unit_test(opening_a_long_history_walks_nothing),
        cmocka_unit_test(the_plan_of_a_page_is_a_search_by_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
