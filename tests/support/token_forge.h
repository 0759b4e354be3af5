/*
 * A signer without scruples: signs any header over any claims with a fixed P-256 key, so that tests
 * and fuzzers reach what lies behind the signature. The key is derived from a constant, hence equal
 * in every run (corpora stay valid), and stands in no file of the repository.
 *
 * Written against OpenSSL alone, not the code under test.
 */
#ifndef TESTS_TOKEN_FORGE_H
#define TESTS_TOKEN_FORGE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/obj_mac.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>

#define FORGE_TOKEN_SIZE 65536

/* Everything here ends the program on failure: a test without its key proves nothing. */
static inline void forge_require(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "token_forge: %s failed\n", what);
        abort();
    }
}

/* A private key from a seed; the caller frees. */
static inline EVP_PKEY *forge_key(const char *seed)
{
    uint8_t scalar[32], point[65];
    unsigned n;
    EVP_PKEY *pkey = NULL;
    EC_GROUP *group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
    EC_POINT *pub = EC_POINT_new(group);
    forge_require(EVP_Digest(seed, strlen(seed), scalar, &n, EVP_sha256(), NULL), "digest");
    scalar[0] &= 0x7f; /* below the order of the group */
    BIGNUM *d = BN_bin2bn(scalar, sizeof scalar, NULL);
    forge_require(EC_POINT_mul(group, pub, d, NULL, NULL, NULL), "EC_POINT_mul");
    forge_require(EC_POINT_point2oct(group, pub, POINT_CONVERSION_UNCOMPRESSED, point, sizeof point,
                                     NULL) == sizeof point,
                  "EC_POINT_point2oct");

    OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    OSSL_PARAM_BLD_push_utf8_string(bld, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0);
    OSSL_PARAM_BLD_push_octet_string(bld, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point);
    OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_PRIV_KEY, d);
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(bld);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    forge_require(EVP_PKEY_fromdata_init(ctx) == 1 &&
                      EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_KEYPAIR, params) == 1,
                  "EVP_PKEY_fromdata");
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(bld);
    BN_free(d);
    EC_POINT_free(pub);
    EC_GROUP_free(group);
    return pkey;
}

/* The PEM of the key, private or public, malloced. */
static inline char *forge_pem(EVP_PKEY *key, int private_half)
{
    char *text;
    BIO *bio = BIO_new(BIO_s_mem());
    forge_require(private_half
                      ? PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1
                      : PEM_write_bio_PUBKEY(bio, key) == 1,
                  "PEM");
    long len = BIO_get_mem_data(bio, &text);
    char *pem = strndup(text, (size_t)len);
    BIO_free(bio);
    return pem;
}

/* Writes the private key to a new file under /tmp; `path` ends in XXXXXX and is filled in. */
static inline void forge_key_file(EVP_PKEY *key, char *path)
{
    char *pem = forge_pem(key, 1);
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    forge_require(f != NULL && fputs(pem, f) >= 0 && fclose(f) == 0, "key file");
    free(pem);
}

static inline size_t forge_base64url(const void *data, size_t len, char *out)
{
    int n = EVP_EncodeBlock((unsigned char *)out, data, (int)len);
    while (n > 0 && out[n - 1] == '=')
        n--;
    out[n] = '\0';
    for (int i = 0; i < n; i++)
        out[i] = out[i] == '+' ? '-' : out[i] == '/' ? '_' : out[i];
    return (size_t)n;
}

/* r‖s over data. */
static inline void forge_sign(EVP_PKEY *key, const void *data, size_t len, uint8_t sig[64])
{
    uint8_t der[80];
    size_t der_len = sizeof der;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    forge_require(EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) == 1 &&
                      EVP_DigestSign(ctx, der, &der_len, data, len) == 1,
                  "EVP_DigestSign");
    EVP_MD_CTX_free(ctx);
    const uint8_t *at = der;
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &at, (long)der_len);
    forge_require(pair != NULL && BN_bn2binpad(ECDSA_SIG_get0_r(pair), sig, 32) == 32 &&
                      BN_bn2binpad(ECDSA_SIG_get0_s(pair), sig + 32, 32) == 32,
                  "signature");
    ECDSA_SIG_free(pair);
}

/* The compact token of header and claims as they are, into FORGE_TOKEN_SIZE bytes. */
static inline size_t forge_token(EVP_PKEY *key, const void *header, size_t header_len,
                                 const void *claims, size_t claims_len, char *out)
{
    uint8_t sig[64];
    size_t n = forge_base64url(header, header_len, out);
    out[n++] = '.';
    n += forge_base64url(claims, claims_len, out + n);
    forge_sign(key, out, n, sig);
    out[n++] = '.';
    return n + forge_base64url(sig, sizeof sig, out + n);
}

/* The same as HMAC-SHA-256 with `secret`: what a verifier fooled by "alg" would accept. */
static inline size_t forge_token_hs256(const char *secret, const char *header, const char *claims,
                                       char *out)
{
    uint8_t mac[32];
    unsigned mac_len;
    size_t n = forge_base64url(header, strlen(header), out);
    out[n++] = '.';
    n += forge_base64url(claims, strlen(claims), out + n);
    forge_require(
        HMAC(EVP_sha256(), secret, (int)strlen(secret), (uint8_t *)out, n, mac, &mac_len) != NULL,
        "HMAC");
    out[n++] = '.';
    return n + forge_base64url(mac, mac_len, out + n);
}

#endif
