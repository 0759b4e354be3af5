/* Minting, the form of a token, and what a verifier holds it against. */
#include <pthread.h>

#include <openssl/err.h>

#include "../support/token_fixture.h"

/* --- round trip ---------------------------------------------------------------------------- */

static void check_round_trip(struct fixture *f)
{
    struct token_claims got, parsed;

    mint(f);
    assert_int_equal(token_verify(f->ks, f->token.data, f->token.len, &f->expect, &got), TOKEN_OK);
    assert_claims_equal(&got, &f->claims);
    assert_string_equal(got.kid, keyset_signing_kid(f->ks));
    assert_int_equal(token_parse(f->token.data, f->token.len, &parsed), TOKEN_OK);
    assert_claims_equal(&parsed, &f->claims);
    assert_string_equal(parsed.kid, got.kid);
}

static void test_every_claim_survives_the_round_trip(void **state)
{
    struct fixture *f = *state;

    check_round_trip(f);
    for (unsigned scope = 1; scope < 8; scope++) {
        f->claims.scope = scope;
        check_round_trip(f);
    }
    for (f->claims.mc = 1; f->claims.mc < 8; f->claims.mc++)
        check_round_trip(f);
    f->claims.use = USE_ONCE;
    strcpy(f->claims.cnf_jkt, JKT);
    id_random(&f->claims.lease_id);
    id_random(&f->claims.user_id);
    id_random(&f->claims.chat_id);
    check_round_trip(f);
}

static void test_the_greatest_claims_fit_into_a_token(void **state)
{
    struct fixture *f = *state;
    const int64_t top = (INT64_C(1) << 40) - 1;

    memset(f->claims.iss, 'i', sizeof f->claims.iss - 1);
    memset(f->claims.node, '~', sizeof f->claims.node - 1);
    strcpy(f->claims.cnf_jkt, JKT);
    f->claims.scope = 7;
    f->claims.use = USE_MULTI;
    f->claims.mc = 8;
    f->claims.ep = f->claims.rq = f->claims.exp = f->claims.mex = f->claims.nbf = top;
    f->claims.iat = top - 1;
    f->expect.ep = top;
    f->expect.now = top - 1;
    check_round_trip(f);
    assert_true(f->token.len < TOKEN_MAX);
}

static void test_mint_appends(void **state)
{
    struct fixture *f = *state;
    struct buf out;

    buf_init(&out, TOKEN_MAX + 16);
    buf_add_str(&out, "Bearer ");
    assert_int_equal(token_mint(f->ks, &f->claims, &out, &f->e), 0);
    assert_memory_equal(out.data, "Bearer ey", 9);
    assert_int_equal(verify_bytes(f, out.data + 7, out.len - 7), TOKEN_OK);
    buf_done(&out);
}

static void test_mint_says_when_there_is_no_room_or_no_key(void **state)
{
    struct fixture *f = *state;
    struct keyset *empty = keyset_new();
    struct buf small;

    buf_init(&small, 100);
    assert_int_equal(token_mint(f->ks, &f->claims, &small, &f->e), -1);
    assert_int_equal(token_mint(empty, &f->claims, &f->token, &f->e), -1);
    assert_int_equal(f->token.len, 0);
    buf_done(&small);
    keyset_free(empty);
}

static void test_a_set_told_its_own_public_key_still_signs(void **state)
{
    struct fixture *f = *state;
    struct key_public pub;

    keyset_get(f->ks, 0, &pub);
    assert_int_equal(keyset_add_public(f->ks, &pub, &f->e), 0);
    check_round_trip(f);
}

static void refuse_mint(struct fixture *f, const char *claim)
{
    char want[32];
    snprintf(want, sizeof want, "claim %s ", claim);
    assert_int_equal(token_mint(f->ks, &f->claims, &f->token, &f->e), -1);
    assert_int_equal(f->e.code, ERR_INTERNAL);
    assert_non_null(strstr(f->e.msg, want));
    assert_int_equal(f->token.len, 0);
}

#define REFUSE_MINT(f, claim, assignment)                                                          \
    do {                                                                                           \
        struct token_claims good = (f)->claims;                                                    \
        struct token_claims *c = &(f)->claims;                                                     \
        assignment;                                                                                \
        refuse_mint(f, claim);                                                                     \
        (f)->claims = good;                                                                        \
    } while (0)

static void test_mint_refuses_bad_claims_by_name(void **state)
{
    struct fixture *f = *state;
    const int64_t top = INT64_C(1) << 40;

    REFUSE_MINT(f, "iss", c->iss[0] = '\0');
    REFUSE_MINT(f, "iss", strcpy(c->iss, "a\"b"));
    REFUSE_MINT(f, "iss", strcpy(c->iss, "a\\b"));
    REFUSE_MINT(f, "iss", strcpy(c->iss, "a\nb"));
    REFUSE_MINT(f, "iss", strcpy(c->iss, "a\x7f"));
    REFUSE_MINT(f, "iss", strcpy(c->iss, "\xc3\xa9"));
    REFUSE_MINT(f, "iss", memset(c->iss, 'a', sizeof c->iss));
    REFUSE_MINT(f, "node", c->node[0] = '\0');
    REFUSE_MINT(f, "sid", memset(&c->session_id, 0, sizeof c->session_id));
    REFUSE_MINT(f, "sub", memset(&c->user_id, 0, sizeof c->user_id));
    REFUSE_MINT(f, "chat", memset(&c->chat_id, 0, sizeof c->chat_id));
    REFUSE_MINT(f, "jti", memset(&c->lease_id, 0, sizeof c->lease_id));
    REFUSE_MINT(f, "jti", c->lease_id.b[6] = 0x1c);
    REFUSE_MINT(f, "jti", c->lease_id.b[8] = 0xc9);
    REFUSE_MINT(f, "ep", c->ep = 0);
    REFUSE_MINT(f, "ep", c->ep = top);
    REFUSE_MINT(f, "rq", c->rq = -1);
    REFUSE_MINT(f, "scope", c->scope = 0);
    REFUSE_MINT(f, "scope", c->scope = 8);
    REFUSE_MINT(f, "use", c->use = (enum lease_use)2);
    REFUSE_MINT(f, "mc", c->mc = 0);
    REFUSE_MINT(f, "mc", c->mc = 9);
    REFUSE_MINT(f, "cnf", strcpy(c->cnf_jkt, "short"));
    REFUSE_MINT(f, "cnf", memset(c->cnf_jkt, 'A', sizeof c->cnf_jkt));
    REFUSE_MINT(f, "iat", c->iat = 0);
    REFUSE_MINT(f, "nbf", c->nbf = c->exp + 1);
    REFUSE_MINT(f, "exp", c->exp = c->iat);
    REFUSE_MINT(f, "exp", c->exp = c->mex + 1);
    REFUSE_MINT(f, "exp", c->exp = INT64_MIN);
    REFUSE_MINT(f, "mex", c->mex = top);
}

/* --- form ---------------------------------------------------------------------------------- */

static void test_every_one_bit_flip_is_refused(void **state)
{
    struct fixture *f = *state;

    mint(f);
    for (size_t bit = 0; bit < f->token.len * 8; bit++) {
        f->token.data[bit / 8] = (char)(f->token.data[bit / 8] ^ 1 << bit % 8);
        assert_int_not_equal(verify_minted(f), TOKEN_OK);
        f->token.data[bit / 8] = (char)(f->token.data[bit / 8] ^ 1 << bit % 8);
    }
    assert_int_equal(verify_minted(f), TOKEN_OK);
}

static void test_every_truncation_and_every_appended_byte_is_refused(void **state)
{
    struct fixture *f = *state;
    char text[TOKEN_MAX];

    mint(f);
    for (size_t len = 0; len < f->token.len; len++)
        assert_int_not_equal(verify_bytes(f, f->token.data, len), TOKEN_OK);
    memcpy(text, f->token.data, f->token.len);
    for (int c = 0; c < 256; c++) {
        text[f->token.len] = (char)c;
        assert_int_equal(verify_bytes(f, text, f->token.len + 1), TOKEN_MALFORMED);
    }
}

static void test_two_dots_exactly(void **state)
{
    struct fixture *f = *state;
    char text[TOKEN_MAX + 2];
    static const char *const bad[] = {".", "..", "...", "a.b", "e30.e30.", "e30..e30", ".e30.e30"};

    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(verify_bytes(f, bad[i], strlen(bad[i])), TOKEN_MALFORMED);
    assert_int_equal(verify_bytes(f, "", 0), TOKEN_MALFORMED);
    mint(f);
    int len = snprintf(text, sizeof text, ".%s", f->token.data);
    assert_int_equal(verify_bytes(f, text, (size_t)len), TOKEN_MALFORMED);
    len = snprintf(text, sizeof text, "%s.", f->token.data);
    assert_int_equal(verify_bytes(f, text, (size_t)len), TOKEN_MALFORMED);
    len = snprintf(text, sizeof text, "%s.e30.e30", f->token.data);
    assert_int_equal(verify_bytes(f, text, (size_t)len), TOKEN_MALFORMED);
}

static void test_token_max_is_the_last_length_taken(void **state)
{
    struct fixture *f = *state;
    char claims[4096], padded[5200];
    bool at_limit = false;

    claims_with(NULL, NULL, "", claims);
    for (int pad = 0; pad < 1000; pad++) {
        snprintf(padded, sizeof padded, "%*s%s", pad, "", claims);
        size_t n =
            forge_token(f->key, f->header, strlen(f->header), padded, strlen(padded), f->forged);
        at_limit = at_limit || n == TOKEN_MAX;
        assert_int_equal(verify_bytes(f, f->forged, n),
                         n <= TOKEN_MAX ? TOKEN_OK : TOKEN_MALFORMED);
    }
    assert_true(at_limit);
}

static void test_base64url_must_be_canonical_in_every_part(void **state)
{
    struct fixture *f = *state;
    static const char bad[] = "+/= \n%";
    char text[TOKEN_MAX];

    mint(f);
    for (size_t at = 0; at < f->token.len; at += 7) {
        for (const char *c = bad; *c != '\0'; c++) {
            memcpy(text, f->token.data, f->token.len);
            if (text[at] == '.')
                continue;
            text[at] = *c;
            assert_int_equal(verify_bytes(f, text, f->token.len), TOKEN_MALFORMED);
        }
    }
    /* 64 bytes leave four unused bits in the last character of the signature. */
    memcpy(text, f->token.data, f->token.len);
    text[f->token.len - 1]++;
    assert_int_equal(verify_bytes(f, text, f->token.len), TOKEN_MALFORMED);
}

static void test_signature_is_64_bytes_in_range(void **state)
{
    struct fixture *f = *state;
    char claims[4096];
    uint8_t sig[72] = {0};
    char tail[128];

    claims_with(NULL, NULL, "", claims);
    size_t n = forge_token(f->key, f->header, strlen(f->header), claims, strlen(claims), f->forged);
    size_t at = n - 86;
    for (size_t len = 1; len <= sizeof sig; len++) {
        size_t tail_len = forge_base64url(sig, len, tail);
        memcpy(f->forged + at, tail, tail_len);
        assert_int_equal(verify_bytes(f, f->forged, at + tail_len),
                         len == 64 ? TOKEN_BAD_SIGNATURE : TOKEN_MALFORMED);
    }
    memset(sig, 0xff, sizeof sig);
    forge_base64url(sig, 64, tail);
    memcpy(f->forged + at, tail, 86);
    assert_int_equal(verify_bytes(f, f->forged, n), TOKEN_BAD_SIGNATURE);
}

static void test_der_signature_is_refused(void **state)
{
    struct fixture *f = *state;
    char claims[4096], tail[128];
    uint8_t der[80];
    size_t der_len = sizeof der;

    claims_with(NULL, NULL, "", claims);
    size_t n =
        forge_token(f->key, f->header, strlen(f->header), claims, strlen(claims), f->forged) - 87;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    assert_int_equal(EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, f->key), 1);
    assert_int_equal(EVP_DigestSign(ctx, der, &der_len, (uint8_t *)f->forged, n), 1);
    EVP_MD_CTX_free(ctx);
    size_t tail_len = forge_base64url(der, der_len, tail);
    memcpy(f->forged + n + 1, tail, tail_len);
    assert_int_equal(verify_bytes(f, f->forged, n + 1 + tail_len), TOKEN_MALFORMED);
}

/* --- what the verifier expects ------------------------------------------------------------- */

static void test_expires_to_the_second_without_leeway(void **state)
{
    struct fixture *f = *state;
    struct token_claims got = {0};

    mint(f);
    f->expect.leeway = 60;
    f->expect.now = f->claims.exp - 1;
    assert_int_equal(verify_minted(f), TOKEN_OK);
    f->expect.now = f->claims.exp;
    assert_int_equal(verify_minted(f), TOKEN_EXPIRED);
    assert_int_equal(token_verify(f->ks, f->token.data, f->token.len, &f->expect, &got),
                     TOKEN_EXPIRED);
    assert_true(id_equal(&got.lease_id, &f->claims.lease_id));
    f->expect.now = INT64_MAX;
    assert_int_equal(verify_minted(f), TOKEN_EXPIRED);
}

static void test_begins_within_the_leeway(void **state)
{
    struct fixture *f = *state;

    f->claims.nbf = NOW + 10;
    mint(f);
    f->expect.now = NOW + 5;
    assert_int_equal(verify_minted(f), TOKEN_OK);
    f->expect.now = NOW + 4;
    assert_int_equal(verify_minted(f), TOKEN_NOT_YET);
    f->expect.leeway = 0;
    f->expect.now = NOW + 9;
    assert_int_equal(verify_minted(f), TOKEN_NOT_YET);
    f->expect.now = NOW + 10;
    assert_int_equal(verify_minted(f), TOKEN_OK);

    f->claims.nbf = 1;
    mint(f);
    f->expect.leeway = 5;
    f->expect.now = NOW - 5;
    assert_int_equal(verify_minted(f), TOKEN_OK);
    f->expect.now = NOW - 6;
    assert_int_equal(verify_minted(f), TOKEN_NOT_YET);
    f->expect.now = INT64_MIN;
    assert_int_equal(verify_minted(f), TOKEN_NOT_YET);
}

static void test_lives_ttl_max_at_most(void **state)
{
    struct fixture *f = *state;

    mint(f);
    f->expect.ttl_max = 120;
    assert_int_equal(verify_minted(f), TOKEN_OK);
    f->expect.ttl_max = 119;
    assert_int_equal(verify_minted(f), TOKEN_BAD_CLAIMS);
}

static void test_a_token_of_another_door_has_its_own_verdict(void **state)
{
    struct fixture *f = *state;
    const struct token_expect good = f->expect;
    static const char other[] = "\"door:3b241101-e2bb-4255-8caf-4136c566a963\"";

    mint(f);
    f->expect.iss = "https://leasehold.exampl";
    assert_int_equal(verify_minted(f), TOKEN_WRONG_AUDIENCE);
    f->expect = good;
    f->expect.node = "node-10";
    assert_int_equal(verify_minted(f), TOKEN_WRONG_AUDIENCE);
    f->expect = good;
    f->expect.session_id.b[15] ^= 1;
    assert_int_equal(verify_minted(f), TOKEN_WRONG_AUDIENCE);
    f->expect = good;
    assert_int_equal(verdict_with(f, "aud", other), TOKEN_WRONG_AUDIENCE);
    f->expect.ep = 8;
    assert_int_equal(verify_minted(f), TOKEN_OLD_GENERATION);
    f->expect.ep = 6;
    assert_int_equal(verify_minted(f), TOKEN_OLD_GENERATION);
}

/* Another character of the alphabet, where no bit is unused. */
static void spoil_signature(struct fixture *f)
{
    char *c = &f->token.data[f->token.len - 10];
    *c = *c == 'A' ? 'B' : 'A';
}

static void test_later_checks_do_not_speak_before_earlier_ones(void **state)
{
    struct fixture *f = *state;

    f->expect.now = f->claims.exp + 1;
    f->expect.ep = 9;
    f->expect.node = "elsewhere";
    f->claims.exp = NOW + 1;
    mint(f);
    assert_int_equal(verify_minted(f), TOKEN_WRONG_AUDIENCE);
    f->expect.node = f->claims.node;
    assert_int_equal(verify_minted(f), TOKEN_OLD_GENERATION);
    f->expect.ep = f->claims.ep;
    assert_int_equal(verify_minted(f), TOKEN_EXPIRED);
    spoil_signature(f);
    assert_int_equal(verify_minted(f), TOKEN_BAD_SIGNATURE);
}

static void test_refusals_leave_no_openssl_error_behind(void **state)
{
    struct fixture *f = *state;
    struct key_public pub;

    mint(f);
    spoil_signature(f);
    assert_int_equal(verify_minted(f), TOKEN_BAD_SIGNATURE);
    keyset_get(f->ks, 0, &pub);
    pub.x[0] ^= 1;
    assert_int_equal(keyset_add_public(f->ks, &pub, &f->e), -1);
    assert_int_equal(keyset_add_signing_file(f->ks, "/dev/null", &f->e), -1);
    assert_int_equal(ERR_peek_error(), 0);
}

/* Counts in the thread: cmocka's asserts are for the main one. */
static void *mint_and_verify(void *arg)
{
    const struct fixture *f = arg;
    struct token_claims claims = f->claims, got;
    struct buf out;
    struct err e;
    intptr_t good = 0;

    buf_init(&out, TOKEN_MAX);
    for (int i = 0; i < 100; i++) {
        buf_reset(&out);
        id_random(&claims.lease_id);
        good += token_mint(f->ks, &claims, &out, &e) == 0 &&
                token_verify(f->ks, out.data, out.len, &f->expect, &got) == TOKEN_OK &&
                id_equal(&got.lease_id, &claims.lease_id);
    }
    buf_done(&out);
    return (void *)good;
}

static void test_many_threads_share_one_key_set(void **state)
{
    pthread_t threads[4];
    void *good;

    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, mint_and_verify, *state), 0);
    for (size_t i = 0; i < COUNT(threads); i++) {
        assert_int_equal(pthread_join(threads[i], &good), 0);
        assert_int_equal((intptr_t)good, 100);
    }
}

static void test_every_verdict_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(token_verdict_name(TOKEN_OK), "ok");
    assert_string_equal(token_verdict_name(TOKEN_EXPIRED), "expired");
    for (int v = TOKEN_OK; v <= TOKEN_EXPIRED; v++)
        assert_string_not_equal(token_verdict_name((enum token_verdict)v), "unknown");
    assert_string_equal(token_verdict_name((enum token_verdict)99), "unknown");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_every_claim_survives_the_round_trip),
        T(test_the_greatest_claims_fit_into_a_token),
        T(test_mint_appends),
        T(test_mint_says_when_there_is_no_room_or_no_key),
        T(test_a_set_told_its_own_public_key_still_signs),
        T(test_mint_refuses_bad_claims_by_name),
        T(test_every_one_bit_flip_is_refused),
        T(test_every_truncation_and_every_appended_byte_is_refused),
        T(test_two_dots_exactly),
        T(test_token_max_is_the_last_length_taken),
        T(test_base64url_must_be_canonical_in_every_part),
        T(test_signature_is_64_bytes_in_range),
        T(test_der_signature_is_refused),
        T(test_expires_to_the_second_without_leeway),
        T(test_begins_within_the_leeway),
        T(test_lives_ttl_max_at_most),
        T(test_a_token_of_another_door_has_its_own_verdict),
        T(test_later_checks_do_not_speak_before_earlier_ones),
        T(test_refusals_leave_no_openssl_error_behind),
        T(test_many_threads_share_one_key_set),
        T(test_every_verdict_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
