/* A remembered signature stands for the signature and for nothing else. */
#include "../support/token_fixture.h"

static struct token_memo *memo;

static int setup_memo(void **state)
{
    memo = token_memo_new();
    return memo == NULL ? -1 : setup(state);
}

static int teardown_memo(void **state)
{
    token_memo_free(memo);
    return teardown(state);
}

static enum token_verdict verify_with(struct fixture *f, const struct keyset *ks)
{
    struct token_claims got;
    return token_verify_again(memo, ks, f->token.data, f->token.len, &f->expect, &got);
}

static enum token_verdict verify_kept(struct fixture *f)
{
    return verify_with(f, f->ks);
}

/* Verified twice, the second time by memory. */
static void remember(struct fixture *f)
{
    size_t hits = token_memo_hits(memo);
    mint(f);
    assert_int_equal(verify_kept(f), TOKEN_OK);
    assert_int_equal(token_memo_hits(memo), hits);
    assert_int_equal(verify_kept(f), TOKEN_OK);
    assert_int_equal(token_memo_hits(memo), hits + 1);
}

static void the_claims_are_the_same_by_memory(void **state)
{
    struct fixture *f = *state;
    struct token_claims first, second;
    mint(f);
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    assert_int_equal(
        token_verify_again(memo, f->ks, f->token.data, f->token.len, &f->expect, &first), TOKEN_OK);
    assert_int_equal(
        token_verify_again(memo, f->ks, f->token.data, f->token.len, &f->expect, &second),
        TOKEN_OK);
    assert_int_equal(token_memo_hits(memo), 1);
    assert_string_equal(first.kid, second.kid);
    assert_true(id_equal(&first.lease_id, &second.lease_id));
    assert_true(first.exp == second.exp && first.scope == second.scope && first.mc == second.mc);
}

static void without_its_key_it_is_nothing(void **state)
{
    struct fixture *f = *state;
    struct keyset *none = keyset_new();
    remember(f);
    assert_int_equal(verify_with(f, none), TOKEN_UNKNOWN_KEY);
    keyset_free(none);
}

static void a_retired_key_is_asked_each_time(void **state)
{
    struct fixture *f = *state;
    struct keyset *retired = keyset_new();
    struct key_public key;
    remember(f);
    keyset_get(f->ks, 0, &key);
    key.retired_at = f->claims.iat - 1;
    assert_int_equal(keyset_add_public(retired, &key, &f->e), 0);
    assert_int_equal(verify_with(f, retired), TOKEN_UNKNOWN_KEY);
    keyset_free(retired);
}

static void times_audience_and_generation_are_judged_each_time(void **state)
{
    struct fixture *f = *state;
    struct token_expect good = f->expect;
    remember(f);
    f->expect.now = f->claims.exp;
    assert_int_equal(verify_kept(f), TOKEN_EXPIRED);
    f->expect.now = f->claims.iat - 6;
    assert_int_equal(verify_kept(f), TOKEN_NOT_YET);
    f->expect = good;
    f->expect.ep = 8;
    assert_int_equal(verify_kept(f), TOKEN_OLD_GENERATION);
    f->expect = good;
    f->expect.node = "another";
    assert_int_equal(verify_kept(f), TOKEN_WRONG_AUDIENCE);
    f->expect = good;
    f->expect.ttl_max = 1;
    assert_int_equal(verify_kept(f), TOKEN_BAD_CLAIMS);
    f->expect = good;
    assert_int_equal(verify_kept(f), TOKEN_OK);
}

static void bad_signatures_are_not_remembered(void **state)
{
    struct fixture *f = *state;
    mint(f);
    char *last = &f->token.data[f->token.len - 3];
    *last = *last == 'A' ? 'B' : 'A';
    for (int i = 0; i < 3; i++) {
        assert_int_equal(verify_kept(f), TOKEN_BAD_SIGNATURE);
    }
    assert_int_equal(token_memo_hits(memo), 0);
}

static void another_signature_of_the_same_claims_is_verified(void **state)
{
    struct fixture *f = *state;
    remember(f);
    mint(f);
    size_t hits = token_memo_hits(memo);
    assert_int_equal(verify_kept(f), TOKEN_OK);
    assert_int_equal(token_memo_hits(memo), hits);
}

static void what_is_forgotten_is_verified_again(void **state)
{
    struct fixture *f = *state;
    remember(f);
    token_memo_forget(memo);
    assert_int_equal(verify_kept(f), TOKEN_OK);
    assert_int_equal(token_memo_hits(memo), 1);
    assert_int_equal(verify_kept(f), TOKEN_OK);
    assert_int_equal(token_memo_hits(memo), 2);
}

/* Far more tokens than places: each verdict is right, whoever shares a place with whom. */
static void many_tokens_do_not_confuse_it(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 300; i++) {
        f->claims.exp = NOW + 60 + i % 2;
        remember(f);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup_memo, teardown_memo)
    const struct CMUnitTest tests[] = {
        T(the_claims_are_the_same_by_memory),
        T(without_its_key_it_is_nothing),
        T(a_retired_key_is_asked_each_time),
        T(times_audience_and_generation_are_judged_each_time),
        T(bad_signatures_are_not_remembered),
        T(another_signature_of_the_same_claims_is_verified),
        T(what_is_forgotten_is_verified_again),
        T(many_tokens_do_not_confuse_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
