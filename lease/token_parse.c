/* The grammar of a lease token: form, header, claims. */
#include "token_codec.h"

#include <string.h>

#include "token_scan.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

const char *const token_scope_names[TOKEN_SCOPES] = {"read", "write", "admin"};
const char *const token_use_names[2] = {[USE_MULTI] = "multi", [USE_ONCE] = "once"};

/* --- form ---------------------------------------------------------------------------------- */

static bool decode_part(const char *from, const char *to, void *out, size_t size, size_t *ret_len)
{
    return to > from && base64url_decode(from, (size_t)(to - from), out, size, ret_len) == 0;
}

enum token_verdict token_split(const char *token, size_t len, struct token_parts *ret)
{
    size_t sig_len;

    if (len == 0 || len > TOKEN_MAX)
        return TOKEN_MALFORMED;
    const char *end = token + len;
    const char *dot1 = memchr(token, '.', len);
    if (dot1 == NULL)
        return TOKEN_MALFORMED;
    const char *dot2 = memchr(dot1 + 1, '.', (size_t)(end - dot1 - 1));
    if (dot2 == NULL)
        return TOKEN_MALFORMED;
    /* A third dot is not in the alphabet of the signature. */
    if (!decode_part(token, dot1, ret->header, sizeof ret->header, &ret->header_len) ||
        !decode_part(dot1 + 1, dot2, ret->payload, sizeof ret->payload, &ret->payload_len) ||
        !decode_part(dot2 + 1, end, ret->sig, sizeof ret->sig, &sig_len) ||
        sig_len != sizeof ret->sig)
        return TOKEN_MALFORMED;
    ret->signed_text = token;
    ret->signed_len = (size_t)(dot2 - token);
    return TOKEN_OK;
}

/* --- values -------------------------------------------------------------------------------- */

static bool read_word(struct scan *s, const char *word)
{
    struct scan_text t;
    return scan_string(s, &t) && scan_text_is(&t, word);
}

static bool read_alg(struct scan *s, void *dest)
{
    (void)dest;
    return read_word(s, TOKEN_ALG);
}

static bool read_typ(struct scan *s, void *dest)
{
    (void)dest;
    return read_word(s, TOKEN_TYP);
}

/* char [TOKEN_KID_TEXT]: the canonical base64url of a SHA-256. */
static bool read_thumbprint(struct scan *s, void *dest)
{
    struct scan_text t;
    uint8_t hash[32];
    size_t len;

    if (!scan_string(s, &t) || base64url_decode(t.s, t.len, hash, sizeof hash, &len) < 0 ||
        len != sizeof hash)
        return false;
    memcpy(dest, t.s, t.len);
    ((char *)dest)[t.len] = '\0';
    return true;
}

/* char [128], that of iss and of node. */
static bool read_text(struct scan *s, void *dest)
{
    struct scan_text t;

    if (!scan_string(s, &t) || t.len >= sizeof((struct token_claims *)0)->iss)
        return false;
    memcpy(dest, t.s, t.len);
    ((char *)dest)[t.len] = '\0';
    return true;
}

/* id_parse takes other spellings too; a token has but the canonical one. */
static bool parse_canonical_id(const char *s, size_t len, struct id *ret)
{
    char text[ID_TEXT];
    return len == ID_TEXT - 1 && id_parse(s, len, ret) && memcmp(id_format(ret, text), s, len) == 0;
}

static bool read_id(struct scan *s, void *dest)
{
    struct scan_text t;
    return scan_string(s, &t) && parse_canonical_id(t.s, t.len, dest);
}

static bool read_aud(struct scan *s, void *dest)
{
    const size_t prefix = sizeof TOKEN_AUD - 1;
    struct scan_text t;
    return scan_string(s, &t) && t.len > prefix && memcmp(t.s, TOKEN_AUD, prefix) == 0 &&
           parse_canonical_id(t.s + prefix, t.len - prefix, dest);
}

static bool read_int(struct scan *s, void *dest)
{
    return scan_int(s, dest);
}

static bool read_mc(struct scan *s, void *dest)
{
    int64_t v;
    if (!scan_int(s, &v) || v > TOKEN_MC_MAX)
        return false;
    *(int *)dest = (int)v;
    return true;
}

/* Index of the string in names, or -1. */
static int read_name(struct scan *s, const char *const *names, int n)
{
    struct scan_text t;
    if (!scan_string(s, &t))
        return -1;
    for (int i = 0; i < n; i++)
        if (scan_text_is(&t, names[i]))
            return i;
    return -1;
}

static bool read_use(struct scan *s, void *dest)
{
    int i = read_name(s, token_use_names, COUNT(token_use_names));
    if (i < 0)
        return false;
    *(enum lease_use *)dest = (enum lease_use)i;
    return true;
}

static bool read_scope(struct scan *s, void *dest)
{
    unsigned bits = 0;

    if (!scan_char(s, '['))
        return false;
    do {
        int i = read_name(s, token_scope_names, TOKEN_SCOPES);
        if (i < 0 || (bits >> i & 1) != 0)
            return false;
        bits |= 1u << i;
    } while (scan_char(s, ','));
    *(unsigned *)dest = bits;
    return scan_char(s, ']');
}

static bool read_cnf(struct scan *s, void *dest)
{
    static const struct scan_member members[] = {{"jkt", read_thumbprint, 0, false}};
    return scan_object(s, members, COUNT(members), dest);
}

/* --- header and claims --------------------------------------------------------------------- */

enum token_verdict token_read_header(const struct token_parts *parts,
                                     char ret_kid[static TOKEN_KID_TEXT])
{
    static const struct scan_member members[] = {
        {"alg", read_alg, 0, false},
        {"typ", read_typ, 0, false},
        {"kid", read_thumbprint, 0, false},
    };
    struct scan s = {parts->header, parts->header + parts->header_len};
    bool ok = scan_object(&s, members, COUNT(members), ret_kid) && scan_end(&s);
    return ok ? TOKEN_OK : TOKEN_BAD_HEADER;
}

struct payload {
    struct token_claims c;
    struct id aud;
};

#define CLAIM(name, reader, member)                                                                \
    {                                                                                              \
        name, reader, offsetof(struct payload, member), false                                      \
    }
#define MAY(name, reader, member)                                                                  \
    {                                                                                              \
        name, reader, offsetof(struct payload, member), true                                       \
    }

enum token_verdict token_read_claims(const struct token_parts *parts, struct token_claims *ret)
{
    static const struct scan_member members[] = {
        CLAIM("iss", read_text, c.iss),      CLAIM("aud", read_aud, aud),
        CLAIM("sub", read_id, c.user_id),    CLAIM("chat", read_id, c.chat_id),
        CLAIM("node", read_text, c.node),    CLAIM("sid", read_id, c.session_id),
        CLAIM("ep", read_int, c.ep),         CLAIM("jti", read_id, c.lease_id),
        CLAIM("scope", read_scope, c.scope), CLAIM("iat", read_int, c.iat),
        CLAIM("nbf", read_int, c.nbf),       CLAIM("exp", read_int, c.exp),
        CLAIM("mex", read_int, c.mex),       CLAIM("rq", read_int, c.rq),
        MAY("use", read_use, c.use),         MAY("mc", read_mc, c.mc),
        MAY("cnf", read_cnf, c.cnf_jkt),
    };
    _Static_assert(COUNT(members) <= SCAN_MEMBERS_MAX, "the set of members seen is 32 bits");
    struct scan s = {parts->payload, parts->payload + parts->payload_len};
    struct payload p = {.c = {.use = USE_MULTI, .mc = 1}};

    if (!scan_object(&s, members, COUNT(members), &p) || !scan_end(&s) ||
        token_claims_fault(&p.c) != NULL)
        return TOKEN_BAD_CLAIMS;
    if (!id_equal(&p.aud, &p.c.session_id))
        return TOKEN_WRONG_AUDIENCE;
    *ret = p.c;
    return TOKEN_OK;
}

enum token_verdict token_parse(const char *token, size_t len, struct token_claims *ret)
{
    struct token_parts parts;
    struct token_claims claims;
    char kid[TOKEN_KID_TEXT];

    enum token_verdict v = token_split(token, len, &parts);
    if (v == TOKEN_OK)
        v = token_read_header(&parts, kid);
    if (v == TOKEN_OK)
        v = token_read_claims(&parts, &claims);
    if (v != TOKEN_OK)
        return v;
    *ret = claims;
    memcpy(ret->kid, kid, sizeof ret->kid);
    return TOKEN_OK;
}
