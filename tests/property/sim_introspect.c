/* Introspection: what the gateway says of a token, beside what is true of it. */
#include <string.h>

#include "invariants.h"
#include "leasehold/lease_rules.h"
#include "sim.h"

#define SPOILT_AT 20 /* characters before the end: within the signature, and none of unused bits */

struct question {
    struct sim *s;
    int lease;
    const char *token;
    const struct caller *caller;
    bool active;
    struct token_claims told;
};

/* Of a token that we have minted; the header holds no other text of this form. */
static int signer_of(const struct sim *s, const char *token)
{
    char header[256] = "", kid[TOKEN_KID_TEXT] = "";
    const char *at;
    size_t len;

    if (base64url_decode(token, strcspn(token, "."), (uint8_t *)header, sizeof header - 1, &len))
        return -1;
    at = strstr(header, "\"kid\":\"");
    if (!at || strlen(at + 7) < TOKEN_KID_TEXT)
        return -1;
    memcpy(kid, at + 7, TOKEN_KID_TEXT - 1);
    return facts_signer(s, kid);
}

static bool key_vouches(const struct sim *s, int signer, int64_t iat)
{
    const struct signing_key *k = signer < 0 ? NULL : &s->signers[signer].row;

    if (!k || !s->signers[signer].used)
        return false;
    return k->state == SIGNING_KEY_NEXT || k->state == SIGNING_KEY_SIGNING ||
           (k->state == SIGNING_KEY_RETIRED && iat <= k->retired_at / 1000);
}

/* By what was committed: of a token of this lease that nobody has spoilt. */
static bool lets_in(const struct question *q)
{
    const struct sim *s = q->s;
    const struct lease_fact *f = &s->leases[q->lease];
    int64_t now_s = sim_wall_ms(s) / 1000;
    struct token_claims claims;

    return token_parse(q->token, strlen(q->token), &claims) == TOKEN_OK && facts_open(f) &&
           s->sessions[f->session].row.status == SANDBOX_RUNNING && now_s < claims.exp &&
           claims.iat <= now_s + s->policy.skew_s &&
           key_vouches(s, signer_of(s, q->token), claims.iat) &&
           caller_may_see(q->caller, &f->l.user_id);
}

static int ask(struct store_tx *tx, void *arg, struct err *e)
{
    struct question *q = arg;

    return lease_introspect(tx, &q->s->policy, q->s->gw.keys, q->caller, q->token, &q->active,
                            &q->told, e);
}

static void judge(struct question *q, bool spoilt)
{
    struct sim *s = q->s;

    invariant_15_introspection_is_true(s, q->lease, q->active, !spoilt && lets_in(q));
    if (q->active && !id_equal(&q->told.lease_id, &s->leases[q->lease].l.lease_id))
        sim_fail(s, "invariant_15", "introspection tells of another lease");
    s->seen[q->active ? SEEN_ACTIVE : SEEN_INACTIVE]++;
}

/* Of a lease of late, as a rule; of the others nothing changes any more. */
static int choose(struct sim *s)
{
    int of = s->leases_n < 64 || rng_one_in(&s->questions, 8) ? s->leases_n : 64;

    return s->leases_n - 1 - rng_index(&s->questions, of);
}

void introspect_any(struct sim *s)
{
    struct question q = {.s = s};
    const struct lease_fact *f;
    char token[TOKEN_MAX + 1];
    struct op *asker;
    struct err e;
    bool spoilt;

    if (!s->gw.up || s->gw.group || !s->leases_n)
        return;
    q.lease = choose(s);
    f = &s->leases[q.lease];
    if (!f->tokens_n)
        return;
    snprintf(token, sizeof token, "%s", f->tokens[rng_index(&s->questions, f->tokens_n)]);
    spoilt = rng_one_in(&s->questions, 8);
    if (spoilt)
        token[strlen(token) - SPOILT_AT] ^= 1;
    asker = op_new(s, OP_LOOK, rng_index(&s->questions, SIM_APIS));
    q.token = token;
    q.caller = &asker->caller;
    if (!store_read(s->gw.store, ask, &q, &e))
        judge(&q, spoilt);
    else if (!sim_disk_ended(s->disk))
        sim_fail(s, "invariant_15", "introspection fails: %s", e.msg);
    op_free(asker);
}
