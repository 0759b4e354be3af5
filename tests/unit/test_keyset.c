#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../support/token_forge.h"
#include "leasehold/token.h"

struct fixture {
    char dir[64];
    char path[96];
    struct keyset *ks;
    struct err e;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->dir, "/tmp/test_keyset.XXXXXX");
    if (mkdtemp(f->dir) == NULL)
        return -1;
    snprintf(f->path, sizeof f->path, "%s/lease.pem", f->dir);
    f->ks = keyset_new();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    keyset_free(f->ks);
    unlink(f->path);
    int rc = rmdir(f->dir); /* fails if a temporary file was left behind */
    free(f);
    return rc;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void read_text(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    out[fread(out, 1, size - 1, file)] = '\0';
    fclose(file);
}

static void test_generated_file_is_private_pkcs8_and_loads(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    char text[1024];

    mode_t before = umask(0);
    assert_int_equal(keyset_generate_file(f->path, &f->e), 0);
    umask(before);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    read_text(f->path, text, sizeof text);
    assert_ptr_equal(strstr(text, "-----BEGIN PRIVATE KEY-----"), text);

    assert_int_equal(keyset_add_signing_file(f->ks, f->path, &f->e), 0);
    assert_int_equal(keyset_count(f->ks), 1);
    assert_int_equal(strlen(keyset_signing_kid(f->ks)), TOKEN_KID_TEXT - 1);
}

static void test_generate_never_overwrites(void **state)
{
    struct fixture *f = *state;
    char text[64];

    write_text(f->path, "precious");
    assert_int_equal(keyset_generate_file(f->path, &f->e), -1);
    assert_int_equal(f->e.code, ERR_CONFLICT);
    assert_non_null(strstr(f->e.msg, f->path));
    read_text(f->path, text, sizeof text);
    assert_string_equal(text, "precious");
}

static void test_generate_does_not_follow_a_dangling_link(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(symlink("nowhere", f->path), 0);
    assert_int_equal(keyset_generate_file(f->path, &f->e), -1);
    assert_int_equal(f->e.code, ERR_CONFLICT);
}

static void test_two_generated_keys_differ(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(keyset_generate_file(f->path, &f->e), 0);
        assert_int_equal(keyset_add_signing_file(f->ks, f->path, &f->e), 0);
        assert_int_equal(unlink(f->path), 0);
    }
    assert_int_equal(keyset_count(f->ks), 2);
}

static void refuse_file(struct fixture *f, const char *text)
{
    write_text(f->path, text);
    memset(&f->e, 0, sizeof f->e);
    assert_int_equal(keyset_add_signing_file(f->ks, f->path, &f->e), -1);
    assert_non_null(strstr(f->e.msg, f->path));
    assert_null(strstr(f->e.msg, "BEGIN"));
    assert_int_equal(keyset_count(f->ks), 0);
    assert_null(keyset_signing_kid(f->ks));
}

static char *pem_of(EVP_PKEY *key, const EVP_CIPHER *cipher)
{
    char *text;
    BIO *bio = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_PKCS8PrivateKey(bio, key, cipher,
                                                   cipher != NULL ? "secret" : NULL,
                                                   cipher != NULL ? 6 : 0, NULL, NULL),
                     1);
    long len = BIO_get_mem_data(bio, &text);
    char *pem = strndup(text, (size_t)len);
    BIO_free(bio);
    return pem;
}

static void refuse_key(struct fixture *f, EVP_PKEY *key, const EVP_CIPHER *cipher)
{
    char *pem = pem_of(key, cipher);
    refuse_file(f, pem);
    free(pem);
    EVP_PKEY_free(key);
}

static void test_refuses_files_that_are_not_a_p256_private_key(void **state)
{
    struct fixture *f = *state;
    EVP_PKEY *key = forge_key("k");
    char *public_pem = forge_pem(key, 0);

    refuse_file(f, "");
    refuse_file(f, "no key at all\n");
    refuse_file(f, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    refuse_file(f, public_pem);
    refuse_key(f, EVP_EC_gen("P-384"), NULL);
    refuse_key(f, EVP_EC_gen("secp256k1"), NULL);
    refuse_key(f, EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), NULL);
    free(public_pem);
    EVP_PKEY_free(key);
}

static void test_refuses_an_encrypted_key_without_asking_for_its_passphrase(void **state)
{
    refuse_key(*state, EVP_EC_gen("P-256"), EVP_aes_128_cbc());
}

static void test_refuses_missing_big_and_special_files(void **state)
{
    struct fixture *f = *state;
    char big[10001];

    assert_int_equal(keyset_add_signing_file(f->ks, f->path, &f->e), -1);
    assert_non_null(strstr(f->e.msg, f->path));
    assert_int_equal(keyset_add_signing_file(f->ks, f->dir, &f->e), -1);
    memset(big, '\n', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    refuse_file(f, big);
    unlink(f->path);
    assert_int_equal(mkfifo(f->path, 0600), 0);
    assert_int_equal(keyset_add_signing_file(f->ks, f->path, &f->e), -1);
}

/* RFC 7515 §A.3.1; its thumbprint computed from RFC 7638 with openssl dgst. */
static const struct key_public rfc_key = {
    .kid = "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U",
    .x = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    .y = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
};

static void test_kid_is_the_rfc_7638_thumbprint(void **state)
{
    struct fixture *f = *state;
    struct key_public got;
    char text[256], kid[64];
    uint8_t hash[32];
    unsigned n;

    snprintf(text, sizeof text, "{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"%s\",\"y\":\"%s\"}",
             rfc_key.x, rfc_key.y);
    EVP_Digest(text, strlen(text), hash, &n, EVP_sha256(), NULL);
    forge_base64url(hash, n, kid);
    assert_string_equal(kid, rfc_key.kid);
    assert_int_equal(keyset_add_public(f->ks, &rfc_key, &f->e), 0);
    keyset_get(f->ks, 0, &got);
    assert_string_equal(got.kid, rfc_key.kid);
    assert_string_equal(got.x, rfc_key.x);
    assert_string_equal(got.y, rfc_key.y);
    assert_int_equal(got.retired_at, 0);
}

static void refuse_public(struct fixture *f, struct key_public key)
{
    assert_int_equal(keyset_add_public(f->ks, &key, &f->e), -1);
    assert_int_equal(f->e.code, ERR_INVALID_REQUEST);
    assert_int_equal(keyset_count(f->ks), 0);
}

static void test_refuses_public_keys_that_are_not_what_they_say(void **state)
{
    struct fixture *f = *state;
    struct key_public key = rfc_key;

    key.kid[0] = 'p';
    refuse_public(f, key);
    memset(key.kid, 0, sizeof key.kid);
    refuse_public(f, key);
    key = rfc_key;
    key.x[0] = 'e'; /* off the curve */
    refuse_public(f, key);
    key = rfc_key;
    key.x[42] = 'V'; /* not canonical */
    refuse_public(f, key);
    key = rfc_key;
    key.y[42] = '\0'; /* short */
    refuse_public(f, key);
    key = rfc_key;
    memset(key.x, 'A', sizeof key.x); /* not terminated */
    refuse_public(f, key);
    key = rfc_key;
    memset(key.x, 'A', 43); /* (0, 0): how some encode infinity */
    memset(key.y, 'A', 43);
    refuse_public(f, key);
    memset(key.x, '_', 42); /* x >= p */
    key.x[42] = '8';
    refuse_public(f, key);
}

static void test_a_key_is_held_once_and_keeps_its_private_half(void **state)
{
    struct fixture *f = *state;
    struct key_public pub;

    assert_int_equal(keyset_generate_file(f->path, &f->e), 0);
    assert_int_equal(keyset_add_signing_file(f->ks, f->path, &f->e), 0);
    keyset_get(f->ks, 0, &pub);
    assert_int_equal(keyset_add_public(f->ks, &pub, &f->e), 0);
    assert_int_equal(keyset_count(f->ks), 1);
    assert_string_equal(keyset_signing_kid(f->ks), pub.kid);

    struct keyset *other = keyset_new();
    assert_int_equal(keyset_add_public(other, &pub, &f->e), 0);
    assert_null(keyset_signing_kid(other));
    assert_int_equal(keyset_add_signing_file(other, f->path, &f->e), 0);
    assert_int_equal(keyset_count(other), 1);
    assert_string_equal(keyset_signing_kid(other), pub.kid);
    keyset_free(other);
}

static void test_the_last_signing_file_signs(void **state)
{
    struct fixture *f = *state;
    char first[TOKEN_KID_TEXT];

    assert_int_equal(keyset_generate_file(f->path, &f->e), 0);
    assert_int_equal(keyset_add_signing_file(f->ks, f->path, &f->e), 0);
    strcpy(first, keyset_signing_kid(f->ks));
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(keyset_generate_file(f->path, &f->e), 0);
    assert_int_equal(keyset_add_signing_file(f->ks, f->path, &f->e), 0);
    assert_string_not_equal(keyset_signing_kid(f->ks), first);
    assert_int_equal(keyset_count(f->ks), 2);
}

static void test_a_full_set_refuses_one_more_key(void **state)
{
    struct fixture *f = *state;
    int added = 0;

    for (int i = 0; i < 100; i++) {
        assert_int_equal(keyset_generate_file(f->path, &f->e), 0);
        int rc = keyset_add_signing_file(f->ks, f->path, &f->e);
        assert_int_equal(unlink(f->path), 0);
        if (rc < 0)
            break;
        added++;
    }
    assert_int_equal(added, 64);
    assert_int_equal(f->e.code, ERR_CONFLICT);
    assert_int_equal(keyset_count(f->ks), 64);
}

static void test_a_retired_key_vouches_for_what_it_signed_until_then(void **state)
{
    struct fixture *f = *state;
    struct key_public retired = rfc_key;

    retired.retired_at = 1000;
    assert_int_equal(keyset_add_public(f->ks, &retired, &f->e), 0);
    assert_true(keyset_vouches(f->ks, rfc_key.kid, 999));
    assert_true(keyset_vouches(f->ks, rfc_key.kid, 1000));
    assert_false(keyset_vouches(f->ks, rfc_key.kid, 1001));
    assert_false(keyset_vouches(f->ks, "another", 1));
}

static void test_one_of_the_private_keys_is_chosen_to_sign(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(keyset_add_public(f->ks, &rfc_key, &f->e), 0);
    assert_int_equal(keyset_sign_with(f->ks, rfc_key.kid, &f->e), -1);
    assert_int_equal(keyset_sign_with(f->ks, "another", &f->e), -1);
    assert_null(keyset_signing_kid(f->ks));
}

static void test_jwks_is_the_text_of_rfc_7517(void **state)
{
    struct fixture *f = *state;
    struct buf out;

    buf_init(&out, 4096);
    keyset_jwks(f->ks, &out);
    assert_string_equal(out.data, "{\"keys\":[]}");
    buf_reset(&out);
    assert_int_equal(keyset_add_public(f->ks, &rfc_key, &f->e), 0);
    keyset_jwks(f->ks, &out);
    assert_string_equal(out.data, "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\","
                                  "\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
                                  "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\","
                                  "\"use\":\"sig\",\"alg\":\"ES256\","
                                  "\"kid\":\"oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U\"}]}");
    assert_int_equal(keyset_generate_file(f->path, &f->e), 0);
    assert_int_equal(keyset_add_signing_file(f->ks, f->path, &f->e), 0);
    buf_reset(&out);
    keyset_jwks(f->ks, &out);
    assert_null(strstr(out.data, "\"d\""));
    assert_non_null(strstr(out.data, keyset_signing_kid(f->ks)));
    buf_done(&out);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_generated_file_is_private_pkcs8_and_loads),
        T(test_generate_never_overwrites),
        T(test_generate_does_not_follow_a_dangling_link),
        T(test_two_generated_keys_differ),
        T(test_refuses_files_that_are_not_a_p256_private_key),
        T(test_refuses_an_encrypted_key_without_asking_for_its_passphrase),
        T(test_refuses_missing_big_and_special_files),
        T(test_kid_is_the_rfc_7638_thumbprint),
        T(test_refuses_public_keys_that_are_not_what_they_say),
        T(test_a_key_is_held_once_and_keeps_its_private_half),
        T(test_the_last_signing_file_signs),
        T(test_a_full_set_refuses_one_more_key),
        T(test_a_retired_key_vouches_for_what_it_signed_until_then),
        T(test_one_of_the_private_keys_is_chosen_to_sign),
        T(test_jwks_is_the_text_of_rfc_7517),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
