#include "auth_state.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/token.h"

#define PREFIX       "lhk_"
#define SECRET_BYTES 32
#define LOAD_CAP     (256u * 1024 * 1024)

#define USED_SAVE_MS 60000 /* the store learns of use at most this often a key */

int auth_new(const struct config *cfg, struct auth **ret, struct err *e)
{
    struct auth *a = calloc(1, sizeof *a);

    if (!a)
        return err_set(e, ERR_INTERNAL, "no memory for the keys");
    a->cfg = cfg;
    a->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (!a->sha256)
        err_set(e, ERR_INTERNAL, "SHA-256 does not work");
    if (!a->sha256 || jwt_trust_new(cfg, &a->trust, e)) {
        EVP_MD_free(a->sha256);
        free(a);
        return -1;
    }
    *ret = a;
    return 0;
}

int auth_renew(struct auth *a, struct err *e)
{
    struct jwt_trust *fresh;

    if (jwt_trust_new(a->cfg, &fresh, e))
        return -1;
    jwt_trust_free(a->trust);
    a->trust = fresh;
    auth_forget_proved(a);
    return 0;
}

static void entry_free(struct entry *en)
{
    free(en->users);
    free(en);
}

void auth_free(struct auth *a)
{
    struct entry *en, *next;

    if (!a)
        return;
    HASH_ITER (hh, a->entries, en, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(a->entries, en);
        entry_free(en);
    }
    auth_forget_proved(a);
    jwt_trust_free(a->trust);
    EVP_MD_free(a->sha256);
    free(a);
}

static struct entry *entry_new(const struct api_key *key)
{
    struct entry *en = calloc(1, sizeof *en);

    if (!en)
        return NULL;
    en->key = *key;
    en->users = calloc(key->allowed_users.n + 1, sizeof *en->users);
    if (!en->users) {
        free(en);
        return NULL;
    }
    if (key->allowed_users.n)
        memcpy(en->users, key->allowed_users.items, key->allowed_users.n * sizeof *en->users);
    en->key.allowed_users.items = en->users;
    return en;
}

struct entry *auth_entry_find(const struct auth *a, const struct id *key_id)
{
    struct entry *en;

    HASH_FIND(hh, a->entries, key_id, sizeof *key_id, en);
    return en;
}

int auth_put(struct auth *a, const struct api_key *key, struct err *e)
{
    struct entry *en = entry_new(key), *old;

    if (!en)
        return err_set(e, ERR_INTERNAL, "no memory for an API key");
    old = auth_entry_find(a, &key->key_id);
    if (old)
        en->used_ms = old->used_ms, en->connections = old->connections;
    en->version = ++a->last_version;
    HASH_REPLACE(hh, a->entries, key.key_id, sizeof key->key_id, en, old);
    if (old)
        entry_free(old);
    return 0;
}

static int load_each(void *ctx, const struct api_key *key, struct err *e)
{
    return auth_put(ctx, key, e);
}

struct load {
    struct auth *auth;
    struct arena *arena;
};

static int load_all(struct store_tx *tx, void *arg, struct err *e)
{
    struct load *l = arg;

    return store_api_key_each(tx, l->arena, load_each, l->auth, e);
}

int auth_load(struct auth *a, struct store *store, struct err *e)
{
    struct load l = {a, arena_new(LOAD_CAP)};
    int rc;

    if (!l.arena)
        return err_set(e, ERR_INTERNAL, "no memory to load the API keys");
    rc = store_read(store, load_all, &l, e);
    arena_free(l.arena);
    return rc;
}

/* --- check ----------------------------------------------------------------------------------- */

/* Of what a caller shows. false: there is no memory for it. */
static bool secret_hash(const struct auth *a, const char *secret,
                        uint8_t ret[static SHA256_DIGEST_LENGTH])
{
    return EVP_Digest(secret, strlen(secret), ret, NULL, a->sha256, NULL) == 1;
}

static struct entry *find(const struct auth *a, const char *credential, const char **ret_secret)
{
    const size_t prefix = sizeof PREFIX - 1, head = prefix + ID_TEXT - 1;
    struct id id;

    if (strlen(credential) <= head + 1 || strncmp(credential, PREFIX, prefix) != 0 ||
        credential[head] != '_' || !id_parse(credential + prefix, ID_TEXT - 1, &id))
        return NULL;
    *ret_secret = credential + head + 1;
    return auth_entry_find(a, &id);
}

int auth_fill(struct entry *en, int64_t now_ms, struct arena *arena, struct caller *ret,
              struct err *e)
{
    const struct api_key *k = &en->key;
    struct id *users = arena_alloc(arena, (k->allowed_users.n + 1) * sizeof *users);

    if (!users)
        return err_set(e, ERR_INTERNAL, "no memory for the caller");
    if (k->allowed_users.n)
        memcpy(users, en->users, k->allowed_users.n * sizeof *users);
    ret->key_id = k->key_id;
    ret->role = k->role;
    ret->limited = k->limited;
    ret->users = users;
    ret->users_n = k->allowed_users.n;
    ret->default_user = k->default_user;
    ret->expires_at = k->expires_at;
    en->used_ms = now_ms;
    return 0;
}

bool auth_entry_usable(const struct entry *en, int64_t now_ms)
{
    const struct api_key *k = &en->key;

    return !k->revoked_at && (!k->expires_at || k->expires_at > now_ms);
}

static int check_key(struct auth *a, const char *credential, int64_t now_ms, struct arena *arena,
                     struct caller *ret, struct err *e)
{
    const char *secret = "";
    struct entry *en = find(a, credential, &secret);
    uint8_t hash[SHA256_DIGEST_LENGTH];

    if (!secret_hash(a, secret, hash) || !en ||
        CRYPTO_memcmp(hash, en->key.secret_hash, sizeof hash) || !auth_entry_usable(en, now_ms))
        return err_set(e, ERR_UNAUTHENTICATED, "the API key is missing or not valid");
    return auth_fill(en, now_ms, arena, ret, e);
}

int auth_check(struct auth *a, const struct auth_proof *p, int64_t now_ms, struct arena *arena,
               struct caller *ret, struct err *e)
{
    if (*p->credential && a->trust && jwt_is_shaped(p->credential))
        return auth_check_jwt(a, p->credential, now_ms, arena, ret, e);
    if (!*p->credential && *p->certificate)
        return auth_check_certificate(a, p->certificate, now_ms, arena, ret, e);
    return check_key(a, p->credential, now_ms, arena, ret, e);
}

static struct entry *find_usable(const struct auth *a, const struct id *key_id, int64_t now_ms)
{
    struct entry *en = auth_entry_find(a, key_id);

    return en && auth_entry_usable(en, now_ms) ? en : NULL;
}

bool auth_usable(const struct auth *a, const struct id *key_id, int64_t now_ms)
{
    return find_usable(a, key_id, now_ms) != NULL;
}

bool auth_sees(const struct auth *a, const struct id *key_id, int64_t now_ms,
               const struct id *user_id)
{
    const struct entry *en = find_usable(a, key_id, now_ms);

    if (!en || en->key.role < ROLE_VIEWER)
        return false;
    const struct caller c = {
        .limited = en->key.limited, .users = en->users, .users_n = en->key.allowed_users.n};
    return caller_may_see(&c, user_id);
}

int auth_caller(struct auth *a, const struct id *key_id, int64_t now_ms, struct arena *arena,
                struct caller *ret, struct err *e)
{
    struct entry *en = find_usable(a, key_id, now_ms);

    if (!en)
        return err_set(e, ERR_UNAUTHENTICATED, "the API key is not valid any more");
    return auth_fill(en, now_ms, arena, ret, e);
}

int auth_connect(struct auth *a, const struct id *key_id, size_t most, struct err *e)
{
    struct entry *en = auth_entry_find(a, key_id);

    if (!en || en->connections >= most)
        return err_set(e, ERR_BUSY, "the key has %zu connections, as it may", most);
    en->connections++;
    return 0;
}

void auth_disconnect(struct auth *a, const struct id *key_id)
{
    struct entry *en = auth_entry_find(a, key_id);

    if (en)
        en->connections--;
}

bool auth_recorded(const struct auth *a, const struct id *key_id)
{
    const struct entry *en = auth_entry_find(a, key_id);

    return !en || !en->unrecorded;
}

int auth_copy(const struct auth *a, const struct id *key_id, struct arena *arena,
              struct api_key *ret, struct err *e)
{
    const struct entry *en = auth_entry_find(a, key_id);
    size_t n = en ? en->key.allowed_users.n : 0;
    struct id *users = arena_alloc(arena, (n + 1) * sizeof *users);

    if (!en || !users)
        return err_set(e, ERR_INTERNAL, "no memory for the caller");
    if (n)
        memcpy(users, en->users, n * sizeof *users);
    *ret = en->key;
    ret->allowed_users = (struct list){.items = users, .n = n};
    return 0;
}

/* --- use ------------------------------------------------------------------------------------- */

int64_t auth_used_ms(const struct auth *a, const struct id *key_id)
{
    const struct entry *en = auth_entry_find(a, key_id);

    return en ? en->used_ms : 0;
}

size_t auth_take_used(struct auth *a, struct auth_use *ret, size_t max)
{
    struct entry *en, *next;
    size_t n = 0;

    HASH_ITER (hh, a->entries, en, next) {
        if (n == max)
            break;
        if (en->unrecorded || en->used_ms - en->key.last_used_at < USED_SAVE_MS)
            continue;
        en->key.last_used_at = en->used_ms;
        ret[n++] = (struct auth_use){.key_id = en->key.key_id, .at_ms = en->used_ms};
    }
    return n;
}

int auth_key_generate(struct api_key *key, char text[static API_KEY_TEXT], struct err *e)
{
    uint8_t raw[SECRET_BYTES];
    char secret[SECRET_BYTES * 2];

    if (RAND_bytes(raw, sizeof raw) != 1)
        return err_set(e, ERR_INTERNAL, "no random bytes");
    base64url_encode(raw, sizeof raw, secret);
    id_random(&key->key_id);
    SHA256((const uint8_t *)secret, strlen(secret), key->secret_hash);
    snprintf(text, API_KEY_TEXT, PREFIX "%s_%s", ID_STR(&key->key_id), secret);
    OPENSSL_cleanse(raw, sizeof raw);
    OPENSSL_cleanse(secret, sizeof secret);
    return 0;
}
