/* What a token is worth at this moment. */
#include <string.h>

#include "rules.h"

/* What the token says of itself selects the session it is held against; a forged one fails there. */
static bool verify(const struct lease_policy *p, const struct keyset *keys, const char *token,
                   const struct sandbox *session, int64_t now_ms, struct token_claims *ret)
{
    const struct token_expect expect = {
        .iss = p->issuer,
        .node = p->node,
        .session_id = session->session_id,
        .ep = session->generation,
        .now = now_ms / 1000,
        .leeway = p->skew_s,
        .ttl_max = p->ttl_max_s,
    };

    return token_verify(keys, token, strlen(token), &expect, ret) == TOKEN_OK;
}

static int inactive(struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "the token lets nobody in");
}

/* ERR_NOT_FOUND: inactive, for whatever reason. */
static int look(struct store_tx *tx, const struct lease_policy *p, const struct keyset *keys,
                const struct caller *caller, const char *token, struct token_claims *ret,
                struct err *e)
{
    struct token_claims claims;
    struct sandbox session;
    struct lease lease;

    if (token_parse(token, strlen(token), &claims) != TOKEN_OK)
        return inactive(e);
    if (store_sandbox_get(tx, &claims.session_id, &session, e))
        return -1;
    if (session.status != SANDBOX_RUNNING ||
        !verify(p, keys, token, &session, store_now_ms(tx), ret))
        return inactive(e);
    if (lease_visible(tx, caller, &ret->lease_id, &lease, e))
        return -1;
    return lease_is_open(&lease) && id_equal(&lease.session_id, &ret->session_id) ? 0 : inactive(e);
}

int lease_introspect(struct store_tx *tx, const struct lease_policy *p, const struct keyset *keys,
                     const struct caller *caller, const char *token, bool *ret_active,
                     struct token_claims *ret, struct err *e)
{
    struct err why;

    *ret_active = !look(tx, p, keys, caller, token, ret, &why);
    if (*ret_active || why.code == ERR_NOT_FOUND)
        return 0;
    *e = why;
    return -1;
}
