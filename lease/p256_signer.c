/* ECDSA in its parts is in OpenSSL's older interface alone. */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "p256_signer.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>

#define BATCH 16 /* nonces made together */

struct nonce {
    BIGNUM *inverse, *r;
};

struct p256_signer {
    EC_KEY *key;
    const EC_GROUP *group; /* the key's */
    const BIGNUM *order;
    BN_MONT_CTX *mont; /* of the order */
    pthread_mutex_t lock;
    struct nonce ready[BATCH]; /* guarded by lock */
    size_t ready_n;            /* guarded by lock */
    pid_t pid;                 /* guarded by lock: whose they are */
};

static void nonces_free(struct nonce *nonces, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        BN_clear_free(nonces[i].inverse);
        BN_clear_free(nonces[i].r);
        nonces[i] = (struct nonce){NULL, NULL};
    }
}

/* --- a batch ----------------------------------------------------------------------------------- */

/* All of it is cleared with the context. */
struct batch {
    const struct p256_signer *s;
    BN_CTX *ctx;
    BIGNUM *k[BATCH], *product[BATCH]; /* product[i]: of k[0] … k[i]; both in Montgomery's form */
    EC_POINT *point[BATCH];
    struct nonce *made;
};

static bool points_make(struct batch *b)
{
    for (size_t i = 0; i < BATCH; i++) {
        b->k[i] = BN_CTX_get(b->ctx);
        b->point[i] = EC_POINT_new(b->s->group);
        if (b->k[i] == NULL || b->point[i] == NULL)
            return false;
        BN_set_flags(b->k[i], BN_FLG_CONSTTIME);
        if (BN_priv_rand_range(b->k[i], b->s->order) != 1 || BN_is_zero(b->k[i]) ||
            EC_POINT_mul(b->s->group, b->point[i], b->k[i], NULL, NULL, b->ctx) != 1)
            return false;
    }
    return EC_POINTs_make_affine(b->s->group, BATCH, b->point, b->ctx) == 1;
}

static bool r_make(struct batch *b, size_t i)
{
    BIGNUM *r = b->made[i].r = BN_new();

    return r != NULL &&
           EC_POINT_get_Jprojective_coordinates_GFp(b->s->group, b->point[i], r, NULL, NULL,
                                                    b->ctx) == 1 &&
           BN_nnmod(r, r, b->s->order, b->ctx) == 1 && !BN_is_zero(r);
}

static bool products_make(struct batch *b)
{
    BN_MONT_CTX *mont = b->s->mont;

    for (size_t i = 0; i < BATCH; i++) {
        b->product[i] = BN_CTX_get(b->ctx);
        if (b->product[i] == NULL || BN_to_montgomery(b->k[i], b->k[i], mont, b->ctx) != 1)
            return false;
        if (i == 0 ? BN_copy(b->product[0], b->k[0]) == NULL
                   : BN_mod_mul_montgomery(b->product[i], b->product[i - 1], b->k[i], mont,
                                           b->ctx) != 1)
            return false;
    }
    return true;
}

/* ret: of the product of all, in Montgomery's form. */
static bool product_invert(struct batch *b, BIGNUM *ret)
{
    BIGNUM *all = BN_CTX_get(b->ctx);

    if (all == NULL || BN_from_montgomery(all, b->product[BATCH - 1], b->s->mont, b->ctx) != 1)
        return false;
    BN_set_flags(all, BN_FLG_CONSTTIME);
    return BN_mod_inverse(ret, all, b->s->order, b->ctx) != NULL &&
           BN_to_montgomery(ret, ret, b->s->mont, b->ctx) == 1;
}

/* `left` is the inverse of product[i], and becomes that of product[i - 1]. */
static bool inverse_make(struct batch *b, size_t i, BIGNUM *left)
{
    BIGNUM *inverse = b->made[i].inverse = BN_new();
    BN_MONT_CTX *mont = b->s->mont;

    if (inverse == NULL)
        return false;
    if (i == 0)
        return BN_from_montgomery(inverse, left, mont, b->ctx) == 1;
    return BN_mod_mul_montgomery(inverse, left, b->product[i - 1], mont, b->ctx) == 1 &&
           BN_from_montgomery(inverse, inverse, mont, b->ctx) == 1 &&
           BN_mod_mul_montgomery(left, left, b->k[i], mont, b->ctx) == 1;
}

static bool batch_run(struct batch *b)
{
    BIGNUM *left = BN_CTX_get(b->ctx);
    bool ok = left != NULL && points_make(b) && products_make(b) && product_invert(b, left);

    for (size_t i = BATCH; ok && i > 0; i--)
        ok = r_make(b, i - 1) && inverse_make(b, i - 1, left);
    return ok;
}

static bool batch_make(const struct p256_signer *s, struct nonce made[static BATCH])
{
    struct batch b = {.s = s, .ctx = BN_CTX_secure_new(), .made = made};
    bool ok = b.ctx != NULL;

    if (ok) {
        BN_CTX_start(b.ctx);
        ok = batch_run(&b);
        BN_CTX_end(b.ctx);
    }
    for (size_t i = 0; i < BATCH; i++)
        EC_POINT_clear_free(b.point[i]);
    BN_CTX_free(b.ctx);
    if (!ok)
        nonces_free(made, BATCH);
    return ok;
}

/* --- taking ------------------------------------------------------------------------------------ */

/* A forked child has the memory of its parent, which goes on with what is in there. */
static void forget_others(struct p256_signer *s)
{
    if (s->pid == getpid())
        return;
    nonces_free(s->ready, s->ready_n);
    s->ready_n = 0;
    s->pid = getpid();
}

static bool take_ready(struct p256_signer *s, struct nonce *ret)
{
    bool found;

    pthread_mutex_lock(&s->lock);
    forget_others(s);
    found = s->ready_n > 0;
    if (found)
        *ret = s->ready[--s->ready_n];
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* What there is no room for goes: another thread has made some meanwhile. */
static void keep(struct p256_signer *s, struct nonce *nonces, size_t n)
{
    pthread_mutex_lock(&s->lock);
    forget_others(s);
    while (n > 0 && s->ready_n < BATCH)
        s->ready[s->ready_n++] = nonces[--n];
    pthread_mutex_unlock(&s->lock);
    nonces_free(nonces, n);
}

static bool take(struct p256_signer *s, struct nonce *ret)
{
    struct nonce made[BATCH] = {{NULL, NULL}};

    if (take_ready(s, ret))
        return true;
    if (!batch_make(s, made))
        return false;
    *ret = made[BATCH - 1];
    keep(s, made, BATCH - 1);
    return true;
}

bool p256_signer_sign(struct p256_signer *s, const uint8_t hash[static P256_HASH_BYTES],
                      uint8_t ret_sig[static P256_SIG_BYTES])
{
    struct nonce nonce;
    bool ok;

    if (!take(s, &nonce))
        return false;
    ECDSA_SIG *sig = ECDSA_do_sign_ex(hash, P256_HASH_BYTES, nonce.inverse, nonce.r, s->key);
    nonces_free(&nonce, 1);
    ok = sig != NULL &&
         BN_bn2binpad(ECDSA_SIG_get0_r(sig), ret_sig, P256_COORD_BYTES) == P256_COORD_BYTES &&
         BN_bn2binpad(ECDSA_SIG_get0_s(sig), ret_sig + P256_COORD_BYTES, P256_COORD_BYTES) ==
             P256_COORD_BYTES;
    ECDSA_SIG_free(sig);
    return ok;
}

/* --- life -------------------------------------------------------------------------------------- */

struct p256_signer *p256_signer_new(EVP_PKEY *pkey)
{
    struct p256_signer *s = calloc(1, sizeof *s);
    BN_CTX *ctx = BN_CTX_new();
    bool ok = s != NULL && ctx != NULL;

    if (s != NULL) {
        pthread_mutex_init(&s->lock, NULL);
        s->key = EVP_PKEY_get1_EC_KEY(pkey);
        s->mont = BN_MONT_CTX_new();
        ok = ok && s->key != NULL && s->mont != NULL;
    }
    if (ok) {
        s->group = EC_KEY_get0_group(s->key);
        s->order = EC_GROUP_get0_order(s->group);
        ok = BN_MONT_CTX_set(s->mont, s->order, ctx) == 1;
    }
    BN_CTX_free(ctx);
    if (ok)
        return s;
    p256_signer_free(s);
    return NULL;
}

void p256_signer_free(struct p256_signer *s)
{
    if (s == NULL)
        return;
    nonces_free(s->ready, s->ready_n);
    BN_MONT_CTX_free(s->mont);
    EC_KEY_free(s->key);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
