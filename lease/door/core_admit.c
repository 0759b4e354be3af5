#include <stdio.h>
#include <utlist.h>

#include "core_state.h"

#define WAIT_MAX_US     US_PER_S
#define PROOF_MAX_US    (2 * US_PER_S)
#define DENY_PER_SECOND 20 /* a flood of bad tokens must not become a flood to the gateway */

/* What became of a token: a close code or one of these; and its name for the audit. */
#define VERDICT_ADMIT 0
#define VERDICT_WAIT  -1
#define VERDICT_PROVE -2

struct verdict {
    int code;
    const char *name;
};

static struct verdict verdict_of_token(enum token_verdict v)
{
    int code = CLOSE_UNAUTHENTICATED;

    if (v == TOKEN_OK)
        code = 0;
    if (v == TOKEN_OLD_GENERATION)
        code = CLOSE_OLD_GENERATION;
    return (struct verdict){code, token_verdict_name(v)};
}

/* Everything but the signature, at this instant: also what has to hold again after a wait. */
static struct verdict judge(const struct door_core *c, const struct door_peer *peer, int64_t now_us)
{
    const struct token_claims *claims = &peer->claims;
    int64_t now_s = core_gateway_s(c, now_us);
    const struct door_lease *lease;

    if (!core_may_admit(c, now_us))
        return (struct verdict){CLOSE_NOT_LIVE, "door_not_live"};
    if (!keyset_vouches(c->keys, claims->kid, claims->iat))
        return (struct verdict){CLOSE_UNAUTHENTICATED, "unknown_key"};
    if (claims->exp <= now_s)
        return (struct verdict){CLOSE_UNAUTHENTICATED, "expired"};
    if (claims->rq > c->applied)
        return (struct verdict){VERDICT_WAIT, "behind"};
    lease = core_lease_find(c, &claims->lease_id);
    if (!lease || !lease->allowed)
        return (struct verdict){CLOSE_UNAUTHENTICATED, "not_listed"};
    if (lease->exp <= now_s)
        return (struct verdict){CLOSE_UNAUTHENTICATED, "expired"};
    if (lease->consumed_until)
        return (struct verdict){CLOSE_UNAUTHENTICATED, "used_up"};
    if ((claims->scope & lease->scope) == 0)
        return (struct verdict){CLOSE_UNAUTHENTICATED, "empty_scope"};
    if (lease->live >= lease->mc)
        return (struct verdict){CLOSE_LIMIT, "too_many_connections"};
    if (c->agent == DOOR_AGENT_ENDED)
        return (struct verdict){CLOSE_AGENT_ENDED, "agent_ended"};
    if (claims->cnf_jkt[0] != '\0' && !peer->proved)
        return (struct verdict){VERDICT_PROVE, "proof_missing"};
    return (struct verdict){VERDICT_ADMIT, "ok"};
}

static void peer_admit(struct door_core *c, struct door_peer *peer)
{
    struct door_lease *lease = core_lease_find(c, &peer->claims.lease_id);
    struct door_msg m = {.t = DOOR_ADMIT, .jti = lease->jti};

    peer->state = PEER_ADMITTED;
    peer->lease = lease;
    peer->scope = peer->claims.scope;
    DL_APPEND(lease->peers, peer);
    if (lease->live++ == 0)
        DL_APPEND(c->busy, lease);
    if (lease->use == USE_ONCE)
        lease->consumed_until = peer->claims.mex;
    c->active = true;
    c->io.send(c->io.ctx, &m);
    c->io.admitted(c->io.ctx, peer);
}

static void deny_report(struct door_core *c, const char *name, int64_t now_us)
{
    char verdict[64];
    struct door_msg m = {.t = DOOR_DENY, .verdict = verdict};

    if (now_us - c->deny_window_us >= US_PER_S) {
        c->deny_window_us = now_us;
        c->deny_n = 0;
    }
    if (c->deny_n++ >= DENY_PER_SECOND)
        return;
    snprintf(verdict, sizeof(verdict), "%s", name);
    c->io.send(c->io.ctx, &m);
}

static void peer_hold(struct door_core *c, struct door_peer *peer, enum peer_state state,
                      int64_t until_us)
{
    peer->state = state;
    peer->wait_until_us = until_us;
    DL_APPEND(c->waiting, peer);
}

static void peer_challenge(struct door_core *c, struct door_peer *peer, int64_t now_us)
{
    uint8_t nonce[PROOF_NONCE_BYTES];

    c->io.random(c->io.ctx, nonce, sizeof(nonce));
    base64url_encode(nonce, sizeof(nonce), peer->nonce);
    peer_hold(c, peer, PEER_PROVING, now_us + PROOF_MAX_US);
    c->io.challenge(c->io.ctx, peer);
}

/* For a peer that is in no list. */
static void peer_settle(struct door_core *c, struct door_peer *peer, struct verdict v,
                        int64_t now_us)
{
    if (v.code == VERDICT_ADMIT)
        peer_admit(c, peer);
    else if (v.code == VERDICT_WAIT)
        peer_hold(c, peer, PEER_WAITING, now_us + WAIT_MAX_US);
    else if (v.code == VERDICT_PROVE)
        peer_challenge(c, peer, now_us);
    else
        door_core_refuse(c, peer, v.code, v.name, now_us);
}

static void peer_release(struct door_core *c, struct door_peer *peer)
{
    DL_DELETE(c->waiting, peer);
    peer->state = PEER_NEW;
}

void door_core_present(struct door_core *c, struct door_peer *peer, const char *token, size_t len,
                       int64_t now_us)
{
    struct token_expect expect = {
        .iss = c->config.issuer,
        .node = c->config.node,
        .session_id = c->config.session_id,
        .ep = c->config.ep,
        .now = core_gateway_s(c, now_us),
        .leeway = c->config.leeway_s,
        .ttl_max = c->config.ttl_max_s,
    };
    struct verdict v = {CLOSE_NOT_LIVE, "door_not_live"};

    if (peer->state != PEER_NEW)
        return;
    if (core_may_admit(c, now_us))
        v = verdict_of_token(
            token_verify_again(c->memo, c->keys, token, len, &expect, &peer->claims));
    if (v.code == VERDICT_ADMIT)
        v = judge(c, peer, now_us);
    peer_settle(c, peer, v, now_us);
}

void door_core_prove(struct door_core *c, struct door_peer *peer, const struct proof *proof,
                     int64_t now_us)
{
    if (peer->state != PEER_PROVING)
        return;
    if (!proof_verify(proof, peer->claims.cnf_jkt, peer->nonce, &c->config.session_id,
                      &peer->claims.lease_id)) {
        door_core_refuse(c, peer, CLOSE_UNAUTHENTICATED, "bad_proof", now_us);
        return;
    }
    peer->proved = true;
    peer_release(c, peer);
    peer_settle(c, peer, judge(c, peer, now_us), now_us);
}

/* Does it go on waiting for the same thing? Else *v becomes what ends the wait. */
static bool still_waits(const struct door_peer *peer, struct verdict *v, int64_t now_us)
{
    bool proving = peer->state == PEER_PROVING;

    if (v->code != (proving ? VERDICT_PROVE : VERDICT_WAIT))
        return false;
    if (now_us < peer->wait_until_us)
        return true;
    v->code = proving ? CLOSE_UNAUTHENTICATED : CLOSE_NOT_LIVE;
    return false;
}

void core_waiting_judge(struct door_core *c, int64_t now_us)
{
    struct door_peer *peer, *next;
    struct verdict v;

    DL_FOREACH_SAFE (c->waiting, peer, next) {
        v = judge(c, peer, now_us);
        if (still_waits(peer, &v, now_us))
            continue;
        peer_release(c, peer);
        peer_settle(c, peer, v, now_us);
    }
}

void door_core_refuse(struct door_core *c, struct door_peer *peer, int code, const char *verdict,
                      int64_t now_us)
{
    if (peer->state == PEER_WAITING || peer->state == PEER_PROVING)
        peer_release(c, peer);
    if (peer->state == PEER_NEW) {
        peer->state = PEER_REFUSED;
        deny_report(c, verdict, now_us);
    }
    core_peer_close(c, peer, code);
}

void door_core_gone(struct door_core *c, struct door_peer *peer, int code)
{
    struct door_lease *lease = peer->lease;
    struct door_msg m = {.t = DOOR_CLOSE};

    if (peer->state == PEER_WAITING || peer->state == PEER_PROVING)
        peer_release(c, peer);
    if (peer->state == PEER_ADMITTED) {
        m.jti = lease->jti;
        m.code = peer->code ? peer->code : code;
        m.bytes_in = peer->bytes_in;
        m.bytes_out = peer->bytes_out;
        DL_DELETE(lease->peers, peer);
        if (--lease->live == 0)
            DL_DELETE(c->busy, lease);
        c->active = true;
        c->io.send(c->io.ctx, &m);
        core_lease_drop_if_dead(c, lease, c->heard_us);
    }
    peer->lease = NULL;
    peer->revoked = true;
    peer->state = PEER_REFUSED;
}

/* Is the lease still good at this instant? The timer that cuts it may run a turn late. */
static bool lease_holds(struct door_core *c, struct door_lease *lease, int64_t now_us)
{
    if (!core_may_carry(c, now_us)) {
        door_core_tick(c, now_us);
        return false;
    }
    if (core_gateway_s(c, now_us) < lease->exp)
        return true;
    core_lease_cut(c, lease, CLOSE_UNAUTHENTICATED);
    return false;
}

static bool peer_open(struct door_core *c, struct door_peer *peer, int64_t now_us)
{
    return !peer->revoked && peer->code == 0 && peer->state == PEER_ADMITTED &&
           lease_holds(c, peer->lease, now_us);
}

bool door_core_pass_in(struct door_core *c, struct door_peer *peer, size_t len, int64_t now_us)
{
    if (!peer_open(c, peer, now_us))
        return false;
    if (!(peer->scope & peer->lease->scope & SCOPE_WRITE)) {
        core_peer_close(c, peer, CLOSE_SCOPE);
        return false;
    }
    peer->bytes_in += (int64_t)len;
    c->bytes_in += (int64_t)len;
    c->last_in_ms = door_core_gateway_ms(c, now_us);
    c->active = true;
    return true;
}

bool door_core_pass_out(struct door_core *c, struct door_peer *peer, size_t len, int64_t now_us)
{
    if (!peer_open(c, peer, now_us) || !(peer->scope & peer->lease->scope & SCOPE_READ))
        return false;
    peer->bytes_out += (int64_t)len;
    c->bytes_out += (int64_t)len;
    c->last_out_ms = door_core_gateway_ms(c, now_us);
    c->active = true;
    return true;
}
