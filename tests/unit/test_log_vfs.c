/* The write-ahead log of the writer goes to its file in few writes, and nothing that is kept back meanwhile
 * is missed by whoever looks for it. */
#include <sqlite3.h>

#include "../../storage/stmt.h"
#include "../../storage/tx.h"
#include "../support/store_fixture.h"

enum { SOME = 100, MORE_THAN_THE_CACHE = 60000 }; /* leases: some 30 pages, and 20 MiB */

struct script {
    struct fixture *f;
    int n;
    bool fail;
    int found;
};

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
    const struct script *s = arg;
    for (int i = 0; i < s->n; i++) {
        struct lease l = fixture_lease(&s->f->session_id, &s->f->chat_id, &s->f->user_id);
        if (store_lease_insert(tx, &l, e) != 0) {
            return -1;
        }
    }
    return s->fail ? err_set(e, ERR_CONFLICT, "as asked") : 0;
}

static int count_one(void *ctx, const struct lease *l, struct err *e)
{
    (void)l;
    (void)e;
    ++*(int *)ctx;
    return 0;
}

static int count(struct store_tx *tx, void *arg, struct err *e)
{
    struct script *s = arg;
    s->found = 0;
    return store_lease_each_open(tx, count_one, &s->found, e);
}

static void assert_leases(struct script *s, int n)
{
    fixture_read(s->f, count, s); /* by another connection */
    assert_int_equal(s->found, n);
    fixture_write(s->f, count, s);
    assert_int_equal(s->found, n);
}

static int check_whole(struct store_tx *tx, void *arg, struct err *e)
{
    struct stmt st;
    char found[256] = "";
    (void)arg;
    if (stmt_open(&st, tx->conn, "check", "PRAGMA integrity_check", e) != 0) {
        return -1;
    }
    int rc = stmt_first(&st, ERR_INTERNAL, e);
    if (rc == 0) {
        column_text(&st, found, sizeof(found));
        assert_string_equal(found, "ok");
    }
    return stmt_end(&st, rc, e);
}

static int setup(void **state)
{
    if (fixture_setup(state) != 0) {
        return -1;
    }
    fixture_add_session(*state);
    return 0;
}

/* Of this process, so far. */
static long writes_called(void)
{
    char text[512];
    int fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    assert_true(n > 0);
    text[n] = '\0';
    const char *at = strstr(text, "syscw: ");
    assert_non_null(at);
    return strtol(at + strlen("syscw: "), NULL, 10);
}

static void a_commit_of_many_pages_is_a_handful_of_writes(void **state)
{
    struct script s = {.f = *state, .n = SOME};
    fixture_write(s.f, insert, &s);
    long before = writes_called();
    fixture_write(s.f, insert, &s);
    assert_in_range(writes_called() - before, 1, 8);
    assert_leases(&s, 2 * SOME);
}

/* More than the page cache holds goes to the log before the commit, and is read back from there. */
static void a_write_larger_than_the_cache_holds(void **state)
{
    struct script s = {.f = *state, .n = MORE_THAN_THE_CACHE};
    fixture_write(s.f, insert, &s);
    assert_leases(&s, MORE_THAN_THE_CACHE);
    fixture_reopen(s.f);
    assert_leases(&s, MORE_THAN_THE_CACHE);
    fixture_read(s.f, check_whole, NULL);
}

/* What it has put into the log is written over by the next. */
static void a_write_larger_than_the_cache_that_fails_leaves_nothing(void **state)
{
    struct script s = {.f = *state, .n = MORE_THAN_THE_CACHE, .fail = true};
    struct err e;
    assert_int_equal(store_write(s.f->store, insert, &s, &e), -1);
    assert_int_equal(e.code, ERR_CONFLICT);
    assert_leases(&s, 0);
    s = (struct script){.f = *state, .n = SOME};
    fixture_write(s.f, insert, &s);
    assert_leases(&s, SOME);
    fixture_reopen(s.f);
    assert_leases(&s, SOME);
    fixture_read(s.f, check_whole, NULL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(a_commit_of_many_pages_is_a_handful_of_writes),
        T(a_write_larger_than_the_cache_holds),
        T(a_write_larger_than_the_cache_that_fails_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
