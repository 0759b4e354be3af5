/*
 * Identities that others vouch for: an issuer's JWT, a client certificate. Each has a row like a
 * key's, under an id made of who it is, so that whatever goes by the key (leases, lists, revocation,
 * the trail) goes by it, too. What it may is what its newest proof says.
 */
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth_state.h"

#define PROVED_MAX 4096 /* tokens; then all are forgotten */

struct identity {
    const char *kind, *issuer, *name;
    enum role role;
    bool limited;
    struct list users;
    int64_t as_of; /* ms, by its issuer's clock; 0: always */
};

/* The first bytes of a hash, as a UUID of version 8. */
static void identity_key_id(const struct identity *i, struct id *ret)
{
    uint8_t hash[SHA256_DIGEST_LENGTH];
    char text[2048];
    int len = snprintf(text, sizeof text, "%s\n%s\n%s", i->kind, i->issuer, i->name);

    SHA256((const uint8_t *)text, (size_t)len < sizeof text ? (size_t)len : sizeof text - 1, hash);
    memcpy(ret->b, hash, sizeof ret->b);
    ret->b[6] = (uint8_t)((ret->b[6] & 0x0f) | 0x80);
    ret->b[8] = (uint8_t)((ret->b[8] & 0x3f) | 0x80);
}

static bool same_rights(const struct entry *en, const struct identity *i)
{
    const struct api_key *k = &en->key;

    return k->role == i->role && k->limited == i->limited && k->allowed_users.n == i->users.n &&
           (!i->users.n || !memcmp(en->users, i->users.items, i->users.n * sizeof *en->users));
}

static int entry_put(struct auth *a, const struct identity *i, const struct id *key_id,
                     const struct entry *before, int64_t now_ms, struct err *e)
{
    struct api_key k = {.key_id = *key_id,
                        .role = i->role,
                        .limited = i->limited,
                        .allowed_users = i->users,
                        .created_at = before ? before->key.created_at : now_ms,
                        .as_of = i->as_of};

    snprintf(k.name, sizeof k.name, "%s:%s", i->kind, i->name);
    if (i->users.n == 1)
        k.default_user = *(const struct id *)i->users.items;
    /* No secret has this hash: it is no key that could be sent. */
    if (RAND_bytes(k.secret_hash, sizeof k.secret_hash) != 1)
        return err_set(e, ERR_INTERNAL, "no random bytes");
    if (auth_put(a, &k, e))
        return -1;
    auth_entry_find(a, key_id)->unrecorded = true;
    return 0;
}

static int refuse(struct err *e, const char *why)
{
    return err_set(e, ERR_UNAUTHENTICATED, "%s", why);
}

/* The entry of an identity that was just proved, with the rights of this proof. One that is older
 * than the newest gives back nothing that was taken away since. */
static int identity_entry(struct auth *a, const struct identity *i, int64_t now_ms,
                          struct entry **ret, struct err *e)
{
    struct id key_id;
    struct entry *en;

    identity_key_id(i, &key_id);
    en = auth_entry_find(a, &key_id);
    if (en && !auth_entry_usable(en, now_ms))
        return refuse(e, "the identity was revoked here");
    if (!en || !same_rights(en, i)) {
        if (en && i->as_of < en->key.as_of)
            return refuse(e, "a newer token of this identity has other rights");
        if (entry_put(a, i, &key_id, en, now_ms, e))
            return -1;
        en = auth_entry_find(a, &key_id);
    } else if (en->key.as_of < i->as_of) {
        en->key.as_of = i->as_of;
    }
    *ret = en;
    return 0;
}

static void bound(struct caller *c, int64_t expires_at)
{
    if (!c->expires_at || (expires_at && expires_at < c->expires_at))
        c->expires_at = expires_at;
}

/* --- tokens ---------------------------------------------------------------------------------- */

/* A token that was checked; good as long as its identity is what it was then. */
struct proved {
    uint8_t hash[SHA256_DIGEST_LENGTH]; /* of its text */
    struct id key_id;
    uint64_t version;
    int64_t expires_at;
    UT_hash_handle hh;
};

void auth_forget_proved(struct auth *a)
{
    struct proved *p, *next;

    HASH_ITER (hh, a->proved, p, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(a->proved, p);
        free(p);
    }
}

static struct entry *proved_find(const struct auth *a, const uint8_t hash[static 32],
                                 int64_t now_ms, int64_t *ret_expires_at)
{
    struct proved *p;
    struct entry *en;

    HASH_FIND(hh, a->proved, hash, SHA256_DIGEST_LENGTH, p);
    if (!p || p->expires_at <= now_ms)
        return NULL;
    en = auth_entry_find(a, &p->key_id);
    *ret_expires_at = p->expires_at;
    return en && en->version == p->version && auth_entry_usable(en, now_ms) ? en : NULL;
}

/* Without memory the token is checked again next time. */
static void proved_put(struct auth *a, const uint8_t hash[static 32], const struct entry *en,
                       int64_t expires_at)
{
    struct proved *p = calloc(1, sizeof *p), *old;

    if (!p)
        return;
    if (HASH_COUNT(a->proved) >= PROVED_MAX)
        auth_forget_proved(a);
    memcpy(p->hash, hash, sizeof p->hash);
    p->key_id = en->key.key_id;
    p->version = en->version;
    p->expires_at = expires_at;
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): when all were forgotten there is no head */
    HASH_REPLACE(hh, a->proved, hash, sizeof p->hash, p, old);
    free(old);
}

int auth_check_jwt(struct auth *a, const char *token, int64_t now_ms, struct arena *arena,
                   struct caller *ret, struct err *e)
{
    uint8_t hash[SHA256_DIGEST_LENGTH];
    struct jwt_caller j;
    int64_t expires_at = 0;
    struct entry *en;

    SHA256((const uint8_t *)token, strlen(token), hash);
    en = proved_find(a, hash, now_ms, &expires_at);
    if (!en) {
        if (jwt_trust_check(a->trust, token, now_ms, arena, &j, e))
            return -1;
        const struct identity i = {.kind = "jwt",
                                   .issuer = a->cfg->security.jwt.issuer,
                                   .name = j.sub,
                                   .role = j.role,
                                   .limited = j.limited,
                                   .users = j.users,
                                   .as_of = j.issued_at};
        if (identity_entry(a, &i, now_ms, &en, e))
            return -1;
        expires_at = j.expires_at;
        proved_put(a, hash, en, expires_at);
    }
    if (auth_fill(en, now_ms, arena, ret, e))
        return -1;
    bound(ret, expires_at);
    return 0;
}

/* --- certificates ---------------------------------------------------------------------------- */

static bool has_name(const char *names, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = names; *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (!strncmp(at, name, len) && (at[len] == '\n' || !at[len]))
            return true;
    return false;
}

int auth_check_certificate(struct auth *a, const char *names, int64_t now_ms, struct arena *arena,
                           struct caller *ret, struct err *e)
{
    const struct list *known = &a->cfg->security.client_certificates;

    for (size_t n = 0; n < known->n; n++) {
        const struct config_certificate *c = (const struct config_certificate *)known->items + n;
        const struct identity i = {.kind = "certificate",
                                   .issuer = "",
                                   .name = c->name,
                                   .role = (enum role)(c->role + ROLE_VIEWER),
                                   .limited = c->has_allowed_users,
                                   .users = c->allowed_users};
        struct entry *en;

        if (has_name(names, c->name))
            return identity_entry(a, &i, now_ms, &en, e) || auth_fill(en, now_ms, arena, ret, e)
                       ? -1
                       : 0;
    }
    return refuse(e, "no credential, and no rights for this certificate");
}
