/* Our side of an agent's WebSocket: leaseinit's handshake and the door's frames, byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "../../runtime/init/init_sha1.h"
#include "leasehold/ws_reader.h"
#include "../../runtime/init/init_ws_shake.h"

#define MESSAGE_MAX (16u * 1024u * 1024u)

/* ---- handshake ---- */

static void sha1_agrees_with_openssl_at_every_length(void **state)
{
    (void)state;
    uint8_t data[SHA1_MAX], ours[SHA1_SIZE], theirs[SHA1_SIZE];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7 + 3);
    for (size_t len = 0; len <= SHA1_MAX; len++) {
        sha1_short(data, len, ours);
        assert_int_equal(EVP_Digest(data, len, theirs, NULL, EVP_sha1(), NULL), 1);
        assert_memory_equal(ours, theirs, SHA1_SIZE);
    }
}

static void the_key_of_rfc_6455_gives_its_accept(void **state)
{
    (void)state;
    char key[WSC_KEY_TEXT], accept[WSC_ACCEPT_TEXT];
    wsc_key_make((const uint8_t *)"the sample nonce", key, accept);
    assert_string_equal(key, "dGhlIHNhbXBsZSBub25jZQ==");
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

static void the_request_has_what_it_needs_and_must_fit(void **state)
{
    (void)state;
    char out[WSC_REQUEST_MAX];
    size_t len = wsc_request_put(out, sizeof(out), "127.0.0.1:7000", "/a?b=c", "KEY");
    assert_int_equal(len, strlen(out));
    assert_non_null(strstr(out, "GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:7000\r\n"));
    assert_non_null(strstr(out, "\r\nSec-WebSocket-Key: KEY\r\n"));
    assert_string_equal(out + len - 4, "\r\n\r\n");
    assert_int_equal(wsc_request_put(out, len, "127.0.0.1:7000", "/a?b=c", "KEY"), 0);
}

static void an_answer_ends_at_its_empty_line_or_is_too_long(void **state)
{
    (void)state;
    static uint8_t longest[WSC_ANSWER_MAX + 8];
    memset(longest, 'x', sizeof(longest));
    assert_int_equal(wsc_answer_end((const uint8_t *)"a\r\n\r\nrest", 9), 5);
    assert_int_equal(wsc_answer_end((const uint8_t *)"a\r\n\r", 4), 0);
    assert_int_equal(wsc_answer_end(longest, WSC_ANSWER_MAX - 1), 0);
    assert_int_equal(wsc_answer_end(longest, WSC_ANSWER_MAX), -1);
    memcpy(longest + WSC_ANSWER_MAX - 4, "\r\n\r\n", 4);
    assert_int_equal(wsc_answer_end(longest, sizeof(longest)), WSC_ANSWER_MAX);
    memcpy(longest + WSC_ANSWER_MAX - 4, "x\r\n\r\n", 5);
    assert_int_equal(wsc_answer_end(longest, sizeof(longest)), -1);
}

static bool accepts(const char *head)
{
    /* Exactly as long as it is, so that a sanitizer sees a step too far. */
    size_t len = strlen(head);
    uint8_t *copy = malloc(len);
    memcpy(copy, head, len);
    bool r = wsc_answer_accepts(copy, len, "ACCEPT");
    free(copy);
    return r;
}

#define GOOD                                                                                       \
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n"                                   \
    "connection: keep-alive, Upgrade\r\nSec-WebSocket-Accept: \t ACCEPT \r\n"

static void only_an_answer_to_what_was_asked_is_accepted(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "HTTP/1.1 200 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: ACCEPT\r\n\r\n",
        "HTTP/1.0 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: ACCEPT\r\n\r\n",
        "HTTP/1.1 1011\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: ACCEPT\r\n\r\n",
        "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n",
        "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n",
        "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 101 X\r\nUpgrade: websockets\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: ACCEPT\r\n\r\n",
        "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: accept\r\n\r\n",
        "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: ACCEPT2\r\n\r\n",
        GOOD "Sec-WebSocket-Accept: ACCEPT\r\n\r\n",
        GOOD "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
        GOOD "Sec-WebSocket-Protocol: chat\r\n\r\n",
        GOOD "no colon here\r\n\r\n",
        GOOD ": no name\r\n\r\n",
        "HTTP/1.1 101",
        "HTTP/1.1 101\r\n\r\n",
        "\r\n\r\n",
    };
    assert_true(accepts(GOOD "\r\n"));
    assert_true(accepts(GOOD "Empty:\r\n\r\n"));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(accepts(bad[i]));
}

/* ---- headers ---- */

static void a_header_survives_the_way_to_an_agent_at_every_edge_of_length(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {0, 1, 125, 126, 127, 65535, 65536, MESSAGE_MAX};
    static const size_t sizes[] = {6, 6, 6, 8, 8, 8, 14, 14};
    const uint8_t mask[4] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint8_t out[WS_HEADER_MAX];
        struct ws_frame h = {.fin = true, .opcode = WS_BINARY, .len = lengths[i]}, back;
        memcpy(h.mask, mask, sizeof(mask));
        size_t n = ws_frame_put_masked(out, &h);
        assert_int_equal(n, sizes[i]);
        assert_memory_equal(out + n - 4, mask, 4);
        assert_int_equal(ws_frame_parse(out, n, WS_FROM_SERVER, &back),
                         -1); /* a server never masks */
        out[1] &= 0x7f;
        assert_int_equal(ws_frame_parse(out, n, WS_FROM_SERVER, &back), n - 4);
        assert_true(back.fin && back.opcode == WS_BINARY && back.len == lengths[i]);
        for (size_t cut = 0; cut < n - 4; cut++)
            assert_int_equal(ws_frame_parse(out, cut, WS_FROM_SERVER, &back), 0);
    }
}

static void headers_that_rfc_6455_forbids_are_refused(void **state)
{
    (void)state;
    static const uint8_t bad[][10] = {
        {0xc1, 0},                                 /* a reserved bit */
        {0x83, 0},                                 /* an unknown opcode */
        {0x8b, 0},                                 /* of control */
        {0x81, 0x80},                              /* masked */
        {0x08, 0},                                 /* a fragment of a Close */
        {0x89, 126, 0, 126},                       /* a long ping */
        {0x82, 126, 0, 125},                       /* not the shortest form */
        {0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, /* nor this */
        {0x82, 127, 0x80, 0, 0, 0, 0, 1, 0, 0},    /* the highest bit */
    };
    struct ws_frame h;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(ws_frame_parse(bad[i], sizeof(bad[i]), WS_FROM_SERVER, &h), -1);
}

/* ---- the reader ---- */

struct transcript {
    char text[512];
    size_t len;
};

static void say(struct transcript *t, const struct ws_event *e)
{
    char kind = "-mpocx"[e->kind];
    if (e->kind == WS_GOT_PIECE)
        kind = e->text ? 't' : 'b';
    t->len += (size_t)snprintf(t->text + t->len, sizeof(t->text) - t->len, "%c%s%s%.*s%s%u ", kind,
                               e->first ? "<" : "", e->len > 0 ? ":" : "", (int)e->len,
                               e->len > 0 ? (const char *)e->data : "", e->fin ? ">" : "", e->code);
}

/* Feeds the input in steps of `step` bytes, pieces of at most `piece_max`. */
static void read_all(uint8_t *in, size_t len, size_t step, size_t piece_max, struct transcript *t)
{
    struct ws_reader r = {.message_max = MESSAGE_MAX};
    size_t at = 0, end = 0;
    *t = (struct transcript){.len = 0};
    while (end < len) {
        struct ws_event e;
        end = len - end < step ? len : end + step;
        do {
            at += ws_reader_next(&r, in + at, end - at, piece_max, &e);
            if (e.kind != WS_GOT_MORE)
                say(t, &e);
        } while (e.kind != WS_GOT_MORE);
    }
}

static void check(const void *in, size_t len, const char *wanted)
{
    struct transcript t;
    uint8_t *copy = malloc(len);
    memcpy(copy, in, len);
    read_all(copy, len, len, 100, &t);
    free(copy);
    assert_string_equal(t.text, wanted);
}

#define CHECK(bytes, wanted) check(bytes, sizeof(bytes) - 1, wanted)

static void messages_come_as_they_were_sent(void **state)
{
    (void)state;
    CHECK("\x81\x02hi", "t<:hi>0 ");
    CHECK("\x82\x02hi\x81\x00", "b<:hi>0 t<>0 ");
    CHECK("\x01\x01h\x00\x01i\x80\x01!", "t<:h0 t:i0 t:!>0 ");
    CHECK("\x02\x00\x00\x00\x80\x00", "b<0 b>0 ");
    CHECK("\x02\x01h\x89\x02yo\x8a\x03old\x80\x01i", "b<:h0 p:yo0 o:old0 b:i>0 ");
}

static void a_close_ends_what_is_read(void **state)
{
    (void)state;
    CHECK("\x88\x00\x81\x01x", "c1005 ");
    CHECK("\x88\x02\x03\xe8", "c1000 ");
    CHECK("\x88\x05\x0f\xa1"
          "bye\x81\x01x",
          "c:bye4001 ");
    CHECK("\x01\x01x\x88\x02\x03\xe8\x80\x01y", "t<:x0 c1000 ");
}

static void what_breaks_the_protocol_is_named_by_its_code(void **state)
{
    (void)state;
    CHECK("\x80\x01x", "x1002 ");                /* a continuation of nothing */
    CHECK("\x01\x01x\x81\x01y", "t<:x0 x1002 "); /* a message in a message */
    CHECK("\x81\x81xxxxx", "x1002 ");
    CHECK("\x88\x01\x03", "x1002 ");
    CHECK("\x88\x02\x03\xed", "x1002 "); /* 1005 */
    CHECK("\x82\x7f\x00\x00\x00\x00\x01\x00\x00\x01", "x1009 ");
    CHECK("\x02\x01x\x80\x7f\x00\x00\x00\x00\x01\x00\x00\x00", "b<:x0 x1009 ");
}

static void it_makes_no_difference_how_bytes_arrive(void **state)
{
    (void)state;
    static uint8_t in[] = "\x81\x05hello\x02\x03"
                          "abc\x89\x04ping\x80\x04"
                          "defg\x82\x7e\x00\x80"
                          "0123456789012345678901234567890123456789012345678901234567890123"
                          "0123456789012345678901234567890123456789012345678901234567890123"
                          "\x88\x05\x0f\xa1"
                          "bye";
    for (size_t step = 1; step < sizeof(in); step++) {
        for (size_t piece_max = 1; piece_max < 200; piece_max += 13) {
            uint8_t got[200];
            size_t at = 0, got_len = 0, end = 0, messages = 0;
            struct ws_reader r = {.message_max = MESSAGE_MAX};
            struct ws_event e = {.kind = WS_GOT_MORE};
            while (end < sizeof(in) - 1) {
                end = sizeof(in) - 1 - end < step ? sizeof(in) - 1 : end + step;
                do {
                    at += ws_reader_next(&r, in + at, end - at, piece_max, &e);
                    if (e.kind == WS_GOT_PIECE) {
                        assert_true(e.len <= piece_max);
                        if (e.len > 0)
                            memcpy(got + got_len, e.data, e.len);
                        got_len += e.len;
                        messages += e.fin;
                    }
                } while (e.kind != WS_GOT_MORE && e.kind != WS_GOT_CLOSE);
            }
            assert_int_equal(e.kind, WS_GOT_CLOSE);
            assert_int_equal(messages, 3);
            assert_int_equal(got_len, 5 + 7 + 128);
            assert_memory_equal(got, "helloabcdefg0123", 16);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha1_agrees_with_openssl_at_every_length),
        cmocka_unit_test(the_key_of_rfc_6455_gives_its_accept),
        cmocka_unit_test(the_request_has_what_it_needs_and_must_fit),
        cmocka_unit_test(an_answer_ends_at_its_empty_line_or_is_too_long),
        cmocka_unit_test(only_an_answer_to_what_was_asked_is_accepted),
        cmocka_unit_test(a_header_survives_the_way_to_an_agent_at_every_edge_of_length),
        cmocka_unit_test(headers_that_rfc_6455_forbids_are_refused),
        cmocka_unit_test(messages_come_as_they_were_sent),
        cmocka_unit_test(a_close_ends_what_is_read),
        cmocka_unit_test(what_breaks_the_protocol_is_named_by_its_code),
        cmocka_unit_test(it_makes_no_difference_how_bytes_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
