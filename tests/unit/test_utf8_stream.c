/* Text in pieces is judged as the whole of it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../lease/door/utf8_stream.h"
#include "leasehold/json.h"

static bool take(struct utf8_stream *u, const char *text, size_t len, bool fin)
{
    /* Of exactly this length, so that a sanitizer sees a step too far. */
    char *copy = malloc(len > 0 ? len : 1);
    bool r;

    memcpy(copy, text, len);
    r = utf8_stream_take(u, copy, len, fin);
    free(copy);
    return r;
}

static bool in_two(const char *text, size_t len, size_t cut)
{
    struct utf8_stream u = {0};

    return take(&u, text, cut, false) && take(&u, text + cut, len - cut, true);
}

static bool byte_by_byte(const char *text, size_t len)
{
    struct utf8_stream u = {0};

    for (size_t i = 0; i < len; i++)
        if (!take(&u, text + i, 1, false))
            return false;
    return take(&u, "", 0, true);
}

static void every_cut_gives_the_verdict_of_the_whole(void **state)
{
    static const char *const texts[] = {"",
                                        "plain",
                                        "a\xc3\xa9",
                                        "\xe2\x86\x92",
                                        "\xf0\x9d\x84\x9e",
                                        "\xf0\x9d\x84\x9ez",
                                        "\xc3",
                                        "\xc3\x28",
                                        "\xe2\x82",
                                        "\xe2\x28\xa1",
                                        "\xed\xa0\x80",
                                        "\xf4\x90\x80\x80",
                                        "\xc0\x80",
                                        "\xe0\x80\x80",
                                        "\xf0\x80\x80\x80",
                                        "\x80",
                                        "x\xbf",
                                        "\xff",
                                        "\xfe\xff\xff\xff",
                                        "\xf8\x88\x80\x80\x80",
                                        "\xf0\x9d\x84",
                                        "\xc3\xc3\xa9",
                                        "\xe2\xe2\x86\x92",
                                        "a\xe2\x86\x92\xf0\x9d\x84\x9e\xc3\xa9z",
                                        "\xf0\x9d\x84\x9e\x80",
                                        "\xc3\xa9\xa9"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        size_t len = strlen(texts[i]);
        bool whole = utf8_valid(texts[i], len);

        assert_int_equal(byte_by_byte(texts[i], len), whole);
        for (size_t cut = 0; cut <= len; cut++)
            assert_int_equal(in_two(texts[i], len, cut), whole);
    }
}

static void random_bytes_in_random_pieces_too(void **state)
{
    static const char bytes[] = "ab\xc3\xa9\xe2\x86\x92\xf0\x9d\x84\x9e\x80\xff";

    (void)state;
    srand(7);
    for (int round = 0; round < 20000; round++) {
        char text[12];
        size_t len = (size_t)rand() % sizeof(text), at = 0, n;
        struct utf8_stream u = {0};
        bool good = true;

        for (size_t i = 0; i < len; i++)
            text[i] = bytes[(size_t)rand() % (sizeof(bytes) - 1)];
        do {
            n = (size_t)rand() % (len - at + 1);
            good = good && take(&u, text + at, n, at + n == len);
            at += n;
        } while (at < len);
        assert_int_equal(good, utf8_valid(text, len));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_verdict_of_the_whole),
        cmocka_unit_test(random_bytes_in_random_pieces_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
