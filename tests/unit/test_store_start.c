/* A start reads what it needs: no table that grows for ever is walked through for it. */
#include <sqlite3.h>

#include "../support/store_fixture.h"

enum { CLOSED = 300, OPEN = 10, COMMITS = 60 };

/* --- what SQLite does --------------------------------------------------------------------------- */

static bool watching;
static int worst_steps;
static char worst_sql[512];

static int on_done(unsigned what, void *ctx, void *statement, void *ns)
{
    (void)what;
    (void)ctx;
    (void)ns;
    sqlite3_stmt *st = statement;
    int steps = sqlite3_stmt_status(st, SQLITE_STMTSTATUS_FULLSCAN_STEP, 1);
    if (watching && steps > worst_steps) {
        worst_steps = steps;
        snprintf(worst_sql, sizeof(worst_sql), "%s", sqlite3_sql(st));
    }
    return 0;
}

static int watch(sqlite3 *db, char **ret_text, const struct sqlite3_api_routines *api)
{
    (void)ret_text;
    (void)api;
    return sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, on_done, NULL);
}

/* --- a store that has been in use ---------------------------------------------------------------- */

static int add_leases(struct store_tx *tx, void *arg, struct err *e)
{
    struct fixture *f = arg;
    for (int i = 0; i < CLOSED + OPEN; i++) {
        struct lease l = fixture_lease(&f->session_id, &f->chat_id, &f->user_id);
        l.state = i < CLOSED ? LEASE_CLOSED : LEASE_PENDING;
        if (store_lease_insert(tx, &l, e) != 0) {
            return -1;
        }
    }
    return 0;
}

static int commit_something(struct store_tx *tx, void *arg, struct err *e)
{
    struct fixture *f = arg;
    struct audit_entry a = fixture_audit_entry("x");
    const struct store_event ev = {
        .name = "lease.granted", .user_id = f->user_id, .chat_id = f->chat_id, .data = "{}"};
    return store_audit(tx, &a, e) != 0 ? -1 : store_event_append(tx, &ev, e);
}

static int setup(void **state)
{
    if (fixture_setup(state) != 0) {
        return -1;
    }
    struct fixture *f = *state;
    fixture_add_session(f);
    fixture_write(f, add_leases, f);
    for (int i = 0; i < COMMITS; i++) {
        fixture_write(f, commit_something, f);
    }
    return 0;
}

/* --- what the gateway asks of it ----------------------------------------------------------------- */

static int count_session(void *ctx, const struct sandbox *s, struct err *e)
{
    (void)s;
    (void)e;
    ++*(int *)ctx;
    return 0;
}

static int count_lease(void *ctx, const struct lease *l, struct err *e)
{
    (void)l;
    (void)e;
    ++*(int *)ctx;
    return 0;
}

static int count_event(void *ctx, const struct store_event *ev, struct err *e)
{
    (void)ev;
    (void)e;
    ++*(int *)ctx;
    return 0;
}

static int load(struct store_tx *tx, void *arg, struct err *e)
{
    int *found = arg;
    struct store_event_range range;
    if (store_sandbox_each_active(tx, count_session, &found[0], e) != 0 ||
        store_lease_each_open(tx, count_lease, &found[1], e) != 0 ||
        store_event_range(tx, &range, e) != 0) {
        return -1;
    }
    return store_event_each(tx, range.newest - 5, count_event, &found[2], e);
}

static void a_start_walks_through_nothing_that_grows_for_ever(void **state)
{
    struct fixture *f = *state;
    int found[3] = {0};
    assert_int_equal(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
    watching = true;
    fixture_reopen(f);
    fixture_read(f, load, found);
    watching = false;
    sqlite3_reset_auto_extension();
    assert_int_equal(found[0], 1);
    assert_int_equal(found[1], OPEN);
    assert_int_equal(found[2], 5);
    if (worst_steps > 2 * OPEN) {
        fail_msg("%d rows are walked through: %s", worst_steps, worst_sql);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_start_walks_through_nothing_that_grows_for_ever, setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
