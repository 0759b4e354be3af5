/* The header and the claims of a token: what is taken and what is not. */
#include "../support/token_fixture.h"

/* --- header -------------------------------------------------------------------------------- */

static enum token_verdict verdict_of_header(struct fixture *f, const char *format)
{
    char header[1024], claims[4096];
    const char *kid = keyset_signing_kid(f->ks);
    const char *mark = strchr(format, '@'); /* stands for the kid */

    if (mark != NULL)
        snprintf(header, sizeof header, "%.*s%s%s", (int)(mark - format), format, kid, mark + 1);
    else
        snprintf(header, sizeof header, "%s", format);
    return verify_forged(f, header, claims_with(NULL, NULL, "", claims));
}

static void test_header_order_and_white_space_do_not_matter(void **state)
{
    static const char *const good[] = {
        "{\"alg\":\"ES256\",\"typ\":\"lease+jwt\",\"kid\":\"@\"}",
        "{\"kid\":\"@\",\"typ\":\"lease+jwt\",\"alg\":\"ES256\"}",
        " {\n\t\"typ\" : \"lease+jwt\" ,\r\"kid\":\"@\", \"alg\": \"ES256\" } \n",
    };
    for (size_t i = 0; i < COUNT(good); i++)
        assert_int_equal(verdict_of_header(*state, good[i]), TOKEN_OK);
}

static void test_no_other_header_is_taken(void **state)
{
#define REST "\"typ\":\"lease+jwt\",\"kid\":\"@\""
#define FULL "{\"alg\":\"ES256\"," REST
    static const char *const bad[] = {
        "{\"alg\":\"none\"," REST "}",
        "{\"alg\":\"None\"," REST "}",
        "{\"alg\":\"HS256\"," REST "}",
        "{\"alg\":\"ES384\"," REST "}",
        "{\"alg\":\"ES256K\"," REST "}",
        "{\"alg\":\"es256\"," REST "}",
        "{\"alg\":\"ES256 \"," REST "}",
        "{\"alg\":\"\"," REST "}",
        "{\"alg\":null," REST "}",
        "{\"alg\":[\"ES256\"]," REST "}",
        "{\"alg\":256," REST "}",
        "{\"alg\":\"\\u0045S256\"," REST "}",
        "{\"\\u0061lg\":\"ES256\"," REST "}",
        "{\"Alg\":\"ES256\"," REST "}",
        "{" REST "}",
        "{\"alg\":\"none\",\"alg\":\"ES256\"," REST "}",
        "{\"alg\":\"ES256\",\"alg\":\"ES256\"," REST "}",
        FULL ",\"alg\":\"none\"}",
        FULL ",\"jwk\":{}}",
        FULL ",\"jku\":\"https://evil.example/\"}",
        FULL ",\"x5u\":\"https://evil.example/\"}",
        FULL ",\"x5c\":[]}",
        FULL ",\"x5t\":\"\"}",
        FULL ",\"crit\":[]}",
        FULL ",\"crit\":[\"b64\"],\"b64\":false}",
        FULL ",\"zip\":\"DEF\"}",
        FULL ",\"b64\":true}",
        FULL ",\"cty\":\"JWT\"}",
        FULL ",\"\":\"\"}",
        FULL ",\"kid\":\"@\"}",
        FULL ",}",
        FULL,
        FULL "}}",
        FULL "} x",
        "[" FULL "}]",
        "{\"alg\":\"ES256\",\"kid\":\"@\"}",
        "{\"alg\":\"ES256\",\"typ\":\"JWT\",\"kid\":\"@\"}",
        "{\"alg\":\"ES256\",\"typ\":\"Lease+JWT\",\"kid\":\"@\"}",
        "{\"alg\":\"ES256\",\"typ\":\"application/lease+jwt\",\"kid\":\"@\"}",
        "{\"alg\":\"ES256\",\"typ\":\"lease+jwt\"}",
        "{\"alg\":\"ES256\",\"typ\":\"lease+jwt\",\"kid\":\"@ \"}",
        "{\"alg\":\"ES256\",\"typ\":\"lease+jwt\",\"kid\":\"../../etc/passwd\"}",
        "{\"alg\":\"ES256\",\"typ\":\"lease+jwt\",\"kid\":\"\"}",
        "{\"alg\":\"ES256\",\"typ\":\"lease+jwt\",\"kid\":7}",
        "\xef\xbb\xbf" FULL "}",
        "{}",
        "null",
        "\"ES256\"",
        "'",
    };
    for (size_t i = 0; i < COUNT(bad); i++)
        if (verdict_of_header(*state, bad[i]) != TOKEN_BAD_HEADER)
            fail_msg("taken: %s", bad[i]);
#undef REST
#undef FULL
}

static void test_header_with_a_nul_is_refused(void **state)
{
    struct fixture *f = *state;
    char claims[4096], header[160];
    size_t len = strlen(f->header);

    claims_with(NULL, NULL, "", claims);
    memcpy(header, f->header, len);
    header[len] = '\0';
    size_t n = forge_token(f->key, header, len + 1, claims, strlen(claims), f->forged);
    assert_int_equal(verify_bytes(f, f->forged, n), TOKEN_BAD_HEADER);
}

static void test_hs256_signed_with_the_public_pem_is_refused(void **state)
{
    struct fixture *f = *state;
    char claims[4096], header[128];
    char *pem = forge_pem(f->key, 0);

    claims_with(NULL, NULL, "", claims);
    snprintf(header, sizeof header, "{\"alg\":\"HS256\",\"typ\":\"lease+jwt\",\"kid\":\"%s\"}",
             keyset_signing_kid(f->ks));
    size_t n = forge_token_hs256(pem, header, claims, f->forged);
    assert_int_not_equal(verify_bytes(f, f->forged, n), TOKEN_OK);
    n = forge_token_hs256(pem, f->header, claims, f->forged);
    assert_int_not_equal(verify_bytes(f, f->forged, n), TOKEN_OK);
    free(pem);
}

static void test_unsigned_token_is_refused(void **state)
{
    struct fixture *f = *state;
    char claims[4096];
    static const char header[] = "{\"alg\":\"none\"}";

    claims_with(NULL, NULL, "", claims);
    size_t n = forge_token(f->key, header, strlen(header), claims, strlen(claims), f->forged) - 86;
    assert_int_equal(verify_bytes(f, f->forged, n), TOKEN_MALFORMED);
    assert_int_equal(verify_bytes(f, f->forged, n - 1), TOKEN_MALFORMED);
}

static void test_key_is_found_by_its_exact_kid_only(void **state)
{
    struct fixture *f = *state;
    char claims[4096], header[128];
    struct key_public pub;
    struct keyset *two = keyset_new();
    EVP_PKEY *other = forge_key("other");
    char path[] = "/tmp/test_token.XXXXXX";

    snprintf(header, sizeof header, "{\"alg\":\"ES256\",\"typ\":\"lease+jwt\",\"kid\":\"%s\"}",
             JKT);
    claims_with(NULL, NULL, "", claims);
    assert_int_equal(verify_forged(f, header, claims), TOKEN_UNKNOWN_KEY);

    /* Of two keys the named one decides, not the one that would fit. */
    keyset_get(f->ks, 0, &pub);
    forge_key_file(other, path);
    assert_int_equal(keyset_add_public(two, &pub, &f->e), 0);
    assert_int_equal(keyset_add_signing_file(two, path, &f->e), 0);
    unlink(path);
    size_t n = forge_token(other, f->header, strlen(f->header), claims, strlen(claims), f->forged);
    struct token_claims got;
    assert_int_equal(token_verify(two, f->forged, n, &f->expect, &got), TOKEN_BAD_SIGNATURE);
    n = forge_token(f->key, f->header, strlen(f->header), claims, strlen(claims), f->forged);
    assert_int_equal(token_verify(two, f->forged, n, &f->expect, &got), TOKEN_OK);
    keyset_free(two);
    EVP_PKEY_free(other);
}

/* --- claims -------------------------------------------------------------------------------- */

static void test_hand_made_claims_are_taken_in_any_order(void **state)
{
    struct fixture *f = *state;
    char text[4096];
    size_t n = 0;

    assert_int_equal(verdict_with(f, NULL, NULL), TOKEN_OK);
    for (size_t i = COUNT(sample); i-- > 0;)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s \"%s\"\t:\n%s\r",
                              i + 1 == COUNT(sample) ? "{" : ",", sample[i].name, sample[i].value);
    snprintf(text + n, sizeof text - n, "} ");
    assert_int_equal(verify_forged(f, f->header, text), TOKEN_OK);
}

static void test_every_required_claim_is_required_and_the_others_have_defaults(void **state)
{
    struct fixture *f = *state;
    struct token_claims got;
    char text[4096];

    for (size_t i = 0; i < COUNT(sample); i++)
        assert_int_equal(verdict_with(f, sample[i].name, NULL),
                         i < OPTIONAL_FROM ? TOKEN_BAD_CLAIMS : TOKEN_OK);
    claims_with(NULL, NULL, "", text);
    strcpy(strstr(text, ",\"use\""), "}");
    size_t n = forge_token(f->key, f->header, strlen(f->header), text, strlen(text), f->forged);
    assert_int_equal(token_verify(f->ks, f->forged, n, &f->expect, &got), TOKEN_OK);
    assert_int_equal(got.use, USE_MULTI);
    assert_int_equal(got.mc, 1);
    assert_string_equal(got.cnf_jkt, "");
}

static void test_no_claim_stands_twice(void **state)
{
    struct fixture *f = *state;
    char text[4096], extra[256];

    for (size_t i = 0; i < COUNT(sample); i++) {
        snprintf(extra, sizeof extra, ",\"%s\":%s", sample[i].name, sample[i].value);
        assert_int_equal(verify_forged(f, f->header, claims_with(NULL, NULL, extra, text)),
                         TOKEN_BAD_CLAIMS);
    }
}

static void test_no_claim_takes_a_value_of_another_type(void **state)
{
    static const char *const values[] = {"null", "true", "{}",     "[]",   "\"\"", "-1",
                                         "1.5",  "",     "[null]", "[[]]", "\"x",  "0"};
    struct fixture *f = *state;

    for (size_t i = 0; i < COUNT(sample); i++)
        for (size_t v = 0; v < COUNT(values); v++)
            if (verdict_with(f, sample[i].name, values[v]) != TOKEN_BAD_CLAIMS)
                fail_msg("taken: %s = %s", sample[i].name, values[v]);
}

static void test_integers_are_plain_digits_in_range(void **state)
{
    static const char *const names[] = {"ep", "iat", "nbf", "exp", "mex", "rq", "mc"};
    static const char *const values[] = {"0",
                                         "-1",
                                         "01",
                                         "1.0",
                                         "1e3",
                                         "1E3",
                                         "+1",
                                         "0x1",
                                         "\"1\"",
                                         "1 2",
                                         "1099511627776",
                                         "18446744073709551617",
                                         "1_000",
                                         "00001",
                                         "١",
                                         "99999999999999999999999999999999999999"};
    struct fixture *f = *state;

    for (size_t i = 0; i < COUNT(names); i++)
        for (size_t v = 0; v < COUNT(values); v++)
            if (verdict_with(f, names[i], values[v]) != TOKEN_BAD_CLAIMS)
                fail_msg("taken: %s = %s", names[i], values[v]);
    f->expect.ep = (INT64_C(1) << 40) - 1;
    assert_int_equal(verdict_with(f, "ep", "1099511627775"), TOKEN_OK);
    assert_int_equal(verdict_with(f, "rq", "1"), TOKEN_OLD_GENERATION);
}

static void test_values_out_of_their_rules_are_refused(void **state)
{
    static const struct {
        const char *name, *value;
    } bad[] = {
        {"aud", "\"" SID "\""},
        {"aud", "\"door:\""},
        {"aud", "\"Door:" SID "\""},
        {"aud", "[\"door:" SID "\"]"},
        {"aud", "\"door:" SID "x\""},
        {"aud", "\"door:3B241101-e2bb-4255-8caf-4136c566a962\""},
        {"sid", "\"3B241101-E2BB-4255-8CAF-4136C566A962\""},
        {"sid", "\"{" SID "}\""},
        {"sid", "\"urn:uuid:" SID "\""},
        {"sid", "\"3b241101e2bb42558caf4136c566a962\""},
        {"sid", "\"00000000-0000-0000-0000-000000000000\""},
        {"sub", "\"11111111-0000-0000-0000-00000000000A\""},
        {"sub", "\"alice\""},
        {"chat", "\"22222222-0000-0000-0000-00000000000\""},
        {"jti", "\"6fa459ea-ee8a-1ca4-894e-db77e160355e\""},
        {"jti", "\"6fa459ea-ee8a-4ca4-c94e-db77e160355e\""},
        {"jti", "\"00000000-0000-0000-0000-000000000000\""},
        {"iss", "\"a\\/b\""},
        {"iss", "\"caf\xc3\xa9\""},
        {"iss", "\"a\tb\""},
        {"node", "\"node\\u002d1\""},
        {"scope", "[\"read\",\"read\"]"},
        {"scope", "[\"read\",]"},
        {"scope", "[\"read\" \"write\"]"},
        {"scope", "[\"root\"]"},
        {"scope", "[\"Read\"]"},
        {"scope", "\"read\""},
        {"scope", "\"read write\""},
        {"scope", "{\"read\":1}"},
        {"use", "\"twice\""},
        {"use", "\"Once\""},
        {"mc", "9"},
        {"mc", "4294967297"},
        {"cnf", "{\"jkt\":\"" JKT "\",\"jkt\":\"" JKT "\"}"},
        {"cnf", "{\"jkt\":\"" JKT "\",\"kid\":\"x\"}"},
        {"cnf", "{\"jkt\":\"oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-V\"}"},
        {"cnf", "{\"jkt\":\"oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-\"}"},
        {"cnf", "{\"jkt\":\"" JKT "=\"}"},
        {"cnf", "{\"jkt\":\"\"}"},
        {"cnf", "{\"jwk\":{}}"},
        {"exp", "1700000000"},
        {"exp", "1700043201"},
        {"exp", "1700000901"},
        {"nbf", "1700000121"},
        {"mex", "1700000119"},
        {"iat", "1700000120"},
        {"iat", "1699999219"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < COUNT(bad); i++)
        if (verdict_with(f, bad[i].name, bad[i].value) != TOKEN_BAD_CLAIMS)
            fail_msg("taken: %s = %s", bad[i].name, bad[i].value);
}

static void test_names_and_texts_have_their_longest_length(void **state)
{
    struct fixture *f = *state;
    char value[256], iss[128];

    memset(iss, 'a', sizeof iss - 1);
    iss[sizeof iss - 1] = '\0';
    f->expect.iss = iss;
    snprintf(value, sizeof value, "\"%s\"", iss);
    assert_int_equal(verdict_with(f, "iss", value), TOKEN_OK);
    snprintf(value, sizeof value, "\"%sa\"", iss);
    assert_int_equal(verdict_with(f, "iss", value), TOKEN_BAD_CLAIMS);
}

static void test_unknown_claims_and_broken_objects_are_refused(void **state)
{
    static const char *const bad[] = {
        ",\"admin\":true", ",\"ISS\":\"x\"", ",\"\":1", ",\"cnf \":1", ",", ",,",
        ",\"mc\"",         ",\"a\":",        "}",       "} {}",        "]", " 7"};
    struct fixture *f = *state;
    char text[4096];

    for (size_t i = 0; i < COUNT(bad); i++)
        if (verify_forged(f, f->header, claims_with(NULL, NULL, bad[i], text)) != TOKEN_BAD_CLAIMS)
            fail_msg("taken: %s", text);
    claims_with(NULL, NULL, "", text);
    for (size_t len = strlen(text); len-- > 1;) {
        text[len] = '\0';
        assert_int_equal(verify_forged(f, f->header, text), TOKEN_BAD_CLAIMS);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_header_order_and_white_space_do_not_matter),
        T(test_no_other_header_is_taken),
        T(test_header_with_a_nul_is_refused),
        T(test_hs256_signed_with_the_public_pem_is_refused),
        T(test_unsigned_token_is_refused),
        T(test_key_is_found_by_its_exact_kid_only),
        T(test_hand_made_claims_are_taken_in_any_order),
        T(test_every_required_claim_is_required_and_the_others_have_defaults),
        T(test_no_claim_stands_twice),
        T(test_no_claim_takes_a_value_of_another_type),
        T(test_integers_are_plain_digits_in_range),
        T(test_values_out_of_their_rules_are_refused),
        T(test_names_and_texts_have_their_longest_length),
        T(test_unknown_claims_and_broken_objects_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
