/* What the door makes of its gateway's log and silence, and of the end of its agent. */
#include "../support/door_core_fixture.h"

/* --- the log --------------------------------------------------------------------------------------- */

static void a_snapshot_replaces_the_set_and_cuts_the_rest(void **state)
{
    struct fixture *f = *state;
    struct door_allow two[] = {entry(id_n(2)), entry(id_n(3))};
    struct token_claims cl = claims(f);

    go_live(f);
    admit(f, 0);
    assert_int_equal(grant(f, two[0]), 0);
    cl.lease_id = two[0].jti;
    present(f, 1, &cl);
    assert_int_equal(snapshot(f, 30, two, 2), 0);
    assert_int_equal(f->peers[0].code, CLOSE_REVOKED);
    assert_int_equal(f->peers[1].code, 0);
    assert_int_equal(door_core_applied(f->core), 30);
    cl.lease_id = two[1].jti;
    cl.rq = 30;
    assert_int_equal(present(f, 2, &cl)->state, PEER_ADMITTED);
    door_core_flush(f->core, f->now);
    assert_int_equal(last_sent(f, DOOR_ACK)->seq, 30);
    assert_int_equal(last_sent(f, DOOR_ACK)->cut, 1);
}

static void a_snapshot_with_a_false_key_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct key_public key = {.kid = "kid", .x = "AA", .y = "AA"};
    struct door_msg m = {.t = DOOR_SNAPSHOT,
                         .seq = 11,
                         .now = gateway_ms(f),
                         .stale_s = 3,
                         .seal_s = 15,
                         .keys = {&key, 1}};

    go_live(f);
    admit(f, 0);
    assert_int_equal(receive(f, &m), -1);
    assert_int_equal(door_core_applied(f->core), 10);
    assert_int_equal(f->peers[0].code, 0);
}

static int delta(struct fixture *f, int64_t from, int64_t seq)
{
    return receive(f, &(struct door_msg){.t = DOOR_DELTA,
                                         .from = from,
                                         .seq = seq,
                                         .now = gateway_ms(f),
                                         .stale_s = 3,
                                         .seal_s = 15});
}

/* A new control connection. */
static void link_again(struct fixture *f)
{
    struct door_msg hello;
    struct err e;

    door_core_unlinked(f->core);
    assert_int_equal(door_core_hello(f->core, f->now, &hello, &e), 0);
    free(hello.conns.items);
    free(hello.consumed.items);
}

static void a_delta_makes_the_door_live_once_it_has_caught_up(void **state)
{
    struct fixture *f = *state;
    struct door_msg revoke = {
        .t = DOOR_OP, .op = DOOR_OP_REVOKE, .seq = 12, .jti = f->jti, .code = 4403};
    struct door_allow a = entry(id_n(2));

    go_live(f);
    admit(f, 0);
    f->now += 4 * INT64_C(1000000); /* stale */
    door_core_tick(f->core, f->now);
    link_again(f);
    assert_int_equal(delta(f, 10, 12), 0);
    assert_int_equal(door_core_state(f->core), DOOR_STALE);
    assert_int_equal(f->peers[0].code, 0); /* who is there stays */
    assert_int_equal(grant(f, a), 0);      /* seq 11 */
    assert_int_equal(door_core_state(f->core), DOOR_STALE);
    assert_int_equal(receive(f, &revoke), 0);
    assert_int_equal(door_core_state(f->core), DOOR_LIVE);
    assert_int_equal(f->peers[0].code, CLOSE_REVOKED);
    assert_int_equal(door_core_applied(f->core), 12);
}

static void a_delta_from_elsewhere_is_refused(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    link_again(f);
    assert_int_equal(delta(f, 9, 12), -1);
    assert_int_equal(delta(f, 11, 12), -1);
    assert_int_equal(delta(f, 10, 9), -1);
    assert_int_equal(door_core_applied(f->core), 10);
}

/* Its SNAPSHOT was lost with the connection, and the gateway takes it for one that had it: the same
 * HELLO would bring the same delta for ever. */
static void a_refused_delta_is_answered_by_asking_for_a_snapshot(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);
    struct door_msg m;

    m = hello(f);
    assert_false(id_is_zero(&m.boot_id));
    assert_int_equal(delta(f, 0, 1), -1);
    door_core_unlinked(f->core);
    m = hello(f);
    assert_true(id_is_zero(&m.boot_id)); /* it says that it has nothing */
    assert_int_equal(snapshot(f, 10, &a, 1), 0);
    assert_int_equal(door_core_state(f->core), DOOR_LIVE);
    door_core_unlinked(f->core);
    m = hello(f);
    assert_false(id_is_zero(&m.boot_id));
    assert_int_equal(delta(f, 10, 10), 0);
}

static void a_door_without_snapshot_takes_no_delta(void **state)
{
    struct fixture *f = *state;

    link_again(f);
    assert_int_equal(delta(f, 0, 0), -1);
    assert_int_not_equal(door_core_state(f->core), DOOR_LIVE);
}

/* The door slept, or its loop stood still: what it reads now was sent before. */
static void an_old_word_does_not_make_up_for_a_silence(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    f->now += 4 * S;
    assert_int_equal(grant(f, entry(id_n(2))), 0); /* applied all the same: it could be a cut */
    assert_int_equal(door_core_applied(f->core), 11);
    assert_int_equal(door_core_state(f->core), DOOR_STALE);
    assert_true(door_core_wants_resync(f->core));
    assert_refused(present(f, 0, &cl), CLOSE_NOT_LIVE);
}

static void an_old_word_does_not_keep_a_door_from_being_sealed(void **state)
{
    struct fixture *f = *state;
    struct door_peer *peer;

    go_live(f);
    peer = admit(f, 0);
    f->now += 16 * S;
    ping(f);
    assert_int_equal(door_core_state(f->core), DOOR_SEALED);
    assert_int_equal(peer->code, CLOSE_NOT_LIVE);
    assert_false(door_core_pass_out(f->core, peer, 1, f->now));
    assert_int_equal(grant(f, entry(id_n(2))), 0);
    assert_int_equal(door_core_state(f->core), DOOR_SEALED);
}

static void an_older_snapshot_is_refused(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    admit(f, 0);
    assert_int_equal(snapshot(f, 9, NULL, 0), -1);
    assert_int_equal(f->peers[0].code, 0);
}

static void a_gap_refuses_new_ones_until_the_next_snapshot(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);
    struct token_claims cl = claims(f);

    go_live(f);
    a.mc = 2;
    assert_int_equal(grant(f, a), 0);
    admit(f, 0);
    assert_int_equal(op(f,
                        (struct door_msg){
                            .op = DOOR_OP_REVOKE, .seq = 13, .jti = f->jti, .code = CLOSE_REVOKED}),
                     -1);
    assert_int_equal(door_core_state(f->core), DOOR_STALE);
    assert_int_equal(door_core_applied(f->core), 11);
    assert_int_equal(f->peers[0].code, 0);
    assert_refused(present(f, 1, &cl), CLOSE_NOT_LIVE);
    door_core_unlinked(f->core);
    assert_int_equal(hello(f).applied, 11);
    assert_int_equal(snapshot(f, 13, &a, 1), 0);
    assert_int_equal(present(f, 2, &cl)->state, PEER_ADMITTED);
}

static void a_repeated_operation_is_a_no_op(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);
    struct token_claims cl = claims(f);

    go_live(f);
    assert_int_equal(lease_revoke(f, f->jti), 0);
    assert_int_equal(op(f, (struct door_msg){.op = DOOR_OP_GRANT,
                                             .seq = 10,
                                             .jti = a.jti,
                                             .exp = a.exp,
                                             .scope = a.scope,
                                             .mc = 1}),
                     0);
    assert_int_equal(door_core_applied(f->core), 11);
    assert_refused(present(f, 0, &cl), CLOSE_UNAUTHENTICATED);
}

static void operations_before_the_snapshot_are_refused(void **state)
{
    struct fixture *f = *state;

    hello(f);
    assert_int_equal(grant(f, entry(f->jti)), -1);
    assert_int_equal(door_core_applied(f->core), 0);
}

static void messages_of_a_door_are_refused(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    for (int t = DOOR_HELLO; t <= DOOR_RETIRE; t++)
        if (t != DOOR_SNAPSHOT && t != DOOR_OP && t != DOOR_PING && t != DOOR_RETIRE)
            assert_int_equal(receive(f, &(struct door_msg){.t = t}), -1);
    assert_int_equal(receive(f, &(struct door_msg){.t = 99}), -1);
}

/* --- silence --------------------------------------------------------------------------------------- */

static void silence_makes_it_stale_then_sealed(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    admit(f, 0);
    pass_time(f, 3 * S - 1);
    assert_int_equal(door_core_state(f->core), DOOR_LIVE);
    pass_time(f, 1);
    assert_int_equal(door_core_state(f->core), DOOR_STALE);
    assert_true(door_core_wants_resync(f->core));
    assert_int_equal(f->peers[0].code, 0);
    assert_refused(present(f, 1, &cl), CLOSE_NOT_LIVE);
    pass_time(f, 12 * S - 1);
    assert_int_equal(f->peers[0].code, 0);
    pass_time(f, 1);
    assert_int_equal(door_core_state(f->core), DOOR_SEALED);
    assert_int_equal(f->peers[0].code, CLOSE_NOT_LIVE);
    assert_refused(present(f, 2, &cl), CLOSE_NOT_LIVE);
}

static void silence_counts_even_if_the_timer_is_late(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    admit(f, 0);
    f->now += 3 * S;
    assert_refused(present(f, 1, &cl), CLOSE_NOT_LIVE);
    assert_true(door_core_pass_in(f->core, &f->peers[0], 1, f->now));
    f->now += 12 * S;
    assert_false(door_core_pass_in(f->core, &f->peers[0], 1, f->now));
    assert_int_equal(f->peers[0].code, CLOSE_NOT_LIVE);
    assert_int_equal(door_core_state(f->core), DOOR_SEALED);
}

static void the_deadline_names_each_of_these_moments(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    assert_int_equal(door_core_deadline_us(f->core), f->now + 3 * S);
    pass_time(f, 3 * S);
    assert_int_equal(door_core_deadline_us(f->core), f->now + 12 * S);
}

static void pings_keep_it_live(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    admit(f, 0);
    pass_time_pinged(f, 100 * S);
    assert_int_equal(door_core_state(f->core), DOOR_LIVE);
    assert_int_equal(f->peers[0].code, 0);
}

static void pings_before_the_snapshot_do_not(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    door_core_unlinked(f->core);
    hello(f);
    pass_time_pinged(f, 3 * S);
    assert_int_equal(door_core_state(f->core), DOOR_STALE);
    pass_time_pinged(f, 12 * S);
    assert_int_equal(door_core_state(f->core), DOOR_SEALED);
}

static void nor_do_they_set_the_time(void **state)
{
    struct fixture *f = *state;
    struct door_msg far = {.t = DOOR_PING, .now = (GATEWAY_S + 500) * 1000};

    go_live(f);
    admit(f, 0);
    door_core_unlinked(f->core);
    hello(f);
    assert_int_equal(receive(f, &far), 0);
    pass_time(f, 1);
    assert_int_equal(f->peers[0].code, 0);
}

static void a_new_link_and_snapshot_harm_nobody(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);
    struct door_msg m;

    go_live(f);
    admit(f, 0);
    door_core_unlinked(f->core);
    pass_time(f, 2 * S);
    assert_int_equal(door_core_hello(f->core, f->now, &m, &f->e), 0);
    assert_int_equal(m.conns.n, 1);
    assert_true(id_equal(&((struct door_conn *)m.conns.items)[0].jti, &f->jti));
    free(m.conns.items);
    free(m.consumed.items);
    assert_int_equal(snapshot(f, 10, &a, 1), 0);
    assert_int_equal(f->peers[0].code, 0);
    assert_int_equal(f->closes, 0);
}

static void a_sealed_door_lives_again_after_a_snapshot(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);

    go_live(f);
    pass_time(f, 3 * S);
    pass_time(f, 12 * S);
    door_core_unlinked(f->core);
    hello(f);
    assert_int_equal(door_core_state(f->core), DOOR_SYNC);
    assert_int_equal(snapshot(f, 10, &a, 1), 0);
    admit(f, 0);
}

/* --- agent and end ----------------------------------------------------------------------------------- */

static void an_ended_agent_closes_softly_and_for_ever(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    door_core_agent(f->core, DOOR_AGENT_UP, f->now);
    admit(f, 0);
    door_core_agent(f->core, DOOR_AGENT_ENDED, f->now);
    assert_int_equal(f->peers[0].code, CLOSE_AGENT_ENDED);
    assert_false(f->peers[0].revoked);
    assert_false(door_core_pass_in(f->core, &f->peers[0], 1, f->now));
    assert_int_equal(last_sent(f, DOOR_AGENT)->agent, DOOR_AGENT_ENDED);
    door_core_gone(f->core, &f->peers[0], 1006);
    door_core_agent(f->core, DOOR_AGENT_UP, f->now);
    present(f, 1, &cl);
    assert_int_equal(f->peers[1].state, PEER_REFUSED);
    assert_int_equal(f->peers[1].code, CLOSE_AGENT_ENDED);
}

static void a_revocation_overtakes_the_soft_close(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    admit(f, 0);
    door_core_agent(f->core, DOOR_AGENT_ENDED, f->now);
    assert_int_equal(lease_revoke(f, f->jti), 0);
    assert_true(f->peers[0].revoked);
    assert_int_equal(f->peers[0].code, CLOSE_REVOKED);
    assert_int_equal(f->closes, 2);
}

static void it_ends_when_agent_and_gateway_are_gone(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    door_core_agent(f->core, DOOR_AGENT_ENDED, f->now);
    pass_time(f, 15 * S - 1);
    assert_false(door_core_done(f->core));
    pass_time(f, 1);
    assert_true(door_core_done(f->core));
}

/* Whether its agent is known to have ended or not. */
static void it_ends_when_its_sandbox_must_have_and_no_gateway_came_back(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    pass_time(f, LIFE_S * S - 1);
    assert_int_equal(door_core_state(f->core), DOOR_SEALED);
    assert_false(door_core_done(f->core));
    assert_int_equal(door_core_deadline_us(f->core) - f->now, 1);
    pass_time(f, 1);
    assert_true(door_core_done(f->core));
}

static void a_gateway_that_is_there_keeps_it_past_its_life(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    for (int64_t at = 0; at <= LIFE_S; at += 60) {
        pass_time_pinged(f, 60 * S);
        f->sent_n = 0; /* the door's pings */
    }
    assert_int_equal(door_core_state(f->core), DOOR_LIVE);
    assert_false(door_core_done(f->core));
    pass_time(f, 15 * S);
    assert_true(door_core_done(f->core));
}

static void it_ends_when_told_to_retire(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    admit(f, 0);
    assert_int_equal(receive(f, &(struct door_msg){.t = DOOR_RETIRE}), 0);
    assert_true(door_core_done(f->core));
    assert_int_equal(f->peers[0].code, CLOSE_REVOKED);
    assert_refused(present(f, 1, &cl), CLOSE_NOT_LIVE);
}

static void activity_is_told_once_a_second_and_only_if_there_was_any(void **state)
{
    struct fixture *f = *state;
    struct door_peer *peer;
    size_t n = 0;

    go_live(f);
    peer = admit(f, 0);
    for (int i = 0; i < 100; i++) {
        assert_true(door_core_pass_in(f->core, peer, 1, f->now));
        pass_time(f, S / 50);
    }
    for (size_t i = 0; i < f->sent_n; i++)
        n += f->sent[i].t == DOOR_ACTIVITY;
    assert_true(n >= 2 && n <= 3);
    pass_time_pinged(f, 5 * S);
    assert_int_equal(last_sent(f, DOOR_ACTIVITY)->bytes_in, 100);
    f->sent_n = 0;
    pass_time_pinged(f, 5 * S);
    assert_null(last_sent(f, DOOR_ACTIVITY));
}

static void a_close_is_reported_with_the_code_that_counts(void **state)
{
    struct fixture *f = *state;
    struct door_peer *peer;

    go_live(f);
    peer = admit(f, 0);
    door_core_pass_in(f->core, peer, 3, f->now);
    door_core_gone(f->core, peer, 1001);
    assert_int_equal(last_sent(f, DOOR_CLOSE)->code, 1001);
    assert_int_equal(last_sent(f, DOOR_CLOSE)->bytes_in, 3);
    admit(f, 1);
    assert_int_equal(lease_revoke(f, f->jti), 0);
    door_core_gone(f->core, &f->peers[1], 1006);
    assert_int_equal(last_sent(f, DOOR_CLOSE)->code, CLOSE_REVOKED);
    door_core_gone(f->core, &f->peers[1], 1006);
    assert_int_equal(door_core_live(f->core, &f->jti), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_snapshot_replaces_the_set_and_cuts_the_rest),
        TEST(a_snapshot_with_a_false_key_changes_nothing),
        TEST(a_delta_makes_the_door_live_once_it_has_caught_up),
        TEST(a_delta_from_elsewhere_is_refused),
        TEST(a_refused_delta_is_answered_by_asking_for_a_snapshot),
        TEST(a_door_without_snapshot_takes_no_delta),
        TEST(an_old_word_does_not_make_up_for_a_silence),
        TEST(an_old_word_does_not_keep_a_door_from_being_sealed),
        TEST(an_older_snapshot_is_refused),
        TEST(a_gap_refuses_new_ones_until_the_next_snapshot),
        TEST(a_repeated_operation_is_a_no_op),
        TEST(operations_before_the_snapshot_are_refused),
        TEST(messages_of_a_door_are_refused),
        TEST(silence_makes_it_stale_then_sealed),
        TEST(silence_counts_even_if_the_timer_is_late),
        TEST(the_deadline_names_each_of_these_moments),
        TEST(pings_keep_it_live),
        TEST(pings_before_the_snapshot_do_not),
        TEST(nor_do_they_set_the_time),
        TEST(a_new_link_and_snapshot_harm_nobody),
        TEST(a_sealed_door_lives_again_after_a_snapshot),
        TEST(an_ended_agent_closes_softly_and_for_ever),
        TEST(a_revocation_overtakes_the_soft_close),
        TEST(it_ends_when_agent_and_gateway_are_gone),
        TEST(it_ends_when_its_sandbox_must_have_and_no_gateway_came_back),
        TEST(a_gateway_that_is_there_keeps_it_past_its_life),
        TEST(it_ends_when_told_to_retire),
        TEST(activity_is_told_once_a_second_and_only_if_there_was_any),
        TEST(a_close_is_reported_with_the_code_that_counts),
    };

    return cmocka_run_group_tests_name("door_core_log", tests, NULL, NULL);
}
