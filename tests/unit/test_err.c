#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/err.h"
#include "leasehold/json.h"

static void set_fills_everything_and_returns_minus_one(void **state)
{
    (void)state;
    struct err e;
    memset(&e, 0xff, sizeof(e));
    assert_int_equal(err_set(&e, ERR_CONFLICT, "chat %d", 7), -1);
    assert_int_equal(e.code, ERR_CONFLICT);
    assert_int_equal(e.sys, 0);
    assert_string_equal(e.pointer, "");
    assert_string_equal(e.msg, "chat 7");
}

static void sys_appends_the_text_of_errno(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(err_sys(&e, ERR_INTERNAL, ENOENT, "open %s", "x"), -1);
    assert_int_equal(e.sys, ENOENT);
    assert_string_equal(e.msg, "open x: No such file or directory");
    err_sys(&e, ERR_INTERNAL, 99999, "open");
    assert_string_equal(e.msg, "open: errno 99999");
}

static void field_keeps_the_pointer(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(err_field(&e, "/lease/ttl_s", "is too long"), -1);
    assert_int_equal(e.code, ERR_INVALID_REQUEST);
    assert_string_equal(e.pointer, "/lease/ttl_s");
    err_set(&e, ERR_BUSY, "later");
    assert_string_equal(e.pointer, "");
}

static void message_may_be_made_from_itself(void **state)
{
    (void)state;
    struct err e;
    err_field(&e, "/a", "inner");
    err_field(&e, e.pointer, "outer: %s", e.msg);
    assert_string_equal(e.msg, "outer: inner");
    assert_string_equal(e.pointer, "/a");
}

static void long_texts_are_cut_between_characters(void **state)
{
    (void)state;
    char text[400];
    for (size_t i = 0; i + 2 < sizeof(text); i += 2) {
        memcpy(text + i, "\xd0\xb6", 3);
    }
    struct err e;
    err_field(&e, text, "x%s", text);
    assert_in_range(strlen(e.msg), sizeof(e.msg) - 3, sizeof(e.msg) - 1);
    assert_true(utf8_valid(e.msg, strlen(e.msg)));
    assert_in_range(strlen(e.pointer), sizeof(e.pointer) - 3, sizeof(e.pointer) - 1);
    assert_true(utf8_valid(e.pointer, strlen(e.pointer)));
    err_sys(&e, ERR_INTERNAL, ENOENT, "%s", text);
    assert_in_range(strlen(e.msg), 1, sizeof(e.msg) - 1);
}

static void clear_means_no_error(void **state)
{
    (void)state;
    struct err e;
    err_field(&e, "/a", "inner");
    err_clear(&e);
    assert_int_equal(e.code, ERR_NONE);
    assert_string_equal(e.msg, "");
    assert_string_equal(e.pointer, "");
}

static void every_code_has_its_row(void **state)
{
    (void)state;
    for (int a = 0; a < ERR_CODE_COUNT; a++) {
        assert_non_null(err_code_name((enum err_code)a));
        assert_non_null(err_code_title((enum err_code)a));
        assert_in_range(err_code_http((enum err_code)a), 200, 599);
        assert_in_range(err_code_ws((enum err_code)a), 1000, 4999);
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(err_code_name((enum err_code)a),
                                    err_code_name((enum err_code)b));
        }
    }
    assert_string_equal(err_code_name(ERR_LEASE_TERMINAL), "lease_terminal");
    assert_int_equal(err_code_http(ERR_WORKSPACE_QUOTA_EXCEEDED), 507);
    assert_int_equal(err_code_ws(ERR_UNAUTHENTICATED), 4401);
}

static void a_code_out_of_range_reads_as_internal(void **state)
{
    (void)state;
    assert_string_equal(err_code_name((enum err_code)ERR_CODE_COUNT), "internal");
    assert_int_equal(err_code_http((enum err_code) - 1), 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_fills_everything_and_returns_minus_one),
        cmocka_unit_test(sys_appends_the_text_of_errno),
        cmocka_unit_test(field_keeps_the_pointer),
        cmocka_unit_test(message_may_be_made_from_itself),
        cmocka_unit_test(long_texts_are_cut_between_characters),
        cmocka_unit_test(clear_means_no_error),
        cmocka_unit_test(every_code_has_its_row),
        cmocka_unit_test(a_code_out_of_range_reads_as_internal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
