/* The rules of single claims and between them, the same for the signer and the verifier. */
#include "token_codec.h"

#include <string.h>

#include "token_scan.h"

/* One line of the characters that need no escape in JSON, not empty, terminated in its array. */
static bool is_text(const char *s, size_t size)
{
    size_t len = strnlen(s, size);
    if (len == 0 || len == size)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!scan_is_text_char(s[i]))
            return false;
    return true;
}

static bool is_int(int64_t v)
{
    return v > 0 && v < TOKEN_INT_LIMIT;
}

static bool is_uuid_v4(const struct id *id)
{
    return id->b[6] >> 4 == 4 && id->b[8] >> 6 == 2;
}

static bool is_thumbprint_or_empty(const char s[static TOKEN_KID_TEXT])
{
    uint8_t hash[32];
    size_t len = strnlen(s, TOKEN_KID_TEXT);
    return len == 0 ||
           (base64url_decode(s, len, hash, sizeof hash, &len) == 0 && len == sizeof hash);
}

static const char *times_fault(const struct token_claims *c)
{
    if (!is_int(c->iat))
        return "iat";
    if (!is_int(c->mex))
        return "mex";
    if (!is_int(c->exp) || c->exp <= c->iat || c->exp > c->mex)
        return "exp";
    if (!is_int(c->nbf) || c->nbf > c->exp)
        return "nbf";
    return NULL;
}

const char *token_claims_fault(const struct token_claims *c)
{
    if (!is_text(c->iss, sizeof c->iss))
        return "iss";
    if (!is_text(c->node, sizeof c->node))
        return "node";
    if (id_is_zero(&c->session_id))
        return "sid";
    if (id_is_zero(&c->user_id))
        return "sub";
    if (id_is_zero(&c->chat_id))
        return "chat";
    if (!is_uuid_v4(&c->lease_id))
        return "jti";
    if (!is_int(c->ep))
        return "ep";
    if (!is_int(c->rq))
        return "rq";
    if (c->scope == 0 || c->scope >> TOKEN_SCOPES != 0)
        return "scope";
    if (c->use != USE_MULTI && c->use != USE_ONCE)
        return "use";
    if (c->mc < 1 || c->mc > TOKEN_MC_MAX)
        return "mc";
    if (!is_thumbprint_or_empty(c->cnf_jkt))
        return "cnf";
    return times_fault(c);
}
