/* A snapshot that is written in parts: it is what its session was at its entry of the log, whatever happens
 * between two of them, and what happens then comes behind it. */
#include "../support/broker_fixture.h"

#define LEASES 10
#define SLICE  4

/* LEASES leases of entries 1 to LEASES, of which a turn writes SLICE; their door has just come. */
static void begin(struct fixture *f, struct lease *leases)
{
    broker_set_slice(f->broker, SLICE);
    broker_tick(f->broker); /* the ping is later then */
    for (int i = 0; i < LEASES; i++)
        leases[i] = grant(f, 60, i + 1);
    hello(f, 9, 7, SECRET);
    assert_int_equal(f->sent_n, 0);
    assert_int_equal(f->wake_ms, 0);
}

static void finish(struct fixture *f)
{
    for (int turn = 0; turn < 2 + LEASES / SLICE; turn++)
        broker_tick(f->broker);
    assert_true(f->wake_ms > 0);
}

static const struct door_allow *find(const struct door_msg *m, const struct lease *l)
{
    const struct door_allow *allow = m->allow.items;

    for (size_t i = 0; i < m->allow.n; i++)
        if (id_equal(&allow[i].jti, &l->lease_id))
            return &allow[i];
    return NULL;
}

static void assert_whole(const struct door_msg *m, const struct lease *leases)
{
    assert_int_equal(m->t, DOOR_SNAPSHOT);
    assert_int_equal(m->seq, LEASES);
    assert_int_equal(m->allow.n, LEASES);
    for (int i = 0; i < LEASES; i++) {
        const struct door_allow *allow = find(m, &leases[i]);

        assert_non_null(allow);
        assert_int_equal(allow->exp, leases[i].expires_at / 1000);
    }
}

static void it_takes_turns_and_is_whole(void **state)
{
    struct fixture *f = *state;
    struct lease leases[LEASES];

    begin(f, leases);
    broker_tick(f->broker);
    assert_int_equal(f->sent_n, 0);
    f->wall_ms += 7;
    broker_tick(f->broker);
    assert_int_equal(f->sent_n, 1);
    assert_whole(&f->sent[0], leases);
    assert_int_equal(f->sent[0].now, START + 7); /* the door sets its clock by it */
    assert_int_equal(state_of(f, &leases[0]), LEASE_PENDING);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACK, .seq = LEASES});
    for (int i = 0; i < LEASES; i++)
        assert_int_equal(state_of(f, &leases[i]), LEASE_ACTIVE);
}

static void a_small_one_is_sent_at_once(void **state)
{
    struct fixture *f = *state;

    broker_set_slice(f->broker, SLICE);
    broker_tick(f->broker); /* the ping is later then */
    for (int i = 0; i < SLICE; i++)
        grant(f, 60, i + 1);
    hello(f, 9, 7, SECRET);
    assert_int_equal(f->sent_n, 1);
    assert_true(f->wake_ms > 0);
}

static void what_is_revoked_between_two_parts_comes_behind_it(void **state)
{
    struct fixture *f = *state;
    struct lease leases[LEASES];

    begin(f, leases);
    revoke(f, &leases[0], LEASES + 1);          /* written */
    revoke(f, &leases[LEASES - 1], LEASES + 2); /* not yet */
    assert_int_equal(f->sent_n, 0);
    finish(f);
    assert_int_equal(f->sent_n, 3);
    assert_whole(&f->sent[0], leases);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(f->sent[i].op, DOOR_OP_REVOKE);
        assert_int_equal(f->sent[i].seq, LEASES + i);
        assert_int_equal(f->sent[i].code, 4403);
    }
    assert_true(id_equal(&f->sent[1].jti, &leases[0].lease_id));
    assert_true(id_equal(&f->sent[2].jti, &leases[LEASES - 1].lease_id));
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACK, .seq = LEASES});
    assert_int_equal(f->closed_n, 0);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACK, .seq = LEASES + 2});
    assert_int_equal(f->closed_n, 2);
}

static void what_is_granted_or_renewed_between_two_parts_comes_behind_it(void **state)
{
    struct fixture *f = *state;
    struct lease leases[LEASES], renewed, granted;

    begin(f, leases);
    granted = grant(f, 60, LEASES + 1);
    renewed = leases[LEASES - 1];
    renewed.expires_at += 60000;
    apply(f, &(struct change){.kind = CHANGE_EXTEND, .seq = LEASES + 2, .lease = renewed});
    revoke(f, &granted, LEASES + 3);
    finish(f);
    assert_int_equal(f->sent_n, 4);
    assert_whole(&f->sent[0], leases);
    assert_int_equal(f->sent[1].op, DOOR_OP_GRANT);
    assert_int_equal(f->sent[2].op, DOOR_OP_EXTEND);
    assert_int_equal(f->sent[2].exp, renewed.expires_at / 1000);
    assert_int_equal(f->sent[3].op, DOOR_OP_REVOKE);
    grant(f, 60, LEASES + 4);
    assert_int_equal(f->sent_n, 5);
}

static void what_runs_out_between_two_parts_was_there_before(void **state)
{
    struct fixture *f = *state;
    struct lease leases[LEASES];
    struct change c = {.kind = CHANGE_EXPIRE, .seq = LEASES + 1, .code = 4401};

    begin(f, leases);
    c.expired.session_id = f->sandbox.session_id;
    for (c.expired.n = 0; c.expired.n < 6; c.expired.n++) /* the next to be written among them */
        c.expired.ids[c.expired.n] = leases[2 + c.expired.n].lease_id;
    c.expired.closed = 0x3f;
    apply(f, &c);
    finish(f);
    assert_int_equal(f->sent_n, 2);
    assert_whole(&f->sent[0], leases);
    assert_int_equal(f->sent[1].op, DOOR_OP_REVOKE_LIST);
    assert_int_equal(f->sent[1].jtis.n, 6);
}

static void what_ends_all_is_in_the_snapshot_that_begins_anew(void **state)
{
    struct fixture *f = *state;
    struct lease leases[LEASES], before, behind;

    begin(f, leases);
    before = grant(f, 60, LEASES + 1);
    apply(f,
          &(struct change){
              .kind = CHANGE_REVOKE_ALL, .seq = LEASES + 2, .code = 4403, .sandbox = f->sandbox});
    behind = grant(f, 60, LEASES + 3);
    finish(f);
    assert_int_equal(f->sent_n, 1);
    assert_int_equal(f->sent[0].t, DOOR_SNAPSHOT);
    assert_int_equal(f->sent[0].seq, LEASES + 3);
    assert_int_equal(f->sent[0].allow.n, 1);
    assert_non_null(find(&f->sent[0], &behind));
    assert_int_equal(state_of(f, &before), LEASE_REVOKING);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACK, .seq = LEASES + 3, .cut = 3});
    assert_int_equal(f->closed_n, LEASES + 1);
}

static void a_door_that_goes_between_two_parts_has_had_none(void **state)
{
    struct fixture *f = *state;
    struct lease leases[LEASES];

    begin(f, leases);
    broker_door_closed(f->broker, 9);
    finish(f);
    assert_int_equal(f->sent_n, 0);
    revoke(f, &leases[0], LEASES + 1);
    hello(f, 10, 7, SECRET);
    hello(f, 11, 7, SECRET); /* before the other one has gone */
    finish(f);
    assert_int_equal(f->sent_n, 1);
    assert_int_equal(f->sent_to[0], 11);
    assert_int_equal(f->sent[0].seq, LEASES + 1);
    assert_int_equal(f->sent[0].allow.n, LEASES - 1);
}

static void a_session_that_ends_between_two_parts_is_retired_at_once(void **state)
{
    struct fixture *f = *state;
    struct lease leases[LEASES];

    begin(f, leases);
    apply(f, &(struct change){.kind = CHANGE_SESSION_ENDED, .sandbox = f->sandbox});
    assert_int_equal(f->sent_n, 1);
    assert_int_equal(f->sent[0].t, DOOR_RETIRE);
    finish(f);
    assert_int_equal(f->sent_n, 1);
}

static void the_next_session_gets_what_it_is_when_its_turn_comes(void **state)
{
    struct fixture *f = *state;
    struct sandbox first = f->sandbox;
    struct lease leases[LEASES], l;
    struct err e;

    begin(f, leases);
    id_random(&f->sandbox.session_id);
    assert_int_equal(broker_load_session(f->broker, &f->sandbox, &e), 0);
    l = grant(f, 60, 1);
    hello(f, 10, 7, SECRET);
    assert_int_equal(f->sent_n, 0);
    revoke(f, &l, 2);
    finish(f);
    assert_int_equal(f->sent_n, 2);
    assert_int_equal(f->sent_to[0], 9);
    assert_whole(&f->sent[0], leases);
    assert_int_equal(f->sent_to[1], 10);
    assert_int_equal(f->sent[1].seq, 2);
    assert_int_equal(f->sent[1].allow.n, 0);
    assert_true(broker_session_ready(f->broker, &first.session_id));
}

/* More than may wait for a door. */
static void too_much_to_hold_begins_it_anew(void **state)
{
    struct fixture *f = *state;
    const int renewals = 8 * 1024 * 1024 / 80;
    struct lease leases[LEASES];

    begin(f, leases);
    for (int i = 1; i <= renewals; i++) {
        leases[0].expires_at += 1000;
        apply(f, &(struct change){.kind = CHANGE_EXTEND, .seq = LEASES + i, .lease = leases[0]});
    }
    finish(f);
    assert_int_equal(f->sent_n, 1);
    assert_int_equal(f->sent[0].t, DOOR_SNAPSHOT);
    assert_int_equal(f->sent[0].seq, LEASES + renewals);
    assert_int_equal(find(&f->sent[0], &leases[0])->exp, leases[0].expires_at / 1000);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_takes_turns_and_is_whole),
        TEST(a_small_one_is_sent_at_once),
        TEST(what_is_revoked_between_two_parts_comes_behind_it),
        TEST(what_is_granted_or_renewed_between_two_parts_comes_behind_it),
        TEST(what_runs_out_between_two_parts_was_there_before),
        TEST(what_ends_all_is_in_the_snapshot_that_begins_anew),
        TEST(a_door_that_goes_between_two_parts_has_had_none),
        TEST(a_session_that_ends_between_two_parts_is_retired_at_once),
        TEST(the_next_session_gets_what_it_is_when_its_turn_comes),
        TEST(too_much_to_hold_begins_it_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
