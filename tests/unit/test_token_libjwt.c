/*
 * libjwt as the independent witness. libjwt 1.10 refuses every typ but "JWT" and writes no other, so
 * a lease token as a whole is not for it; its signatures and its reading and writing of the claims
 * are compared with ours instead.
 */
#include <jwt.h>

#include "../../lease/p256.h"
#include "../support/token_fixture.h"

static void assert_grant(jwt_t *jwt, const char *name, const char *want)
{
    const char *got = jwt_get_grant(jwt, name);
    assert_non_null(got);
    assert_string_equal(got, want);
}

static void assert_grant_json(jwt_t *jwt, const char *name, const char *want)
{
    char *got = jwt_get_grants_json(jwt, name);
    assert_non_null(got);
    assert_string_equal(got, want);
    free(got);
}

static void assert_same_in_libjwt(jwt_t *jwt, const struct token_claims *c)
{
    char aud[64], cnf[64];

    snprintf(aud, sizeof aud, "door:%s", ID_STR(&c->session_id));
    snprintf(cnf, sizeof cnf, "{\"jkt\":\"%s\"}", c->cnf_jkt);
    assert_int_equal(jwt_get_alg(jwt), JWT_ALG_ES256);
    assert_grant(jwt, "iss", c->iss);
    assert_grant(jwt, "aud", aud);
    assert_grant(jwt, "sub", ID_STR(&c->user_id));
    assert_grant(jwt, "chat", ID_STR(&c->chat_id));
    assert_grant(jwt, "node", c->node);
    assert_grant(jwt, "sid", ID_STR(&c->session_id));
    assert_grant(jwt, "jti", ID_STR(&c->lease_id));
    assert_grant(jwt, "use", c->use == USE_ONCE ? "once" : "multi");
    assert_int_equal(jwt_get_grant_int(jwt, "ep"), c->ep);
    assert_int_equal(jwt_get_grant_int(jwt, "rq"), c->rq);
    assert_int_equal(jwt_get_grant_int(jwt, "iat"), c->iat);
    assert_int_equal(jwt_get_grant_int(jwt, "nbf"), c->nbf);
    assert_int_equal(jwt_get_grant_int(jwt, "exp"), c->exp);
    assert_int_equal(jwt_get_grant_int(jwt, "mex"), c->mex);
    assert_int_equal(jwt_get_grant_int(jwt, "mc"), c->mc);
    assert_grant_json(jwt, "scope", "[\"read\",\"write\"]");
    if (c->cnf_jkt[0] != '\0')
        assert_grant_json(jwt, "cnf", cnf);
    else
        assert_null(jwt_get_grants_json(jwt, "cnf"));
}

/* Our payload behind libjwt's header, signed by the code that signs leases. */
static void sign_as_jwt(const struct fixture *f, const struct p256_key *key, char *out)
{
    static const char header[] = "{\"alg\":\"ES256\",\"typ\":\"JWT\"}";
    uint8_t sig[P256_SIG_BYTES];
    const char *payload = strchr(f->token.data, '.');
    size_t payload_len = (size_t)(strrchr(f->token.data, '.') - payload);

    size_t n = forge_base64url(header, strlen(header), out);
    memcpy(out + n, payload, payload_len);
    n += payload_len;
    assert_true(p256_sign(key, out, n, sig));
    out[n++] = '.';
    base64url_encode(sig, sizeof sig, out + n);
}

static void test_libjwt_verifies_our_signature_and_reads_our_claims(void **state)
{
    struct fixture *f = *state;
    char *pem = forge_pem(f->key, 0), *private_pem = forge_pem(f->key, 1);
    struct p256_key *key = p256_key_from_pem(private_pem, strlen(private_pem));

    for (int i = 0; i < 64; i++) {
        jwt_t *jwt = NULL;
        id_random(&f->claims.lease_id);
        f->claims.use = i % 2 ? USE_ONCE : USE_MULTI;
        f->claims.mc = i % 8 + 1;
        f->claims.rq = i * 1000 + 1;
        strcpy(f->claims.cnf_jkt, i % 3 == 0 ? JKT : "");
        mint(f);
        sign_as_jwt(f, key, f->forged);
        assert_int_equal(jwt_decode(&jwt, f->forged, (uint8_t *)pem, (int)strlen(pem)), 0);
        assert_same_in_libjwt(jwt, &f->claims);
        jwt_free(jwt);
    }
    p256_key_free(key);
    free(pem);
    free(private_pem);
}

static void test_libjwt_takes_no_lease_for_a_jwt_of_a_caller(void **state)
{
    struct fixture *f = *state;
    jwt_t *jwt = NULL;
    char *pem = forge_pem(f->key, 0);

    mint(f);
    assert_int_not_equal(jwt_decode(&jwt, f->token.data, (uint8_t *)pem, (int)strlen(pem)), 0);
    free(pem);
}

/* The sample claims as libjwt writes and signs them; it puts typ "JWT" whatever it is told. */
static char *libjwt_token(const struct fixture *f)
{
    char text[4096];
    jwt_t *jwt;
    char *pem = forge_pem(f->key, 1);

    assert_int_equal(jwt_new(&jwt), 0);
    assert_int_equal(jwt_add_header(jwt, "kid", keyset_signing_kid(f->ks)), 0);
    assert_int_equal(jwt_add_grants_json(jwt, claims_with(NULL, NULL, "", text)), 0);
    assert_int_equal(jwt_set_alg(jwt, JWT_ALG_ES256, (uint8_t *)pem, (int)strlen(pem)), 0);
    char *token = jwt_encode_str(jwt);
    assert_non_null(token);
    jwt_free(jwt);
    free(pem);
    return token;
}

static void test_we_verify_the_signature_of_libjwt(void **state)
{
    struct fixture *f = *state;
    char *private_pem = forge_pem(f->key, 1);
    struct p256_key *key = p256_key_from_pem(private_pem, strlen(private_pem));

    for (int i = 0; i < 64; i++) {
        uint8_t sig[P256_SIG_BYTES];
        size_t len;
        char *token = libjwt_token(f);
        char *dot = strrchr(token, '.');
        assert_int_equal(base64url_decode(dot + 1, strlen(dot + 1), sig, sizeof sig, &len), 0);
        assert_int_equal(len, sizeof sig);
        assert_true(p256_verify(key, token, (size_t)(dot - token), sig));
        sig[i] ^= 1;
        assert_false(p256_verify(key, token, (size_t)(dot - token), sig));
        free(token);
    }
    p256_key_free(key);
    free(private_pem);
}

static void test_a_jwt_of_libjwt_is_no_lease_by_its_type_alone(void **state)
{
    struct fixture *f = *state;
    char *token = libjwt_token(f);
    assert_int_equal(verify_bytes(f, token, strlen(token)), TOKEN_BAD_HEADER);
    free(token);
}

static void test_claims_as_libjwt_writes_them_verify_under_our_header(void **state)
{
    struct fixture *f = *state;
    struct token_claims got;
    char *token = libjwt_token(f);
    char *payload = strchr(token, '.') + 1;
    uint8_t claims[2048];
    size_t len;

    *strchr(payload, '.') = '\0';
    assert_int_equal(base64url_decode(payload, strlen(payload), claims, sizeof claims, &len), 0);
    size_t n = forge_token(f->key, f->header, strlen(f->header), claims, len, f->forged);
    assert_int_equal(token_verify(f->ks, f->forged, n, &f->expect, &got), TOKEN_OK);
    strcpy(f->claims.cnf_jkt, JKT);
    assert_claims_equal(&got, &f->claims);
    free(token);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_libjwt_verifies_our_signature_and_reads_our_claims),
        T(test_libjwt_takes_no_lease_for_a_jwt_of_a_caller),
        T(test_we_verify_the_signature_of_libjwt),
        T(test_a_jwt_of_libjwt_is_no_lease_by_its_type_alone),
        T(test_claims_as_libjwt_writes_them_verify_under_our_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
