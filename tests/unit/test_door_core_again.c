/* A door remembers which signatures it has found good. That it does must never show but in its CPU time:
 * each case here has the very bytes admitted before, so that their signature is remembered, and then
 * takes away what stood behind them. */
#include "../support/door_core_fixture.h"

struct kept {
    char text[TOKEN_MAX];
    size_t len;
};

static void mint(struct fixture *f, const struct token_claims *cl, struct kept *ret)
{
    struct buf token;

    buf_init(&token, TOKEN_MAX);
    assert_int_equal(token_mint(f->signing, cl, &token, &f->e), 0);
    memcpy(ret->text, token.data, token.len);
    ret->len = token.len;
    buf_done(&token);
}

static struct door_peer *again(struct fixture *f, int i, const struct kept *token)
{
    door_core_present(f->core, &f->peers[i], token->text, token->len, f->now);
    return &f->peers[i];
}

/* Admitted twice, the second time by memory, and gone again. */
static void admitted_before(struct fixture *f, const struct kept *token)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(again(f, i, token)->state, PEER_ADMITTED);
        door_core_gone(f->core, &f->peers[i], 1000);
    }
}

static void start(struct fixture *f, struct kept *token)
{
    struct token_claims cl = claims(f);

    go_live(f);
    mint(f, &cl, token);
    admitted_before(f, token);
}

static void a_revoked_lease_stays_out(void **state)
{
    struct fixture *f = *state;
    struct kept token;

    start(f, &token);
    assert_int_equal(lease_revoke(f, f->jti), 0);
    assert_refused(again(f, 2, &token), CLOSE_UNAUTHENTICATED);
}

static void so_does_one_that_a_snapshot_no_longer_names(void **state)
{
    struct fixture *f = *state;
    struct kept token;

    start(f, &token);
    hello(f);
    assert_int_equal(snapshot(f, 11, NULL, 0), 0);
    assert_refused(again(f, 2, &token), CLOSE_UNAUTHENTICATED);
}

static void and_one_of_which_all_were_revoked(void **state)
{
    struct fixture *f = *state;
    struct kept token;

    start(f, &token);
    assert_int_equal(op(f, (struct door_msg){.op = DOOR_OP_REVOKE_ALL, .code = CLOSE_REVOKED}), 0);
    assert_refused(again(f, 2, &token), CLOSE_UNAUTHENTICATED);
}

static void a_killed_key_lets_nobody_in(void **state)
{
    struct fixture *f = *state;
    struct key_public other;
    struct kept token;

    start(f, &token);
    keyset_get(f->other, 0, &other);
    assert_int_equal(op(f, (struct door_msg){.op = DOOR_OP_KEYS, .keys = {&other, 1}}), 0);
    assert_refused(again(f, 2, &token), CLOSE_UNAUTHENTICATED);
}

static void a_retired_key_vouches_for_what_came_before_alone(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);
    struct key_public key;
    struct kept token;

    start(f, &token);
    keyset_get(f->signing, 0, &key);
    key.retired_at = cl.iat - 1;
    assert_int_equal(op(f, (struct door_msg){.op = DOOR_OP_KEYS, .keys = {&key, 1}}), 0);
    assert_refused(again(f, 2, &token), CLOSE_UNAUTHENTICATED);
    key.retired_at = cl.iat;
    assert_int_equal(op(f, (struct door_msg){.op = DOOR_OP_KEYS, .keys = {&key, 1}}), 0);
    assert_int_equal(again(f, 3, &token)->state, PEER_ADMITTED);
}

static void an_expired_token_stays_out_though_its_lease_goes_on(void **state)
{
    struct fixture *f = *state;
    struct kept token;

    start(f, &token);
    assert_int_equal(
        op(f, (struct door_msg){.op = DOOR_OP_EXTEND, .jti = f->jti, .exp = GATEWAY_S + 900}), 0);
    pass_time_pinged(f, 119 * S);
    assert_int_equal(again(f, 2, &token)->state, PEER_ADMITTED);
    door_core_gone(f->core, &f->peers[2], 1000);
    pass_time_pinged(f, 2 * S);
    assert_refused(again(f, 3, &token), CLOSE_UNAUTHENTICATED);
}

static void once_is_once(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);
    struct door_allow a = entry(f->jti);
    struct kept token;

    go_live(f);
    a.use = cl.use = USE_ONCE;
    assert_int_equal(grant(f, a), 0);
    mint(f, &cl, &token);
    assert_int_equal(again(f, 0, &token)->state, PEER_ADMITTED);
    door_core_gone(f->core, &f->peers[0], 1000);
    assert_refused(again(f, 1, &token), CLOSE_UNAUTHENTICATED);
}

static void connections_still_stop_at_mc(void **state)
{
    struct fixture *f = *state;
    struct kept token;

    start(f, &token);
    assert_int_equal(again(f, 2, &token)->state, PEER_ADMITTED);
    assert_refused(again(f, 3, &token), CLOSE_LIMIT);
}

static void a_stale_door_lets_nobody_in(void **state)
{
    struct fixture *f = *state;
    struct kept token;

    start(f, &token);
    pass_time(f, 4 * S);
    assert_refused(again(f, 2, &token), CLOSE_NOT_LIVE);
}

/* Each bit of the signature, and a few of the rest: other bytes are another token. */
static void no_changed_bit_passes_for_what_is_remembered(void **state)
{
    struct fixture *f = *state;
    struct kept token, changed;

    start(f, &token);
    for (size_t at = 0; at < token.len; at += at < token.len - 90 ? 29 : 1) {
        struct door_peer peer = {.state = PEER_NEW};

        changed = token;
        changed.text[at] = (char)(changed.text[at] ^ 1);
        door_core_present(f->core, &peer, changed.text, changed.len, f->now);
        assert_refused(&peer, CLOSE_UNAUTHENTICATED);
        door_core_gone(f->core, &peer, 1006);
    }
    assert_int_equal(again(f, 2, &token)->state, PEER_ADMITTED);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_revoked_lease_stays_out),
        T(so_does_one_that_a_snapshot_no_longer_names),
        T(and_one_of_which_all_were_revoked),
        T(a_killed_key_lets_nobody_in),
        T(a_retired_key_vouches_for_what_came_before_alone),
        T(an_expired_token_stays_out_though_its_lease_goes_on),
        T(once_is_once),
        T(connections_still_stop_at_mc),
        T(a_stale_door_lets_nobody_in),
        T(no_changed_bit_passes_for_what_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
