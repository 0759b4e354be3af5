#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/id.h"

#define CANONICAL "0f5d2c1a-9b3e-4c7d-8a6f-0123456789ab"

static void every_accepted_spelling_is_normalised(void **state)
{
    (void)state;
    static const char *const spellings[] = {
        CANONICAL,
        "0F5D2C1A-9B3E-4C7D-8A6F-0123456789AB",
        "0f5d2c1a9b3e4c7d8a6f0123456789ab",
        "{0f5d2c1a-9b3e-4c7d-8a6f-0123456789AB}",
        "{0f5d2c1a9b3e4c7d8a6f0123456789ab}",
        "urn:uuid:0f5d2c1a-9b3e-4c7d-8a6f-0123456789ab",
        "URN:Uuid:0F5D2C1A-9B3E-4C7D-8A6F-0123456789AB",
    };
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        struct id id;
        assert_true(id_parse(spellings[i], strlen(spellings[i]), &id));
        assert_string_equal(ID_STR(&id), CANONICAL);
    }
}

static void everything_else_is_refused_and_leaves_ret_alone(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{}",
        "urn:uuid:",
        "0f5d2c1a-9b3e-4c7d-8a6f-0123456789a",
        "0f5d2c1a-9b3e-4c7d-8a6f-0123456789abc",
        "0f5d2c1a9b3e-4c7d-8a6f-0123456789ab-",
        "0f5d2c1a-9b3e-4c7d-8a6f-0123456789ag",
        "0f5d2c1a9b3e4c7d8a6f0123456789a ",
        " 0f5d2c1a9b3e4c7d8a6f0123456789ab",
        "{0f5d2c1a-9b3e-4c7d-8a6f-0123456789ab",
        "0f5d2c1a-9b3e-4c7d-8a6f-0123456789ab}",
        "{{0f5d2c1a-9b3e-4c7d-8a6f-0123456789ab}}",
        "0f5d2c1a--9b3e4c7d-8a6f-0123456789ab",
        "../../../../../../../../../etc/passwd",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct id id = {{1}};
        assert_false(id_parse(bad[i], strlen(bad[i]), &id));
        assert_int_equal(id.b[0], 1);
    }
}

static void ordered_ids_sort_by_their_time_and_stay_random_behind_it(void **state)
{
    (void)state;
    struct id older, newer, other;
    id_random(&older);
    id_random(&newer);
    id_random(&other);
    id_order(&older, 0x0123456789ab);
    id_order(&newer, 0x0123456789ac);
    id_order(&other, 0x0123456789ab);
    assert_memory_equal(ID_STR(&older), "01234567-89ab-4", 15);
    assert_true(strcmp(ID_STR(&older), ID_STR(&newer)) < 0);
    assert_false(id_equal(&older, &other));
}

static void only_len_bytes_count(void **state)
{
    (void)state;
    struct id id;
    assert_true(id_parse(CANONICAL "garbage", strlen(CANONICAL), &id));
    assert_false(id_parse(CANONICAL, strlen(CANONICAL) - 1, &id));
    char with_nul[] = CANONICAL;
    with_nul[20] = '\0';
    assert_false(id_parse(with_nul, sizeof(with_nul) - 1, &id));
}

static void random_ids_are_version_4_and_differ(void **state)
{
    (void)state;
    struct id a, b;
    id_random(&a);
    id_random(&b);
    assert_int_equal(a.b[6] >> 4, 4);
    assert_int_equal(a.b[8] >> 6, 2);
    assert_false(id_equal(&a, &b));
    assert_true(id_equal(&a, &a));
    struct id again;
    assert_true(id_parse(ID_STR(&a), ID_TEXT - 1, &again));
    assert_true(id_equal(&a, &again));
}

static void every_byte_is_written_and_read_at_every_place(void **state)
{
    (void)state;
    for (size_t at = 0; at < 16; at++) {
        for (unsigned byte = 0; byte < 256; byte++) {
            struct id id, again;
            char want[ID_TEXT], *to = want;
            for (size_t i = 0; i < 16; i++) {
                id.b[i] = (uint8_t)(i == at ? byte : ~byte);
                to += snprintf(to, 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                               id.b[i]);
            }
            assert_string_equal(ID_STR(&id), want);
            assert_true(id_parse(want, ID_TEXT - 1, &again));
            assert_true(id_equal(&again, &id));
        }
    }
}

static void no_other_character_is_a_digit(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        bool digit = strchr("0123456789abcdefABCDEF", c) != NULL;
        for (size_t at = 0; at < sizeof(CANONICAL) - 1; at++) {
            char text[] = CANONICAL;
            struct id id;
            bool hyphen = text[at] == '-';
            text[at] = (char)c;
            assert_int_equal(id_parse(text, strlen(text), &id), hyphen ? c == '-' : digit);
        }
    }
}

static void zero_is_none(void **state)
{
    (void)state;
    struct id id = {{0}};
    assert_true(id_is_zero(&id));
    id.b[15] = 1;
    assert_false(id_is_zero(&id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_accepted_spelling_is_normalised),
        cmocka_unit_test(everything_else_is_refused_and_leaves_ret_alone),
        cmocka_unit_test(ordered_ids_sort_by_their_time_and_stay_random_behind_it),
        cmocka_unit_test(only_len_bytes_count),
        cmocka_unit_test(random_ids_are_version_4_and_differ),
        cmocka_unit_test(every_byte_is_written_and_read_at_every_place),
        cmocka_unit_test(no_other_character_is_a_digit),
        cmocka_unit_test(zero_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
