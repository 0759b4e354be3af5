/* The broker against doors played by the test: what it says, when, and what it believes. */
#include "../support/broker_fixture.h"

static void a_door_with_the_secret_gets_a_snapshot_of_what_is_open(void **state)
{
    struct fixture *f = *state;
    struct lease open = grant(f, 60, 1), ending = grant(f, 60, 2);

    revoke(f, &ending, 3);
    assert_int_equal(f->sent_n, 0);
    hello(f, 9, 7, SECRET);
    assert_int_equal(f->sent_n, 1);
    assert_int_equal(f->sent[0].t, DOOR_SNAPSHOT);
    assert_int_equal(f->sent[0].seq, 3);
    assert_int_equal(f->sent[0].now, START);
    assert_int_equal(f->sent[0].allow.n, 1);
    assert_true(id_equal(&((struct door_allow *)f->sent[0].allow.items)->jti, &open.lease_id));
    assert_true(f->live);
    assert_true(broker_session_ready(f->broker, &f->sandbox.session_id));
}

static void a_wrong_secret_is_refused_and_learns_nothing(void **state)
{
    struct fixture *f = *state;

    hello(f, 9, 7, "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
    assert_int_equal(f->closed_code, 4401);
    assert_int_equal(f->sent_n, 0);
    assert_false(broker_session_ready(f->broker, &f->sandbox.session_id));
}

static void an_older_generation_is_retired(void **state)
{
    struct fixture *f = *state;

    hello(f, 9, 6, SECRET);
    assert_int_equal(f->sent[0].t, DOOR_RETIRE);
    assert_int_equal(f->closed_code, 4410);
}

static void a_newer_generation_than_ours_is_no_door_of_ours(void **state)
{
    struct fixture *f = *state;

    hello(f, 9, 8, SECRET);
    assert_int_equal(f->closed_code, 4401);
    assert_int_equal(f->sent_n, 0);
}

static void an_unknown_session_is_retired(void **state)
{
    struct fixture *f = *state;

    id_random(&f->sandbox.session_id);
    hello(f, 9, 7, SECRET);
    assert_int_equal(f->sent[0].t, DOOR_RETIRE);
}

static void whoever_does_not_say_hello_first_is_closed(void **state)
{
    struct fixture *f = *state;

    broker_door_open(f->broker, 9);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACK, .seq = 1});
    assert_int_equal(f->closed_code, 4401);
    broker_door_open(f->broker, 10);
    f->boot_us += 3000000;
    broker_tick(f->broker);
    assert_int_equal(f->closed_conn, 10);
}

static void garbage_and_messages_of_the_gateway_end_the_connection(void **state)
{
    struct fixture *f = *state;

    hello(f, 9, 7, SECRET);
    broker_door_message(f->broker, 9, "{nonsense", 9);
    assert_int_equal(f->closed_code, 1002);
    f->closed_code = 0;
    hello(f, 10, 7, SECRET);
    door_says(f, 10, &(struct door_msg){.t = DOOR_RETIRE});
    assert_int_equal(f->closed_code, 1002);
}

static void the_newest_connection_of_a_door_replaces_the_older(void **state)
{
    struct fixture *f = *state;

    hello(f, 9, 7, SECRET);
    hello(f, 10, 7, SECRET);
    assert_int_equal(f->closed_conn, 9);
    broker_door_closed(f->broker, 9);
    assert_true(broker_session_ready(f->broker, &f->sandbox.session_id));
    grant(f, 60, 1);
    assert_int_equal(f->sent_to[f->sent_n - 1], 10);
}

static void changes_are_pushed_in_commit_order(void **state)
{
    struct fixture *f = *state;
    struct lease l;

    hello(f, 9, 7, SECRET);
    l = grant(f, 60, 1);
    l.expires_at += 60000;
    l.grant_seq = 2;
    apply(f, &(struct change){.kind = CHANGE_EXTEND, .seq = 2, .lease = l});
    revoke(f, &l, 3);
    assert_int_equal(f->sent_n, 4);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(f->sent[i].seq, i);
    assert_int_equal(f->sent[1].op, DOOR_OP_GRANT);
    assert_int_equal(f->sent[2].op, DOOR_OP_EXTEND);
    assert_int_equal(f->sent[2].exp, l.expires_at / 1000);
    assert_int_equal(f->sent[3].op, DOOR_OP_REVOKE);
    assert_int_equal(f->sent[3].code, 4403);
}

static void a_lease_is_pending_until_its_door_acknowledges(void **state)
{
    struct fixture *f = *state;
    struct lease l;

    hello(f, 9, 7, SECRET);
    l = grant(f, 60, 1);
    assert_int_equal(state_of(f, &l), LEASE_PENDING);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACK, .seq = 1});
    assert_int_equal(state_of(f, &l), LEASE_ACTIVE);
}

static void an_acknowledged_revocation_closes_an_unacknowledged_one_is_unconfirmed(void **state)
{
    struct fixture *f = *state;
    struct lease l;

    hello(f, 9, 7, SECRET);
    l = grant(f, 60, 1);
    revoke(f, &l, 2);
    assert_int_equal(state_of(f, &l), LEASE_REVOKING);
    f->boot_us += 2500000;
    assert_int_equal(state_of(f, &l), LEASE_UNCONFIRMED);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACK, .seq = 2, .cut = 1});
    assert_int_equal(f->closed_n, 1);
    assert_true(id_equal(&f->closed[0], &l.lease_id));
}

static void nothing_is_confirmed_that_was_not_said(void **state)
{
    struct fixture *f = *state;
    struct lease l;

    hello(f, 9, 7, SECRET);
    l = grant(f, 60, 1);
    revoke(f, &l, 2);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACK, .seq = 99});
    assert_int_equal(f->closed_n, 0);
    assert_int_equal(state_of(f, &l), LEASE_REVOKING);
}

struct waiting {
    struct broker_wait w;
    int calls;
};

static void on_wait(struct broker_wait *w)
{
    ((struct waiting *)w)->calls++;
}

static void a_wait_ends_with_the_acknowledgement_and_its_figures(void **state)
{
    struct fixture *f = *state;
    struct waiting w = {
        .w = {.session_id = f->sandbox.session_id, .timeout_ms = 1000, .done = on_wait}};
    struct lease l;

    hello(f, 9, 7, SECRET);
    l = grant(f, 60, 1);
    revoke(f, &l, 2);
    broker_wait(f->broker, &w.w);
    assert_int_equal(w.calls, 0);
    f->boot_us += 700;
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACK, .seq = 2, .cut = 3, .latency_us = 100});
    assert_int_equal(w.calls, 1);
    assert_true(w.w.acked);
    assert_int_equal(w.w.cut, 3);
    assert_int_equal(w.w.latency_us, 700);
}

static void a_wait_ends_with_its_time_or_with_the_session(void **state)
{
    struct fixture *f = *state;
    struct waiting w = {
        .w = {.session_id = f->sandbox.session_id, .timeout_ms = 1000, .done = on_wait}};
    struct waiting x = w, gone;
    struct lease l = grant(f, 60, 1);

    revoke(f, &l, 2);
    broker_wait(f->broker, &w.w);
    assert_true(f->wake_ms <= 1000);
    f->boot_us += 1000000;
    broker_tick(f->broker);
    assert_int_equal(w.calls, 1);
    assert_false(w.w.acked);
    broker_wait(f->broker, &x.w);
    apply(f, &(struct change){.kind = CHANGE_SESSION_ENDED, .sandbox = f->sandbox});
    assert_int_equal(x.calls, 1);
    assert_true(x.w.acked);
    gone = (struct waiting){.w = {.session_id = f->sandbox.session_id, .done = on_wait}};
    broker_wait(f->broker, &gone.w);
    assert_int_equal(gone.calls, 1);
}

/* All of a session: they keep their places in the heap, as their door confirms them long before. */
static void many_that_end_and_are_not_confirmed_come_up_in_bounded_turns(void **state)
{
    struct fixture *f = *state;
    const int n = 4 * BROKER_BATCH;

    for (int i = 0; i < n; i++)
        grant(f, 100, i + 1);
    apply(f, &(struct change){
                 .kind = CHANGE_REVOKE_ALL, .seq = n + 1, .code = 4403, .sandbox = f->sandbox});
    f->wall_ms += 100000; /* what they would have run out at */
    broker_tick(f->broker);
    assert_int_equal(f->wake_ms, 0);
    broker_tick(f->broker);
    assert_true(f->wake_ms > 0);
    assert_int_equal(f->expired_n, 0);
    assert_int_equal(f->closed_n, 0);
    f->wall_ms += 20000 - 1; /* skew and seal: something may hold their tokens */
    broker_tick(f->broker);
    assert_int_equal(f->closed_n, 0);
    f->wall_ms += 1;
    for (size_t turn = 1; turn <= 2; turn++) {
        broker_tick(f->broker);
        assert_int_equal(f->closed_n, turn * BROKER_BATCH);
    }
}

#define OWED (8 * (size_t)BROKER_BATCH) /* leases that the store is asked for at most */

static void expiry_comes_in_bounded_batches_and_is_asked_for_again(void **state)
{
    struct fixture *f = *state;
    const size_t n = OWED + 10;

    for (size_t i = 0; i < n; i++)
        grant(f, 10, (int64_t)i + 1);
    f->wall_ms += 10000 + HEARD - 1;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 0);
    f->wall_ms += 1;
    for (int turn = 0; turn < 20; turn++)
        broker_tick(f->broker);
    assert_int_equal(f->expired_n, OWED); /* the store has so many to answer */
    assert_int_equal(f->expired_calls, OWED / BROKER_BATCH);
    for (size_t i = 0; i < BROKER_BATCH; i++) {
        struct lease l = {.lease_id = f->expired[i],
                          .session_id = f->sandbox.session_id,
                          .expires_at = f->wall_ms};

        revoke(f, &l, (int64_t)(n + i + 1));
    }
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, n); /* one batch answered, and the rest asked for */
    f->wall_ms += 5000;
    f->boot_us += 5000000;
    broker_tick(f->broker);
    assert_true(f->expired_n > n); /* the other was not answered: asked again */
}

static void leases_that_end_together_are_asked_for_in_the_order_of_their_issue(void **state)
{
    struct fixture *f = *state;
    struct id ids[50];
    struct err e;

    for (size_t i = 0; i < 50; i++) {
        struct lease l = {.session_id = f->sandbox.session_id,
                          .grant_seq = 1,
                          .expires_at = f->wall_ms + 10000,
                          .n = (int64_t)(i * 37 % 50) + 1};

        id_random(&l.lease_id);
        ids[l.n - 1] = l.lease_id;
        assert_int_equal(broker_load_lease(f->broker, &l, &e), 0);
    }
    f->wall_ms += 10000 + HEARD;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 50);
    assert_memory_equal(f->expired, ids, sizeof ids);
}

static void expiries_that_are_never_answered_do_not_keep_the_others_from_it(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < 2 * OWED; i++)
        grant(f, 10, (int64_t)i + 1);
    f->wall_ms += 10000 + HEARD;
    for (int round = 0; round < 2; round++) {
        for (int turn = 0; turn < 20; turn++)
            broker_tick(f->broker);
        assert_int_equal(f->expired_n, (size_t)(round + 1) * OWED);
        f->boot_us += 5000000;
        f->wall_ms += 4000; /* so that those of the first round are not due again yet */
    }
}

static void a_renewed_lease_does_not_expire_at_its_first_time(void **state)
{
    struct fixture *f = *state;
    struct lease l = grant(f, 10, 1);

    l.expires_at += 50000;
    apply(f, &(struct change){.kind = CHANGE_EXTEND, .seq = 2, .lease = l});
    f->wall_ms += 20000;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 0);
    f->wall_ms += 40000 + HEARD;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 1);
}

static void pass(struct fixture *f, int64_t ms)
{
    f->wall_ms += ms;
    f->boot_us += ms * 1000;
    broker_tick(f->broker);
}

static void a_clock_that_is_set_back_gives_no_lease_more_time(void **state)
{
    struct fixture *f = *state;
    struct lease l = grant(f, 10, 1), later;

    broker_tick(f->broker);
    f->wall_ms -= 3600000;
    broker_tick(f->broker);
    f->boot_us += 5000000;
    f->wall_ms += 5000;
    later = grant(f, 9, 2); /* of the time behind the step */
    f->boot_us += 5000000 + HEARD * 1000;
    f->wall_ms += 5000 + HEARD;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 1);
    assert_true(id_equal(&f->expired[0], &l.lease_id));
    f->boot_us += 4000000;
    f->wall_ms += 4000;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 2);
    assert_true(id_equal(&f->expired[1], &later.lease_id));
}

static void a_small_step_back_is_followed_and_many_are_a_large_one(void **state)
{
    struct fixture *f = *state;

    grant(f, 10, 1);
    broker_tick(f->broker);
    f->wall_ms -= 4000;
    f->boot_us += 10000000 + HEARD * 1000;
    f->wall_ms += 10000 + HEARD;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 0);
    f->wall_ms -= 4000;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 1);
}

static void a_start_behind_what_was_seen_gives_no_lease_more_time(void **state)
{
    struct fixture *f = *state;
    struct lease l = make_lease(f, 3610, 1);
    struct err e;

    assert_int_equal(broker_load_lease(f->broker, &l, &e), 0);
    broker_clock_behind(f->broker, 3600000);
    f->boot_us += 10000000 + HEARD * 1000;
    f->wall_ms += 10000 + HEARD;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 1);
}

static void a_lease_is_told_of_once_a_term_shortly_before_it_expires(void **state)
{
    struct fixture *f = *state;
    struct lease l = grant(f, 100, 1), brief = grant(f, 4, 2);

    pass(f, 2999);
    assert_int_equal(f->expiring_n, 0);
    pass(f, 1); /* the last quarter of four seconds */
    assert_int_equal(f->expiring_n, 1);
    assert_true(id_equal(&f->expiring, &brief.lease_id));
    pass(f, 500);
    assert_int_equal(f->expired_n, 0);
    pass(f, 500 + HEARD);
    assert_int_equal(f->expired_n, 1);

    for (int64_t at = 4000; at < 85000; at += 1000)
        pass(f, 1000); /* the last fifteen seconds of a long one */
    assert_int_equal(f->expiring_n, 2);
    assert_true(id_equal(&f->expiring, &l.lease_id));
    l.expires_at = f->wall_ms + 100000;
    struct change c = {.kind = CHANGE_EXTEND, .seq = 3, .lease = l};
    broker_apply(f->broker, &c, 1, f->boot_us);
    pass(f, 84000);
    assert_int_equal(f->expiring_n, 2);
    pass(f, 1000);
    assert_int_equal(f->expiring_n, 3);
}

static void an_unconfirmed_lease_is_told_of_once(void **state)
{
    struct fixture *f = *state;
    struct lease l = grant(f, 100, 1), sound = grant(f, 100, 2);

    (void)sound;
    revoke(f, &l, 3);
    pass(f, 1900);
    assert_int_equal(f->unconfirmed_n, 0);
    for (int i = 0; i < 5; i++)
        pass(f, 1000);
    assert_int_equal(f->unconfirmed_n, 1);
    assert_true(id_equal(&f->unconfirmed, &l.lease_id));
}

static void expire(struct fixture *f, const struct lease *l, int64_t seq, uint32_t closed)
{
    struct change c = {.kind = CHANGE_EXPIRE, .seq = seq, .code = 4401};

    c.expired = (struct change_expired){.session_id = l[0].session_id,
                                        .n = 2,
                                        .closed = closed,
                                        .ids = {l[0].lease_id, l[1].lease_id}};
    f->sent_n = 0;
    apply(f, &c);
}

/* Due, with what the door has said before. */
static size_t unused_of_two(struct fixture *f, int64_t door_time_ms, bool connected)
{
    struct lease l = grant(f, 10, 1);

    grant(f, 10, 2);
    hello(f, 9, 7, SECRET);
    if (connected)
        door_says(f, 9, &(struct door_msg){.t = DOOR_ADMIT, .jti = l.lease_id});
    f->wall_ms += 10000 + HEARD;
    door_says(f, 9, &(struct door_msg){.t = DOOR_PING, .now = door_time_ms});
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 2);
    return f->unused_n;
}

static void leases_that_nobody_uses_behind_their_end_are_unused(void **state)
{
    assert_int_equal(unused_of_two(*state, START + 10000, false), 2);
}

static void a_lease_that_somebody_is_connected_with_is_not(void **state)
{
    assert_int_equal(unused_of_two(*state, START + 10000, true), 1);
}

static void none_is_before_its_door_knows_that_its_time_is_over(void **state)
{
    assert_int_equal(unused_of_two(*state, START + 9999, false), 0);
}

static void none_is_without_a_door(void **state)
{
    struct fixture *f = *state;

    grant(f, 10, 1);
    hello(f, 9, 7, SECRET);
    door_says(f, 9, &(struct door_msg){.t = DOOR_PING, .now = START + 20000});
    broker_door_closed(f->broker, 9);
    f->wall_ms += 10000 + HEARD;
    broker_tick(f->broker);
    assert_int_equal(f->expired_n, 1);
    assert_int_equal(f->unused_n, 0);
}

static void what_expires_together_is_withdrawn_together_and_closed_where_unused(void **state)
{
    struct fixture *f = *state;
    struct lease l[2] = {grant(f, 10, 1), grant(f, 10, 2)};
    struct broker_counts counts;

    hello(f, 9, 7, SECRET);
    expire(f, l, 3, 1U << 1);
    assert_int_equal(f->sent_n, 1);
    assert_int_equal(f->sent[0].op, DOOR_OP_REVOKE_LIST);
    assert_int_equal(f->sent[0].seq, 3);
    assert_int_equal(f->sent[0].jtis.n, 2);
    assert_int_equal(f->ending_n, 2);
    assert_int_equal(state_of(f, &l[0]), LEASE_EXPIRING);
    broker_counts(f->broker, &counts);
    assert_int_equal(counts.leases, 1); /* the unused one is gone */
    assert_int_equal(f->closed_n, 0);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACK, .seq = 3, .cut = 1});
    assert_int_equal(f->closed_n, 1);
    assert_true(id_equal(&f->closed[0], &l[0].lease_id));
}

static void an_unconfirmed_lease_is_closed_when_nothing_can_hold_its_token(void **state)
{
    struct fixture *f = *state;
    struct lease l = grant(f, 10, 1);

    revoke(f, &l, 2);
    f->wall_ms += 10000 + 20000 - 1;
    broker_tick(f->broker);
    assert_int_equal(f->closed_n, 0);
    f->wall_ms += 1;
    broker_tick(f->broker);
    assert_int_equal(f->closed_n, 1);
}

static void the_end_of_a_session_retires_its_door_and_forgets_its_leases(void **state)
{
    struct fixture *f = *state;
    struct broker_counts counts;

    hello(f, 9, 7, SECRET);
    grant(f, 60, 1);
    apply(f, &(struct change){.kind = CHANGE_SESSION_ENDED, .sandbox = f->sandbox});
    assert_int_equal(f->sent[f->sent_n - 1].t, DOOR_RETIRE);
    broker_counts(f->broker, &counts);
    assert_int_equal(counts.sessions, 0);
    assert_int_equal(counts.leases, 0);
    door_says(f, 9, &(struct door_msg){.t = DOOR_PING, .now = 1}); /* still open: harmless */
    broker_door_closed(f->broker, 9);
}

static void hello_again(struct fixture *f, uint64_t conn, const struct id *boot_id, int64_t applied)
{
    broker_door_open(f->broker, conn);
    door_says(f, conn,
              &(struct door_msg){.t = DOOR_HELLO,
                                 .sid = f->sandbox.session_id,
                                 .ep = 7,
                                 .boot_id = *boot_id,
                                 .secret = (char *)SECRET,
                                 .applied = applied,
                                 .agent = DOOR_AGENT_UP});
}

static void a_door_that_comes_back_gets_what_it_missed_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    struct id boot;
    struct lease l;

    id_random(&boot);
    hello_again(f, 9, &boot, 0);
    assert_int_equal(f->sent[0].t, DOOR_SNAPSHOT);
    l = grant(f, 60, 1);
    broker_door_closed(f->broker, 9);
    grant(f, 60, 2);
    revoke(f, &l, 3);
    f->sent_n = 0;
    hello_again(f, 10, &boot, 1);
    assert_int_equal(f->sent_n, 3);
    assert_int_equal(f->sent[0].t, DOOR_DELTA);
    assert_int_equal(f->sent[0].from, 1);
    assert_int_equal(f->sent[0].seq, 3);
    assert_int_equal(f->sent[1].op, DOOR_OP_GRANT);
    assert_int_equal(f->sent[2].op, DOOR_OP_REVOKE);
    assert_int_equal(f->sent[2].seq, 3);
    f->sent_n = 0;
    hello_again(f, 11, &boot, 3); /* nothing missed */
    assert_int_equal(f->sent_n, 1);
    assert_int_equal(f->sent[0].t, DOOR_DELTA);
}

static void a_door_we_do_not_know_or_too_far_behind_gets_a_snapshot(void **state)
{
    struct fixture *f = *state;
    struct id boot, other;

    id_random(&boot);
    id_random(&other);
    hello_again(f, 9, &boot, 0);
    broker_door_closed(f->broker, 9);
    for (int seq = 1; seq <= 40; seq++)
        grant(f, 60, seq);
    f->sent_n = 0;
    hello_again(f, 10, &boot, 7); /* the op of seq 8 is gone */
    assert_int_equal(f->sent[0].t, DOOR_SNAPSHOT);
    broker_door_closed(f->broker, 10);
    f->sent_n = 0;
    hello_again(f, 11, &boot, 8);
    assert_int_equal(f->sent[0].t, DOOR_DELTA);
    assert_int_equal(f->sent_n, 33);
    broker_door_closed(f->broker, 11);
    f->sent_n = 0;
    hello_again(f, 12, &other, 40);
    assert_int_equal(f->sent[0].t, DOOR_SNAPSHOT);
    broker_door_closed(f->broker, 12);
    f->sent_n = 0;
    hello_again(f, 13, &other, 41); /* ahead of us: never by a delta */
    assert_int_equal(f->sent[0].t, DOOR_SNAPSHOT);
}

static void live_connections_are_counted_and_end_with_the_door(void **state)
{
    struct fixture *f = *state;
    struct lease l, view;

    hello(f, 9, 7, SECRET);
    view = l = grant(f, 60, 1);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ADMIT, .jti = l.lease_id});
    broker_lease_view(f->broker, &view);
    assert_int_equal(view.connections, 1);
    door_says(f, 9, &(struct door_msg){.t = DOOR_CLOSE, .jti = l.lease_id, .code = 1000});
    door_says(f, 9, &(struct door_msg){.t = DOOR_CLOSE, .jti = l.lease_id, .code = 1000});
    broker_lease_view(f->broker, &view);
    assert_int_equal(view.connections, 0);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ADMIT, .jti = l.lease_id});
    broker_door_closed(f->broker, 9);
    broker_lease_view(f->broker, &view);
    assert_int_equal(view.connections, 0);
    assert_false(f->live);
}

static void a_door_cannot_report_activity_of_the_future(void **state)
{
    struct fixture *f = *state;

    hello(f, 9, 7, SECRET);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ACTIVITY, .last_in = START + 99999999});
    assert_int_equal(f->activity, START);
}

static void messages_lost_to_the_history_are_told_each_time_they_have_doubled(void **state)
{
    struct fixture *f = *state;
    size_t told = 0;

    hello(f, 9, 7, SECRET);
    for (int64_t lost = 0; lost <= 1000; lost++) {
        size_t before = f->events_n;

        door_says(f, 9, &(struct door_msg){.t = DOOR_ACTIVITY, .unrecorded = lost});
        if (f->events_n == before)
            continue;
        assert_int_equal(f->event.kind, BROKER_UNRECORDED);
        assert_int_equal(f->event.unrecorded, lost);
        told++;
    }
    assert_int_equal(told, 10);
}

static void a_door_that_is_soon_stale_is_pinged_more_often(void **state)
{
    struct fixture *f = *state;

    f->limits.stale_after_seconds = 1;
    broker_tick(f->broker);
    hello(f, 9, 7, SECRET);
    assert_true(f->wake_ms < 500);
    f->sent_n = 0;
    f->boot_us += 400000;
    broker_tick(f->broker);
    assert_int_equal(f->sent_n, 1);
    assert_int_equal(f->sent[0].t, DOOR_PING);
}

static void a_silent_door_is_dropped_and_a_live_one_pinged_every_second(void **state)
{
    struct fixture *f = *state;

    broker_tick(f->broker);
    hello(f, 9, 7, SECRET);
    f->boot_us += 1000000;
    broker_tick(f->broker);
    assert_int_equal(f->sent[f->sent_n - 1].t, DOOR_PING);
    assert_true(f->wake_ms > 0 && f->wake_ms <= 1000);
    f->boot_us += 11000000;
    broker_tick(f->broker);
    assert_int_equal(f->closed_conn, 9);
    assert_false(f->live);
}

static void a_once_lease_that_let_in_is_made_durable_and_named_in_snapshots(void **state)
{
    struct fixture *f = *state;
    struct lease once = make_lease(f, 60, 1), multi;
    const struct door_msg *m;

    once.use = USE_ONCE;
    apply(f, &(struct change){.kind = CHANGE_GRANT, .seq = 1, .lease = once});
    multi = grant(f, 60, 2);
    hello(f, 9, 7, SECRET);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ADMIT, .jti = multi.lease_id});
    assert_int_equal(f->consumed_n, 0);
    door_says(f, 9, &(struct door_msg){.t = DOOR_ADMIT, .jti = once.lease_id});
    door_says(f, 9, &(struct door_msg){.t = DOOR_ADMIT, .jti = once.lease_id});
    assert_int_equal(f->consumed_n, 1);
    assert_true(id_equal(&f->consumed, &once.lease_id));
    once.expires_at += 1000; /* a renewal read before the use was written */
    apply(f, &(struct change){.kind = CHANGE_EXTEND, .seq = 3, .lease = once});
    hello(f, 10, 7, SECRET);
    m = &f->sent[f->sent_n - 1];
    assert_int_equal(m->t, DOOR_SNAPSHOT);
    assert_int_equal(m->consumed.n, 1);
    assert_true(id_equal(m->consumed.items, &once.lease_id));
}

static void a_door_tells_what_it_let_in_while_nobody_listened(void **state)
{
    struct fixture *f = *state;
    struct lease once = make_lease(f, 60, 1);
    struct door_msg m = {.t = DOOR_HELLO,
                         .sid = f->sandbox.session_id,
                         .ep = 7,
                         .secret = (char *)SECRET,
                         .consumed = {&once.lease_id, 1},
                         .agent = DOOR_AGENT_UP};

    once.use = USE_ONCE;
    apply(f, &(struct change){.kind = CHANGE_GRANT, .seq = 1, .lease = once});
    id_random(&m.boot_id);
    broker_door_open(f->broker, 9);
    door_says(f, 9, &m);
    assert_int_equal(f->consumed_n, 1);
    assert_true(id_equal(&f->consumed, &once.lease_id));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_door_with_the_secret_gets_a_snapshot_of_what_is_open),
        T(a_wrong_secret_is_refused_and_learns_nothing),
        T(an_older_generation_is_retired),
        T(a_newer_generation_than_ours_is_no_door_of_ours),
        T(an_unknown_session_is_retired),
        T(whoever_does_not_say_hello_first_is_closed),
        T(garbage_and_messages_of_the_gateway_end_the_connection),
        T(the_newest_connection_of_a_door_replaces_the_older),
        T(changes_are_pushed_in_commit_order),
        T(a_lease_is_pending_until_its_door_acknowledges),
        T(an_acknowledged_revocation_closes_an_unacknowledged_one_is_unconfirmed),
        T(nothing_is_confirmed_that_was_not_said),
        T(a_wait_ends_with_the_acknowledgement_and_its_figures),
        T(a_wait_ends_with_its_time_or_with_the_session),
        T(leases_that_end_together_are_asked_for_in_the_order_of_their_issue),
        T(expiries_that_are_never_answered_do_not_keep_the_others_from_it),
        T(many_that_end_and_are_not_confirmed_come_up_in_bounded_turns),
        T(expiry_comes_in_bounded_batches_and_is_asked_for_again),
        T(a_renewed_lease_does_not_expire_at_its_first_time),
        T(a_clock_that_is_set_back_gives_no_lease_more_time),
        T(a_small_step_back_is_followed_and_many_are_a_large_one),
        T(a_start_behind_what_was_seen_gives_no_lease_more_time),
        T(a_lease_is_told_of_once_a_term_shortly_before_it_expires),
        T(an_unconfirmed_lease_is_told_of_once),
        T(leases_that_nobody_uses_behind_their_end_are_unused),
        T(a_lease_that_somebody_is_connected_with_is_not),
        T(none_is_before_its_door_knows_that_its_time_is_over),
        T(none_is_without_a_door),
        T(what_expires_together_is_withdrawn_together_and_closed_where_unused),
        T(an_unconfirmed_lease_is_closed_when_nothing_can_hold_its_token),
        T(the_end_of_a_session_retires_its_door_and_forgets_its_leases),
        T(a_door_that_comes_back_gets_what_it_missed_and_nothing_else),
        T(a_door_we_do_not_know_or_too_far_behind_gets_a_snapshot),
        T(live_connections_are_counted_and_end_with_the_door),
        T(a_door_cannot_report_activity_of_the_future),
        T(messages_lost_to_the_history_are_told_each_time_they_have_doubled),
        T(a_door_that_is_soon_stale_is_pinged_more_often),
        T(a_once_lease_that_let_in_is_made_durable_and_named_in_snapshots),
        T(a_door_tells_what_it_let_in_while_nobody_listened),
        T(a_silent_door_is_dropped_and_a_live_one_pinged_every_second),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
