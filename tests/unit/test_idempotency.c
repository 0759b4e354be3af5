/* What an Idempotency-Key may be, which answers are kept, and how a token comes back into one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "../../gateway/idempotency.h"

static void a_key_is_1_to_128_visible_ascii(void **state)
{
    char longest[130];
    (void)state;
    memset(longest, 'x', sizeof(longest));
    longest[128] = '\0';
    assert_true(idempotency_key_valid("!"));
    assert_true(idempotency_key_valid("~"));
    assert_true(idempotency_key_valid(longest));
    longest[128] = 'x';
    longest[129] = '\0';
    assert_false(idempotency_key_valid(longest));
    assert_false(idempotency_key_valid(""));
    assert_false(idempotency_key_valid("a b"));
    assert_false(idempotency_key_valid("a\x7f"));
    assert_false(idempotency_key_valid("\t"));
    assert_false(idempotency_key_valid("\xc3\xa9"));
}

static void successes_and_refusals_are_kept_but_no_failure_of_ours(void **state)
{
    const enum err_code kept[] = {ERR_MALFORMED_JSON, ERR_CHAT_NOT_FOUND, ERR_CONFLICT,
                                  ERR_INVALID_REQUEST, ERR_DEFAULT_USER_MISSING};
    const enum err_code forgotten[] = {
        ERR_INTERNAL,     ERR_BUSY,         ERR_SANDBOX_START_FAILED,
        ERR_STORAGE_FULL, ERR_RATE_LIMITED, ERR_LEASE_QUOTA_EXCEEDED};
    (void)state;
    assert_true(idempotency_keeps(0, &(struct err){.code = ERR_NONE}));
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        assert_true(idempotency_keeps(-1, &(struct err){.code = kept[i]}));
    }
    for (size_t i = 0; i < sizeof(forgotten) / sizeof(forgotten[0]); i++) {
        assert_false(idempotency_keeps(-1, &(struct err){.code = forgotten[i]}));
    }
}

static void a_token_takes_the_place_of_its_null_alone(void **state)
{
    struct arena *arena = arena_new(4096);
    (void)state;
    assert_non_null(arena);
    assert_string_equal(
        idempotency_put_token(arena, "{\"lease\":{\"a\":null},\"token\":null,\"b\":null}", "x.y.z"),
        "{\"lease\":{\"a\":null},\"token\":\"x.y.z\",\"b\":null}");
    /* In a string the quotes are escaped, so that it cannot be taken for the member. */
    assert_string_equal(
        idempotency_put_token(arena, "{\"reason\":\"\\\"token\\\":null\",\"token\":null}", "t"),
        "{\"reason\":\"\\\"token\\\":null\",\"token\":\"t\"}");
    assert_string_equal(idempotency_put_token(arena, "{\"grant\":null}", "t"), "{\"grant\":null}");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_1_to_128_visible_ascii),
        cmocka_unit_test(successes_and_refusals_are_kept_but_no_failure_of_ours),
        cmocka_unit_test(a_token_takes_the_place_of_its_null_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
