/* Clients of a door: honest ones, and those with a token that must not let them in. */
#include <stdlib.h>
#include <string.h>

#include "../support/token_forge.h"
#include "invariants.h"
#include "sim.h"

/* --- what the core says ------------------------------------------------------------------------ */

static struct client *client_of(struct door_peer *peer)
{
    return (struct client *)peer;
}

void client_admitted(void *ctx, struct door_peer *peer)
{
    struct sim_door *d = ctx;
    struct client *c = client_of(peer);

    d->sim->seen[SEEN_ADMITTED]++;
    sim_trace(d->sim, "%s let in", SHORT(&peer->claims.lease_id));
    invariants_admitted(d->sim, d, c);
}

void client_challenged(void *ctx, struct door_peer *peer)
{
    const struct sim_door *d = ctx;
    struct client *c = client_of(peer);

    c->prove_at_us =
        d->sim->boot_us + (rng_one_in(&d->sim->rng, 6) ? rng_range(&d->sim->rng, 2 * SEC, 3 * SEC)
                                                       : rng_range(&d->sim->rng, MS, 200 * MS));
}

/* Half-open for a while: the other end has not answered the close yet. */
void client_closed(void *ctx, struct door_peer *peer, int code)
{
    const struct sim_door *d = ctx;
    struct client *c = client_of(peer);

    sim_trace(d->sim, "closed with %d", code);
    if (peer->state == PEER_ADMITTED)
        d->sim->seen[SEEN_CUT]++;
    if (!c->gone_at_us)
        c->gone_at_us = d->sim->boot_us + 1 + rng_range(&d->sim->rng, 0, 2 * SEC);
}

void client_gone(struct sim *s, struct sim_door *d, struct client *c)
{
    door_core_gone(d->core, &c->peer, 1006);
    *c = (struct client){.sim = s};
}

/* --- tokens ------------------------------------------------------------------------------------ */

struct presented {
    char text[TOKEN_MAX + 1];
    size_t len;
    int lease;    /* -1: it was never granted, or not like this */
    bool genuine; /* as it was handed out */
    bool spoiled; /* no key has signed it */
};

static void mint(struct sim *s, int signer, const struct token_claims *claims, struct presented *p)
{
    struct buf b;
    struct err e;

    (void)s;
    buf_init(&b, TOKEN_MAX);
    if (!token_mint(s->signers[signer].own, claims, &b, &e)) {
        memcpy(p->text, b.data, b.len);
        p->len = b.len;
    }
    buf_done(&b);
}

/* One bit of the signature itself, or of the text before it: what that makes of it follows from the
 * seed, while the signature does not. */
static void flip(struct sim *s, struct presented *p)
{
    char *dot = memrchr(p->text, '.', p->len);
    uint8_t sig[64];
    size_t len;

    p->genuine = false;
    p->spoiled = true;
    if (rng_one_in(&s->rng, 2)) {
        p->text[rng_index(&s->rng, (int)(dot - p->text))] ^= (char)(1 << rng_index(&s->rng, 7));
        return;
    }
    if (base64url_decode(dot + 1, p->len - (size_t)(dot + 1 - p->text), sig, sizeof sig, &len))
        abort();
    sig[rng_index(&s->rng, 64)] ^= (uint8_t)(1 << rng_index(&s->rng, 8));
    base64url_encode(sig, sizeof sig, dot + 1);
}

/* As a thief of a signing key would: well signed, by some key, and not what was granted. */
static void forge(struct sim *s, const struct sim_door *d, struct presented *p)
{
    struct token_claims claims;
    int64_t now_s = sim_wall_ms(s) / 1000;

    s->seen[SEEN_FORGED]++;
    if (token_parse(p->text, p->len, &claims) != TOKEN_OK)
        abort();
    claims.session_id = s->sessions[d->session].row.session_id;
    claims.ep = s->sessions[d->session].row.generation;
    p->genuine = false;
    switch (rng_index(&s->rng, 5)) {
    case 0: /* never granted */
        for (int i = 0; i < 16; i++)
            claims.lease_id.b[i] ^= (uint8_t)(i == 6 || i == 8 ? 0 : rng_next(&s->rng));
        p->lease = -1;
        break;
    case 1: /* of an earlier generation */
        claims.ep = claims.ep > 1 ? claims.ep - 1 : claims.ep + 1;
        break;
    case 2: /* longer than it was given for */
        claims.iat = claims.nbf = now_s;
        claims.exp = now_s + s->policy.ttl_max_s;
        claims.mex = claims.exp > claims.mex ? claims.exp : claims.mex;
        break;
    case 3: /* for more than it was given for */
        claims.scope = SCOPE_READ | SCOPE_WRITE;
        claims.mc = (int)s->policy.max_connections_cap;
        claims.use = USE_MULTI;
        break;
    default: /* by whatever key, now */
        claims.iat = claims.nbf = now_s;
        claims.exp = claims.exp > now_s ? claims.exp : now_s + 10;
        claims.mex = claims.mex > claims.exp ? claims.mex : claims.exp;
        break;
    }
    if (claims.exp - claims.iat > s->policy.ttl_max_s)
        claims.exp = claims.iat + s->policy.ttl_max_s;
    mint(s, rng_index(&s->rng, SIM_SIGNERS), &claims, p);
}

/* A lease of this door, mostly an open one; else any. -1: there is none. */
static int lease_choose(struct sim *s, const struct sim_door *d)
{
    int start, any = -1;

    if (!s->leases_n)
        return -1;
    start = rng_index(&s->rng, s->leases_n);
    for (int i = 0; i < s->leases_n; i++) {
        int at = (start + i) % s->leases_n;
        const struct lease_fact *f = &s->leases[at];

        if (!f->tokens_n)
            continue;
        if (any < 0)
            any = at;
        if (f->session == d->session && (facts_open(f) || rng_one_in(&s->rng, 4)))
            return at;
    }
    return any;
}

static bool token_choose(struct sim *s, const struct sim_door *d, struct presented *p)
{
    const struct lease_fact *f;
    int lease = lease_choose(s, d), newest;

    if (lease < 0)
        return false;
    f = &s->leases[lease];
    newest = f->tokens_n - 1;
    if (newest > 0 && rng_one_in(&s->rng, 4))
        newest--;
    *p = (struct presented){.lease = lease, .genuine = true, .len = strlen(f->tokens[newest])};
    memcpy(p->text, f->tokens[newest], p->len);
    if (rng_one_in(&s->rng, 8))
        flip(s, p);
    else if (rng_one_in(&s->rng, 6))
        forge(s, d, p);
    return true;
}

/* --- acts -------------------------------------------------------------------------------------- */

static struct client *client_new(struct sim_door *d)
{
    for (int i = 0; i < SIM_SOCKETS; i++)
        if (!d->clients[i].used)
            return &d->clients[i];
    return NULL;
}

void client_connect(struct sim *s, struct sim_door *d)
{
    struct client *c = client_new(d);
    struct presented p;
    struct present_check check;

    if (!c || !token_choose(s, d, &p))
        return;
    *c = (struct client){
        .sim = s, .used = true, .lease = p.lease, .wrong_key = rng_one_in(&s->rng, 5)};
    invariants_before_present(s, d, p.text, p.len, p.genuine ? p.lease : -1, p.spoiled, &check);
    door_core_present(d->core, &c->peer, p.text, p.len, s->boot_us);
    sim_trace(s, "client at %s presents %s%s: %d, %d",
              SHORT(&s->sessions[d->session].row.session_id),
              SHORT(&s->leases[c->lease < 0 ? 0 : c->lease].l.lease_id),
              p.genuine ? "" : " spoiled", c->peer.state, c->peer.code);
    if (c->peer.state == PEER_REFUSED)
        s->seen[SEEN_REFUSED]++;
    if (c->peer.state == PEER_WAITING)
        s->seen[SEEN_WAITED]++;
    invariants_after_present(s, d, c, &check);
    door_settle(s, d);
}

void client_prove(struct sim *s, struct sim_door *d, struct client *c)
{
    char text[PROOF_NONCE_TEXT + 2 * ID_TEXT + 2], sig_text[PROOF_SIG_TEXT];
    char sid[ID_TEXT], jti[ID_TEXT];
    uint8_t sig[64];
    struct proof proof = {.x = s->proof_x, .y = s->proof_y, .sig = sig_text};

    c->prove_at_us = 0;
    if (c->peer.state != PEER_PROVING)
        return;
    id_format(&s->sessions[d->session].row.session_id, sid);
    id_format(&c->peer.claims.lease_id, jti);
    snprintf(text, sizeof text, "%s.%s.%s", c->peer.nonce, sid, jti);
    forge_sign(s->proof_key, text, strlen(text), sig);
    if (c->wrong_key)
        sig[rng_index(&s->rng, 64)] ^= 1;
    base64url_encode(sig, sizeof sig, sig_text);
    door_core_prove(d->core, &c->peer, &proof, s->boot_us);
    sim_trace(s, "client proves %s: %d", c->wrong_key ? "falsely" : "its key", c->peer.state);
    if (c->peer.state == PEER_ADMITTED) {
        s->seen[SEEN_PROVED]++;
        invariants_proved(s, c);
    }
    door_settle(s, d);
}

void client_talk(struct sim *s, struct sim_door *d)
{
    for (int i = 0; i < SIM_SOCKETS && d->alive; i++) {
        struct client *c = &d->clients[i];
        bool in = rng_one_in(&s->rng, 2), passed;
        size_t len = 1 + (size_t)rng_index(&s->rng, 100);

        if (!c->used || c->peer.state != PEER_ADMITTED)
            continue;
        passed = in ? door_core_pass_in(d->core, &c->peer, len, s->boot_us)
                    : door_core_pass_out(d->core, &c->peer, len, s->boot_us);
        if (passed) {
            s->seen[SEEN_BYTES]++;
            invariants_passed(s, d, c, in);
        }
    }
    door_settle(s, d);
}

void client_leave(struct sim *s, struct sim_door *d)
{
    struct client *c = &d->clients[rng_index(&s->rng, SIM_SOCKETS)];

    if (!c->used)
        return;
    sim_trace(s, "client leaves");
    client_gone(s, d, c);
    door_settle(s, d);
}
