/* Cursors: a place goes in and comes out; anything else is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "../../gateway/page.h"

static struct store_place place(int64_t at)
{
    struct store_place p = {.created_at = at};
    id_random(&p.id);
    return p;
}

static void a_place_comes_back_out_of_its_cursor(void **state)
{
    const int64_t times[] = {0, 1, 1764442801234, INT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        struct store_place in = place(times[i]), out;
        char text[CURSOR_TEXT];
        cursor_write('c', &in, text);
        assert_true(cursor_read('c', text, &out));
        assert_int_equal(out.created_at, in.created_at);
        assert_true(id_equal(&out.id, &in.id));
    }
}

static void a_cursor_of_another_list_is_refused(void **state)
{
    struct store_place in = place(1), out;
    char text[CURSOR_TEXT];
    (void)state;
    cursor_write('c', &in, text);
    assert_false(cursor_read('s', text, &out));
}

static void what_is_shorter_longer_or_not_canonical_is_refused(void **state)
{
    struct store_place in = place(1764442801234), out;
    char text[CURSOR_TEXT], bad[CURSOR_TEXT + 8];
    (void)state;
    cursor_write('c', &in, text);
    for (size_t len = 0; len < strlen(text); len++) {
        memcpy(bad, text, len);
        bad[len] = '\0';
        assert_false(cursor_read('c', bad, &out));
    }
    snprintf(bad, sizeof(bad), "%sA", text);
    assert_false(cursor_read('c', bad, &out));
    snprintf(bad, sizeof(bad), "%s=", text);
    assert_false(cursor_read('c', bad, &out));
    snprintf(bad, sizeof(bad), " %s", text);
    assert_false(cursor_read('c', bad, &out));
}

static void a_time_before_all_times_is_refused(void **state)
{
    struct store_place in = place(-1), out;
    char text[CURSOR_TEXT];
    (void)state;
    cursor_write('c', &in, text);
    assert_false(cursor_read('c', text, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_comes_back_out_of_its_cursor),
        cmocka_unit_test(a_cursor_of_another_list_is_refused),
        cmocka_unit_test(what_is_shorter_longer_or_not_canonical_is_refused),
        cmocka_unit_test(a_time_before_all_times_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
