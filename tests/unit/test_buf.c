#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/buf.h"

static void appends_grow_and_stay_terminated(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10000);
    for (int i = 0; i < 1000; i++) {
        buf_add_str(&b, "ab");
        buf_add_char(&b, 'c');
        buf_printf(&b, "%d", i % 10);
        assert_int_equal(b.data[b.len], '\0');
    }
    assert_true(buf_ok(&b));
    assert_int_equal(b.len, 4000);
    assert_memory_equal(b.data + 3996, "abc9", 5);
    buf_done(&b);
}

static void room_made_before_is_used_and_the_cap_is_kept(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_reserve(&b, 60);
    const char *at = b.data;
    for (int i = 0; i < 6; i++) {
        buf_add_str(&b, "0123456789");
    }
    assert_ptr_equal(b.data, at);
    assert_int_equal(b.len, 60);
    buf_reserve(&b, SIZE_MAX);
    assert_int_equal(b.size, 101);
    buf_add(&b, "0123456789012345678901234567890123456789", 40);
    assert_true(buf_ok(&b));
    buf_reserve(&b, 1);
    assert_int_equal(b.size, 101);
    assert_true(buf_ok(&b));
    buf_done(&b);
}

static void bytes_may_hold_nuls(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 16);
    buf_add(&b, "a\0b", 3);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.data, "a\0b", 4);
    buf_done(&b);
}

static void cap_is_reached_exactly_and_never_passed(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 4);
    buf_add(&b, "abcd", 4);
    assert_true(buf_ok(&b));
    assert_in_range(b.size, 5, 5);
    buf_add_char(&b, 'e');
    assert_false(buf_ok(&b));
    assert_int_equal(b.len, 4);
    buf_done(&b);
}

static void a_failed_buffer_takes_nothing_more(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 4);
    buf_add_str(&b, "12345");
    assert_false(buf_ok(&b));
    buf_add_str(&b, "1");
    buf_printf(&b, "%d", 1);
    assert_int_equal(b.len, 0);
    buf_reset(&b);
    assert_true(buf_ok(&b));
    buf_add_str(&b, "1");
    assert_string_equal(b.data, "1");
    buf_done(&b);
}

static void printf_that_does_not_fit_leaves_nothing_of_itself(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_add_str(&b, "head");
    buf_printf(&b, "%0200d", 1);
    assert_false(buf_ok(&b));
    assert_int_equal(b.len, 4);
    assert_string_equal(b.data, "head");
    buf_done(&b);
    buf_init(&b, 4);
    buf_printf(&b, "%s", "abcd");
    assert_true(buf_ok(&b));
    assert_string_equal(b.data, "abcd");
    buf_done(&b);
}

static void a_length_that_would_overflow_fails(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, "x");
    buf_add(&b, "x", SIZE_MAX);
    assert_false(buf_ok(&b));
    assert_int_equal(b.len, 1);
    buf_done(&b);
}

static void consume_drops_from_the_front(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_consume(&b, 0);
    buf_add_str(&b, "abcdef");
    buf_consume(&b, 2);
    assert_string_equal(b.data, "cdef");
    buf_consume(&b, 4);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    buf_done(&b);
}

static void done_twice_and_reuse_are_fine(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_reset(&b);
    buf_add_str(&b, "x");
    buf_done(&b);
    buf_done(&b);
    buf_add_str(&b, "y");
    assert_string_equal(b.data, "y");
    buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_grow_and_stay_terminated),
        cmocka_unit_test(room_made_before_is_used_and_the_cap_is_kept),
        cmocka_unit_test(bytes_may_hold_nuls),
        cmocka_unit_test(cap_is_reached_exactly_and_never_passed),
        cmocka_unit_test(a_failed_buffer_takes_nothing_more),
        cmocka_unit_test(printf_that_does_not_fit_leaves_nothing_of_itself),
        cmocka_unit_test(a_length_that_would_overflow_fails),
        cmocka_unit_test(consume_drops_from_the_front),
        cmocka_unit_test(done_twice_and_reuse_are_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
