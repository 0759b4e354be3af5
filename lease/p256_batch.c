/* A point in projective coordinates can be had of OpenSSL only by a function that it calls deprecated: the
 * others make it affine each time, which is the inversion to be saved. */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "p256_batch.h"

#include <stdlib.h>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>

/* Arithmetic modulo a prime. */
struct field_of {
    BIGNUM *prime, *less_2; /* x^(p-2) is the inverse of x */
    BN_MONT_CTX *mont;
};

struct p256_batch {
    BN_CTX *ctx;
    EC_GROUP *group;
    EC_POINT *point;
    struct field_of p, n; /* of coordinates; of scalars: modulo the order */
    BIGNUM *private_key;  /* as OpenSSL's function of nonces wants it … */
    BIGNUM *private_mont; /* … and times R modulo n */
    BIGNUM *nonce[P256_BATCH_MAX], *x[P256_BATCH_MAX], *z[P256_BATCH_MAX];
    BIGNUM *product[P256_BATCH_MAX], *left, *one, *y, *r, *s, *digest;
};

/* --- life ------------------------------------------------------------------------------------- */

static BIGNUM *secret_new(void)
{
    BIGNUM *v = BN_new();
    if (v != NULL)
        BN_set_flags(v, BN_FLG_CONSTTIME);
    return v;
}

static bool field_init(struct field_of *f, const BIGNUM *prime, BN_CTX *ctx)
{
    f->prime = BN_dup(prime);
    f->less_2 = BN_dup(prime);
    f->mont = BN_MONT_CTX_new();
    return f->prime != NULL && f->less_2 != NULL && f->mont != NULL &&
           BN_sub_word(f->less_2, 2) == 1 && BN_MONT_CTX_set(f->mont, f->prime, ctx) == 1;
}

static void field_done(struct field_of *f)
{
    BN_free(f->prime);
    BN_free(f->less_2);
    BN_MONT_CTX_free(f->mont);
}

static bool arrays_init(struct p256_batch *b)
{
    bool ok = true;
    for (size_t i = 0; i < P256_BATCH_MAX; i++) {
        b->nonce[i] = secret_new();
        b->x[i] = secret_new();
        b->z[i] = secret_new();
        b->product[i] = secret_new();
        ok = ok && b->nonce[i] != NULL && b->x[i] != NULL && b->z[i] != NULL &&
             b->product[i] != NULL;
    }
    return ok;
}

static bool scratch_init(struct p256_batch *b)
{
    BIGNUM **const each[] = {&b->left, &b->one, &b->y, &b->r, &b->s, &b->digest};
    bool ok = arrays_init(b);
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        *each[i] = secret_new();
        ok = ok && *each[i] != NULL;
    }
    return ok;
}

static bool key_init(struct p256_batch *b, const EVP_PKEY *pkey)
{
    b->private_mont = secret_new();
    if (b->private_mont == NULL ||
        EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_PRIV_KEY, &b->private_key) != 1)
        return false;
    BN_set_flags(b->private_key, BN_FLG_CONSTTIME);
    return BN_to_montgomery(b->private_mont, b->private_key, b->n.mont, b->ctx) == 1;
}

struct p256_batch *p256_batch_new(const EVP_PKEY *pkey)
{
    struct p256_batch *b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->ctx = BN_CTX_secure_new();
    b->group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
    b->point = b->group != NULL ? EC_POINT_new(b->group) : NULL;
    bool ok = b->ctx != NULL && b->point != NULL && scratch_init(b) &&
              field_init(&b->p, EC_GROUP_get0_field(b->group), b->ctx) &&
              field_init(&b->n, EC_GROUP_get0_order(b->group), b->ctx) && key_init(b, pkey);
    if (!ok) {
        p256_batch_free(b);
        return NULL;
    }
    return b;
}

void p256_batch_free(struct p256_batch *b)
{
    if (b == NULL)
        return;
    for (size_t i = 0; i < P256_BATCH_MAX; i++) {
        BN_clear_free(b->nonce[i]);
        BN_clear_free(b->x[i]);
        BN_clear_free(b->z[i]);
        BN_clear_free(b->product[i]);
    }
    BN_clear_free(b->private_key);
    BN_clear_free(b->private_mont);
    BN_clear_free(b->left);
    BN_clear_free(b->one);
    BN_clear_free(b->y);
    BN_clear_free(b->r);
    BN_clear_free(b->s);
    BN_clear_free(b->digest);
    field_done(&b->p);
    field_done(&b->n);
    EC_POINT_clear_free(b->point);
    EC_GROUP_free(b->group);
    BN_CTX_free(b->ctx);
    free(b);
}

/* --- arithmetic ------------------------------------------------------------------------------- */

static bool times(BIGNUM *ret, const BIGNUM *a, const BIGNUM *c, const struct field_of *f,
                  BN_CTX *ctx)
{
    return BN_mod_mul_montgomery(ret, a, c, f->mont, ctx) == 1;
}

/* b->left becomes the inverse of v; both are in Montgomery form. */
static bool invert_one(struct p256_batch *b, const BIGNUM *v, const struct field_of *f)
{
    return BN_from_montgomery(b->one, v, f->mont, b->ctx) == 1 &&
           BN_mod_exp_mont_consttime(b->left, b->one, f->less_2, f->prime, b->ctx, f->mont) == 1 &&
           BN_to_montgomery(b->left, b->left, f->mont, b->ctx) == 1;
}

/* Each v becomes its inverse; none is 0, and all are in Montgomery form before and behind. */
static bool invert_all(struct p256_batch *b, BIGNUM **v, size_t n, const struct field_of *f)
{
    bool ok = BN_copy(b->product[0], v[0]) != NULL;
    for (size_t i = 1; i < n && ok; i++)
        ok = times(b->product[i], b->product[i - 1], v[i], f, b->ctx);
    ok = ok && invert_one(b, b->product[n - 1], f);
    for (size_t i = n - 1; i > 0 && ok; i--)
        ok = times(b->one, b->left, b->product[i - 1], f, b->ctx) &&
             times(b->left, b->left, v[i], f, b->ctx) && BN_copy(v[i], b->one) != NULL;
    return ok && BN_copy(v[0], b->left) != NULL;
}

/* --- signing ---------------------------------------------------------------------------------- */

/* The nonce of a text and its point, whose x over z² is r; all in Montgomery form. */
static bool begin(struct p256_batch *b, size_t i, const uint8_t digest[static P256_DIGEST])
{
    BIGNUM *k = b->nonce[i];
    return BN_generate_dsa_nonce(k, b->n.prime, b->private_key, digest, P256_DIGEST, b->ctx) == 1 &&
           !BN_is_zero(k) && EC_POINT_mul(b->group, b->point, k, NULL, NULL, b->ctx) == 1 &&
           EC_POINT_get_Jprojective_coordinates_GFp(b->group, b->point, b->x[i], b->y, b->z[i],
                                                    b->ctx) == 1 &&
           BN_to_montgomery(b->x[i], b->x[i], b->p.mont, b->ctx) == 1 &&
           BN_to_montgomery(b->z[i], b->z[i], b->p.mont, b->ctx) == 1 &&
           BN_to_montgomery(k, k, b->n.mont, b->ctx) == 1;
}

/* Modulo the order; v is less than twice that, and no secret. */
static bool reduce(struct p256_batch *b, BIGNUM *v)
{
    return BN_cmp(v, b->n.prime) < 0 || BN_sub(v, v, b->n.prime) == 1;
}

static bool r_of(struct p256_batch *b, size_t i)
{
    return times(b->z[i], b->z[i], b->z[i], &b->p, b->ctx) &&
           times(b->x[i], b->x[i], b->z[i], &b->p, b->ctx) &&
           BN_from_montgomery(b->r, b->x[i], b->p.mont, b->ctx) == 1 && reduce(b, b->r) &&
           !BN_is_zero(b->r);
}

/* (digest + r · key) / nonce */
static bool s_of(struct p256_batch *b, size_t i, const uint8_t digest[static P256_DIGEST])
{
    return BN_bin2bn(digest, P256_DIGEST, b->digest) != NULL && reduce(b, b->digest) &&
           times(b->s, b->r, b->private_mont, &b->n, b->ctx) &&
           BN_mod_add_quick(b->s, b->s, b->digest, b->n.prime) == 1 &&
           times(b->s, b->s, b->nonce[i], &b->n, b->ctx) && !BN_is_zero(b->s);
}

static bool finish(struct p256_batch *b, size_t i, const uint8_t digest[static P256_DIGEST],
                   uint8_t ret_sig[static P256_SIG_BYTES])
{
    return r_of(b, i) && s_of(b, i, digest) &&
           BN_bn2binpad(b->r, ret_sig, P256_COORD_BYTES) == P256_COORD_BYTES &&
           BN_bn2binpad(b->s, ret_sig + P256_COORD_BYTES, P256_COORD_BYTES) == P256_COORD_BYTES;
}

static bool sign(struct p256_batch *b, uint8_t (*digests)[P256_DIGEST],
                 uint8_t (*sigs)[P256_SIG_BYTES], size_t n)
{
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++)
        ok = begin(b, i, digests[i]);
    ok = ok && invert_all(b, b->z, n, &b->p) && invert_all(b, b->nonce, n, &b->n);
    for (size_t i = 0; i < n && ok; i++)
        ok = finish(b, i, digests[i], sigs[i]);
    return ok;
}

/* Of what is left behind, any would tell a nonce, and a nonce tells the key. */
static void forget(struct p256_batch *b)
{
    for (size_t i = 0; i < P256_BATCH_MAX; i++) {
        BN_clear(b->nonce[i]);
        BN_clear(b->x[i]);
        BN_clear(b->z[i]);
        BN_clear(b->product[i]);
    }
    BN_clear(b->left);
    BN_clear(b->one);
    BN_clear(b->y);
    (void)EC_POINT_set_to_infinity(b->group, b->point);
}

bool p256_batch_sign(struct p256_batch *b, uint8_t (*digests)[P256_DIGEST],
                     uint8_t (*sigs)[P256_SIG_BYTES], size_t n)
{
    if (n == 0 || n > P256_BATCH_MAX)
        return false;
    bool ok = sign(b, digests, sigs, n);
    forget(b);
    return ok;
}
