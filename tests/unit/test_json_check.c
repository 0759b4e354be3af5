#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/json.h"

static struct err e;

static void assert_malformed_bytes(const char *text, size_t len, const char *part)
{
    static const struct field none[] = {{0}};
    char nothing;
    /* A copy of exactly len bytes, so that a sanitizer sees every read beyond. */
    char *exact = malloc(len);
    memcpy(exact, text, len);
    if (json_check(exact, len, false, &e) == 0) {
        fail_msg("accepted: %s", text);
    }
    assert_string_equal(err_code_name(e.code), "malformed_json");
    if (strstr(e.msg, part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, e.msg);
    }
    assert_int_equal(json_decode(exact, len, none, &nothing, NULL, &e), -1);
    assert_string_equal(err_code_name(e.code), "malformed_json");
    free(exact);
}

static void assert_malformed(const char *text, const char *part)
{
    assert_malformed_bytes(text, strlen(text), part);
}

static void assert_accepted(const char *text)
{
    if (json_check(text, strlen(text), false, &e) != 0) {
        fail_msg("%s: %s", text, e.msg);
    }
}

static void duplicates_are_refused_in_every_spelling(void **state)
{
    (void)state;
    assert_malformed("{\"a\":1,\"a\":1}", "\"a\" is given twice");
    assert_malformed("{\"a\":1,\"\\u0061\":1}", "\"a\" is given twice");
    assert_malformed("{\"\\/\":1,\"b\":0,\"/\":1}", "\"/\" is given twice");
    assert_malformed("{\"\\n\":1,\"\\u000A\":1}", "\"\\u000a\" is given twice");
    assert_malformed("{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":1}", "given twice");
    assert_malformed("{\"\\u0436\":1,\"\xd0\xb6\":1}", "given twice");
    assert_malformed("{\"\\u20ac\":1,\"\xe2\x82\xac\":1}", "given twice");
    assert_malformed("{\"\":1,\"\":1}", "given twice");
    assert_malformed("[{\"x\":{\"y\":[{\"z\":1,\"z\":2}]}}]", "\"z\" is given twice");
    assert_malformed("{\"a\":{\"b\":1,\"c\":2},\"a\":1}", "\"a\" is given twice");
    assert_accepted("{\"a\":1,\"A\":2,\"aa\":{\"a\":3},\"b\":[{\"a\":1},{\"a\":1}]}");
    assert_accepted("{\"\\\\u0061\":1,\"a\":2}");
}

static void many_names_are_compared_quickly(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 22);
    buf_add_char(&b, '{');
    for (int i = 0; i < 100000; i++) {
        buf_printf(&b, "\"%d\":0,", i);
    }
    buf_add_str(&b, "\"99999\":0}");
    assert_true(buf_ok(&b));
    assert_int_equal(json_check(b.data, b.len, true, &e), -1);
    assert_non_null(strstr(e.msg, "\"99999\" is given twice"));
    buf_done(&b);
}

static void depth_is_at_most_32(void **state)
{
    (void)state;
    char text[80] = "";
    memset(text, '[', 32);
    memset(text + 32, ']', 32);
    assert_accepted(text);
    memset(text, '[', 33);
    memset(text + 33, ']', 33);
    assert_malformed(text, "nested too deep");
    char deep[400] = "";
    for (int i = 0; i < 33; i++) {
        strcat(deep, "{\"a\":");
    }
    assert_malformed(deep, "nested too deep");
}

static void numbers_follow_the_grammar_and_stay_exact(void **state)
{
    (void)state;
    assert_accepted("[0,-0,10,9007199254740992,-9007199254740992,0.5,1e5,1E-5,1e+5,-1.25e2]");
    assert_malformed("9007199254740993", "integer beyond 2^53");
    assert_malformed("-9007199254740993", "integer beyond 2^53");
    assert_malformed("[10000000000000000000000000]", "integer beyond 2^53");
    assert_malformed("1e999", "number out of range");
    assert_malformed("-1e999", "number out of range");
    assert_malformed("01", "bad number");
    assert_malformed("-01", "bad number");
    assert_malformed("1.", "bad number");
    assert_malformed("[1.]", "bad number");
    assert_malformed("1.e5", "bad number");
    assert_malformed("1e", "bad number");
    assert_malformed("1e+", "bad number");
    assert_malformed("-", "bad number");
    assert_malformed(".5", "unexpected character");
    assert_malformed("+1", "unexpected character");
    assert_malformed("0x10", "trailing bytes");
    assert_malformed("NaN", "unexpected character");
    assert_malformed("Infinity", "unexpected character");
    char text[80] = "0.";
    memset(text + 2, '1', 61);
    assert_accepted(text);
    strcat(text, "1");
    assert_malformed(text, "number too long");
}

static void surrogates_come_in_pairs(void **state)
{
    (void)state;
    assert_accepted("\"\\ud83d\\ude00\"");
    assert_accepted("\"\\uD83D\\uDE00\\uffff\"");
    assert_malformed("\"\\ud83d\"", "lone surrogate");
    assert_malformed("\"\\ude00\"", "lone surrogate");
    assert_malformed("\"\\ude00\\ud83d\"", "lone surrogate");
    assert_malformed("\"\\ud83d\\ud83d\"", "lone surrogate");
    assert_malformed("\"\\ud83dx\"", "lone surrogate");
    assert_malformed("\"\\ud83d\\u00", "lone surrogate");
    assert_malformed("{\"\\udfff\":1}", "lone surrogate");
}

static void nul_is_refused_raw_and_escaped(void **state)
{
    (void)state;
    assert_malformed("\"\\u0000\"", "\\u0000");
    assert_malformed("{\"a\\u0000b\":1}", "\\u0000");
    assert_malformed_bytes("\"a\0b\"", 5, "control character");
    assert_malformed_bytes("{}\0", 3, "trailing bytes");
    assert_malformed_bytes("\0{}", 3, "unexpected character");
    assert_malformed_bytes("\"\\\0\"", 4, "bad escape");
}

static void invalid_utf8_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\"\xff\"",         "\"\x80\"",     "\"\xc0\xaf\"",         "\"\xe0\x80\x80\"",
        "\"\xed\xa0\x80\"", "\"\xe2\x82\"", "\"\xf4\x90\x80\x80\"", "\"\xf8\x88\x80\x80\x80\"",
        "{\"\xff\":1}",     "\"\xc2",       "\"\xf0\x9f\x98\"",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_malformed(bad[i], "invalid UTF-8");
    }
    assert_accepted("\"\xd0\xb6\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\x7f\"");
}

static void other_breakage_is_refused(void **state)
{
    (void)state;
    assert_malformed("{}{}", "trailing bytes");
    assert_malformed("{} x", "trailing bytes");
    assert_malformed("\xef\xbb\xbf{}", "byte order mark");
    assert_int_equal(json_check("", 0, false, &e), -1);
    assert_int_equal(json_check(NULL, 0, true, &e), -1);
    assert_int_equal(e.code, ERR_MALFORMED_JSON);
    assert_malformed(" ", "unexpected end");
    assert_malformed("{", "expected a string");
    assert_malformed("[", "unexpected end");
    assert_malformed("[1", "expected ',' or ']'");
    assert_malformed("[1,]", "unexpected character");
    assert_malformed("{\"a\":1,}", "expected a string");
    assert_malformed("{\"a\" 1}", "expected ':'");
    assert_malformed("{\"a\":}", "unexpected character");
    assert_malformed("{a:1}", "expected a string");
    assert_malformed("{'a':1}", "expected a string");
    assert_malformed("[1}", "expected ',' or ']'");
    assert_malformed("\"a", "unterminated string");
    assert_malformed("\"a\\", "bad escape");
    assert_malformed("\"\\x41\"", "bad escape");
    assert_malformed("\"\\u12g4\"", "bad \\u escape");
    assert_malformed("\"a\nb\"", "control character");
    assert_malformed("tru", "unexpected character");
    assert_malformed("True", "unexpected character");
    assert_malformed("nul", "unexpected character");
    assert_malformed("// x\n{}", "unexpected character");
    assert_malformed("\f{}", "unexpected character");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(duplicates_are_refused_in_every_spelling),
        cmocka_unit_test(many_names_are_compared_quickly),
        cmocka_unit_test(depth_is_at_most_32),
        cmocka_unit_test(numbers_follow_the_grammar_and_stay_exact),
        cmocka_unit_test(surrogates_come_in_pairs),
        cmocka_unit_test(nul_is_refused_raw_and_escaped),
        cmocka_unit_test(invalid_utf8_is_refused),
        cmocka_unit_test(other_breakage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
