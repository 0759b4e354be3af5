/* The rules of leases, where the rows have changed since the request was admitted. */
#include "../support/store_fixture.h"
#include "leasehold/lease_rules.h"

struct asking {
    struct fixture *f;
    struct api_key key;
    struct caller caller;
    struct lease lease;
    struct err e;
};

static const struct lease_policy policy = {.issuer = "iss",
                                           .node = "node",
                                           .ttl_s = 60,
                                           .ttl_max_s = 600,
                                           .max_s = 3600,
                                           .max_connections_cap = 8,
                                           .skew_s = 5,
                                           .per_user = 10,
                                           .per_session = 10,
                                           .global_max = 10};

static int setup(void **state)
{
    if (fixture_setup(state) != 0) {
        return -1;
    }
    fixture_add_session(*state);
    return 0;
}

static int add_key(struct store_tx *tx, void *arg, struct err *e)
{
    struct asking *a = arg;
    id_random(&a->key.key_id);
    strcpy(a->key.name, "bot");
    a->key.role = ROLE_BOT;
    a->key.created_at = store_now_ms(tx);
    a->caller = (struct caller){.key_id = a->key.key_id, .role = ROLE_BOT};
    return store_api_key_insert(tx, &a->key, e);
}

static int change_key(struct store_tx *tx, void *arg, struct err *e)
{
    struct asking *a = arg;
    a->key.expires_at = store_now_ms(tx) + 30000;
    return store_api_key_update(tx, &a->key, e);
}

static int issue(struct store_tx *tx, void *arg, struct err *e)
{
    struct asking *a = arg;
    struct sandbox session;
    if (store_sandbox_get(tx, &a->f->session_id, &session, e) != 0) {
        return -1;
    }
    return lease_issue(tx, &policy, "kid", &a->caller, &session, &(struct lease_request){0},
                       &a->lease, e);
}

static void no_lease_outlives_its_key_as_it_is_in_that_write(void **state)
{
    struct asking a = {.f = *state};
    fixture_write(*state, add_key, &a);
    fixture_write(*state, issue, &a);
    assert_true(a.lease.max_expires_at > a.lease.issued_at + 3000 * 1000);

    /* The caller was let in before its key was given an end. */
    fixture_write(*state, change_key, &a);
    assert_int_equal(a.caller.expires_at, 0);
    fixture_write(*state, issue, &a);
    assert_true(a.lease.max_expires_at <= a.key.expires_at);
    assert_true(a.lease.expires_at <= a.key.expires_at);
}

/* --- the clock --------------------------------------------------------------------------------- */

static int64_t wall_ms;

static int64_t wall(void *ctx)
{
    (void)ctx;
    return wall_ms;
}

static int64_t boot(void *ctx)
{
    (void)ctx;
    return wall_ms * 1000;
}

static const struct clock set_clock = {.wall_ms = wall, .boot_us = boot};

static int setup_clock(void **state)
{
    struct fixture *f = fixture_new();
    wall_ms = INT64_C(1800000000000);
    f->options.clock = &set_clock;
    fixture_open(f);
    *state = f;
    fixture_add_session(f);
    return 0;
}

static int renew(struct store_tx *tx, void *arg, struct err *e)
{
    struct asking *a = arg;
    struct id id = a->lease.lease_id;
    return lease_renew(tx, &policy, "kid", &a->caller, &id, 0, &a->lease, e);
}

static void assert_refused(struct asking *a, store_fn fn)
{
    struct err e;
    assert_int_equal(store_write(a->f->store, fn, a, &e), -1);
    assert_int_equal(e.code, ERR_SERVICE_NOT_READY);
}

static int end(struct store_tx *tx, void *arg, struct err *e)
{
    struct asking *a = arg;
    bool changed;
    return lease_end_one(
        tx, &a->lease,
        &(struct lease_ending){.code = 4403, .reason = "revoked", .caller = &a->caller}, &changed,
        e);
}

static void nothing_is_issued_while_the_clock_stands_behind_what_was_seen(void **state)
{
    struct asking a = {.f = *state};
    fixture_write(*state, add_key, &a);
    fixture_write(*state, issue, &a);
    wall_ms -= policy.skew_s * 1000;
    fixture_write(*state, renew, &a); /* within the skew */
    wall_ms -= 1;
    assert_refused(&a, issue);
    assert_refused(&a, renew);
    assert_int_equal(store_clock_behind_ms(a.f->store), policy.skew_s * 1000 + 1);
    fixture_write(*state, end, &a); /* ending goes on */
    wall_ms += 1;
    fixture_write(*state, issue, &a); /* it has caught up */
}

static void a_new_start_knows_how_late_it_was(void **state)
{
    struct asking a = {.f = *state};
    fixture_write(*state, add_key, &a);
    wall_ms += 3600 * 1000;
    fixture_write(*state, issue, &a);
    wall_ms -= 3600 * 1000;
    fixture_reopen(*state);
    assert_refused(&a, issue);
    wall_ms += 3600 * 1000;
    fixture_write(*state, issue, &a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_lease_outlives_its_key_as_it_is_in_that_write, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(
            nothing_is_issued_while_the_clock_stands_behind_what_was_seen, setup_clock,
            fixture_teardown),
        cmocka_unit_test_setup_teardown(a_new_start_knows_how_late_it_was, setup_clock,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
