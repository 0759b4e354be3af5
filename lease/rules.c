/* The rules of leases: see the header. */
#include "leasehold/lease_rules.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "rules.h"

void lease_policy_from_config(const struct config *cfg, struct lease_policy *ret)
{
    const struct config_lease *l = &cfg->lease;

    *ret = (struct lease_policy){
        .issuer = l->issuer,
        .node = cfg->app.node,
        .ttl_s = l->ttl_seconds,
        .ttl_max_s = l->ttl_max_seconds,
        .max_s = l->max_seconds,
        .max_connections_cap = l->max_connections_cap,
        .skew_s = l->clock_skew_seconds,
        .seal_s = l->seal_after_seconds,
        .per_user = l->per_user,
        .per_session = l->per_session,
        .global_max = l->global_max,
    };
}

static bool is_thumbprint(const char *s)
{
    uint8_t hash[32];
    size_t len;

    return !base64url_decode(s, strlen(s), hash, sizeof hash, &len) && len == sizeof hash;
}

int lease_request_check(const struct lease_policy *p, const struct lease_request *r, const char *at,
                        struct err *e)
{
    char pointer[sizeof e->pointer];

    if (r->ttl_s > p->ttl_max_s) {
        snprintf(pointer, sizeof pointer, "%s/ttl_s", at);
        return err_field(e, pointer, "ttl_s is at most %lld seconds", (long long)p->ttl_max_s);
    }
    if (r->max_connections > p->max_connections_cap) {
        snprintf(pointer, sizeof pointer, "%s/max_connections", at);
        return err_field(e, pointer, "max_connections is at most %lld",
                         (long long)p->max_connections_cap);
    }
    if (r->cnf_jkt && !is_thumbprint(r->cnf_jkt)) {
        snprintf(pointer, sizeof pointer, "%s/cnf/jkt", at);
        return err_field(e, pointer, "jkt is the RFC 7638 thumbprint of a P-256 key");
    }
    return 0;
}

static char *put(char *at, const char *end, const char *s)
{
    size_t len = strnlen(s, (size_t)(end - at) - 1);

    memcpy(at, s, len);
    at[len] = '\0';
    return at + len;
}

int lease_audit(struct store_tx *tx, const struct caller *caller, const char *action,
                const struct lease *l, const char *reason, int64_t seq, struct err *e)
{
    char detail[REASON_MAX + 32] = "", digits[INT_TEXT], *at = detail;
    const char *end = detail + sizeof detail;

    if (seq) {
        if (reason)
            at = put(put(at, end, reason), end, " ");
        put(put(at, end, "seq="), end, int_format(seq, digits));
    }
    return store_audit_deed(tx,
                            &(struct audit_deed){.caller = caller,
                                                 .action = action,
                                                 .kind = "lease",
                                                 .id = &l->lease_id,
                                                 .detail = detail},
                            e);
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The ceiling that no renewal passes: policy, session and the caller's own credential, which ends at
 * `until_ms`. */
static int64_t ceiling_ms(const struct lease_policy *p, int64_t until_ms,
                          const struct sandbox *session, int64_t now_s)
{
    int64_t mex = min64((now_s + p->max_s) * 1000, until_ms);

    if (session->max_expires_at)
        mex = min64(mex, session->max_expires_at);
    return mex / 1000 * 1000;
}

/* By the key's rows, in the write itself: what the request was admitted with may have been taken away
 * since, and nothing may be issued behind a revocation. */
static int key_holds(struct store_tx *tx, const struct caller *caller, const struct id *user_id,
                     int64_t *ret_until_ms, struct err *e)
{
    int64_t until_ms = INT64_MAX;

    if (!id_is_zero(&caller->key_id) &&
        store_api_key_may(tx, &caller->key_id, user_id, &until_ms, e))
        return -1;
    *ret_until_ms = caller->expires_at ? min64(until_ms, caller->expires_at) : until_ms;
    return 0;
}

static int issue_allowed(struct store_tx *tx, const struct caller *caller,
                         const struct sandbox *session, const struct lease_request *r,
                         int64_t *ret_until_ms, struct err *e)
{
    if (key_holds(tx, caller, &session->user_id, ret_until_ms, e))
        return -1;
    if (!*ret_until_ms || !caller_may_see(caller, &session->user_id) ||
        (!id_is_zero(&r->user_id) && !id_equal(&r->user_id, &session->user_id)))
        return err_set(e, ERR_CHAT_NOT_FOUND, "no such chat of this user");
    return 0;
}

/* now + ttl in whole seconds, never less than asked for, never over what a door takes. */
static int64_t expiry_ms(const struct lease_policy *p, int64_t now_ms, int64_t ttl_s)
{
    int64_t exp_s = (now_ms + (ttl_s ? ttl_s : p->ttl_s) * 1000 + 999) / 1000;

    return min64(exp_s, now_ms / 1000 + p->ttl_max_s) * 1000;
}

/* A ceiling that is here already: whose is it? */
static int room_check(int64_t until_ms, int64_t now_ms, int64_t mex_ms, struct err *e)
{
    if (mex_ms > now_ms + 1000)
        return 0;
    if (until_ms / 1000 * 1000 <= mex_ms)
        return err_set(e, ERR_UNAUTHENTICATED, "the API key ends within a second");
    return err_set(e, ERR_SESSION_NOT_RUNNING, "the session ends within a second");
}

static int quota_check(const struct store_tx *tx, const struct lease_policy *p,
                       const struct sandbox *session, struct err *e)
{
    struct store_lease_counts open;

    store_lease_count(tx, &session->session_id, &session->user_id, &open);
    if (open.of_session >= p->per_session)
        return err_set(e, ERR_LEASE_QUOTA_EXCEEDED, "the session has %lld open leases, as it may",
                       (long long)open.of_session);
    if (open.of_user >= p->per_user)
        return err_set(e, ERR_LEASE_QUOTA_EXCEEDED, "the user has %lld open leases, as it may",
                       (long long)open.of_user);
    if (open.all >= p->global_max)
        return err_set(e, ERR_LEASE_QUOTA_EXCEEDED, "the gateway has all open leases it may");
    return 0;
}

/* Who sets the clock back, or starts a copy of this machine from the past, issues nothing until the time
 * has come again that was there already. What was issued ends as it would have. */
static int clock_check(const struct store_tx *tx, const struct lease_policy *p, struct err *e)
{
    int64_t behind_ms = store_tx_clock_behind_ms(tx);

    if (behind_ms <= p->skew_s * 1000)
        return 0;
    return err_set(e, ERR_SERVICE_NOT_READY,
                   "the clock stands %lld s behind the last one seen: nothing is issued until then",
                   (long long)(behind_ms / 1000));
}

/* *ret_mex_ms: the ceiling of what may be issued. */
static int may_issue(struct store_tx *tx, const struct lease_policy *p, const struct caller *caller,
                     const struct sandbox *session, const struct lease_request *r,
                     int64_t *ret_mex_ms, struct err *e)
{
    int64_t now_ms = store_now_ms(tx), until_ms;

    if (issue_allowed(tx, caller, session, r, &until_ms, e) || lease_request_check(p, r, "", e) ||
        clock_check(tx, p, e) || quota_check(tx, p, session, e))
        return -1;
    *ret_mex_ms = ceiling_ms(p, until_ms, session, now_ms / 1000);
    return room_check(until_ms, now_ms, *ret_mex_ms, e);
}

int lease_may_issue(struct store_tx *tx, const struct lease_policy *p, const struct caller *caller,
                    const struct sandbox *session, const struct lease_request *r, struct err *e)
{
    int64_t mex_ms;

    return may_issue(tx, p, caller, session, r, &mex_ms, e);
}

int lease_issue(struct store_tx *tx, const struct lease_policy *p, const char *kid,
                const struct caller *caller, const struct sandbox *session,
                const struct lease_request *r, struct lease *ret, struct err *e)
{
    int64_t now_ms = store_now_ms(tx), now_s = now_ms / 1000;
    struct lease l = {
        .session_id = session->session_id,
        .chat_id = session->chat_id,
        .user_id = session->user_id,
        .api_key_id = caller->key_id,
        .scope = r->scope ? r->scope : SCOPE_READ | SCOPE_WRITE,
        .use = r->use,
        .max_connections = r->max_connections ? r->max_connections : 1,
        .state = LEASE_PENDING,
        .issued_at = now_s * 1000,
        .ep = session->generation,
    };

    if (may_issue(tx, p, caller, session, r, &l.max_expires_at, e))
        return -1;
    if (session->status != SANDBOX_RUNNING)
        return err_set(e, ERR_SESSION_NOT_RUNNING, "the session is %s",
                       sandbox_status_names[session->status]);
    l.expires_at = min64(expiry_ms(p, now_ms, r->ttl_s), l.max_expires_at);
    id_random(&l.lease_id);
    id_order(&l.lease_id, now_ms);
    snprintf(l.kid, sizeof l.kid, "%s", kid);
    snprintf(l.cnf_jkt, sizeof l.cnf_jkt, "%s", r->cnf_jkt ? r->cnf_jkt : "");
    if (store_session_next_seq(tx, &l.session_id, &l.grant_seq, e) ||
        store_lease_insert(tx, &l, e) ||
        lease_audit(tx, caller, "lease.issue", &l, NULL, l.grant_seq, e) ||
        lease_event(tx, "lease.granted", &l, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_GRANT, .seq = l.grant_seq, .lease = l});
    *ret = l;
    return 0;
}

int lease_visible(struct store_tx *tx, const struct caller *caller, const struct id *lease_id,
                  struct lease *ret, struct err *e)
{
    struct lease l;

    if (store_lease_get(tx, lease_id, &l, e))
        return -1;
    if (!caller_may_see(caller, &l.user_id))
        return err_set(e, ERR_NOT_FOUND, "no such lease");
    *ret = l;
    return 0;
}

int lease_renew(struct store_tx *tx, const struct lease_policy *p, const char *kid,
                const struct caller *caller, const struct id *lease_id, int64_t ttl_s,
                struct lease *ret, struct err *e)
{
    int64_t now_ms = store_now_ms(tx);
    int64_t until_ms;
    struct lease l;

    if (lease_visible(tx, caller, lease_id, &l, e) ||
        lease_request_check(p, &(struct lease_request){.ttl_s = ttl_s}, "", e) ||
        key_holds(tx, caller, &l.user_id, &until_ms, e))
        return -1;
    if (!until_ms)
        return err_set(e, ERR_NOT_FOUND, "no such lease");
    if (clock_check(tx, p, e))
        return -1;
    if (l.state != LEASE_PENDING && l.state != LEASE_ACTIVE)
        return err_set(e, ERR_LEASE_TERMINAL, "the lease is %s", lease_state_names[l.state]);
    if (l.expires_at < now_ms + 1000)
        return err_set(e, ERR_LEASE_TERMINAL, "the lease has less than a second left");
    l.expires_at = min64(expiry_ms(p, now_ms, ttl_s), l.max_expires_at);
    snprintf(l.renewed_kid, sizeof l.renewed_kid, "%s", kid);
    if (store_session_next_seq(tx, &l.session_id, &l.grant_seq, e) ||
        store_lease_update(tx, &l, e) ||
        lease_audit(tx, caller, "lease.renew", &l, NULL, l.grant_seq, e) ||
        lease_event(tx, "lease.renewed", &l, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_EXTEND, .seq = l.grant_seq, .lease = l});
    *ret = l;
    return 0;
}

static int claims_of(const struct lease_policy *p, const struct lease *l, int64_t now_ms,
                     struct token_claims *ret, struct err *e)
{
    int64_t now_s = now_ms / 1000;

    *ret = (struct token_claims){
        .session_id = l->session_id,
        .user_id = l->user_id,
        .chat_id = l->chat_id,
        .lease_id = l->lease_id,
        .ep = l->ep,
        .rq = l->grant_seq,
        .iat = now_s,
        .nbf = now_s,
        .exp = l->expires_at / 1000,
        .mex = l->max_expires_at / 1000,
        .scope = l->scope,
        .use = l->use,
        .mc = (int)l->max_connections,
    };
    if ((size_t)snprintf(ret->iss, sizeof ret->iss, "%s", p->issuer) >= sizeof ret->iss ||
        (size_t)snprintf(ret->node, sizeof ret->node, "%s", p->node) >= sizeof ret->node)
        return err_set(e, ERR_INTERNAL, "lease.issuer or app.node is too long for a token");
    memcpy(ret->cnf_jkt, l->cnf_jkt, sizeof ret->cnf_jkt);
    return 0;
}

void lease_mint_all(const struct lease_policy *p, struct lease_order *orders, size_t n)
{
    struct token_claims claims[TOKEN_ORDERS_MAX];
    struct token_order tokens[TOKEN_ORDERS_MAX];
    struct lease_order *of[TOKEN_ORDERS_MAX];
    size_t begun = 0;

    assert(n <= TOKEN_ORDERS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct lease_order *o = &orders[i];

        o->rc = claims_of(p, o->lease, o->now_ms, &claims[begun], &o->e);
        if (o->rc)
            continue;
        tokens[begun] =
            (struct token_order){.ks = o->keys, .claims = &claims[begun], .out = o->out};
        of[begun++] = o;
    }
    token_mint_all(tokens, begun);
    for (size_t i = 0; i < begun; i++) {
        of[i]->rc = tokens[i].rc;
        of[i]->e = tokens[i].e;
    }
}

int lease_mint(const struct lease_policy *p, const struct keyset *keys, const struct lease *l,
               int64_t now_ms, struct buf *out, struct err *e)
{
    struct lease_order order = {.keys = keys, .lease = l, .now_ms = now_ms, .out = out};

    lease_mint_all(p, &order, 1);
    if (order.rc)
        *e = order.e;
    return order.rc;
}

int64_t lease_renew_after(const struct lease *l, int64_t now_ms)
{
    int64_t left = l->expires_at - now_ms;
    const uint8_t *random = l->lease_id.b + sizeof l->lease_id.b - 2;

    if (left <= 0)
        return now_ms;
    /* 7/12 of what is left lies between 1/2 and 2/3; ±10 % of it, by the random id, keeps holders from
     * renewing in step. */
    int64_t base = left * 7 / 12, tenth = base / 10;
    return now_ms + base +
           (tenth ? (int64_t)(random[0] << 8 | random[1]) % (2 * tenth) - tenth : 0);
}
