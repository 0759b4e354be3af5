#include "p256.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/sha.h>

#include "p256_batch.h"

#define GROUP         "prime256v1"
#define DER_SIG_BYTES 72 /* SEQUENCE of two INTEGERs of at most 33 bytes */

/* What one thread signs with. To make it, or to copy it for each signature, costs a tenth of that. */
struct signer {
    EVP_MD_CTX *hash;
    EVP_PKEY_CTX *sign;
    struct p256_batch *batch; /* NULL: not needed so far */
};

#define SPARE_SIGNERS 8

/* Each is nobody's until a thread takes it out. */
struct signers {
    _Atomic(struct signer *) spare[SPARE_SIGNERS];
};

struct p256_key {
    EVP_PKEY *pkey;
    struct signers *signers; /* NULL: a public key */
    EVP_MD_CTX *verify;
};

static void signer_free(struct signer *s)
{
    if (s == NULL)
        return;
    EVP_MD_CTX_free(s->hash);
    EVP_PKEY_CTX_free(s->sign);
    p256_batch_free(s->batch);
    free(s);
}

/* NULL without memory. */
static struct signer *signer_new(EVP_PKEY *pkey)
{
    struct signer *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->hash = EVP_MD_CTX_new();
    s->sign = EVP_PKEY_CTX_new(pkey, NULL);
    if (s->hash == NULL || s->sign == NULL || EVP_DigestInit_ex(s->hash, EVP_sha256(), NULL) != 1 ||
        EVP_PKEY_sign_init(s->sign) != 1) {
        signer_free(s);
        return NULL;
    }
    return s;
}

/* With one in it. NULL without memory. */
static struct signers *signers_new(EVP_PKEY *pkey)
{
    struct signers *all = calloc(1, sizeof *all);
    struct signer *first = all != NULL ? signer_new(pkey) : NULL;
    if (first == NULL) {
        free(all);
        return NULL;
    }
    atomic_store(&all->spare[0], first);
    return all;
}

static void signers_free(struct signers *all)
{
    if (all == NULL)
        return;
    for (size_t i = 0; i < SPARE_SIGNERS; i++)
        signer_free(atomic_load(&all->spare[i]));
    free(all);
}

static struct signer *signer_take(const struct p256_key *key)
{
    for (size_t i = 0; i < SPARE_SIGNERS; i++) {
        struct signer *s = atomic_exchange(&key->signers->spare[i], NULL);
        if (s != NULL)
            return s;
    }
    return signer_new(key->pkey);
}

static void signer_put(const struct p256_key *key, struct signer *s)
{
    for (size_t i = 0; i < SPARE_SIGNERS; i++) {
        struct signer *none = NULL;
        if (atomic_compare_exchange_strong(&key->signers->spare[i], &none, s))
            return;
    }
    signer_free(s);
}

void p256_key_free(struct p256_key *key)
{
    if (key == NULL)
        return;
    signers_free(key->signers);
    EVP_MD_CTX_free(key->verify);
    EVP_PKEY_free(key->pkey);
    free(key);
}

/* Takes pkey, also when it fails. */
static struct p256_key *key_new(EVP_PKEY *pkey, bool can_sign)
{
    struct p256_key *key = calloc(1, sizeof *key);
    if (key == NULL) {
        EVP_PKEY_free(pkey);
        return NULL;
    }
    key->pkey = pkey;
    key->verify = EVP_MD_CTX_new();
    bool ok = key->verify != NULL &&
              EVP_DigestVerifyInit(key->verify, NULL, EVP_sha256(), NULL, pkey) == 1;
    if (ok && can_sign) {
        key->signers = signers_new(pkey);
        ok = key->signers != NULL;
    }
    if (!ok) {
        p256_key_free(key);
        return NULL;
    }
    return key;
}

size_t p256_generate_pem(char *out, size_t size)
{
    size_t len = 0;

    ERR_set_mark();
    EVP_PKEY *pkey = EVP_EC_gen(GROUP);
    BIO *bio = BIO_new(BIO_s_mem());
    if (pkey != NULL && bio != NULL &&
        PEM_write_bio_PKCS8PrivateKey(bio, pkey, NULL, NULL, 0, NULL, NULL) == 1) {
        char *text;
        long text_len = BIO_get_mem_data(bio, &text);
        if (text_len > 0 && (size_t)text_len <= size) {
            len = (size_t)text_len;
            memcpy(out, text, len);
        }
    }
    BIO_free(bio);
    EVP_PKEY_free(pkey);
    ERR_pop_to_mark();
    return len;
}

/* Without this OpenSSL would ask on the terminal for the passphrase of an encrypted key. */
static int no_passphrase(char *buf, int size, int rwflag, void *user)
{
    (void)buf, (void)size, (void)rwflag, (void)user;
    return -1;
}

static bool is_p256(const EVP_PKEY *pkey)
{
    char group[32];
    return EVP_PKEY_is_a(pkey, "EC") &&
           EVP_PKEY_get_group_name(pkey, group, sizeof group, NULL) == 1 &&
           strcmp(group, GROUP) == 0;
}

static bool is_sound_pair(EVP_PKEY *pkey)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(pkey, NULL);
    bool ok = ctx != NULL && EVP_PKEY_check(ctx) == 1;
    EVP_PKEY_CTX_free(ctx);
    return ok;
}

struct p256_key *p256_key_from_pem(const char *pem, size_t len)
{
    struct p256_key *key = NULL;
    EVP_PKEY *pkey = NULL;

    ERR_set_mark();
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    if (bio != NULL)
        pkey = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    if (pkey != NULL && is_p256(pkey) && is_sound_pair(pkey))
        key = key_new(pkey, true);
    else
        EVP_PKEY_free(pkey);
    BIO_free(bio);
    ERR_pop_to_mark();
    return key;
}

static EVP_PKEY *pkey_from_point(OSSL_PARAM *params)
{
    EVP_PKEY *pkey = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    if (ctx == NULL || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params) != 1)
        pkey = NULL;
    EVP_PKEY_CTX_free(ctx);
    return pkey;
}

static bool is_sound_public(EVP_PKEY *pkey)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(pkey, NULL);
    bool ok = ctx != NULL && EVP_PKEY_public_check(ctx) == 1;
    EVP_PKEY_CTX_free(ctx);
    return ok;
}

struct p256_key *p256_key_from_point(const uint8_t x[static P256_COORD_BYTES],
                                     const uint8_t y[static P256_COORD_BYTES])
{
    struct p256_key *key = NULL;
    uint8_t point[1 + 2 * P256_COORD_BYTES] = {POINT_CONVERSION_UNCOMPRESSED};
    char group[] = GROUP;

    memcpy(point + 1, x, P256_COORD_BYTES);
    memcpy(point + 1 + P256_COORD_BYTES, y, P256_COORD_BYTES);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
        OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point),
        OSSL_PARAM_construct_end(),
    };

    ERR_set_mark();
    EVP_PKEY *pkey = pkey_from_point(params);
    if (pkey != NULL && is_sound_public(pkey))
        key = key_new(pkey, false);
    else
        EVP_PKEY_free(pkey);
    ERR_pop_to_mark();
    return key;
}

static bool coord_text(const EVP_PKEY *pkey, const char *param, char out[static TOKEN_KID_TEXT])
{
    BIGNUM *n = NULL;
    uint8_t bytes[P256_COORD_BYTES];
    bool ok = EVP_PKEY_get_bn_param(pkey, param, &n) == 1 &&
              BN_bn2binpad(n, bytes, sizeof bytes) == (int)sizeof bytes;
    BN_free(n);
    if (ok)
        base64url_encode(bytes, sizeof bytes, out);
    return ok;
}

/* RFC 7638 §3: the required members alone, in lexicographic order, without white space. */
static bool thumbprint(const char *x, const char *y, char out[static TOKEN_KID_TEXT])
{
    char text[160];
    uint8_t hash[EVP_MAX_MD_SIZE];
    unsigned hash_len = 0;
    int n = snprintf(text, sizeof text,
                     "{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"%s\",\"y\":\"%s\"}", x, y);
    if (n < 0 || (size_t)n >= sizeof text ||
        EVP_Digest(text, (size_t)n, hash, &hash_len, EVP_sha256(), NULL) != 1)
        return false;
    base64url_encode(hash, hash_len, out);
    return true;
}

bool p256_key_describe(const struct p256_key *key, struct key_public *ret)
{
    ERR_set_mark();
    bool ok = coord_text(key->pkey, OSSL_PKEY_PARAM_EC_PUB_X, ret->x) &&
              coord_text(key->pkey, OSSL_PKEY_PARAM_EC_PUB_Y, ret->y) &&
              thumbprint(ret->x, ret->y, ret->kid);
    ERR_pop_to_mark();
    return ok;
}

/* Takes what OpenSSL writes: SEQUENCE { INTEGER r, INTEGER s }, each length in one byte. */
static bool take_der(const uint8_t **at, const uint8_t *end, uint8_t tag, size_t *ret_len)
{
    if (end - *at < 2 || (*at)[0] != tag || (*at)[1] > end - *at - 2)
        return false;
    *ret_len = (*at)[1];
    *at += 2;
    return true;
}

static bool take_coord(const uint8_t **at, const uint8_t *end, uint8_t ret[static P256_COORD_BYTES])
{
    size_t len;
    if (!take_der(at, end, V_ASN1_INTEGER, &len))
        return false;
    const uint8_t *digits = *at;
    *at += len;
    while (len > 0 && *digits == 0) {
        digits++;
        len--;
    }
    if (len > P256_COORD_BYTES)
        return false;
    memset(ret, 0, P256_COORD_BYTES - len);
    memcpy(ret + P256_COORD_BYTES - len, digits, len);
    return true;
}

static bool sig_from_der(const uint8_t *der, size_t len, uint8_t sig[static P256_SIG_BYTES])
{
    const uint8_t *end = der + len;
    size_t rest;
    return take_der(&der, end, V_ASN1_SEQUENCE | V_ASN1_CONSTRUCTED, &rest) &&
           take_coord(&der, end, sig) && take_coord(&der, end, sig + P256_COORD_BYTES) &&
           der == end;
}

/* Returns the length, 0 without memory. */
static size_t sig_to_der(const uint8_t sig[static P256_SIG_BYTES],
                         uint8_t der[static DER_SIG_BYTES])
{
    int len = 0;
    ECDSA_SIG *pair = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(sig, P256_COORD_BYTES, NULL);
    BIGNUM *s = BN_bin2bn(sig + P256_COORD_BYTES, P256_COORD_BYTES, NULL);
    if (pair != NULL && r != NULL && s != NULL && ECDSA_SIG_set0(pair, r, s) == 1) {
        r = s = NULL;
        len = i2d_ECDSA_SIG(pair, &der);
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(pair);
    return len > 0 ? (size_t)len : 0;
}

static EVP_MD_CTX *ctx_copy(const EVP_MD_CTX *from)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (ctx != NULL && EVP_MD_CTX_copy_ex(ctx, from) != 1) {
        EVP_MD_CTX_free(ctx);
        ctx = NULL;
    }
    return ctx;
}

/* Without naming the digest again, which would have it looked up again. */
static bool signer_sign(const struct signer *s, const void *data, size_t len,
                        uint8_t ret_sig[static P256_SIG_BYTES])
{
    uint8_t digest[EVP_MAX_MD_SIZE], der[DER_SIG_BYTES];
    unsigned digest_len = 0;
    size_t der_len = sizeof der;
    return EVP_DigestInit_ex(s->hash, NULL, NULL) == 1 &&
           EVP_DigestUpdate(s->hash, data, len) == 1 &&
           EVP_DigestFinal_ex(s->hash, digest, &digest_len) == 1 &&
           EVP_PKEY_sign(s->sign, der, &der_len, digest, digest_len) == 1 &&
           sig_from_der(der, der_len, ret_sig);
}

bool p256_sign(const struct p256_key *key, const void *data, size_t len,
               uint8_t ret_sig[static P256_SIG_BYTES])
{
    if (key->signers == NULL)
        return false;
    ERR_set_mark();
    struct signer *s = signer_take(key);
    bool ok = s != NULL && signer_sign(s, data, len, ret_sig);
    if (ok)
        signer_put(key, s);
    else
        signer_free(s); /* whatever state it is in */
    ERR_pop_to_mark();
    return ok;
}

/* As much as one batch takes. */
static bool signer_sign_batch(struct signer *s, EVP_PKEY *pkey, struct p256_text *texts, size_t n)
{
    uint8_t digests[P256_BATCH_MAX][P256_DIGEST], sigs[P256_BATCH_MAX][P256_SIG_BYTES];
    if (s->batch == NULL)
        s->batch = p256_batch_new(pkey);
    for (size_t i = 0; i < n; i++)
        SHA256(texts[i].data, texts[i].len, digests[i]);
    if (s->batch == NULL || !p256_batch_sign(s->batch, digests, sigs, n))
        return false;
    for (size_t i = 0; i < n; i++)
        memcpy(texts[i].sig, sigs[i], sizeof sigs[i]);
    return true;
}

static bool signer_sign_each(struct signer *s, struct p256_text *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!signer_sign(s, texts[i].data, texts[i].len, texts[i].sig))
            return false;
    return true;
}

static bool signer_sign_all(struct signer *s, EVP_PKEY *pkey, struct p256_text *texts, size_t n)
{
    for (size_t i = 0, taken; i < n; i += taken) {
        taken = n - i < P256_BATCH_MAX ? n - i : P256_BATCH_MAX;
        bool ok = taken < P256_BATCH_MIN ? signer_sign_each(s, texts + i, taken)
                                         : signer_sign_batch(s, pkey, texts + i, taken);
        if (!ok)
            return false;
    }
    return true;
}

bool p256_sign_all(const struct p256_key *key, struct p256_text *texts, size_t n)
{
    if (key->signers == NULL)
        return false;
    ERR_set_mark();
    struct signer *s = signer_take(key);
    bool ok = s != NULL && signer_sign_all(s, key->pkey, texts, n);
    if (ok)
        signer_put(key, s);
    else
        signer_free(s); /* whatever state it is in */
    ERR_pop_to_mark();
    return ok;
}

bool p256_verify(const struct p256_key *key, const void *data, size_t len,
                 const uint8_t sig[static P256_SIG_BYTES])
{
    uint8_t der[DER_SIG_BYTES];

    ERR_set_mark();
    size_t der_len = sig_to_der(sig, der);
    EVP_MD_CTX *ctx = der_len > 0 ? ctx_copy(key->verify) : NULL;
    bool ok = ctx != NULL && EVP_DigestVerify(ctx, der, der_len, data, len) == 1;
    EVP_MD_CTX_free(ctx);
    ERR_pop_to_mark();
    return ok;
}
