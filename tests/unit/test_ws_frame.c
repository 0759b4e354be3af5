#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/ws_frame.h"

static int parse(const char *bytes, size_t len, struct ws_frame *f)
{
    return ws_frame_parse((const uint8_t *)bytes, len, WS_FROM_CLIENT, f);
}

#define PARSE(bytes, f) parse(bytes, sizeof(bytes) - 1, f)

static void headers_of_each_length_form_are_read_byte_by_byte(void **state)
{
    (void)state;
    struct ws_frame f;
    static const struct {
        const char *bytes;
        int len;
        uint64_t payload;
    } cases[] = {
        {"\x81\x80MASK", 6, 0},
        {"\x81\xfdMASK", 6, 125},
        {"\x81\xfe\x00\x7eMASK", 8, 126},
        {"\x81\xfe\xff\xffMASK", 8, 65535},
        {"\x81\xff\x00\x00\x00\x00\x00\x01\x00\x00MASK", 14, 65536},
        {"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xffMASK", 14, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int n = 0; n < cases[i].len; n++) {
            assert_int_equal(parse(cases[i].bytes, (size_t)n, &f), 0);
        }
        assert_int_equal(parse(cases[i].bytes, (size_t)cases[i].len, &f), cases[i].len);
        assert_true(f.len == cases[i].payload);
        assert_true(f.fin);
        assert_int_equal(f.opcode, WS_TEXT);
        assert_memory_equal(f.mask, "MASK", 4);
    }
}

static void what_is_against_the_protocol_is_refused(void **state)
{
    (void)state;
    struct ws_frame f;
    assert_int_equal(PARSE("\x81\x01", &f), -1);     /* not masked */
    assert_int_equal(PARSE("\xc1\x81MASK", &f), -1); /* reserved bits */
    assert_int_equal(PARSE("\xa1\x81MASK", &f), -1);
    assert_int_equal(PARSE("\x91\x81MASK", &f), -1);
    assert_int_equal(PARSE("\x83\x81MASK", &f), -1); /* unknown opcodes */
    assert_int_equal(PARSE("\x8b\x81MASK", &f), -1);
    assert_int_equal(PARSE("\x09\x80MASK", &f), -1); /* a control frame in pieces */
    assert_int_equal(PARSE("\x89\xfe\x00\x7eMASK", &f), -1);
    assert_int_equal(PARSE("\x81\xfe\x00\x7dMASK", &f), -1); /* not the shortest form */
    assert_int_equal(PARSE("\x81\xff\x00\x00\x00\x00\x00\x00\xff\xffMASK", &f), -1);
    assert_int_equal(PARSE("\x81\xff\x80\x00\x00\x00\x00\x00\x00\x00MASK", &f), -1);
}

static void the_mask_is_lifted_in_pieces_of_any_size(void **state)
{
    (void)state;
    const uint8_t mask[4] = {0x11, 0x22, 0x83, 0xf4};
    char plain[64], masked[64];
    for (size_t i = 0; i < sizeof plain; i++) {
        plain[i] = (char)i;
    }
    for (size_t from = 0; from < 16; from++) {
        for (size_t len = 0; len <= sizeof plain - from; len++) {
            memcpy(masked, plain, sizeof plain);
            ws_frame_mask(masked + from, len, mask, 7);
            for (size_t i = 0; i < sizeof plain; i++) {
                uint8_t key = i >= from && i < from + len ? mask[(7 + i - from) % 4] : 0;
                assert_int_equal((uint8_t)masked[i], (uint8_t)plain[i] ^ key);
            }
        }
    }
    for (size_t cut = 0; cut <= sizeof plain; cut++) {
        memcpy(masked, plain, sizeof plain);
        ws_frame_mask(masked, sizeof masked, mask, 0);
        ws_frame_mask(masked, cut, mask, 0);
        ws_frame_mask(masked + cut, sizeof masked - cut, mask, cut);
        assert_memory_equal(masked, plain, sizeof plain);
    }
}

static size_t put(uint8_t out[static WS_HEADER_OUT_MAX], enum ws_opcode opcode, uint64_t len)
{
    return ws_frame_put(out, &(struct ws_frame){.fin = true, .opcode = opcode, .len = len});
}

static void headers_written_have_the_shortest_form(void **state)
{
    (void)state;
    uint8_t out[WS_HEADER_OUT_MAX];
    assert_int_equal(put(out, WS_TEXT, 125), 2);
    assert_memory_equal(out, "\x81\x7d", 2);
    assert_int_equal(put(out, WS_CLOSE, 0), 2);
    assert_memory_equal(out, "\x88\x00", 2);
    assert_int_equal(put(out, WS_TEXT, 126), 4);
    assert_memory_equal(out, "\x81\x7e\x00\x7e", 4);
    assert_int_equal(put(out, WS_TEXT, 65535), 4);
    assert_memory_equal(out, "\x81\x7e\xff\xff", 4);
    assert_int_equal(put(out, WS_TEXT, 65536), 10);
    assert_memory_equal(out, "\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00", 10);
}

static void close_codes_that_never_travel_are_known(void **state)
{
    (void)state;
    static const unsigned good[] = {1000, 1001, 1003, 1007, 1011, 1014, 3000, 4401, 4999};
    static const unsigned bad[] = {0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(ws_close_code_valid(good[i]));
        assert_false(ws_close_code_valid(bad[i]));
    }
}

static void a_key_is_sixteen_bytes_in_base64(void **state)
{
    (void)state;
    static const char *const good[] = {
        "dGhlIHNhbXBsZSBub25jZQ==", "AAAAAAAAAAAAAAAAAAAAAA==", "/+09azAZ/+09azAZ/+09aw=="};
    static const char *const bad[] = {"",
                                      "dGhlIHNhbXBsZSBub25jZQ=",
                                      "dGhlIHNhbXBsZSBub25jZQ===",
                                      "dGhlIHNhbXBsZSBub25jZQA=",
                                      "dGhlIHNhbXBsZSBub25jZQAA",
                                      "dGhlIHNhbXBsZSBub25jZ===",
                                      "dGhlIHNhbXBsZS=ub25jZQ==",
                                      "dGhlIHNhbXBsZSBub25j-_==",
                                      "dGhlIHNhbXBsZSBub25jZ\xc3==",
                                      "!!!!!!!!!!!!!!!!!!!!!!==",
                                      "========================"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(ws_key_valid(good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(ws_key_valid(bad[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_of_each_length_form_are_read_byte_by_byte),
        cmocka_unit_test(what_is_against_the_protocol_is_refused),
        cmocka_unit_test(the_mask_is_lifted_in_pieces_of_any_size),
        cmocka_unit_test(headers_written_have_the_shortest_form),
        cmocka_unit_test(close_codes_that_never_travel_are_known),
        cmocka_unit_test(a_key_is_sixteen_bytes_in_base64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
