/* What the broker counts is what is there; what a door reports is bounded. */
#include "../support/broker_fixture.h"

/* Counts as kept and counts by looking, of everything, after a tick (it makes the unconfirmed). */
static struct broker_counts counted(struct fixture *f)
{
    struct broker_counts kept, looked;

    f->boot_us += 1000000;
    broker_tick(f->broker);
    broker_counts(f->broker, &kept);
    broker_recount(f->broker, &looked);
    assert_memory_equal(&kept, &looked, sizeof kept);
    return kept;
}

static void ack(struct fixture *f, uint64_t conn, int64_t seq)
{
    door_says(f, conn, &(struct door_msg){.t = DOOR_ACK, .seq = seq});
}

static void a_lease_is_counted_in_each_state_of_its_life(void **state)
{
    struct fixture *f = *state;
    struct lease l;

    hello(f, 9, 7, SECRET);
    l = grant(f, 60, 1);
    assert_int_equal(counted(f).state[LEASE_PENDING], 1);
    ack(f, 9, 1);
    assert_int_equal(counted(f).state[LEASE_ACTIVE], 1);
    revoke(f, &l, 2);
    assert_int_equal(counted(f).state[LEASE_REVOKING], 1);
    f->boot_us += 2000000;
    assert_int_equal(counted(f).state[LEASE_UNCONFIRMED], 1);
    ack(f, 9, 2);
    assert_int_equal(counted(f).state[LEASE_REVOKING], 1);
    apply(f, &(struct change){.kind = CHANGE_LEASE_CLOSED, .lease = l});
    struct broker_counts c = counted(f);
    for (size_t i = 0; i < LEASE_STATES; i++)
        assert_int_equal(c.state[i], 0);
    assert_int_equal(c.leases, 0);
}

static void a_renewal_keeps_the_live_connections(void **state)
{
    struct fixture *f = *state;
    struct lease l, view;

    hello(f, 9, 7, SECRET);
    l = grant(f, 60, 1);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ADMIT, .jti = l.lease_id});
    l.expires_at += 60000;
    apply(f, &(struct change){.kind = CHANGE_EXTEND, .seq = 2, .lease = l});
    view = l;
    broker_lease_view(f->broker, &view);
    assert_int_equal(view.connections, 1);
    assert_int_equal(counted(f).connections, 1);
}

static struct lease grant_for(struct fixture *f, int64_t max_connections, int64_t seq)
{
    struct lease l = make_lease(f, 100000, seq);

    l.max_connections = max_connections;
    apply(f, &(struct change){.kind = CHANGE_GRANT, .seq = seq, .lease = l});
    return l;
}

static bool has_room(struct fixture *f, const struct lease *l)
{
    struct lease view = *l;

    broker_lease_view(f->broker, &view);
    return view.connections < l->max_connections;
}

static void connections_of_a_closed_lease_and_a_lost_door_are_uncounted(void **state)
{
    struct fixture *f = *state;
    struct lease a, b;

    hello(f, 9, 7, SECRET);
    a = grant_for(f, 2, 1);
    b = grant_for(f, 2, 2);
    for (int i = 0; i < 2; i++) {
        door_says(f, 9, &(struct door_msg){.t = DOOR_ADMIT, .jti = a.lease_id});
        door_says(f, 9, &(struct door_msg){.t = DOOR_ADMIT, .jti = b.lease_id});
    }
    assert_int_equal(counted(f).connections, 4);
    apply(f, &(struct change){.kind = CHANGE_LEASE_CLOSED, .lease = a});
    assert_int_equal(counted(f).connections, 2);
    broker_door_closed(f->broker, 9);
    assert_int_equal(counted(f).connections, 0);
    assert_int_equal(counted(f).doors_live, 0);
}

static void an_acknowledgement_confirms_what_it_covers_and_no_more(void **state)
{
    struct fixture *f = *state;
    struct lease l[4];

    hello(f, 9, 7, SECRET);
    for (int i = 0; i < 4; i++)
        l[i] = grant(f, 60, 1 + i);
    ack(f, 9, 2);
    assert_int_equal(counted(f).state[LEASE_ACTIVE], 2);
    assert_int_equal(counted(f).state[LEASE_PENDING], 2);
    revoke(f, &l[3], 5);
    revoke(f, &l[0], 6);
    ack(f, 9, 5);
    assert_int_equal(counted(f).state[LEASE_ACTIVE], 2);
    assert_int_equal(counted(f).state[LEASE_REVOKING], 2);
    f->boot_us += 2000000;
    assert_int_equal(counted(f).state[LEASE_UNCONFIRMED], 1);
    ack(f, 9, 6);
    assert_int_equal(counted(f).state[LEASE_UNCONFIRMED], 0);
}

static void a_door_that_comes_back_with_less_has_it_to_confirm_again(void **state)
{
    struct fixture *f = *state;
    struct lease l;

    hello(f, 9, 7, SECRET);
    l = grant(f, 60, 1);
    grant(f, 60, 2);
    revoke(f, &l, 3);
    ack(f, 9, 3);
    assert_int_equal(counted(f).state[LEASE_ACTIVE], 1);
    broker_door_closed(f->broker, 9);
    hello(f, 10, 7, SECRET); /* it has applied nothing */
    assert_int_equal(counted(f).state[LEASE_PENDING], 1);
    f->boot_us += 2000000;
    assert_int_equal(counted(f).state[LEASE_UNCONFIRMED], 1);
    ack(f, 10, 3);
    assert_int_equal(counted(f).state[LEASE_ACTIVE], 1);
    assert_int_equal(counted(f).state[LEASE_REVOKING], 1);
}

static void random_lives_never_make_the_counts_wrong(void **state)
{
    struct fixture *f = *state;
    struct lease l[16] = {0};
    int64_t seq = 0, acked = 0;
    uint64_t conn = 0;

    srand(7);
    for (int i = 0; i < 3000; i++) {
        struct lease *one = &l[rand() % 16];
        bool there = !id_is_zero(&one->lease_id);

        f->sent_n = 0;
        switch (rand() % 7) {
        case 0:
            if (!there)
                *one = grant_for(f, 8, ++seq);
            break;
        case 1:
            if (there && one->state != LEASE_REVOKING)
                revoke(f, one, ++seq);
            break;
        case 2:
            if (there)
                apply(f, &(struct change){.kind = CHANGE_LEASE_CLOSED, .lease = *one});
            *one = (struct lease){0};
            break;
        case 3:
            if (conn)
                ack(f, conn, acked = seq);
            break;
        case 4:
            if (conn)
                door_says(f, conn,
                          &(struct door_msg){.t = rand() % 3 && has_room(f, one) ? DOOR_ADMIT
                                                                                 : DOOR_CLOSE,
                                             .jti = one->lease_id,
                                             .code = 1000});
            break;
        case 5:
            if (conn && rand() % 4 == 0) {
                broker_door_closed(f->broker, conn);
                conn = 0;
            }
            break;
        default:
            if (!conn)
                hello(f, conn = 100 + (uint64_t)i, 7, SECRET);
        }
        counted(f);
        if (conn) /* not to be taken for silent */
            door_says(f, conn, &(struct door_msg){.t = DOOR_PING, .now = 1});
    }
    assert_true(seq > 100 && acked > 100);
}

static void ending_leases_are_told_with_their_cause_and_number(void **state)
{
    struct fixture *f = *state;
    struct lease l = grant(f, 60, 1);

    grant(f, 60, 2);
    grant(f, 60, 3);
    revoke(f, &l, 4);
    assert_int_equal(f->ending_code, 4403);
    assert_int_equal(f->ending_n, 1);
    apply(f, &(struct change){
                 .kind = CHANGE_REVOKE_ALL, .seq = 5, .code = 4408, .sandbox = f->sandbox});
    assert_int_equal(f->ending_code, 4408);
    assert_int_equal(f->ending_n, 3);
    apply(f, &(struct change){
                 .kind = CHANGE_REVOKE_ALL, .seq = 6, .code = 4403, .sandbox = f->sandbox});
    assert_int_equal(f->ending_n, 3);
}

static void a_door_that_comes_back_is_told_apart_from_a_new_one(void **state)
{
    struct fixture *f = *state;

    hello(f, 9, 7, SECRET);
    assert_int_equal(f->event.kind, BROKER_DOOR_LIVE);
    assert_false(f->event.again);
    broker_door_closed(f->broker, 9);
    hello(f, 10, 7, SECRET);
    assert_true(f->event.again);
}

static size_t denials(struct fixture *f, size_t n)
{
    size_t before = f->over_rate_n;

    for (size_t i = 0; i < n; i++)
        door_says(f, 9, &(struct door_msg){.t = DOOR_DENY, .verdict = (char *)"expired"});
    return n - (f->over_rate_n - before);
}

static void denials_of_a_door_are_for_the_audit_trail_at_a_bounded_rate(void **state)
{
    struct fixture *f = *state;

    hello(f, 9, 7, SECRET);
    size_t events = f->events_n;
    assert_int_equal(denials(f, 500), 60);
    assert_int_equal(f->events_n - events, 500);
    f->boot_us += 5000000;
    assert_int_equal(denials(f, 500), 5);
    f->boot_us += 3600 * 1000000LL;
    assert_int_equal(denials(f, 500), 60);
}

static void a_client_that_comes_and_goes_does_not_fill_the_audit_trail(void **state)
{
    struct fixture *f = *state;
    struct lease l;

    hello(f, 9, 7, SECRET);
    l = grant(f, 60, 1);
    for (int i = 0; i < 1000; i++) {
        door_says(f, 9, &(struct door_msg){.t = DOOR_ADMIT, .jti = l.lease_id});
        door_says(f, 9, &(struct door_msg){.t = DOOR_CLOSE, .jti = l.lease_id, .code = 1000});
    }
    assert_int_equal(f->over_rate_n, 2000 - 400);
    assert_int_equal(counted(f).connections, 0);
    assert_int_equal(denials(f, 1), 1);
}

#define SECRET_NOT "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"

/* How many of n connections of a door got to be its session's. */
static size_t comings(struct fixture *f, uint64_t first, size_t n)
{
    size_t live = f->events_n;

    for (uint64_t conn = first; conn < first + n; conn++) {
        f->sent_n = 0;
        f->closed_conn = 0;
        hello(f, conn, 7, SECRET);
        if (f->closed_conn == conn)
            assert_int_equal(f->closed_code, 1013);
    }
    return f->events_n - live;
}

static void a_door_that_comes_again_and_again_does_not_fill_the_audit_trail(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(comings(f, 10, 500), 60);
    assert_true(f->live); /* the last one that came stays */
    f->boot_us += 5000000;
    assert_int_equal(comings(f, 1000, 500), 5);
    f->boot_us += 1000000;
    for (uint64_t conn = 2000; conn < 2100; conn++) { /* of others, which cost it nothing */
        hello(f, conn, 7, SECRET_NOT);
        assert_int_equal(f->closed_code, 4401);
    }
    assert_int_equal(comings(f, 3000, 1), 1);
}

static void strangers_on_the_control_socket_are_bounded(void **state)
{
    struct fixture *f = *state;
    struct broker_counts c;

    for (uint64_t i = 0; i < 1024; i++)
        broker_door_open(f->broker, 1000 + i);
    assert_int_equal(f->closed_conn, 0);
    broker_door_open(f->broker, 5000); /* the oldest makes room */
    assert_int_equal(f->closed_conn, 1000);
    assert_int_equal(f->closed_code, 1013);
    broker_door_closed(f->broker, 1001);
    hello(f, 9, 7, SECRET);
    broker_counts(f->broker, &c);
    assert_int_equal(c.doors_unknown, 1023);
    assert_int_equal(c.doors_live, 1);
    f->boot_us += 3000000;
    broker_tick(f->broker);
    broker_counts(f->broker, &c);
    assert_int_equal(c.doors_unknown, 0);
}

static void a_door_comes_through_a_crowd_of_strangers(void **state)
{
    struct fixture *f = *state;
    struct broker_counts c;

    for (uint64_t i = 0; i < 3000; i++)
        broker_door_open(f->broker, 1000 + i);
    f->closed_conn = 0;
    hello(f, 9, 7, SECRET);
    assert_true(f->live);
    for (uint64_t i = 0; i < 3000; i++) { /* who has said hello makes room for none of them */
        broker_door_open(f->broker, 5000 + i);
        assert_int_not_equal(f->closed_conn, 9);
    }
    broker_counts(f->broker, &c);
    assert_int_equal(c.doors_unknown, 1024);
    assert_int_equal(c.doors_live, 1);
}

struct waiting {
    struct broker_wait wait;
    int done;
};

static void on_done(struct broker_wait *w)
{
    ((struct waiting *)w)->done++;
}

static void who_still_waits_at_the_end_is_answered(void **state)
{
    struct fixture *f = *state;
    struct waiting w = {
        .wait = {.session_id = f->sandbox.session_id, .timeout_ms = 1000, .done = on_done}};
    struct lease l = grant(f, 60, 1);

    revoke(f, &l, 2);
    broker_wait(f->broker, &w.wait);
    assert_int_equal(w.done, 0);
    broker_free(f->broker);
    f->broker = NULL;
    assert_int_equal(w.done, 1);
    assert_false(w.wait.acked);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lease_is_counted_in_each_state_of_its_life),
        TEST(a_renewal_keeps_the_live_connections),
        TEST(connections_of_a_closed_lease_and_a_lost_door_are_uncounted),
        TEST(an_acknowledgement_confirms_what_it_covers_and_no_more),
        TEST(a_door_that_comes_back_with_less_has_it_to_confirm_again),
        TEST(random_lives_never_make_the_counts_wrong),
        TEST(ending_leases_are_told_with_their_cause_and_number),
        TEST(a_door_that_comes_back_is_told_apart_from_a_new_one),
        TEST(denials_of_a_door_are_for_the_audit_trail_at_a_bounded_rate),
        TEST(a_client_that_comes_and_goes_does_not_fill_the_audit_trail),
        TEST(a_door_that_comes_again_and_again_does_not_fill_the_audit_trail),
        TEST(strangers_on_the_control_socket_are_bounded),
        TEST(a_door_comes_through_a_crowd_of_strangers),
        TEST(who_still_waits_at_the_end_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
