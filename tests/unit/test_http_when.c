/* Conditions, ranges, dates and names of files, as the RFCs have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../gateway/http_when.h"

#define ETAG "\"abc\""
#define AT   1000000000

/* A second before it, it, and a second behind it. */
static const char early[] = "Sun, 09 Sep 2001 01:46:39 GMT";
static const char same[] = "Sun, 09 Sep 2001 01:46:40 GMT";
static const char late[] = "Sun, 09 Sep 2001 01:46:41 GMT";

static struct op_when when_of(const char *match, const char *none, const char *modified,
                              const char *unmodified)
{
    return (struct op_when){.range = "",
                            .if_range = "",
                            .if_match = match,
                            .if_none_match = none,
                            .if_modified_since = modified,
                            .if_unmodified_since = unmodified};
}

static void dates_in_three_forms(void **state)
{
    const char *const forms[] = {same, "Sunday, 09-Sep-01 01:46:40 GMT",
                                 "Sun Sep  9 01:46:40 2001"};
    char text[HTTP_DATE_SIZE];
    int64_t at;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_true(http_date_parse(forms[i], &at));
        assert_int_equal(at, AT);
    }
    http_date_format(AT, text);
    assert_string_equal(text, same);
    assert_false(http_date_parse("", &at));
    assert_false(http_date_parse("Sun, 09 Sep 2001 01:46:40 GMT x", &at));
    assert_false(http_date_parse("tomorrow", &at));
}

static void conditions(void **state)
{
    static const struct {
        const char *match, *none, *modified, *unmodified;
        enum http_verdict reads, writes;
    } cases[] = {
        {"", "", "", "", HTTP_GO_ON, HTTP_GO_ON},
        {ETAG, "", "", "", HTTP_GO_ON, HTTP_GO_ON},
        {"*", "", "", "", HTTP_GO_ON, HTTP_GO_ON},
        {"\"x\", " ETAG, "", "", "", HTTP_GO_ON, HTTP_GO_ON},
        {"\"x\"", "", "", "", HTTP_FAILED, HTTP_FAILED},
        {"W/" ETAG, "", "", "", HTTP_FAILED, HTTP_FAILED},
        {"abc", "", "", "", HTTP_FAILED, HTTP_FAILED},
        {"", ETAG, "", "", HTTP_NOT_MODIFIED, HTTP_FAILED},
        {"", "W/" ETAG, "", "", HTTP_NOT_MODIFIED, HTTP_FAILED},
        {"", "*", "", "", HTTP_NOT_MODIFIED, HTTP_FAILED},
        {"", "\"x\"", same, "", HTTP_GO_ON, HTTP_GO_ON},
        {"", "", same, "", HTTP_NOT_MODIFIED, HTTP_GO_ON},
        {"", "", early, "", HTTP_GO_ON, HTTP_GO_ON},
        {"", "", "", early, HTTP_FAILED, HTTP_FAILED},
        {"", "", "", same, HTTP_GO_ON, HTTP_GO_ON},
        {ETAG, "", "", early, HTTP_GO_ON, HTTP_GO_ON},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct op_when w =
            when_of(cases[i].match, cases[i].none, cases[i].modified, cases[i].unmodified);
        assert_int_equal(http_when(&w, ETAG, AT, true), cases[i].reads);
        assert_int_equal(http_when(&w, ETAG, AT, false), cases[i].writes);
    }
}

/* As of a long file whose sum is still being made. */
static void conditions_on_a_file_without_a_tag(void **state)
{
    static const struct {
        const char *match, *none, *modified, *unmodified;
        enum http_verdict reads, writes;
    } cases[] = {
        {"*", "", "", "", HTTP_GO_ON, HTTP_GO_ON},
        {ETAG, "", "", "", HTTP_FAILED, HTTP_FAILED},
        {"\"\"", "", "", "", HTTP_FAILED, HTTP_FAILED},
        {"", "*", "", "", HTTP_NOT_MODIFIED, HTTP_FAILED},
        {"", ETAG, "", "", HTTP_GO_ON, HTTP_GO_ON},
        {"", "\"\"", "", "", HTTP_GO_ON, HTTP_GO_ON},
        {"", "", same, "", HTTP_NOT_MODIFIED, HTTP_GO_ON},
        {"", "", "", early, HTTP_FAILED, HTTP_FAILED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct op_when w =
            when_of(cases[i].match, cases[i].none, cases[i].modified, cases[i].unmodified);
        assert_int_equal(http_when(&w, "", AT, true), cases[i].reads);
        assert_int_equal(http_when(&w, "", AT, false), cases[i].writes);
    }
}

static void conditions_on_what_is_not_there(void **state)
{
    struct op_when match = when_of("*", "", "", ""), none = when_of("", "*", "", "");

    (void)state;
    assert_int_equal(http_when(&match, NULL, 0, false), HTTP_FAILED);
    assert_int_equal(http_when(&none, NULL, 0, false), HTTP_GO_ON);
}

static void ranges(void **state)
{
    static const struct {
        const char *text;
        int n;
        struct http_range r[3];
    } cases[] = {
        {"bytes=0-0", 1, {{0, 1}}},
        {"bytes=90-", 1, {{90, 10}}},
        {"bytes=-10", 1, {{90, 10}}},
        {"bytes=-1000", 1, {{0, 100}}},
        {"BYTES=5-99999999999999999999999", 1, {{5, 95}}},
        {"bytes=0-1, 5-6 ,, 9-9", 3, {{0, 2}, {5, 2}, {9, 1}}},
        {"bytes=9-9,0-1", 2, {{9, 1}, {0, 2}}},
        {"bytes=0-5,3-9", 1, {{0, 10}}},
        {"bytes=5-9,0-4", 1, {{0, 10}}},
        {"bytes=0-1,500-", 1, {{0, 2}}},
        {"bytes=100-", -1, {{0, 0}}},
        {"bytes=-0", -1, {{0, 0}}},
        {"", 0, {{0, 0}}},
        {"bytes=", 0, {{0, 0}}},
        {"bytes=5", 0, {{0, 0}}},
        {"bytes=5-4", 0, {{0, 0}}},
        {"bytes=a-b", 0, {{0, 0}}},
        {"bytes=1-2x", 0, {{0, 0}}},
        {"bytes=--1", 0, {{0, 0}}},
        {"chapters=1-2", 0, {{0, 0}}},
    };
    struct http_range got[HTTP_RANGES_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int n = http_ranges(cases[i].text, 100, got);
        assert_int_equal(n, cases[i].n);
        for (int k = 0; k < n; k++) {
            assert_int_equal(got[k].from, cases[i].r[k].from);
            assert_int_equal(got[k].len, cases[i].r[k].len);
        }
    }
    assert_int_equal(http_ranges("bytes=0-0", 0, got), -1);
}

static void parts_of_the_same_file(void **state)
{
    (void)state;
    assert_true(http_if_range("", NULL, AT));
    assert_true(http_if_range(ETAG, ETAG, AT));
    assert_false(http_if_range("W/" ETAG, ETAG, AT));
    assert_false(http_if_range(ETAG, NULL, AT));
    assert_true(http_if_range(same, ETAG, AT));
    assert_false(http_if_range(late, ETAG, AT));
    assert_false(http_if_range("soon", ETAG, AT));
}

static void names_for_browsers(void **state)
{
    static const char *const cases[][2] = {
        {"a b.txt", "attachment; filename=\"a b.txt\""},
        {"a\"b\\c", "attachment; filename=\"a_b_c\"; filename*=UTF-8''a%22b%5Cc"},
        {"\xc3\xa9.x", "attachment; filename=\"_.x\"; filename*=UTF-8''%C3%A9.x"},
        {"%41", "attachment; filename=\"_41\"; filename*=UTF-8''%2541"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char want[200];
        struct buf b;
        buf_init(&b, 1000);
        http_disposition(cases[i][0], &b);
        snprintf(want, sizeof want, "Content-Disposition: %s\r\n", cases[i][1]);
        assert_string_equal(b.data, want);
        buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dates_in_three_forms),
        cmocka_unit_test(conditions),
        cmocka_unit_test(conditions_on_a_file_without_a_tag),
        cmocka_unit_test(conditions_on_what_is_not_there),
        cmocka_unit_test(ranges),
        cmocka_unit_test(parts_of_the_same_file),
        cmocka_unit_test(names_for_browsers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
