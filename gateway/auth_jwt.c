#include "auth_jwt.h"

#include <jwt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "auth_jwks.h"
#include "leasehold/json.h"
#include "leasehold/token.h"

#define TOKEN_TEXT_MAX 8192
#define SUB_MAX        120 /* it stands in the identity's name */
#define USERS_MAX      1000
#define ROLES_MAX      256

struct jwt_trust {
    const struct config_jwt *cfg;
    struct jwks *keys;
    jwt_alg_t alg;
};

static int keys_load(struct jwt_trust *t, struct err *e)
{
    const char *algorithm = jwt_algorithm_names[t->cfg->algorithm];
    struct err why;

    if (jwks_load(t->cfg->key_file, &t->keys, &why))
        return err_set(e, why.code, "security.jwt.key_file: %s", why.msg);
    return jwks_fits(t->keys, algorithm)
               ? 0
               : err_set(e, ERR_INTERNAL,
                         "security.jwt.key_file: no key of security.jwt.algorithm, %s", algorithm);
}

int jwt_trust_new(const struct config *cfg, struct jwt_trust **ret, struct err *e)
{
    const struct config_jwt *jwt = &cfg->security.jwt;
    struct jwt_trust *t;

    *ret = NULL;
    if (!*jwt->issuer)
        return 0;
    t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_INTERNAL, "no memory for the issuer");
    t->cfg = jwt;
    t->alg = jwt_str_alg(jwt_algorithm_names[jwt->algorithm]);
    if (keys_load(t, e)) {
        jwt_trust_free(t);
        return -1;
    }
    *ret = t;
    return 0;
}

void jwt_trust_free(struct jwt_trust *t)
{
    if (!t)
        return;
    jwks_free(t->keys);
    free(t);
}

static int refuse(struct err *e, const char *why)
{
    return err_set(e, ERR_UNAUTHENTICATED, "the token is not valid: %s", why);
}

/* --- form ------------------------------------------------------------------------------------ */

struct parts {
    const char *header, *payload, *signature;
    size_t header_len, payload_len, signature_len;
};

static bool parts_of(const char *token, struct parts *ret)
{
    const char *first = strchr(token, '.'), *second = first ? strchr(first + 1, '.') : NULL;

    if (!second || strchr(second + 1, '.') || strlen(token) > TOKEN_TEXT_MAX)
        return false;
    *ret = (struct parts){.header = token,
                          .header_len = (size_t)(first - token),
                          .payload = first + 1,
                          .payload_len = (size_t)(second - first - 1),
                          .signature = second + 1,
                          .signature_len = strlen(second + 1)};
    return ret->header_len && ret->payload_len && ret->signature_len;
}

bool jwt_is_shaped(const char *credential)
{
    struct parts parts;

    return parts_of(credential, &parts);
}

static char *decode(const char *text, size_t len, struct arena *arena, size_t *ret_len)
{
    char *out = arena_alloc(arena, len + 1);

    return out && !base64url_decode(text, len, (uint8_t *)out, len, ret_len) ? out : NULL;
}

struct header {
    char *alg, *typ, *kid;
};

/* Strict: `crit`, `jwk`, `jku`, `x5u`, `b64` and whatever else there may be mean that somebody else
 * is to read this otherwise than we do. */
static int header_check(const struct jwt_trust *t, const struct parts *p, struct arena *arena,
                        struct header *ret, struct err *e)
{
    static const struct field fields[] = {
        FIELD_STR(struct header, alg, .flags = FIELD_REQUIRED, .max = 16),
        FIELD_STR(struct header, typ, .max = 32),
        FIELD_STR(struct header, kid, .max = 256),
        {0},
    };
    size_t len;
    const char *text = decode(p->header, p->header_len, arena, &len);

    if (!text || json_decode(text, len, fields, ret, arena, e))
        return refuse(e, "header");
    if (strcmp(ret->alg, jwt_algorithm_names[t->cfg->algorithm]) != 0)
        return refuse(e, "alg");
    if (ret->typ && strcasecmp(ret->typ, "JWT") != 0)
        return refuse(e, "typ");
    return 0;
}

/* --- claims ---------------------------------------------------------------------------------- */

struct claims {
    char *iss, *sub;
    int64_t exp, nbf, iat;
};
static const struct field claims_fields[] = {
    FIELD_STR(struct claims, iss, .flags = FIELD_REQUIRED, .max = 1024),
    FIELD_STR(struct claims, sub, .flags = FIELD_REQUIRED, .min = 1, .max = SUB_MAX),
    FIELD_INT(struct claims, exp, .flags = FIELD_REQUIRED),
    FIELD_INT(struct claims, nbf),
    FIELD_INT(struct claims, iat),
    {0},
};

static int times_check(const struct config_jwt *cfg, const struct claims *c, int64_t now_ms,
                       struct err *e)
{
    int64_t now = now_ms / 1000, leeway = cfg->leeway_seconds;

    if (c->exp + leeway <= now)
        return refuse(e, "exp");
    if (c->nbf > now + leeway)
        return refuse(e, "nbf");
    if (c->iat > now + leeway)
        return refuse(e, "iat");
    return 0;
}

struct texts {
    struct list v; /* char * */
};

/* A claim that is one string or a list of them. *ret_there tells whether it is there at all. */
static int texts_read(jwt_t *jwt, const char *name, struct arena *arena, struct list *ret,
                      bool *ret_there, struct err *e)
{
    static const struct field fields[] = {FIELD_STRLIST(struct texts, v, .max = USERS_MAX), {0}};
    char *json = jwt_get_grants_json(jwt, name);
    struct texts found = {0};
    struct buf b;
    int rc;

    *ret_there = json != NULL;
    *ret = found.v;
    if (!json)
        return 0;
    buf_init(&b, TOKEN_TEXT_MAX + 16);
    buf_printf(&b, *json == '[' ? "{\"v\":%s}" : "{\"v\":[%s]}", json);
    free(json);
    rc = buf_ok(&b) ? json_decode(b.data, b.len, fields, &found, arena, e) : -1;
    buf_done(&b);
    *ret = found.v;
    return rc ? refuse(e, name) : 0;
}

static int audience_check(const struct jwt_trust *t, jwt_t *jwt, struct arena *arena, struct err *e)
{
    struct list texts;
    bool there;

    if (texts_read(jwt, "aud", arena, &texts, &there, e))
        return -1;
    for (size_t i = 0; i < texts.n; i++)
        if (!strcmp(((char **)texts.items)[i], t->cfg->audience))
            return 0;
    return refuse(e, "aud");
}

/* The greatest of the roles that it names and that are ours. */
static int role_read(const struct jwt_trust *t, jwt_t *jwt, struct arena *arena,
                     struct jwt_caller *ret, struct err *e)
{
    struct list texts;
    bool there;

    if (texts_read(jwt, t->cfg->role_claim, arena, &texts, &there, e))
        return -1;
    ret->role = ROLE_NONE;
    for (size_t i = 0; i < texts.n; i++)
        for (enum role role = ROLE_VIEWER; role <= ROLE_ADMIN; role++)
            if (!strcmp(((char **)texts.items)[i], role_names[role]) && role > ret->role)
                ret->role = role;
    return ret->role ? 0 : refuse(e, "role");
}

/* Without the claim only an admin sees everybody. */
static int users_read(const struct jwt_trust *t, jwt_t *jwt, struct arena *arena,
                      struct jwt_caller *ret, struct err *e)
{
    struct list texts;
    struct id *users;
    bool there;

    if (!*t->cfg->users_claim)
        return 0;
    if (texts_read(jwt, t->cfg->users_claim, arena, &texts, &there, e))
        return -1;
    if (!there)
        return ret->role == ROLE_ADMIN ? 0 : refuse(e, t->cfg->users_claim);
    users = arena_alloc(arena, (texts.n + 1) * sizeof *users);
    if (!users)
        return err_set(e, ERR_INTERNAL, "no memory for the caller");
    for (size_t i = 0; i < texts.n; i++) {
        const char *text = ((char **)texts.items)[i];

        if (!id_parse(text, strlen(text), &users[i]))
            return refuse(e, t->cfg->users_claim);
    }
    ret->limited = true;
    ret->users = (struct list){.items = users, .n = texts.n};
    return 0;
}

static int claims_check(const struct jwt_trust *t, const struct parts *p, jwt_t *jwt,
                        int64_t now_ms, struct arena *arena, struct jwt_caller *ret, struct err *e)
{
    struct claims c = {0};
    size_t len;
    const char *text = decode(p->payload, p->payload_len, arena, &len);

    if (!text || json_decode_lenient(text, len, claims_fields, &c, arena, e))
        return refuse(e, "claims");
    if (strcmp(c.iss, t->cfg->issuer) != 0)
        return refuse(e, "iss");
    if (times_check(t->cfg, &c, now_ms, e) || audience_check(t, jwt, arena, e))
        return -1;
    *ret = (struct jwt_caller){.sub = c.sub, .issued_at = c.iat * 1000, .expires_at = c.exp * 1000};
    return role_read(t, jwt, arena, ret, e) || users_read(t, jwt, arena, ret, e) ? -1 : 0;
}

int jwt_trust_check(const struct jwt_trust *t, const char *token, int64_t now_ms,
                    struct arena *arena, struct jwt_caller *ret, struct err *e)
{
    struct header h = {0};
    struct parts parts;
    const char *pem;
    size_t pem_len = 0;
    jwt_t *jwt = NULL;
    int rc;

    if (!parts_of(token, &parts))
        return refuse(e, "form");
    if (header_check(t, &parts, arena, &h, e))
        return -1;
    /* libjwt's base64 takes more spellings than one. */
    if (!decode(parts.signature, parts.signature_len, arena, &pem_len))
        return refuse(e, "signature");
    pem = jwks_find(t->keys, h.kid, &pem_len);
    if (!pem)
        return refuse(e, "kid");
    if (jwt_decode(&jwt, token, (const unsigned char *)pem, (int)pem_len) ||
        jwt_get_alg(jwt) != t->alg)
        rc = refuse(e, "signature");
    else
        rc = claims_check(t, &parts, jwt, now_ms, arena, ret, e);
    jwt_free(jwt);
    return rc;
}
