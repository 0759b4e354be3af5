#include "token_codec.h"

#include <string.h>

#include "keyset.h"

const char *token_verdict_name(enum token_verdict v)
{
    static const char *const names[] = {
        [TOKEN_OK] = "ok",
        [TOKEN_MALFORMED] = "malformed",
        [TOKEN_BAD_HEADER] = "bad_header",
        [TOKEN_UNKNOWN_KEY] = "unknown_key",
        [TOKEN_BAD_SIGNATURE] = "bad_signature",
        [TOKEN_BAD_CLAIMS] = "bad_claims",
        [TOKEN_WRONG_AUDIENCE] = "wrong_audience",
        [TOKEN_OLD_GENERATION] = "old_generation",
        [TOKEN_NOT_YET] = "not_yet",
        [TOKEN_EXPIRED] = "expired",
    };
    return (size_t)v < sizeof names / sizeof names[0] ? names[v] : "unknown";
}

static enum token_verdict hold_against(const struct token_claims *c, const struct token_expect *x)
{
    if (c->exp - c->iat > x->ttl_max)
        return TOKEN_BAD_CLAIMS;
    if (strcmp(c->iss, x->iss) != 0 || strcmp(c->node, x->node) != 0 ||
        !id_equal(&c->session_id, &x->session_id))
        return TOKEN_WRONG_AUDIENCE;
    if (c->ep != x->ep)
        return TOKEN_OLD_GENERATION;
    if (x->now >= c->exp)
        return TOKEN_EXPIRED;
    if (c->nbf - x->leeway > x->now || c->iat - x->leeway > x->now)
        return TOKEN_NOT_YET;
    return TOKEN_OK;
}

static bool signature_good(struct token_memo *memo, const struct p256_key *key, const char *token,
                           size_t len, const struct token_parts *parts)
{
    struct token_digest digest;

    if (memo != NULL && token_memo_knows(memo, token, len, &digest))
        return true;
    if (!p256_verify(key, parts->signed_text, parts->signed_len, parts->sig))
        return false;
    if (memo != NULL)
        token_memo_learn(memo, &digest);
    return true;
}

enum token_verdict token_verify_again(struct token_memo *memo, const struct keyset *ks,
                                      const char *token, size_t len,
                                      const struct token_expect *expect, struct token_claims *ret)
{
    struct token_parts parts;
    struct token_claims claims;
    char kid[TOKEN_KID_TEXT];

    enum token_verdict v = token_split(token, len, &parts);
    if (v == TOKEN_OK)
        v = token_read_header(&parts, kid);
    if (v != TOKEN_OK)
        return v;
    const struct p256_key *key = keyset_find(ks, kid);
    if (key == NULL)
        return TOKEN_UNKNOWN_KEY;
    if (!signature_good(memo, key, token, len, &parts))
        return TOKEN_BAD_SIGNATURE;
    v = token_read_claims(&parts, &claims);
    if (v == TOKEN_OK && !keyset_vouches(ks, kid, claims.iat))
        v = TOKEN_UNKNOWN_KEY;
    if (v == TOKEN_OK)
        v = hold_against(&claims, expect);
    if (v == TOKEN_OK || v == TOKEN_EXPIRED) {
        memcpy(claims.kid, kid, sizeof claims.kid);
        *ret = claims;
    }
    return v;
}

enum token_verdict token_verify(const struct keyset *ks, const char *token, size_t len,
                                const struct token_expect *expect, struct token_claims *ret)
{
    return token_verify_again(NULL, ks, token, len, expect, ret);
}
