#include "token_codec.h"

#include <stdio.h>
#include <string.h>

#include "keyset.h"

/* Of a payload: three quarters of what the header and the signature leave of TOKEN_MAX. */
#define PAYLOAD_MAX 1300

static void add_scope(struct buf *out, unsigned bits)
{
    const char *before = "\"";
    for (int i = 0; i < TOKEN_SCOPES; i++) {
        if ((bits >> i & 1) == 0)
            continue;
        buf_add_str(out, before);
        buf_add_str(out, token_scope_names[i]);
        buf_add_char(out, '"');
        before = ",\"";
    }
}

static void add_text(struct buf *out, const char *before, const char *value)
{
    buf_add_str(out, before);
    buf_add_str(out, value);
}

static void add_int(struct buf *out, const char *before, int64_t value)
{
    buf_add_str(out, before);
    buf_add_int(out, value);
}

/* No value needs an escape: token_claims_fault saw to that. */
static void add_claims(struct buf *out, const struct token_claims *c)
{
    const char *sid = ID_STR(&c->session_id);

    add_text(out, "{\"iss\":\"", c->iss);
    add_text(out, "\",\"aud\":\"" TOKEN_AUD, sid);
    add_text(out, "\",\"sub\":\"", ID_STR(&c->user_id));
    add_text(out, "\",\"chat\":\"", ID_STR(&c->chat_id));
    add_text(out, "\",\"node\":\"", c->node);
    add_text(out, "\",\"sid\":\"", sid);
    add_int(out, "\",\"ep\":", c->ep);
    add_text(out, ",\"jti\":\"", ID_STR(&c->lease_id));
    buf_add_str(out, "\",\"scope\":[");
    add_scope(out, c->scope);
    add_int(out, "],\"iat\":", c->iat);
    add_int(out, ",\"nbf\":", c->nbf);
    add_int(out, ",\"exp\":", c->exp);
    add_int(out, ",\"mex\":", c->mex);
    add_int(out, ",\"rq\":", c->rq);
    add_text(out, ",\"use\":\"", token_use_names[c->use]);
    add_int(out, "\",\"mc\":", c->mc);
    if (c->cnf_jkt[0] != '\0') {
        add_text(out, ",\"cnf\":{\"jkt\":\"", c->cnf_jkt);
        buf_add_str(out, "\"}");
    }
    buf_add_char(out, '}');
}

static size_t format_header(const char *kid, char *out, size_t size)
{
    int n = snprintf(out, size,
                     "{\"alg\":\"" TOKEN_ALG "\",\"typ\":\"" TOKEN_TYP "\",\"kid\":\"%s\"}", kid);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

/* Without its signature. Returns the length, 0: too long. */
static size_t format_token(const char *kid, const struct token_claims *claims,
                           char out[static TOKEN_MAX + 1])
{
    char header[128];
    size_t n = 0, header_len = format_header(kid, header, sizeof header);
    struct buf payload;

    buf_init(&payload, PAYLOAD_MAX);
    add_claims(&payload, claims);
    if (header_len > 0 && buf_ok(&payload)) {
        n = base64url_encode((const uint8_t *)header, header_len, out);
        out[n++] = '.';
        n += base64url_encode((const uint8_t *)payload.data, payload.len, out + n);
    }
    buf_done(&payload);
    return n;
}

int token_mint(const struct keyset *ks, const struct token_claims *claims, struct buf *out,
               struct err *e)
{
    char token[TOKEN_MAX + 1];
    uint8_t sig[P256_SIG_BYTES];

    const char *kid = keyset_signing_kid(ks);
    if (kid == NULL)
        return err_set(e, ERR_INTERNAL, "there is no key to sign leases with");
    const char *fault = token_claims_fault(claims);
    if (fault != NULL)
        return err_set(e, ERR_INTERNAL, "the lease claim %s is not valid", fault);
    size_t n = format_token(kid, claims, token);
    if (n == 0)
        return err_set(e, ERR_INTERNAL, "the lease claims are too long");
    if (!p256_sign(keyset_signing_key(ks), token, n, sig))
        return err_set(e, ERR_INTERNAL, "the lease could not be signed");
    token[n++] = '.';
    n += base64url_encode(sig, sizeof sig, token + n);

    buf_add(out, token, n);
    return buf_ok(out) ? 0 : err_set(e, ERR_INTERNAL, "there is no room for the lease token");
}
