#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/token.h"

static int decode(const char *text, uint8_t *out, size_t size, size_t *ret_len)
{
    return base64url_decode(text, strlen(text), out, size, ret_len);
}

static void test_encodes_the_vectors_of_rfc_4648_without_padding(void **state)
{
    static const char *const vectors[][2] = {
        {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},         {"foo", "Zm9v"},
        {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}};
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        char text[16];
        uint8_t bytes[16];
        size_t len;
        size_t n = base64url_encode((const uint8_t *)vectors[i][0], strlen(vectors[i][0]), text);
        assert_string_equal(text, vectors[i][1]);
        assert_int_equal(n, strlen(text));
        assert_int_equal(decode(text, bytes, sizeof bytes, &len), 0);
        assert_int_equal(len, strlen(vectors[i][0]));
        assert_memory_equal(bytes, vectors[i][0], len);
    }
}

static void test_uses_the_url_alphabet(void **state)
{
    const uint8_t bytes[] = {0xfb, 0xff, 0xbf};
    char text[8];
    (void)state;
    base64url_encode(bytes, sizeof bytes, text);
    assert_string_equal(text, "-_-_");
}

static void test_every_byte_survives_at_every_length(void **state)
{
    uint8_t in[256], out[256];
    char text[400];
    (void)state;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i * 167 + 13);
    for (size_t len = 0; len <= sizeof in; len++) {
        size_t got;
        size_t n = base64url_encode(in, len, text);
        assert_int_equal(base64url_decode(text, n, out, len, &got), 0);
        assert_int_equal(got, len);
        assert_memory_equal(in, out, len);
    }
}

static void test_refuses_all_characters_outside_the_alphabet(void **state)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (void)state;
    for (int c = 0; c < 256; c++) {
        char text[4] = {'A', (char)c, 'A', 'A'};
        uint8_t out[3];
        size_t len;
        int want = c != 0 && strchr(alphabet, c) != NULL ? 0 : -1;
        assert_int_equal(base64url_decode(text, sizeof text, out, sizeof out, &len), want);
    }
}

static void test_refuses_what_is_not_canonical(void **state)
{
    static const char *const bad[] = {
        "Zh",                                              /* unused bits of one byte */
        "Zm9",                                             /* unused bits of two bytes */
        "Zg==",                                            /* padding */
        "Zm8=",  "Zg=",   "A",      "AAAAA", "Z", "Zm9vY", /* a lone character */
        "Zm9v ", " Zm9v", "Zm\n9v", "+/+/",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t out[16];
        size_t len = 77;
        assert_int_equal(decode(bad[i], out, sizeof out, &len), -1);
        assert_int_equal(len, 77);
    }
}

static void test_just_one_of_sixteen_last_characters_is_canonical(void **state)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    int accepted = 0;
    (void)state;
    for (int i = 0; i < 64; i++) {
        char text[2] = {'A', alphabet[i]};
        uint8_t out[1];
        size_t len;
        accepted += base64url_decode(text, 2, out, 1, &len) == 0;
    }
    assert_int_equal(accepted, 4);
}

static void test_refuses_what_does_not_fit(void **state)
{
    uint8_t out[6];
    size_t len;
    (void)state;
    assert_int_equal(decode("Zm9vYmFy", out, 6, &len), 0);
    assert_int_equal(decode("Zm9vYmFy", out, 5, &len), -1);
    assert_int_equal(decode("Zm9vYg", out, 3, &len), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encodes_the_vectors_of_rfc_4648_without_padding),
        cmocka_unit_test(test_uses_the_url_alphabet),
        cmocka_unit_test(test_every_byte_survives_at_every_length),
        cmocka_unit_test(test_refuses_all_characters_outside_the_alphabet),
        cmocka_unit_test(test_refuses_what_is_not_canonical),
        cmocka_unit_test(test_just_one_of_sixteen_last_characters_is_canonical),
        cmocka_unit_test(test_refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
