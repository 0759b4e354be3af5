/* Whom the door admits, and what it cuts. */
#include "../support/door_core_fixture.h"

/* --- admission -------------------------------------------------------------------------------- */

static void a_listed_lease_is_admitted(void **state)
{
    struct fixture *f = *state;
    struct door_peer *peer;

    go_live(f);
    peer = admit(f, 0);
    assert_int_equal(f->admitted, 1);
    assert_int_equal(door_core_live(f->core, &f->jti), 1);
    assert_int_equal(door_core_expires_ms(peer), (GATEWAY_S + 120) * 1000);
    assert_true(id_equal(&last_sent(f, DOOR_ADMIT)->jti, &f->jti));
    assert_true(door_core_pass_in(f->core, peer, 5, f->now));
    assert_true(door_core_pass_out(f->core, peer, 7, f->now));
}

static void a_good_signature_alone_admits_nobody(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    cl.lease_id = id_n(2);
    assert_refused(present(f, 0, &cl), CLOSE_UNAUTHENTICATED);
    assert_int_equal(f->admitted, 0);
    assert_non_null(last_sent(f, DOOR_DENY));
}

static void a_listed_id_without_our_signature_admits_nobody(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    assert_refused(present_signed(f, 0, &cl, f->other), CLOSE_UNAUTHENTICATED);
    door_core_present(f->core, &f->peers[1], "junk", 4, f->now);
    assert_refused(&f->peers[1], CLOSE_UNAUTHENTICATED);
}

static void claims_of_another_door_admit_nobody(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl;

    go_live(f);
    cl = claims(f);
    cl.session_id = id_n(99);
    assert_refused(present(f, 0, &cl), CLOSE_UNAUTHENTICATED);
    cl = claims(f);
    snprintf(cl.node, sizeof(cl.node), "elsewhere");
    assert_refused(present(f, 1, &cl), CLOSE_UNAUTHENTICATED);
    cl = claims(f);
    cl.ep = 6;
    assert_refused(present(f, 2, &cl), CLOSE_OLD_GENERATION);
    cl.ep = 8;
    assert_refused(present(f, 3, &cl), CLOSE_OLD_GENERATION);
}

/* A client's own key, and its answer to a challenge. */
struct holder {
    EVP_PKEY *key;
    struct key_public public;
    char sig[128];
    struct proof proof;
};

static void holder_make(struct holder *h, const char *seed)
{
    struct keyset *ks = signer(seed);

    h->key = forge_key(seed);
    keyset_get(ks, 0, &h->public);
    keyset_free(ks);
}

static const struct proof *holder_prove(struct holder *h, const char *nonce, struct id sid,
                                        struct id jti)
{
    char text[160];
    uint8_t sig[64];
    int n = snprintf(text, sizeof(text), "%s.%s.%s", nonce, ID_STR(&sid), ID_STR(&jti));

    forge_sign(h->key, text, (size_t)n, sig);
    forge_base64url(sig, sizeof(sig), h->sig);
    h->proof = (struct proof){h->public.x, h->public.y, h->sig};
    return &h->proof;
}

static struct door_peer *present_bound(struct fixture *f, int i, const struct holder *h)
{
    struct token_claims cl = claims(f);

    snprintf(cl.cnf_jkt, sizeof(cl.cnf_jkt), "%s", h->public.kid);
    return present(f, i, &cl);
}

static void a_bound_token_needs_its_proof(void **state)
{
    struct fixture *f = *state;
    struct holder h;
    struct door_peer *peer;

    go_live(f);
    holder_make(&h, "door-core-holder");
    peer = present_bound(f, 0, &h);
    assert_int_equal(peer->state, PEER_PROVING);
    assert_int_equal(f->challenges, 1);
    assert_int_equal(f->admitted, 0);
    assert_false(door_core_pass_in(f->core, peer, 1, f->now));
    assert_false(door_core_pass_out(f->core, peer, 1, f->now));
    door_core_prove(f->core, peer, holder_prove(&h, peer->nonce, f->session, f->jti), f->now);
    assert_int_equal(peer->state, PEER_ADMITTED);
    EVP_PKEY_free(h.key);
}

static void a_wrong_proof_is_refused(void **state)
{
    struct fixture *f = *state;
    struct holder h, thief;
    struct proof junk = {"x", "y", "s"};

    go_live(f);
    holder_make(&h, "door-core-holder");
    holder_make(&thief, "door-core-thief");
    for (int i = 0; i < 5; i++)
        assert_int_equal(present_bound(f, i, &h)->state, PEER_PROVING);
    door_core_prove(f->core, &f->peers[0],
                    holder_prove(&thief, f->peers[0].nonce, f->session, f->jti), f->now);
    door_core_prove(f->core, &f->peers[1], holder_prove(&h, f->peers[0].nonce, f->session, f->jti),
                    f->now);
    door_core_prove(f->core, &f->peers[2], holder_prove(&h, f->peers[2].nonce, id_n(9), f->jti),
                    f->now);
    door_core_prove(f->core, &f->peers[3], holder_prove(&h, f->peers[3].nonce, f->session, id_n(9)),
                    f->now);
    door_core_prove(f->core, &f->peers[4], &junk, f->now);
    for (int i = 0; i < 5; i++)
        assert_refused(&f->peers[i], CLOSE_UNAUTHENTICATED);
    EVP_PKEY_free(h.key);
    EVP_PKEY_free(thief.key);
}

static void a_proof_has_two_seconds_and_a_revocation_ends_it(void **state)
{
    struct fixture *f = *state;
    struct holder h;

    go_live(f);
    holder_make(&h, "door-core-holder");
    present_bound(f, 0, &h);
    pass_time(f, 2 * S - 1);
    assert_int_equal(f->peers[0].state, PEER_PROVING);
    pass_time(f, 1);
    assert_refused(&f->peers[0], CLOSE_UNAUTHENTICATED);
    present_bound(f, 1, &h);
    assert_int_equal(lease_revoke(f, f->jti), 0);
    assert_refused(&f->peers[1], CLOSE_UNAUTHENTICATED);
    EVP_PKEY_free(h.key);
}

static void a_proof_holds_a_place_only_when_it_is_good(void **state)
{
    struct fixture *f = *state;
    struct holder h;

    go_live(f);
    holder_make(&h, "door-core-holder");
    present_bound(f, 0, &h);
    present_bound(f, 1, &h);
    for (int i = 0; i < 2; i++)
        door_core_prove(f->core, &f->peers[i],
                        holder_prove(&h, f->peers[i].nonce, f->session, f->jti), f->now);
    assert_int_equal(f->peers[0].state, PEER_ADMITTED);
    assert_refused(&f->peers[1], CLOSE_LIMIT);
    present_bound(f, 2, &h);
    door_core_gone(f->core, &f->peers[2], 1006);
    EVP_PKEY_free(h.key);
}

static void boot_and_sync_admit_nobody(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    assert_int_equal(door_core_state(f->core), DOOR_BOOT);
    assert_refused(present(f, 0, &cl), CLOSE_NOT_LIVE);
    hello(f);
    assert_int_equal(door_core_state(f->core), DOOR_SYNC);
    assert_refused(present(f, 1, &cl), CLOSE_NOT_LIVE);
}

static void the_tokens_and_the_leases_expiry_both_count(void **state)
{
    struct fixture *f = *state;
    struct door_allow late = entry(id_n(2)), early = entry(id_n(3));
    struct token_claims cl = claims(f);

    go_live(f);
    late.exp = GATEWAY_S + 600;
    early.exp = GATEWAY_S + 5;
    assert_int_equal(grant(f, late), 0);
    assert_int_equal(grant(f, early), 0);
    pass_time_pinged(f, 6 * S);
    cl.lease_id = early.jti;
    assert_refused(present(f, 0, &cl), CLOSE_UNAUTHENTICATED);
    pass_time_pinged(f, 114 * S);
    cl.lease_id = late.jti;
    assert_refused(present(f, 1, &cl), CLOSE_UNAUTHENTICATED);
}

static void connections_stop_at_mc_and_closing_ones_count(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);
    struct token_claims cl = claims(f);

    go_live(f);
    a.mc = 2;
    assert_int_equal(grant(f, a), 0);
    admit(f, 0);
    admit(f, 1);
    assert_refused(present(f, 2, &cl), CLOSE_LIMIT);
    door_core_refuse(f->core, &f->peers[0], CLOSE_LIMIT, "test", f->now);
    assert_refused(present(f, 3, &cl), CLOSE_LIMIT);
    door_core_gone(f->core, &f->peers[0], 1006);
    admit(f, 4);
    assert_int_equal(door_core_live(f->core, &f->jti), 2);
}

static void once_is_once_across_snapshots(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);
    struct token_claims cl = claims(f);

    go_live(f);
    a.use = USE_ONCE;
    a.mc = 8;
    assert_int_equal(grant(f, a), 0);
    admit(f, 0);
    assert_refused(present(f, 1, &cl), CLOSE_UNAUTHENTICATED);
    door_core_gone(f->core, &f->peers[0], 1000);
    assert_refused(present(f, 2, &cl), CLOSE_UNAUTHENTICATED);
    assert_int_equal(snapshot(f, 20, NULL, 0), 0);
    assert_int_equal(snapshot(f, 21, &a, 1), 0);
    assert_refused(present(f, 3, &cl), CLOSE_UNAUTHENTICATED);
}

/* Another door let it in, or this one before it was started again: it goes by the gateway. */
static void what_a_snapshot_names_as_used_lets_in_no_more(void **state)
{
    struct fixture *f = *state;
    struct door_allow allow[] = {entry(f->jti), entry(id_n(77))};
    struct token_claims cl = claims(f);
    struct key_public key;
    struct door_msg m = {.t = DOOR_SNAPSHOT,
                         .seq = 10,
                         .now = gateway_ms(f),
                         .stale_s = 3,
                         .seal_s = 15,
                         .allow = {allow, 2},
                         .consumed = {&f->jti, 1},
                         .keys = {&key, 1}};

    allow[0].use = allow[1].use = USE_ONCE;
    keyset_get(f->signing, 0, &key);
    hello(f);
    assert_int_equal(receive(f, &m), 0);
    assert_refused(present(f, 0, &cl), CLOSE_UNAUTHENTICATED);
    cl.lease_id = id_n(77);
    assert_int_equal(present(f, 1, &cl)->state, PEER_ADMITTED);
}

static void a_hello_names_what_was_used(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);
    struct door_msg m;

    go_live(f);
    a.use = USE_ONCE;
    assert_int_equal(grant(f, a), 0);
    admit(f, 0);
    door_core_gone(f->core, &f->peers[0], 1000);
    assert_int_equal(door_core_hello(f->core, f->now, &m, &f->e), 0);
    assert_int_equal(m.consumed.n, 1);
    assert_true(id_equal(m.consumed.items, &f->jti));
    free(m.conns.items);
    free(m.consumed.items);
}

static void a_peer_presents_once(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    door_core_present(f->core, &f->peers[0], "junk", 4, f->now);
    present(f, 0, &cl);
    assert_refused(&f->peers[0], CLOSE_UNAUTHENTICATED);
    assert_int_equal(f->closes, 1);
}

static void denials_to_the_gateway_are_limited(void **state)
{
    struct fixture *f = *state;
    size_t n = 0;

    go_live(f);
    for (int i = 0; i < 100; i++) {
        struct door_peer peer = {0};

        door_core_present(f->core, &peer, "junk", 4, f->now);
        door_core_gone(f->core, &peer, 1006);
    }
    for (size_t i = 0; i < f->sent_n; i++)
        n += f->sent[i].t == DOOR_DENY;
    assert_true(n > 0 && n <= 20);
}

/* --- waiting for the log ----------------------------------------------------------------------- */

static void a_token_ahead_of_the_log_waits_for_it(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);
    struct door_allow a = entry(id_n(2));

    go_live(f);
    cl.lease_id = a.jti;
    cl.rq = 12;
    assert_int_equal(present(f, 0, &cl)->state, PEER_WAITING);
    assert_int_equal(grant(f, a), 0);
    assert_int_equal(f->peers[0].state, PEER_WAITING);
    assert_int_equal(grant(f, entry(id_n(3))), 0);
    assert_int_equal(f->peers[0].state, PEER_ADMITTED);
}

static void it_waits_a_second_at_most(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    cl.rq = 11;
    present(f, 0, &cl);
    assert_int_equal(door_core_deadline_us(f->core) <= f->now + S, true);
    pass_time(f, S - 1);
    assert_int_equal(f->peers[0].state, PEER_WAITING);
    pass_time(f, 1);
    assert_refused(&f->peers[0], CLOSE_NOT_LIVE);
}

static void what_was_true_before_the_wait_is_asked_again(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);
    struct door_msg keys = {.op = DOOR_OP_KEYS};

    go_live(f);
    cl.rq = 11;
    present(f, 0, &cl);
    assert_int_equal(lease_revoke(f, f->jti), 0);
    assert_refused(&f->peers[0], CLOSE_UNAUTHENTICATED);
    assert_int_equal(grant(f, entry(id_n(2))), 0);
    cl.lease_id = id_n(2);
    cl.rq = 13;
    assert_int_equal(present(f, 1, &cl)->state, PEER_WAITING);
    assert_int_equal(op(f, keys), 0);
    assert_refused(&f->peers[1], CLOSE_UNAUTHENTICATED);
}

static void its_key_may_be_retired_as_of_before_while_it_waits(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);
    struct key_public key;

    go_live(f);
    keyset_get(f->signing, 0, &key);
    key.retired_at = cl.iat - 1;
    cl.rq = 11;
    assert_int_equal(present(f, 0, &cl)->state, PEER_WAITING);
    assert_int_equal(op(f, (struct door_msg){.op = DOOR_OP_KEYS, .keys = {&key, 1}}), 0);
    assert_refused(&f->peers[0], CLOSE_UNAUTHENTICATED);
}

static void a_token_may_expire_while_it_waits(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);
    struct door_msg longer = {.op = DOOR_OP_EXTEND, .jti = f->jti, .exp = GATEWAY_S + 600};

    go_live(f);
    pass_time_pinged(f, 119 * S + S / 2);
    cl.rq = 11;
    assert_int_equal(present(f, 0, &cl)->state, PEER_WAITING);
    f->now += S / 2;
    assert_int_equal(op(f, longer), 0);
    assert_refused(&f->peers[0], CLOSE_UNAUTHENTICATED);
}

static void a_waiting_client_may_go_away(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    cl.rq = 11;
    present(f, 0, &cl);
    door_core_gone(f->core, &f->peers[0], 1006);
    assert_int_equal(grant(f, entry(id_n(5))), 0);
    assert_int_equal(f->admitted, 0);
    assert_int_equal(f->closes, 0);
}

/* --- cuts ---------------------------------------------------------------------------------------- */

static void a_revoked_lease_is_flagged_whole_before_any_close(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);

    go_live(f);
    a.mc = 3;
    assert_int_equal(grant(f, a), 0);
    for (int i = 0; i < 3; i++)
        admit(f, i);
    assert_int_equal(lease_revoke(f, f->jti), 0);
    assert_int_equal(f->closes, 3);
    assert_true(f->flagged_first);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(f->peers[i].code, CLOSE_REVOKED);
        assert_false(door_core_pass_in(f->core, &f->peers[i], 1, f->now));
        assert_false(door_core_pass_out(f->core, &f->peers[i], 1, f->now));
    }
}

static void a_cut_is_acknowledged_with_count_and_latency(void **state)
{
    struct fixture *f = *state;

    go_live(f);
    door_core_flush(f->core, f->now);
    admit(f, 0);
    assert_int_equal(lease_revoke(f, f->jti), 0);
    assert_int_equal(grant(f, entry(id_n(2))), 0);
    door_core_flush(f->core, f->now + 123);
    assert_int_equal(last_sent(f, DOOR_ACK)->seq, 12);
    assert_int_equal(last_sent(f, DOOR_ACK)->cut, 1);
    assert_int_equal(last_sent(f, DOOR_ACK)->latency_us, 123);
    f->sent_n = 0;
    door_core_flush(f->core, f->now);
    assert_null(last_sent(f, DOOR_ACK));
}

static void revoking_all_leaves_nobody(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    admit(f, 0);
    cl.lease_id = id_n(2);
    assert_int_equal(grant(f, entry(cl.lease_id)), 0);
    present(f, 1, &cl);
    assert_int_equal(f->admitted, 2);
    assert_int_equal(op(f, (struct door_msg){.op = DOOR_OP_REVOKE_ALL, .code = CLOSE_REVOKED}), 0);
    assert_int_equal(f->peers[0].code, CLOSE_REVOKED);
    assert_int_equal(f->peers[1].code, CLOSE_REVOKED);
    assert_refused(present(f, 2, &cl), CLOSE_UNAUTHENTICATED);
}

static void a_list_ends_those_that_it_names_and_no_others(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);
    struct id gone[2] = {f->jti, id_n(77)};

    go_live(f);
    admit(f, 0);
    cl.lease_id = id_n(2);
    assert_int_equal(grant(f, entry(cl.lease_id)), 0);
    present(f, 1, &cl);
    assert_int_equal(op(f, (struct door_msg){.op = DOOR_OP_REVOKE_LIST,
                                             .code = CLOSE_UNAUTHENTICATED,
                                             .jtis = {gone, 2}}),
                     0);
    assert_int_equal(f->peers[0].code, CLOSE_UNAUTHENTICATED);
    assert_int_equal(f->peers[1].code, 0);
    cl = claims(f);
    assert_refused(present(f, 2, &cl), CLOSE_UNAUTHENTICATED);
}

static void a_ping_is_answered_with_the_time_that_the_door_goes_by(void **state)
{
    struct fixture *f = *state;
    const struct door_msg ping = {.t = DOOR_PING, .now = INT64_C(1900000000123)};

    go_live(f);
    f->sent_n = 0;
    assert_int_equal(receive(f, &ping), 0);
    assert_int_equal(last_sent(f, DOOR_PING)->now, ping.now);
}

static void a_revoked_lease_gets_4401_afterwards(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    assert_int_equal(lease_revoke(f, f->jti), 0);
    assert_refused(present(f, 0, &cl), CLOSE_UNAUTHENTICATED);
    assert_int_equal(lease_revoke(f, id_n(77)), 0);
}

static void an_expired_lease_is_cut_in_gateway_time(void **state)
{
    struct fixture *f = *state;
    struct door_msg skewed = {.t = DOOR_PING, .now = (GATEWAY_S + 110) * 1000};
    struct door_peer *peer;

    go_live(f);
    peer = admit(f, 0);
    assert_int_equal(receive(f, &skewed), 0);
    assert_true(door_core_deadline_us(f->core) <= f->now + 10 * S);
    pass_time(f, 2 * S);
    assert_int_equal(peer->code, 0);
    assert_int_equal(
        receive(f, &(struct door_msg){.t = DOOR_PING, .now = (GATEWAY_S + 119) * 1000}), 0);
    pass_time(f, S - 1);
    assert_int_equal(peer->code, 0);
    pass_time(f, 1);
    assert_int_equal(peer->code, CLOSE_UNAUTHENTICATED);
}

static void nothing_passes_at_the_expiry_even_if_the_timer_is_late(void **state)
{
    struct fixture *f = *state;
    struct door_peer *peer;

    go_live(f);
    peer = admit(f, 0);
    pass_time_pinged(f, 119 * S);
    assert_true(door_core_pass_in(f->core, peer, 1, f->now));
    f->now += S;
    assert_false(door_core_pass_in(f->core, peer, 1, f->now));
    assert_int_equal(peer->code, CLOSE_UNAUTHENTICATED);
}

static void an_extension_moves_the_expiry(void **state)
{
    struct fixture *f = *state;
    struct door_peer *peer;

    go_live(f);
    peer = admit(f, 0);
    assert_int_equal(
        op(f, (struct door_msg){.op = DOOR_OP_EXTEND, .jti = f->jti, .exp = GATEWAY_S + 200}), 0);
    pass_time_pinged(f, 150 * S);
    assert_int_equal(peer->code, 0);
    pass_time_pinged(f, 50 * S);
    assert_int_equal(peer->code, CLOSE_UNAUTHENTICATED);
}

static void an_extension_revives_no_revoked_lease(void **state)
{
    struct fixture *f = *state;
    struct token_claims cl = claims(f);

    go_live(f);
    admit(f, 0);
    assert_int_equal(lease_revoke(f, f->jti), 0);
    assert_int_equal(
        op(f, (struct door_msg){.op = DOOR_OP_EXTEND, .jti = f->jti, .exp = GATEWAY_S + 200}), 0);
    assert_refused(present(f, 1, &cl), CLOSE_UNAUTHENTICATED);
}

static void scope_is_held_both_ways(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);
    struct token_claims cl = claims(f);

    go_live(f);
    a.mc = 3;
    assert_int_equal(grant(f, a), 0);
    cl.scope = SCOPE_READ;
    present(f, 0, &cl);
    assert_true(door_core_pass_out(f->core, &f->peers[0], 1, f->now));
    assert_false(door_core_pass_in(f->core, &f->peers[0], 1, f->now));
    assert_int_equal(f->peers[0].code, CLOSE_SCOPE);
    cl.scope = SCOPE_WRITE;
    present(f, 1, &cl);
    assert_true(door_core_pass_in(f->core, &f->peers[1], 1, f->now));
    assert_false(door_core_pass_out(f->core, &f->peers[1], 1, f->now));
    assert_int_equal(f->peers[1].code, 0);
}

static void the_list_narrows_what_the_token_says(void **state)
{
    struct fixture *f = *state;
    struct door_allow a = entry(f->jti);
    struct door_peer *peer;

    go_live(f);
    peer = admit(f, 0);
    a.scope = SCOPE_READ;
    assert_int_equal(snapshot(f, 11, &a, 1), 0);
    assert_true(door_core_pass_out(f->core, peer, 1, f->now));
    assert_false(door_core_pass_in(f->core, peer, 1, f->now));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_listed_lease_is_admitted),
        TEST(a_good_signature_alone_admits_nobody),
        TEST(a_listed_id_without_our_signature_admits_nobody),
        TEST(claims_of_another_door_admit_nobody),
        TEST(a_bound_token_needs_its_proof),
        TEST(a_wrong_proof_is_refused),
        TEST(a_proof_has_two_seconds_and_a_revocation_ends_it),
        TEST(a_proof_holds_a_place_only_when_it_is_good),
        TEST(boot_and_sync_admit_nobody),
        TEST(the_tokens_and_the_leases_expiry_both_count),
        TEST(connections_stop_at_mc_and_closing_ones_count),
        TEST(once_is_once_across_snapshots),
        TEST(what_a_snapshot_names_as_used_lets_in_no_more),
        TEST(a_hello_names_what_was_used),
        TEST(a_peer_presents_once),
        TEST(denials_to_the_gateway_are_limited),
        TEST(a_token_ahead_of_the_log_waits_for_it),
        TEST(it_waits_a_second_at_most),
        TEST(what_was_true_before_the_wait_is_asked_again),
        TEST(its_key_may_be_retired_as_of_before_while_it_waits),
        TEST(a_token_may_expire_while_it_waits),
        TEST(a_waiting_client_may_go_away),
        TEST(a_revoked_lease_is_flagged_whole_before_any_close),
        TEST(a_cut_is_acknowledged_with_count_and_latency),
        TEST(revoking_all_leaves_nobody),
        TEST(a_list_ends_those_that_it_names_and_no_others),
        TEST(a_ping_is_answered_with_the_time_that_the_door_goes_by),
        TEST(a_revoked_lease_gets_4401_afterwards),
        TEST(an_expired_lease_is_cut_in_gateway_time),
        TEST(nothing_passes_at_the_expiry_even_if_the_timer_is_late),
        TEST(an_extension_moves_the_expiry),
        TEST(an_extension_revives_no_revoked_lease),
        TEST(scope_is_held_both_ways),
        TEST(the_list_narrows_what_the_token_says),
    };

    return cmocka_run_group_tests_name("door_core", tests, NULL, NULL);
}
