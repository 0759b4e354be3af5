/* utf8_valid: the same answer wherever in a text, and in a word of it, a character stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "leasehold/json.h"

#define LEN_MAX 40

static void at_every_place(const char *part, bool good)
{
    size_t part_len = strlen(part);

    for (size_t len = part_len; len <= LEN_MAX; len++) {
        for (size_t at = 0; at + part_len <= len; at++) {
            char text[LEN_MAX];

            memset(text, 'a', len);
            memcpy(text + at, part, part_len);
            assert_int_equal(utf8_valid(text, len), good);
        }
    }
}

static void test_characters_of_every_length_are_valid_everywhere(void **state)
{
    (void)state;
    at_every_place("", true);
    at_every_place("\x7f", true);
    at_every_place("\xc3\xa9", true);
    at_every_place("\xe2\x86\x92", true);
    at_every_place("\xf0\x9d\x84\x9e", true);
}

static void test_what_is_no_character_is_found_everywhere(void **state)
{
    (void)state;
    at_every_place("\x80", false);
    at_every_place("\xc3", false);
    at_every_place("\xc0\x80", false);
    at_every_place("\xed\xa0\x80", false);
    at_every_place("\xf4\x90\x80\x80", false);
    at_every_place("\xff", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters_of_every_length_are_valid_everywhere),
        cmocka_unit_test(test_what_is_no_character_is_found_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
