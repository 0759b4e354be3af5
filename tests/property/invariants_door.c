/* The invariants that are asked of doors: 1-3, 6, 7, 9-11, 14, 16-18, 23. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "../../lease/door/core_state.h"
#include "invariants.h"
#include "leasehold/arena.h"

/* From a durable revocation to the cut, with a network that works: the answer to it, and the rest. */
#define CUT_MOST_US (4 * DELAY_MOST_US + 50 * MS)
/* Of a partitioned door: what was on its way when the partition began came within this. */
#define ARRIVE_MOST_US (2 * DELAY_MOST_US + 50 * MS)

#define CATCH_UP_US (8 * SEC)

#define KEPT_EXPIRED_S 60 /* the door forgets an expired lease behind this (core.c) */

static const struct session_sim *session_of(const struct sim *s, const struct sim_door *d)
{
    return &s->sessions[d->session];
}

static int64_t gateway_s(const struct sim *s, const struct sim_door *d)
{
    return core_gateway_s(d->core, s->boot_us);
}

/* --- admission --------------------------------------------------------------------------------- */

void invariant_01_admission_is_signed_and_listed(struct sim *s, const struct sim_door *d,
                                                 const struct client *c)
{
    const struct token_claims *claims = &c->peer.claims;
    int64_t applied = door_core_applied(d->core), exp_s = 0;
    int lease = facts_lease(s, &claims->lease_id), signer = facts_signer(s, claims->kid);

    if (lease < 0 || s->leases[lease].session != d->session) {
        sim_fail(s, "invariant_01", "%s was let in and never granted", SHORT(&claims->lease_id));
        return;
    }
    if (!facts_allowed(s, &s->leases[lease], applied, &exp_s))
        sim_fail(s, "invariant_01", "%s was let in at %lld, where it is not listed",
                 SHORT(&claims->lease_id), (long long)applied);
    if (claims->rq > applied)
        sim_fail(s, "invariant_01", "%s was let in at %lld before its rq %lld",
                 SHORT(&claims->lease_id), (long long)applied, (long long)claims->rq);
    if (exp_s <= gateway_s(s, d) || claims->exp <= gateway_s(s, d))
        sim_fail(s, "invariant_01", "%s was let in behind its end", SHORT(&claims->lease_id));
    /* The door may have newer keys than its log, never older ones. */
    if (!facts_trusts(s, d->session, applied, claims->kid, claims->iat) &&
        (s->signers[signer].row.state == SIGNING_KEY_KILLED ||
         !facts_trusts(s, d->session, session_of(s, d)->n, claims->kid, claims->iat)))
        sim_fail(s, "invariant_01", "%s was let in by a key that is not trusted",
                 SHORT(&claims->lease_id));
}

void invariant_09_generation_is_its_own(struct sim *s, const struct sim_door *d,
                                        const struct client *c)
{
    if (c->peer.claims.ep != session_of(s, d)->row.generation)
        sim_fail(s, "invariant_09", "a door of generation %lld let in one of %lld",
                 (long long)session_of(s, d)->row.generation, (long long)c->peer.claims.ep);
}

void invariant_10_once_lets_in_once(struct sim *s, const struct lease_fact *f)
{
    if (f->l.use == USE_ONCE && f->admitted > 1)
        sim_fail(s, "invariant_10", "%s let in %d times", SHORT(&f->l.lease_id), f->admitted);
}

void invariant_11_live_within_mc(struct sim *s, const struct sim_door *d)
{
    for (int i = 0; i < SIM_SOCKETS; i++) {
        const struct client *c = &d->clients[i];
        int lease, live = 0;

        if (!c->used || c->peer.state != PEER_ADMITTED)
            continue;
        for (int j = 0; j < SIM_SOCKETS; j++)
            live += d->clients[j].used && d->clients[j].peer.state == PEER_ADMITTED &&
                    id_equal(&d->clients[j].peer.claims.lease_id, &c->peer.claims.lease_id);
        lease = facts_lease(s, &c->peer.claims.lease_id);
        if (lease >= 0 && live > s->leases[lease].l.max_connections)
            sim_fail(s, "invariant_11", "%s has %d connections, %lld allowed",
                     SHORT(&c->peer.claims.lease_id), live,
                     (long long)s->leases[lease].l.max_connections);
        if (live != (int)door_core_live(d->core, &c->peer.claims.lease_id))
            sim_fail(s, "invariant_11", "the door counts %zu connections of %d",
                     door_core_live(d->core, &c->peer.claims.lease_id), live);
    }
}

void invariant_14_only_live_admits(struct sim *s, const struct sim_door *d)
{
    if (door_core_state(d->core) != DOOR_LIVE)
        sim_fail(s, "invariant_14", "a door that is %s let in",
                 door_state_name(door_core_state(d->core)));
    if (s->boot_us - d->heard_us >= s->limits.stale_after_seconds * SEC)
        sim_fail(s, "invariant_14", "a door let in that had heard nothing for %lld us",
                 (long long)(s->boot_us - d->heard_us));
}

void invariant_17_retired_key_signs_no_more(struct sim *s, const struct sim_door *d,
                                            const struct client *c)
{
    const struct token_claims *claims = &c->peer.claims;
    int signer = facts_signer(s, claims->kid);
    const struct signing_key *k = &s->signers[signer].row;

    if (k->state == SIGNING_KEY_RETIRED && claims->iat > k->retired_at / 1000 &&
        !facts_trusts(s, d->session, door_core_applied(d->core), claims->kid, claims->iat))
        sim_fail(s, "invariant_17", "a token of %lld by a key retired at %lld",
                 (long long)claims->iat, (long long)k->retired_at / 1000);
}

void invariant_23_lower_generation_never_admits(struct sim *s, const struct sim_door *d)
{
    if (d->zombie)
        sim_fail(s, "invariant_23", "a door of a lower generation let in");
}

void invariants_admitted(struct sim *s, const struct sim_door *d, const struct client *c)
{
    int lease = facts_lease(s, &c->peer.claims.lease_id);

    invariant_01_admission_is_signed_and_listed(s, d, c);
    invariant_09_generation_is_its_own(s, d, c);
    invariant_14_only_live_admits(s, d);
    invariant_17_retired_key_signs_no_more(s, d, c);
    invariant_23_lower_generation_never_admits(s, d);
    if (lease < 0)
        return;
    s->leases[lease].admitted++;
    s->seen[SEEN_WIDER] += (c->peer.claims.scope & ~s->leases[lease].l.scope) != 0;
    if (s->leases[lease].of_other_time)
        sim_fail(s, "invariant_04", "%s of the time before the clock was reset was let in",
                 SHORT(&c->peer.claims.lease_id));
    invariant_10_once_lets_in_once(s, &s->leases[lease]);
}

void invariants_proved(struct sim *s, const struct client *c)
{
    if (c->wrong_key)
        sim_fail(s, "invariant_16", "a false proof was taken");
}

/* --- a token ----------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
    const unsigned char *c = data;

    for (size_t i = 0; i < len; i++)
        h = (h ^ c[i]) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t digest_of(const struct door_core *core)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    const struct door_lease *lease, *next;

    HASH_ITER (hh, core->leases, lease, next) {
        int64_t values[] = {lease->allowed, lease->exp,  lease->scope,         lease->mc,
                            lease->use,     lease->live, lease->consumed_until};

        h = mix(mix(h, &lease->jti, sizeof lease->jti), values, sizeof values);
    }
    int64_t values[] = {core->applied, (int64_t)core->state, (int64_t)keyset_count(core->keys)};
    return mix(h, values, sizeof values);
}

static bool in_time(const struct sim *s, const struct sim_door *d,
                    const struct token_claims *claims, int64_t exp_s)
{
    int64_t now_s = gateway_s(s, d);

    return claims->exp > now_s && exp_s > now_s && claims->iat - s->policy.skew_s <= now_s &&
           claims->nbf - s->policy.skew_s <= now_s;
}

static bool door_is_live(const struct sim *s, const struct sim_door *d)
{
    return door_core_state(d->core) == DOOR_LIVE &&
           s->boot_us - d->core->heard_us < d->core->config.stale_s * SEC;
}

/* Of a token as it was handed out, at a door as it is. */
static enum expected expect_genuine(const struct sim *s, const struct sim_door *d,
                                    const struct lease_fact *f, const struct token_claims *claims)
{
    int64_t exp_s = 0;

    if (f->session != d->session || d->zombie || !door_is_live(s, d) ||
        !keyset_vouches(d->core->keys, claims->kid, claims->iat))
        return EXPECT_REFUSED;
    if (claims->rq > door_core_applied(d->core))
        return in_time(s, d, claims, INT64_MAX) ? EXPECT_WAITING : EXPECT_REFUSED;
    if (d->core->agent == DOOR_AGENT_ENDED ||
        !facts_allowed(s, f, door_core_applied(d->core), &exp_s) || !in_time(s, d, claims, exp_s) ||
        (f->l.use == USE_ONCE && f->admitted) ||
        (int64_t)door_core_live(d->core, &f->l.lease_id) >= f->l.max_connections)
        return EXPECT_REFUSED;
    return f->l.cnf_jkt[0] ? EXPECT_PROVING : EXPECT_ADMITTED;
}

/* The kid stands in the header, which token_parse does not judge. */
static bool read_token(const struct sim *s, const char *token, size_t len, struct token_claims *ret)
{
    if (token_parse(token, len, ret) != TOKEN_OK)
        return false;
    if (ret->kid[0])
        return true;
    for (int i = 0; i < SIM_SIGNERS; i++) {
        struct token_expect any = {.iss = s->policy.issuer,
                                   .node = s->policy.node,
                                   .session_id = ret->session_id,
                                   .ep = ret->ep,
                                   .now = ret->iat,
                                   .ttl_max = s->policy.ttl_max_s};
        struct token_claims read;

        if (token_verify(s->signers[i].own, token, len, &any, &read) == TOKEN_OK) {
            *ret = read;
            return true;
        }
    }
    return false;
}

void invariants_before_present(struct sim *s, const struct sim_door *d, const char *token,
                               size_t len, int lease, bool spoiled, struct present_check *ret)
{
    struct token_claims claims;

    *ret = (struct present_check){.expected = EXPECT_ANY, .digest = digest_of(d->core)};
    if (spoiled || !read_token(s, token, len, &claims))
        ret->expected = EXPECT_REFUSED;
    else if (lease >= 0)
        ret->expected = expect_genuine(s, d, &s->leases[lease], &claims);
}

void invariant_16_verification_is_total(struct sim *s, const struct client *c,
                                        const struct present_check *check)
{
    static const enum peer_state states[] = {[EXPECT_REFUSED] = PEER_REFUSED,
                                             [EXPECT_ADMITTED] = PEER_ADMITTED,
                                             [EXPECT_WAITING] = PEER_WAITING,
                                             [EXPECT_PROVING] = PEER_PROVING};

    if (c->peer.state == PEER_NEW)
        sim_fail(s, "invariant_16", "a token had no verdict");
    if (check->expected != EXPECT_ANY && c->peer.state != states[check->expected])
        sim_fail(s, "invariant_16", "a token that had to be %d is %d, code %d", check->expected,
                 c->peer.state, c->peer.code);
}

void invariant_18_failed_check_changes_nothing(struct sim *s, const struct sim_door *d,
                                               const struct present_check *check)
{
    if (digest_of(d->core) != check->digest)
        sim_fail(s, "invariant_18", "a refused token changed the door");
}

void invariants_after_present(struct sim *s, const struct sim_door *d, const struct client *c,
                              const struct present_check *check)
{
    invariant_16_verification_is_total(s, c, check);
    if (c->peer.state == PEER_REFUSED)
        invariant_18_failed_check_changes_nothing(s, d, check);
}

/* --- bytes ------------------------------------------------------------------------------------- */

void invariant_02_no_byte_behind_the_end(struct sim *s, const struct sim_door *d,
                                         const struct client *c)
{
    int lease = facts_lease(s, &c->peer.claims.lease_id);
    int64_t exp_s;

    if (lease < 0 || !facts_allowed(s, &s->leases[lease], door_core_applied(d->core), &exp_s))
        sim_fail(s, "invariant_02", "a byte of %s passed behind its end",
                 SHORT(&c->peer.claims.lease_id));
    else if (exp_s <= gateway_s(s, d))
        sim_fail(s, "invariant_02", "a byte of %s passed behind its exp",
                 SHORT(&c->peer.claims.lease_id));
    if (c->gone_at_us)
        sim_fail(s, "invariant_02", "a byte passed behind the close");
}

/* Whatever a token says that a stolen key has signed. */
void invariant_13_no_byte_beyond_the_grant(struct sim *s, const struct client *c, bool in)
{
    int lease = facts_lease(s, &c->peer.claims.lease_id);
    unsigned of = in ? SCOPE_WRITE : SCOPE_READ;

    if (!(c->peer.claims.scope & of))
        sim_fail(s, "invariant_13", "a byte passed that its scope does not allow");
    if (lease >= 0 && !(s->leases[lease].l.scope & of))
        sim_fail(s, "invariant_13", "a byte of %s passed that was not granted",
                 SHORT(&c->peer.claims.lease_id));
}

void invariants_passed(struct sim *s, const struct sim_door *d, const struct client *c, bool in)
{
    invariant_02_no_byte_behind_the_end(s, d, c);
    invariant_03_cut_in_time(s, d, c);
    invariant_13_no_byte_beyond_the_grant(s, c, in);
}

/* Would a byte pass now? Without asking the core, which may act on the question. */
static bool carries(const struct sim *s, const struct sim_door *d, const struct client *c)
{
    return c->peer.state == PEER_ADMITTED && !c->peer.revoked && !c->peer.code &&
           core_may_carry(d->core, s->boot_us) && gateway_s(s, d) < c->peer.lease->exp;
}

/* With a link that works since `since_us`, or none. */
static bool has_clean_link(const struct sim *s, const struct sim_door *d, int64_t *ret_since_us)
{
    if (!s->gw.up || d->link < 0 || d->cut_off || !s->links[d->link].gateway_open)
        return false;
    *ret_since_us = s->links[d->link].clean_since_us;
    if (*ret_since_us < s->gw.up_since_us)
        *ret_since_us = s->gw.up_since_us;
    return true;
}

/* That is why its door had nothing to confirm: nobody was left, and it lets nobody in any more. */
void invariant_20_closed_at_once_was_unused(struct sim *s, const struct lease_fact *f)
{
    const struct sim_door *d = &s->sessions[f->session].door;
    const struct door_lease *lease = d->alive ? core_lease_find(d->core, &f->l.lease_id) : NULL;

    if (lease && lease->live)
        sim_fail(s, "invariant_20", "%s closes at once, and %d are connected",
                 SHORT(&f->l.lease_id), (int)lease->live);
    if (d->alive && gateway_s(s, d) < f->l.expires_at / 1000 && !s->stepped_us)
        sim_fail(s, "invariant_20", "%s closes at once, and its door does not know it is over",
                 SHORT(&f->l.lease_id));
}

static void cut_by_revocation(struct sim *s, const struct sim_door *d, const struct lease_fact *f)
{
    int64_t seal_us = s->limits.seal_after_seconds * SEC, since_us;

    if (s->boot_us - f->end_us > seal_us + ARRIVE_MOST_US)
        sim_fail(s, "invariant_03", "%s is carried %lld us behind its end", SHORT(&f->l.lease_id),
                 (long long)(s->boot_us - f->end_us));
    if (!has_clean_link(s, d, &since_us))
        return;
    if (since_us < f->end_us)
        since_us = f->end_us;
    if (s->boot_us - since_us > CUT_MOST_US)
        sim_fail(s, "invariant_03", "%s is carried by a live door %lld us behind its end",
                 SHORT(&f->l.lease_id), (long long)(s->boot_us - since_us));
}

void invariant_03_cut_in_time(struct sim *s, const struct sim_door *d, const struct client *c)
{
    int lease = facts_lease(s, &c->peer.claims.lease_id);
    const struct lease_fact *f = &s->leases[lease < 0 ? 0 : lease];
    int64_t most_us = s->policy.skew_s * SEC;

    if (lease < 0)
        return;
    /* A clock that was set has passed its end for the gateway alone. */
    if (f->closed && (!s->stepped_us ||
                      s->boot_us - s->stepped_us > 2 * SEC + s->limits.seal_after_seconds * SEC))
        sim_fail(s, "invariant_03", "%s is closed, and carried", SHORT(&f->l.lease_id));
    if (f->end_seq)
        cut_by_revocation(s, d, f);
    if (!f->lapsed_us)
        return;
    /* What a door that cannot be reached does not know of: that the clock was set, too. */
    if (f->shortened || (s->stepped_us && f->lapsed_us - s->stepped_us < 2 * most_us))
        most_us += s->limits.seal_after_seconds * SEC;
    if (s->boot_us - f->lapsed_us > most_us)
        sim_fail(s, "invariant_03", "%s is carried %lld us behind its exp", SHORT(&f->l.lease_id),
                 (long long)(s->boot_us - f->lapsed_us));
}

void invariant_14_sealed_has_no_connection(struct sim *s, const struct sim_door *d)
{
    for (int i = 0; i < SIM_SOCKETS; i++)
        if (d->clients[i].used && d->clients[i].peer.state == PEER_ADMITTED &&
            !d->clients[i].peer.revoked && door_core_state(d->core) == DOOR_SEALED)
            sim_fail(s, "invariant_14", "a sealed door has a connection");
}

/* --- the log ----------------------------------------------------------------------------------- */

void invariant_06_applied_in_order(struct sim *s, const struct sim_door *d,
                                   const struct door_msg *m, int64_t before, int rc)
{
    int64_t applied = door_core_applied(d->core);
    bool ok = applied == before;

    if (!rc && m->t == DOOR_OP)
        ok = applied == (m->seq > before ? before + 1 : before) &&
             (m->seq <= before || m->seq == before + 1);
    if (!rc && m->t == DOOR_SNAPSHOT)
        ok = applied == m->seq && applied >= before;
    if (!ok)
        sim_fail(s, "invariant_06", "message %d with seq %lld took the door from %lld to %lld",
                 m->t, (long long)m->seq, (long long)before, (long long)applied);
}

static void compare(struct sim *s, const struct sim_door *d, const struct lease_fact *f,
                    const struct door_lease *lease)
{
    int64_t exp_s = 0;
    bool listed = facts_allowed(s, f, door_core_applied(d->core), &exp_s);
    bool forgotten = exp_s + KEPT_EXPIRED_S < d->latest_s + 2;

    if (lease && lease->allowed && !listed)
        sim_fail(s, "invariant_07", "%s is in a door's set and not in the fold at %lld",
                 SHORT(&f->l.lease_id), (long long)door_core_applied(d->core));
    if (listed && !forgotten && !(lease && lease->allowed))
        sim_fail(s, "invariant_07", "%s is in the fold at %lld and not in the door's set",
                 SHORT(&f->l.lease_id), (long long)door_core_applied(d->core));
    if (lease && lease->allowed && listed &&
        (lease->exp != exp_s || lease->scope != f->l.scope || lease->mc != f->l.max_connections ||
         lease->use != (int)f->l.use))
        sim_fail(s, "invariant_07", "%s: the door has exp %lld, the fold %lld",
                 SHORT(&f->l.lease_id), (long long)lease->exp, (long long)exp_s);
    if (lease && lease->allowed && lease->exp * 1000 > f->l.max_expires_at)
        sim_fail(s, "invariant_08", "%s: a door takes it behind its mex", SHORT(&f->l.lease_id));
}

/* Newer ones than its log says it may have: what it trusts is what is trusted then, or by now. */
void invariant_17_door_has_the_keys(struct sim *s, const struct sim_door *d)
{
    int64_t now_s = sim_wall_ms(s) / 1000;

    if (d->link < 0 || s->links[d->link].conn <= s->reset_conns)
        return;
    for (int i = 0; i < SIM_SIGNERS; i++) {
        const char *kid = s->signers[i].row.kid;
        bool then = facts_trusts(s, d->session, door_core_applied(d->core), kid, now_s);
        bool now = facts_trusts(s, d->session, session_of(s, d)->n, kid, now_s);
        bool is = keyset_vouches(d->core->keys, kid, now_s);

        if (then == now && is != now)
            sim_fail(s, "invariant_17", "a door at %lld %s key %d",
                     (long long)door_core_applied(d->core), is ? "trusts" : "does not trust", i);
    }
}

void invariant_07_door_equals_the_fold(struct sim *s, const struct sim_door *d)
{
    const struct door_lease *lease, *next;

    for (int i = 0; i < s->leases_n; i++)
        if (s->leases[i].session == d->session)
            compare(s, d, &s->leases[i], core_lease_find(d->core, &s->leases[i].l.lease_id));
    HASH_ITER (hh, d->core->leases, lease, next)
        if (lease->allowed && facts_lease(s, &lease->jti) < 0)
            sim_fail(s, "invariant_07", "a door's set has what was never granted");
}

/* Nothing keeps it from its gateway: then it is live soon. */
void invariant_07_door_catches_up(struct sim *s, const struct sim_door *d)
{
    int64_t since_us = d->calm_since_us;

    if (since_us < s->gw.up_since_us)
        since_us = s->gw.up_since_us;
    if (since_us < s->slept_us)
        since_us = s->slept_us;
    if (s->gw.up && !d->zombie && !d->cut_off && s->boot_us - since_us > CATCH_UP_US &&
        door_core_state(d->core) != DOOR_LIVE)
        sim_fail(s, "invariant_07", "a door is %s and nothing keeps it from its gateway",
                 door_state_name(door_core_state(d->core)));
}

static void time_note(const struct sim *s, struct sim_door *d)
{
    int64_t now_s = gateway_s(s, d);

    d->latest_s = now_s > d->latest_s ? now_s : d->latest_s;
}

void invariants_before_receive(struct sim *s, struct sim_door *d, const struct door_msg *m)
{
    time_note(s, d);
    (void)m;
    d->applied_before = door_core_applied(d->core);
}

void invariants_after_receive(struct sim *s, struct sim_door *d, const struct door_msg *m, int rc)
{
    time_note(s, d);
    invariant_06_applied_in_order(s, d, m, d->applied_before, rc);
    if (!rc && (m->t == DOOR_OP || m->t == DOOR_SNAPSHOT))
        invariant_07_door_equals_the_fold(s, d);
    if (!rc && (m->t == DOOR_SNAPSHOT || (m->t == DOOR_OP && m->op == DOOR_OP_KEYS)))
        invariant_17_door_has_the_keys(s, d);
}

void invariant_07_snapshot_is_the_fold(struct sim *s, const struct sim_door *d,
                                       const struct door_msg *m)
{
    const struct door_allow *allow = m->allow.items;
    size_t listed = 0;

    for (int i = 0; i < s->leases_n; i++) {
        const struct lease_fact *f = &s->leases[i];
        int64_t exp_s;
        bool found = false;

        if (f->session != d->session || !facts_allowed(s, f, m->seq, &exp_s))
            continue;
        listed++;
        for (size_t a = 0; a < m->allow.n; a++)
            found |= id_equal(&allow[a].jti, &f->l.lease_id) && allow[a].exp == exp_s &&
                     allow[a].scope == f->l.scope && allow[a].mc == f->l.max_connections;
        if (!found)
            sim_fail(s, "invariant_07", "%s is missing in a snapshot at %lld",
                     SHORT(&f->l.lease_id), (long long)m->seq);
    }
    if (listed != m->allow.n)
        sim_fail(s, "invariant_07", "a snapshot at %lld names %zu leases instead of %zu",
                 (long long)m->seq, m->allow.n, listed);
}

/* One entry that ends several leases: it names these and no others. */
static void ended_as_committed(struct sim *s, const struct sim_door *d, const struct door_msg *m)
{
    const struct id *ids = m->op == DOOR_OP_REVOKE ? &m->jti : m->jtis.items;
    size_t n = m->op == DOOR_OP_REVOKE ? 1 : m->jtis.n, committed = 0;
    bool found = m->code == CLOSE_UNAUTHENTICATED;

    for (int i = 0; i < s->leases_n; i++)
        committed += &s->sessions[s->leases[i].session] == session_of(s, d) &&
                     s->leases[i].end_seq == m->seq;
    for (size_t i = 0; i < n; i++) {
        int at = facts_lease(s, &ids[i]);

        found = found && at >= 0 && s->leases[at].end_seq == m->seq;
    }
    if (!found || committed != n || (m->op != DOOR_OP_REVOKE && m->op != DOOR_OP_REVOKE_LIST))
        sim_fail(s, "invariant_05", "operation %d as %lld is not the expiry that was committed",
                 m->op, (long long)m->seq);
}

void invariant_05_only_what_is_durable_is_said(struct sim *s, const struct sim_door *d,
                                               const struct door_msg *m)
{
    static const enum change_kind kinds[] = {[DOOR_OP_GRANT] = CHANGE_GRANT,
                                             [DOOR_OP_EXTEND] = CHANGE_EXTEND,
                                             [DOOR_OP_REVOKE] = CHANGE_REVOKE,
                                             [DOOR_OP_REVOKE_ALL] = CHANGE_REVOKE_ALL,
                                             [DOOR_OP_KEYS] = CHANGE_KEYS};
    const struct session_sim *x = session_of(s, d);
    const struct fact *f = &x->log[m->seq % SIM_LOG];

    if (m->seq > x->n) {
        sim_fail(s, "invariant_05", "a door is told %lld, %lld is durable", (long long)m->seq,
                 (long long)x->n);
        return;
    }
    if (m->t != DOOR_OP)
        return;
    if (f->kind == CHANGE_EXPIRE) {
        ended_as_committed(s, d, m);
        return;
    }
    if (f->kind != kinds[m->op] || (m->op <= DOOR_OP_REVOKE && !id_equal(&f->lease_id, &m->jti)) ||
        (m->op <= DOOR_OP_EXTEND && f->exp_ms / 1000 != m->exp) ||
        (m->op == DOOR_OP_REVOKE && f->code != m->code))
        sim_fail(s, "invariant_05", "operation %d as %lld is not what was committed", m->op,
                 (long long)m->seq);
}

void invariants_said(struct sim *s, const struct sim_door *d, const char *data, size_t len)
{
    struct arena *arena = arena_new(4 << 20);
    struct door_msg m;
    struct err e;

    if (!arena || door_msg_decode(data, len, arena, &m, &e)) {
        sim_fail(s, "protocol", "the gateway says %.100s", data);
    } else {
        if (m.t == DOOR_OP || m.t == DOOR_SNAPSHOT || m.t == DOOR_DELTA) {
            if (d->zombie)
                sim_fail(s, "invariant_23", "a lower generation is told of leases");
            invariant_05_only_what_is_durable_is_said(s, d, &m);
        }
        if (m.t == DOOR_SNAPSHOT)
            invariant_07_snapshot_is_the_fold(s, d, &m);
    }
    arena_free(arena);
}

/* --- always ------------------------------------------------------------------------------------ */

void invariants_of_door(struct sim *s, const struct sim_door *d)
{
    invariant_11_live_within_mc(s, d);
    invariant_14_sealed_has_no_connection(s, d);
    invariant_07_door_catches_up(s, d);
    for (int i = 0; i < SIM_SOCKETS; i++)
        if (d->clients[i].used && carries(s, d, &d->clients[i]))
            invariant_03_cut_in_time(s, d, &d->clients[i]);
}
