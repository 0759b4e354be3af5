/* A workspace's sum is exact to the byte, and a scan corrects it only when nothing else has. */
#include "../support/store_fixture.h"

struct usage_case {
    struct fixture *f;
    int64_t delta;
    bool enforce;
    uint64_t mark;
    int64_t scanned;
    bool done;
    struct store_usage usage;
};

static int add(struct store_tx *tx, void *arg, struct err *e)
{
    struct usage_case *c = arg;
    return store_usage_add(tx, &c->f->user_id, c->delta, c->enforce, e);
}

static int get(struct store_tx *tx, void *arg, struct err *e)
{
    struct usage_case *c = arg;
    return store_usage_get(tx, &c->f->user_id, &c->usage, e);
}

static int correct(struct store_tx *tx, void *arg, struct err *e)
{
    struct usage_case *c = arg;
    return store_usage_correct(tx, &c->f->user_id, c->mark, c->scanned, &c->done, e);
}

static int setup(void **state)
{
    struct fixture *f = fixture_new();
    f->options.quota_bytes = 1000;
    fixture_open(f);
    fixture_add_session(f);
    *state = f;
    return 0;
}

static int64_t used(struct fixture *f)
{
    struct usage_case c = {.f = f};
    fixture_read(f, get, &c);
    assert_int_equal(c.usage.quota_bytes, 1000);
    assert_int_equal(c.usage.over_quota, c.usage.used_bytes > 1000);
    return c.usage.used_bytes;
}

static void add_to(struct fixture *f, int64_t delta, bool enforce)
{
    struct usage_case c = {.f = f, .delta = delta, .enforce = enforce};
    fixture_write(f, add, &c);
}

static void the_quota_is_exact_to_the_byte(void **state)
{
    struct fixture *f = *state;
    struct usage_case c = {.f = f, .delta = 401, .enforce = true};
    struct err e;
    add_to(f, 600, true);
    assert_int_equal(store_write(f->store, add, &c, &e), -1);
    assert_int_equal(e.code, ERR_WORKSPACE_QUOTA_EXCEEDED);
    assert_int_equal(used(f), 600);
    add_to(f, 400, true);
    assert_int_equal(used(f), 1000);
    c.delta = INT64_MAX;
    assert_int_equal(store_write(f->store, add, &c, &e), -1);
    assert_int_equal(used(f), 1000);
}

static void what_is_not_enforced_passes_the_quota(void **state)
{
    struct fixture *f = *state;
    add_to(f, 1500, false);
    assert_int_equal(used(f), 1500);
    add_to(f, 0, true);
    add_to(f, -100, true);
    assert_int_equal(used(f), 1400);
}

static int count_event(void *ctx, const struct store_event *ev, struct err *e)
{
    (void)e;
    if (strcmp(ev->name, "workspace.over_quota") == 0) {
        ++*(int *)ctx;
    }
    return 0;
}

static int count_events(struct store_tx *tx, void *arg, struct err *e)
{
    return store_event_each(tx, 0, count_event, arg, e);
}

static void passing_the_quota_is_told_once(void **state)
{
    struct fixture *f = *state;
    int n = 0;
    add_to(f, 1000, false);
    fixture_read(f, count_events, &n);
    assert_int_equal(n, 0);
    add_to(f, 1, false);
    add_to(f, 1, false);
    fixture_read(f, count_events, &n);
    assert_int_equal(n, 1);
}

static void a_sum_is_never_below_zero(void **state)
{
    struct fixture *f = *state;
    add_to(f, 10, true);
    add_to(f, -11, true);
    assert_int_equal(used(f), 0);
}

static void a_user_without_workspace_has_no_sum(void **state)
{
    struct fixture *f = *state;
    struct usage_case c = {.f = f, .delta = 1};
    struct err e;
    id_random(&f->user_id);
    assert_int_equal(store_write(f->store, add, &c, &e), -1);
    assert_int_equal(e.code, ERR_WORKSPACE_NOT_FOUND);
    assert_int_equal(store_read(f->store, get, &c, &e), -1);
    assert_int_equal(e.code, ERR_WORKSPACE_NOT_FOUND);
}

static void a_scan_corrects_what_nothing_has_changed_meanwhile(void **state)
{
    struct fixture *f = *state;
    struct usage_case c = {.f = f, .scanned = 77};
    add_to(f, 10, true);
    assert_true(store_usage_mark(f->store, &f->user_id, &c.mark));
    fixture_write(f, correct, &c);
    assert_true(c.done);
    assert_int_equal(used(f), 77);
}

static void a_scan_beside_a_change_corrects_nothing(void **state)
{
    struct fixture *f = *state;
    struct usage_case c = {.f = f, .scanned = 77};
    add_to(f, 10, true);
    assert_true(store_usage_mark(f->store, &f->user_id, &c.mark));
    store_usage_hold(f->store, &f->user_id);
    fixture_write(f, correct, &c);
    assert_false(c.done);
    store_usage_release(f->store, &f->user_id);
    fixture_write(f, correct, &c);
    assert_false(c.done);
    assert_int_equal(used(f), 10);
    store_usage_hold(f->store, &f->user_id);
    assert_false(store_usage_mark(f->store, &f->user_id, &c.mark));
    store_usage_release(f->store, &f->user_id);
    assert_true(store_usage_mark(f->store, &f->user_id, &c.mark));
    fixture_write(f, correct, &c);
    assert_true(c.done);
}

static void a_sum_outlives_the_store(void **state)
{
    struct fixture *f = *state;
    add_to(f, 10, true);
    fixture_reopen(f);
    assert_int_equal(used(f), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_quota_is_exact_to_the_byte, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(what_is_not_enforced_passes_the_quota, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(passing_the_quota_is_told_once, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_sum_is_never_below_zero, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_user_without_workspace_has_no_sum, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_scan_corrects_what_nothing_has_changed_meanwhile, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_scan_beside_a_change_corrects_nothing, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_sum_outlives_the_store, setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
