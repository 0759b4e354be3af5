/* The counts of open leases: exact after writes that fail, end leases twice, or a new start. */
#include "../support/store_fixture.h"

struct script {
    struct fixture *f;
    struct lease leases[40];
    size_t n;
    bool fail;
    struct store_lease_counts counts;
    int64_t rows;
};

static int setup(void **state)
{
    if (fixture_setup(state) != 0) {
        return -1;
    }
    fixture_add_session(*state);
    return 0;
}

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
    struct script *s = arg;
    for (size_t i = 0; i < s->n; i++) {
        if (store_lease_insert(tx, &s->leases[i], e) != 0) {
            return -1;
        }
    }
    return s->fail ? err_set(e, ERR_CONFLICT, "as asked") : 0;
}

static int update(struct store_tx *tx, void *arg, struct err *e)
{
    struct script *s = arg;
    for (size_t i = 0; i < s->n; i++) {
        if (store_lease_update(tx, &s->leases[i], e) != 0) {
            return -1;
        }
    }
    return s->fail ? err_set(e, ERR_CONFLICT, "as asked") : 0;
}

static int count_row(void *ctx, const struct lease *l, struct err *e)
{
    struct script *s = ctx;
    (void)e;
    s->rows += l->state == LEASE_PENDING || l->state == LEASE_ACTIVE;
    return 0;
}

static int count(struct store_tx *tx, void *arg, struct err *e)
{
    struct script *s = arg;
    s->rows = 0;
    store_lease_count(tx, &s->f->session_id, &s->f->user_id, &s->counts);
    return store_lease_each_open(tx, count_row, s, e);
}

static void assert_open(struct script *s, int64_t n)
{
    fixture_write(s->f, count, s);
    assert_int_equal(s->rows, n);
    assert_int_equal(s->counts.of_session, n);
    assert_int_equal(s->counts.of_user, n);
    assert_int_equal(s->counts.all, n);
}

static void fill(struct script *s, size_t n)
{
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        s->leases[i] = fixture_lease(&s->f->session_id, &s->f->chat_id, &s->f->user_id);
    }
}

static void set_state(struct script *s, enum lease_state state)
{
    for (size_t i = 0; i < s->n; i++) {
        s->leases[i].state = state;
    }
}

static void a_lease_counts_from_its_issue_until_it_begins_to_end(void **state)
{
    struct script s = {.f = *state};
    fill(&s, 3);
    fixture_write(s.f, insert, &s);
    assert_open(&s, 3);
    s.n = 1;
    s.leases[0].expires_at++;
    fixture_write(s.f, update, &s); /* a renewal */
    assert_open(&s, 3);
    set_state(&s, LEASE_REVOKING);
    fixture_write(s.f, update, &s);
    assert_open(&s, 2);
    set_state(&s, LEASE_CLOSED);
    fixture_write(s.f, update, &s);
    assert_open(&s, 2);
    s.n = 3;
    set_state(&s, LEASE_CLOSED);
    fixture_write(s.f, update, &s);
    assert_open(&s, 0);
}

struct expiry {
    struct store_lease_expiry x;
    bool found;
};

static int expire(struct store_tx *tx, void *arg, struct err *e)
{
    struct expiry *x = arg;
    return store_lease_expire(tx, &x->x, 1, &x->found, e);
}

static bool expired(struct script *s, size_t i, int64_t expires_at, enum lease_state state)
{
    struct expiry x = {.x = {.n = s->leases[i].n,
                             .expires_at = expires_at,
                             .session_id = s->f->session_id,
                             .user_id = s->f->user_id,
                             .state = state,
                             .reason = "expired"}};
    fixture_write(s->f, expire, &x);
    return x.found;
}

static void what_expires_is_open_no_more_and_what_was_renewed_stays(void **state)
{
    struct script s = {.f = *state};
    fill(&s, 4);
    fixture_write(s.f, insert, &s);
    int64_t end = s.leases[0].expires_at;
    assert_false(expired(&s, 0, end - 1, LEASE_CLOSED)); /* renewed since who asks has looked */
    assert_open(&s, 4);
    assert_true(expired(&s, 0, end, LEASE_CLOSED));
    assert_true(expired(&s, 1, end, LEASE_EXPIRING));
    assert_open(&s, 2);
    assert_false(expired(&s, 0, end, LEASE_EXPIRING));
    assert_false(expired(&s, 1, end, LEASE_CLOSED));
    assert_open(&s, 2);
    fixture_reopen(s.f);
    assert_open(&s, 2);
}

/* --- many at once -------------------------------------------------------------------------------- */

#define NEIGHBOURS 8

struct expiries {
    struct store_lease_expiry x[NEIGHBOURS];
    bool found[NEIGHBOURS];
    size_t n;
};

static int expire_all(struct store_tx *tx, void *arg, struct err *e)
{
    struct expiries *x = arg;
    return store_lease_expire(tx, x->x, x->n, x->found, e);
}

static int look_all(struct store_tx *tx, void *arg, struct err *e)
{
    struct expiries *x = arg;
    return store_lease_open_until(tx, x->x, x->n, x->found, e);
}

static int get_state(struct store_tx *tx, void *arg, struct err *e)
{
    struct lease *l = arg;
    return store_lease_get(tx, &l->lease_id, l, e);
}

static void assert_state(struct script *s, size_t i, enum lease_state state)
{
    struct lease l = {.lease_id = s->leases[i].lease_id};
    fixture_read(s->f, get_state, &l);
    assert_int_equal(l.state, state);
}

static void of_neighbours_that_expire_each_is_told_apart(void **state)
{
    struct script s = {.f = *state};
    struct expiries x = {.n = NEIGHBOURS - 1}; /* the last one is not asked for */
    fill(&s, NEIGHBOURS);
    fixture_write(s.f, insert, &s);
    for (size_t i = 0; i < NEIGHBOURS; i++) {
        x.found[i] = true;
        x.x[i] = (struct store_lease_expiry){.n = s.leases[i].n,
                                             .expires_at = s.leases[i].expires_at,
                                             .session_id = s.f->session_id,
                                             .user_id = s.f->user_id,
                                             .state = i < 5 ? LEASE_CLOSED : LEASE_EXPIRING,
                                             .reason = "expired"};
    }
    struct script renewed = {.f = s.f, .n = 1, .leases = {s.leases[1]}};
    renewed.leases[0].expires_at++;
    fixture_write(s.f, update, &renewed);
    assert_true(expired(&s, 3, s.leases[3].expires_at, LEASE_EXPIRING));
    assert_open(&s, NEIGHBOURS - 1);
    fixture_write(s.f, look_all, &x);
    for (size_t i = 0; i < x.n; i++) {
        assert_int_equal(x.found[i], i != 1 && i != 3);
    }
    fixture_write(s.f, expire_all, &x);
    static const enum lease_state then[NEIGHBOURS] = {LEASE_CLOSED,   LEASE_PENDING, LEASE_CLOSED,
                                                      LEASE_EXPIRING, LEASE_CLOSED,  LEASE_EXPIRING,
                                                      LEASE_EXPIRING, LEASE_PENDING};
    for (size_t i = 0; i < NEIGHBOURS; i++) {
        assert_state(&s, i, then[i]);
        assert_int_equal(x.found[i], i != 1 && i != 3);
    }
    assert_open(&s, 2);
    fixture_write(s.f, expire_all, &x);
    for (size_t i = 0; i < x.n; i++) {
        assert_false(x.found[i]);
    }
    assert_open(&s, 2);
}

static void a_write_that_fails_counts_nothing(void **state)
{
    struct script s = {.f = *state, .fail = true};
    struct err e;
    fill(&s, 5);
    assert_int_equal(store_write(s.f->store, insert, &s, &e), -1);
    assert_open(&s, 0);
    s.fail = false;
    fixture_write(s.f, insert, &s);
    s.fail = true;
    set_state(&s, LEASE_EXPIRING);
    assert_int_equal(store_write(s.f->store, update, &s, &e), -1);
    assert_open(&s, 5);
    s.n = 1;
    assert_int_equal(store_write(s.f->store, insert, &s, &e), -1); /* there already */
    assert_open(&s, 5);
}

static void a_start_counts_the_rows(void **state)
{
    struct script s = {.f = *state};
    fill(&s, 7);
    s.leases[0].state = LEASE_CLOSED;
    s.leases[1].state = LEASE_REVOKING;
    fixture_write(s.f, insert, &s);
    fixture_reopen(s.f);
    assert_open(&s, 5);
}

static void sessions_and_users_are_counted_apart(void **state)
{
    struct script s = {.f = *state};
    struct id session_id = s.f->session_id, user_id = s.f->user_id;
    fill(&s, 2);
    fixture_write(s.f, insert, &s);
    fixture_add_session(s.f);
    fill(&s, 3);
    fixture_write(s.f, insert, &s);
    fixture_write(s.f, count, &s);
    assert_int_equal(s.counts.of_session, 3);
    assert_int_equal(s.counts.of_user, 3);
    assert_int_equal(s.counts.all, 5);
    s.f->session_id = session_id;
    fixture_write(s.f, count, &s);
    assert_int_equal(s.counts.of_session, 2);
    s.f->user_id = user_id;
    fixture_write(s.f, count, &s);
    assert_int_equal(s.counts.of_user, 2);
}

static void counts_do_not_drift(void **state)
{
    struct script s = {.f = *state};
    struct script one = {.f = *state};
    struct err e;
    int64_t open = 0;
    srand(5);
    fill(&s, 40);
    fixture_write(s.f, insert, &s);
    open = 40;
    for (int i = 0; i < 400; i++) {
        struct lease *l = &s.leases[rand() % 40];
        bool was_open = l->state == LEASE_PENDING;
        one.n = 1;
        one.leases[0] = *l;
        one.leases[0].state = was_open && rand() % 2 ? LEASE_PENDING : LEASE_REVOKING;
        one.fail = rand() % 3 == 0;
        if (store_write(s.f->store, update, &one, &e) == 0) {
            *l = one.leases[0];
            open -= was_open && l->state != LEASE_PENDING;
        }
    }
    assert_open(&s, open);
    fixture_reopen(s.f);
    assert_open(&s, open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lease_counts_from_its_issue_until_it_begins_to_end, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(what_expires_is_open_no_more_and_what_was_renewed_stays,
                                        setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(of_neighbours_that_expire_each_is_told_apart, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_write_that_fails_counts_nothing, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_start_counts_the_rows, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(sessions_and_users_are_counted_apart, setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(counts_do_not_drift, setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
