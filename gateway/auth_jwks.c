#include "auth_jwks.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/json.h"
#include "leasehold/token.h"

#define FILE_MAX     (256u * 1024)
#define KEYS_MAX     64
#define KID_MAX      256
#define NUMBER_MAX   1024 /* bytes of an RSA modulus or a coordinate */
#define RSA_BITS_MIN 2048

struct jwks_key {
    char *kid; /* "": none */
    char *pem;
    size_t pem_len;
    bool is_rsa;
    int bits; /* of an RSA modulus, or of the curve */
};

struct jwks {
    struct jwks_key keys[KEYS_MAX];
    size_t n;
};

void jwks_free(struct jwks *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->n; i++) {
        free(set->keys[i].kid);
        free(set->keys[i].pem);
    }
    free(set);
}

const char *jwks_find(const struct jwks *set, const char *kid, size_t *ret_len)
{
    for (size_t i = 0; i < set->n; i++) {
        const struct jwks_key *k = &set->keys[i];

        if (kid ? !strcmp(k->kid, kid) : set->n == 1) {
            *ret_len = k->pem_len;
            return k->pem;
        }
    }
    /* One PEM key has no name: it is meant whatever the token says. */
    if (kid && set->n == 1 && !set->keys[0].kid[0]) {
        *ret_len = set->keys[0].pem_len;
        return set->keys[0].pem;
    }
    return NULL;
}

bool jwks_fits(const struct jwks *set, const char *algorithm)
{
    bool rsa = !strncmp(algorithm, "RS", 2);
    int bits = !strcmp(algorithm, "ES256") ? 256 : !strcmp(algorithm, "ES384") ? 384 : 521;

    for (size_t i = 0; i < set->n; i++)
        if (set->keys[i].is_rsa == rsa && (rsa || set->keys[i].bits == bits))
            return true;
    return false;
}

/* --- keys ------------------------------------------------------------------------------------ */

static bool strong(EVP_PKEY *key)
{
    return EVP_PKEY_is_a(key, "EC") ||
           (EVP_PKEY_is_a(key, "RSA") && EVP_PKEY_get_bits(key) >= RSA_BITS_MIN);
}

static int key_add(struct jwks *set, const char *kid, EVP_PKEY *key, struct err *e)
{
    struct jwks_key *k = &set->keys[set->n];
    BIO *bio = BIO_new(BIO_s_mem());
    char *text;
    long len = 0;

    if (bio && PEM_write_bio_PUBKEY(bio, key) == 1 && (len = BIO_get_mem_data(bio, &text)) > 0) {
        k->pem = strndup(text, (size_t)len);
        k->kid = strdup(kid);
    }
    BIO_free(bio);
    if (!k->pem || !k->kid) {
        free(k->pem);
        free(k->kid);
        return err_set(e, ERR_INTERNAL, "no memory for a key of the issuer");
    }
    k->pem_len = (size_t)len;
    k->is_rsa = EVP_PKEY_is_a(key, "RSA");
    k->bits = EVP_PKEY_get_bits(key);
    set->n++;
    return 0;
}

/* The members of a JWK that matter; others are none of our business. */
struct jwk {
    char *kty, *kid, *use, *crv, *n, *e, *x, *y;
};
static const struct field jwk_fields[] = {
    FIELD_STR(struct jwk, kty, .flags = FIELD_REQUIRED, .max = 16),
    FIELD_STR(struct jwk, kid, .max = KID_MAX, .def = ""),
    FIELD_STR(struct jwk, use, .max = 16, .def = "sig"),
    FIELD_STR(struct jwk, crv, .max = 16, .def = ""),
    FIELD_STR(struct jwk, n, .def = ""),
    FIELD_STR(struct jwk, e, .def = ""),
    FIELD_STR(struct jwk, x, .def = ""),
    FIELD_STR(struct jwk, y, .def = ""),
    {0},
};

static BIGNUM *number(const char *text)
{
    uint8_t raw[NUMBER_MAX];
    size_t len;

    if (!*text || base64url_decode(text, strlen(text), raw, sizeof raw, &len))
        return NULL;
    return BN_bin2bn(raw, (int)len, NULL);
}

static EVP_PKEY *key_from(const char *type, OSSL_PARAM_BLD *build)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
    EVP_PKEY *key = NULL;

    if (ctx && params && EVP_PKEY_fromdata_init(ctx) == 1 &&
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
        key = NULL;
    OSSL_PARAM_free(params);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

static EVP_PKEY *rsa_key(const struct jwk *jwk)
{
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    BIGNUM *n = number(jwk->n), *exp = number(jwk->e);
    EVP_PKEY *key = NULL;

    if (build && n && exp && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, exp) == 1)
        key = key_from("RSA", build);
    OSSL_PARAM_BLD_free(build);
    BN_free(n);
    BN_free(exp);
    return key;
}

static const struct curve {
    const char *name;
    size_t size; /* of a coordinate */
} curves[] = {{"P-256", 32}, {"P-384", 48}, {"P-521", 66}};

static const struct curve *curve_find(const char *name)
{
    for (size_t i = 0; i < sizeof curves / sizeof curves[0]; i++)
        if (!strcmp(curves[i].name, name))
            return &curves[i];
    return NULL;
}

static bool coordinate(const char *text, uint8_t *ret, size_t size)
{
    size_t len;

    return !base64url_decode(text, strlen(text), ret, size, &len) && len == size;
}

static EVP_PKEY *ec_key(const struct jwk *jwk)
{
    const struct curve *curve = curve_find(jwk->crv);
    uint8_t point[1 + 2 * 66] = {4}; /* uncompressed */
    OSSL_PARAM_BLD *build;
    EVP_PKEY *key = NULL;

    if (!curve || !coordinate(jwk->x, point + 1, curve->size) ||
        !coordinate(jwk->y, point + 1 + curve->size, curve->size))
        return NULL;
    build = OSSL_PARAM_BLD_new();
    if (build &&
        OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, curve->name, 0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point,
                                         1 + 2 * curve->size) == 1)
        key = key_from("EC", build);
    OSSL_PARAM_BLD_free(build);
    return key;
}

/* --- files ----------------------------------------------------------------------------------- */

static int jwk_add(struct jwks *set, const struct jwk *jwk, struct err *e)
{
    EVP_PKEY *key = NULL;
    int rc = 0;

    if (strcmp(jwk->use, "sig") != 0)
        return 0;
    if (!strcmp(jwk->kty, "RSA"))
        key = rsa_key(jwk);
    else if (!strcmp(jwk->kty, "EC"))
        key = ec_key(jwk);
    if (key && strong(key))
        rc = key_add(set, jwk->kid, key, e);
    EVP_PKEY_free(key);
    return rc;
}

struct jwk_set {
    struct list keys; /* struct jwk */
};

static int set_read(struct jwks *set, const char *text, size_t len, struct err *e)
{
    static const struct field fields[] = {
        FIELD_OBJLIST(struct jwk_set, keys, jwk_fields, struct jwk, .flags = FIELD_REQUIRED,
                      .max = KEYS_MAX),
        {0},
    };
    struct arena *arena = arena_new(4 * FILE_MAX);
    struct jwk_set found = {0};
    int rc;

    if (!arena)
        return err_set(e, ERR_INTERNAL, "no memory for the keys of the issuer");
    rc = json_decode_lenient(text, len, fields, &found, arena, e);
    for (size_t i = 0; !rc && i < found.keys.n; i++)
        rc = jwk_add(set, (const struct jwk *)found.keys.items + i, e);
    arena_free(arena);
    return rc;
}

static int pem_read(struct jwks *set, const char *text, size_t len, struct err *e)
{
    BIO *bio = BIO_new_mem_buf(text, (int)len);
    EVP_PKEY *key = bio ? PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL) : NULL;
    int rc = key && strong(key) ? key_add(set, "", key, e) : 0;

    EVP_PKEY_free(key);
    BIO_free(bio);
    return rc;
}

static int file_read(const char *path, char *ret, size_t size, size_t *ret_len, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n = -1;

    if (fd < 0)
        return err_sys(e, ERR_INTERNAL, errno, "open %s", path);
    while (len < size && (n = read(fd, ret + len, size - len)) > 0)
        len += (size_t)n;
    close(fd);
    if (n < 0)
        return err_sys(e, ERR_INTERNAL, errno, "read %s", path);
    if (len == size)
        return err_set(e, ERR_INTERNAL, "%s is too long", path);
    *ret_len = len;
    return 0;
}

int jwks_load(const char *path, struct jwks **ret, struct err *e)
{
    char *text = calloc(1, FILE_MAX);
    struct jwks *set = calloc(1, sizeof *set);
    size_t len = 0;
    int rc = text && set ? file_read(path, text, FILE_MAX, &len, e)
                         : err_set(e, ERR_INTERNAL, "no memory for the keys of the issuer");

    if (!rc)
        rc = text[strspn(text, " \t\r\n")] == '{' ? set_read(set, text, len, e)
                                                  : pem_read(set, text, len, e);
    if (!rc && !set->n)
        rc = err_set(e, ERR_INTERNAL, "%s holds no RSA or EC public key that is of use", path);
    free(text);
    if (rc) {
        jwks_free(set);
        return -1;
    }
    *ret = set;
    return 0;
}
