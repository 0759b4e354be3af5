#include "token_codec.h"

#include <stdio.h>
#include <string.h>

#include "keyset.h"

/* Of a payload: three quarters of what the header and the signature leave of TOKEN_MAX. */
#define PAYLOAD_MAX 1300

#define SCOPE_TEXT 32 /* every scope there is, quoted, with commas */

static void format_scope(unsigned bits, char out[static SCOPE_TEXT])
{
    const char *comma = "";
    size_t n = 0;
    for (int i = 0; i < TOKEN_SCOPES; i++) {
        if ((bits >> i & 1) == 0)
            continue;
        n += (size_t)snprintf(out + n, SCOPE_TEXT - n, "%s\"%s\"", comma, token_scope_names[i]);
        comma = ",";
    }
}

/* No value needs an escape: token_claims_fault saw to that. Returns the length, 0: too long. */
static size_t format_claims(const struct token_claims *c, char *out, size_t size)
{
    char scope[SCOPE_TEXT], cnf[64] = "";
    const char *sid = ID_STR(&c->session_id);

    format_scope(c->scope, scope);
    if (c->cnf_jkt[0] != '\0')
        snprintf(cnf, sizeof cnf, ",\"cnf\":{\"jkt\":\"%s\"}", c->cnf_jkt);
    int n = snprintf(out, size,
                     "{\"iss\":\"%s\",\"aud\":\"" TOKEN_AUD "%s\",\"sub\":\"%s\",\"chat\":\"%s\","
                     "\"node\":\"%s\",\"sid\":\"%s\",\"ep\":%lld,\"jti\":\"%s\",\"scope\":[%s],"
                     "\"iat\":%lld,\"nbf\":%lld,\"exp\":%lld,\"mex\":%lld,\"rq\":%lld,"
                     "\"use\":\"%s\",\"mc\":%d%s}",
                     c->iss, sid, ID_STR(&c->user_id), ID_STR(&c->chat_id), c->node, sid,
                     (long long)c->ep, ID_STR(&c->lease_id), scope, (long long)c->iat,
                     (long long)c->nbf, (long long)c->exp, (long long)c->mex, (long long)c->rq,
                     token_use_names[c->use], c->mc, cnf);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

static size_t format_header(const char *kid, char *out, size_t size)
{
    int n = snprintf(out, size,
                     "{\"alg\":\"" TOKEN_ALG "\",\"typ\":\"" TOKEN_TYP "\",\"kid\":\"%s\"}", kid);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

int token_mint(const struct keyset *ks, const struct token_claims *claims, struct buf *out,
               struct err *e)
{
    char header[128], payload[PAYLOAD_MAX], token[TOKEN_MAX + 1];
    uint8_t sig[P256_SIG_BYTES];

    const char *kid = keyset_signing_kid(ks);
    if (kid == NULL)
        return err_set(e, ERR_INTERNAL, "there is no key to sign leases with");
    const char *fault = token_claims_fault(claims);
    if (fault != NULL)
        return err_set(e, ERR_INTERNAL, "the lease claim %s is not valid", fault);
    size_t header_len = format_header(kid, header, sizeof header);
    size_t payload_len = format_claims(claims, payload, sizeof payload);
    if (header_len == 0 || payload_len == 0)
        return err_set(e, ERR_INTERNAL, "the lease claims are too long");

    size_t n = base64url_encode((const uint8_t *)header, header_len, token);
    token[n++] = '.';
    n += base64url_encode((const uint8_t *)payload, payload_len, token + n);
    if (!p256_sign(keyset_signing_key(ks), token, n, sig))
        return err_set(e, ERR_INTERNAL, "the lease could not be signed");
    token[n++] = '.';
    n += base64url_encode(sig, sizeof sig, token + n);

    buf_add(out, token, n);
    return buf_ok(out) ? 0 : err_set(e, ERR_INTERNAL, "there is no room for the lease token");
}
