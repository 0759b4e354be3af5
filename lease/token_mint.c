#include "token_codec.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "keyset.h"

/* Of a payload: three quarters of what the header and the signature leave of TOKEN_MAX. */
#define PAYLOAD_MAX   1300
#define PAYLOAD_USUAL 640 /* without growing */

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
    buf_reserve(&payload, PAYLOAD_USUAL);
    add_claims(&payload, claims);
    if (header_len > 0 && buf_ok(&payload)) {
        n = base64url_encode((const uint8_t *)header, header_len, out);
        out[n++] = '.';
        n += base64url_encode((const uint8_t *)payload.data, payload.len, out + n);
    }
    buf_done(&payload);
    return n;
}

/* One that is on its way. */
struct unsigned_token {
    struct token_order *order;
    const struct p256_key *key;
    char text[TOKEN_MAX + 1];
    size_t len;
};

/* -1: refused, and its order says why. */
static int token_begin(struct token_order *o, struct unsigned_token *t)
{
    const char *kid = keyset_signing_kid(o->ks);
    if (kid == NULL)
        return err_set(&o->e, ERR_INTERNAL, "there is no key to sign leases with");
    const char *fault = token_claims_fault(o->claims);
    if (fault != NULL)
        return err_set(&o->e, ERR_INTERNAL, "the lease claim %s is not valid", fault);
    t->order = o;
    t->key = keyset_signing_key(o->ks);
    t->len = format_token(kid, o->claims, t->text);
    return t->len > 0 ? 0 : err_set(&o->e, ERR_INTERNAL, "the lease claims are too long");
}

static int token_end(struct unsigned_token *t, const uint8_t sig[static P256_SIG_BYTES])
{
    struct token_order *o = t->order;
    t->text[t->len++] = '.';
    t->len += base64url_encode(sig, P256_SIG_BYTES, t->text + t->len);
    buf_add(o->out, t->text, t->len);
    explicit_bzero(t->text, t->len);
    return buf_ok(o->out) ? 0
                          : err_set(&o->e, ERR_INTERNAL, "there is no room for the lease token");
}

/* Of one key. */
static void sign_together(struct unsigned_token *tokens, size_t n)
{
    struct p256_text texts[TOKEN_ORDERS_MAX];
    for (size_t i = 0; i < n; i++)
        texts[i] = (struct p256_text){.data = tokens[i].text, .len = tokens[i].len};
    bool ok = p256_sign_all(tokens[0].key, texts, n);
    for (size_t i = 0; i < n; i++) {
        struct token_order *o = tokens[i].order;
        o->rc = ok ? token_end(&tokens[i], texts[i].sig)
                   : err_set(&o->e, ERR_INTERNAL, "the lease could not be signed");
    }
}

void token_mint_all(struct token_order *orders, size_t n)
{
    struct unsigned_token tokens[TOKEN_ORDERS_MAX];
    size_t begun = 0;

    assert(n <= TOKEN_ORDERS_MAX);
    for (size_t i = 0; i < n; i++) {
        orders[i].rc = token_begin(&orders[i], &tokens[begun]);
        begun += orders[i].rc == 0;
    }
    for (size_t i = 0, same; i < begun; i += same) {
        same = 1;
        while (i + same < begun && tokens[i + same].key == tokens[i].key)
            same++;
        sign_together(&tokens[i], same);
    }
}

int token_mint(const struct keyset *ks, const struct token_claims *claims, struct buf *out,
               struct err *e)
{
    struct token_order order = {.ks = ks, .claims = claims, .out = out};

    token_mint_all(&order, 1);
    if (order.rc != 0)
        *e = order.e;
    return order.rc;
}
