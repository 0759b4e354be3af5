/* What a client of ours sends, taken apart: masked frames, however they arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/ws_reader.h"

#define MESSAGE_MAX 1000u

struct stream {
    uint8_t data[4096];
    size_t len;
};

/* A masked frame behind what is there; `lead` is its first byte. */
static void frame_add(struct stream *s, unsigned lead, const char *payload)
{
    struct ws_frame f = {.fin = lead & 0x80,
                         .opcode = (enum ws_opcode)(lead & 0xf),
                         .len = strlen(payload),
                         .mask = {0x9e, (uint8_t)s->len, 0x31, 0xff}};
    s->len += ws_frame_put_masked(s->data + s->len, &f);
    memcpy(s->data + s->len, payload, (size_t)f.len);
    ws_frame_mask(s->data + s->len, (size_t)f.len, f.mask, 0);
    s->len += (size_t)f.len;
}

static void bytes_add(struct stream *s, const char *bytes, size_t len)
{
    memcpy(s->data + s->len, bytes, len);
    s->len += len;
}

/* What was read, without the seams between pieces. */
struct transcript {
    char text[4096];
    size_t len;
    bool in_message;
};

static void say(struct transcript *t, const struct ws_event *e)
{
    size_t room = sizeof(t->text) - t->len;
    bool piece = e->kind == WS_GOT_PIECE;
    const char *start = piece && t->in_message ? "" : piece && e->text ? "t:" : piece ? "b:" : "";
    if (!piece) {
        start = e->kind == WS_GOT_PING    ? "p:"
                : e->kind == WS_GOT_PONG  ? "o:"
                : e->kind == WS_GOT_CLOSE ? "c:"
                                          : "x:";
        t->in_message = false; /* seams around what stands between fragments are kept */
    }
    char code[16] = "";
    if (e->code != 0) {
        (void)snprintf(code, sizeof(code), "%u", e->code);
    }
    t->len +=
        (size_t)snprintf(t->text + t->len, room, "%s%s%.*s%s", start, code, (int)e->len,
                         e->len > 0 ? (const char *)e->data : "", !piece || e->fin ? " " : "");
    if (piece) {
        t->in_message = !e->fin;
    }
}

/* Feeds the stream in steps, each from memory of exactly its size. */
static void read_all(const struct stream *s, size_t step, size_t piece_max, struct transcript *t)
{
    struct ws_reader r = {.sender = WS_FROM_CLIENT, .message_max = MESSAGE_MAX};
    *t = (struct transcript){.len = 0};
    for (size_t at = 0; at < s->len; at += step) {
        size_t len = s->len - at < step ? s->len - at : step;
        uint8_t *piece = malloc(len);
        size_t used = 0;
        struct ws_event e;
        memcpy(piece, s->data + at, len);
        do {
            used += ws_reader_next(&r, piece + used, len - used, piece_max, &e);
            if (e.kind != WS_GOT_MORE) {
                say(t, &e);
            }
        } while (e.kind != WS_GOT_MORE);
        assert_int_equal(used, len); /* nothing is left for the caller to keep */
        free(piece);
    }
}

static void check(const struct stream *s, const char *wanted)
{
    struct transcript t;
    for (size_t step = 1; step <= s->len; step++) {
        read_all(s, step, SIZE_MAX, &t);
        assert_string_equal(t.text, wanted);
    }
    read_all(s, s->len, 3, &t);
    assert_string_equal(t.text, wanted);
}

static void messages_are_the_same_however_they_arrive(void **state)
{
    (void)state;
    struct stream s = {.len = 0};
    char long_text[301];
    char wanted[400];
    memset(long_text, 'L', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    frame_add(&s, 0x81, "hello");
    frame_add(&s, 0x82, "");
    frame_add(&s, 0x01, "in ");
    frame_add(&s, 0x00, "");
    frame_add(&s, 0x80, "pieces");
    frame_add(&s, 0x89, "ping");
    frame_add(&s, 0x8a, "");
    frame_add(&s, 0x82, long_text);
    frame_add(&s, 0x88,
              "\x0f\xa1"
              "bye");
    frame_add(&s, 0x81, "not heard");
    (void)snprintf(wanted, sizeof(wanted), "t:hello b: t:in pieces p:ping o: b:%s c:4001bye ",
                   long_text);
    check(&s, wanted);
}

static void control_frames_may_stand_between_fragments(void **state)
{
    (void)state;
    struct stream s = {.len = 0};
    struct transcript t;
    frame_add(&s, 0x01, "a");
    frame_add(&s, 0x89, "now");
    frame_add(&s, 0x80, "b");
    read_all(&s, s.len, SIZE_MAX, &t);
    assert_string_equal(t.text, "t:ap:now t:b ");
}

static void each_kind_of_malformed_frame_has_its_code(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *wanted;
    } bad[] = {
#define BYTES(text) text, sizeof(text) - 1
        {BYTES("\x81\x01x"), "x:1002 "},                                     /* no mask */
        {BYTES("\xc1\x80MASK"), "x:1002 "},                                  /* reserved bits */
        {BYTES("\xa1\x80MASK"), "x:1002 "},                                  /**/
        {BYTES("\x91\x80MASK"), "x:1002 "},                                  /**/
        {BYTES("\x83\x80MASK"), "x:1002 "},                                  /* unknown opcodes */
        {BYTES("\x8f\x80MASK"), "x:1002 "},                                  /**/
        {BYTES("\x09\x80MASK"), "x:1002 "},                                  /* a ping in pieces */
        {BYTES("\x08\x80MASK"), "x:1002 "},                                  /* a Close in pieces */
        {BYTES("\x89\xfe\x00\x7eMASK"), "x:1002 "},                          /* a long ping */
        {BYTES("\x80\x80MASK"), "x:1002 "},                                  /* nothing continued */
        {BYTES("\x81\xfe\x00\x01MASKx"), "x:1002 "},                         /* over-long lengths */
        {BYTES("\x81\xff\x00\x00\x00\x00\x00\x00\x00\x01MASKx"), "x:1002 "}, /**/
        {BYTES("\x81\xff\x80\x00\x00\x00\x00\x00\x00\x00MASK"), "x:1002 "},  /* 2^63 */
        {BYTES("\x81\xff\x40\x00\x00\x00\x00\x00\x00\x00MASK"), "x:1009 "},  /* 2^62 */
        {BYTES("\x81\xfe\x03\xe9MASK"), "x:1009 "},                          /* 1001 bytes */
        {BYTES("\x88\x81\0\0\0\0\x03"), "x:1002 "},                          /* half a code */
        {BYTES("\x88\x82\0\0\0\0\x03\xed"), "x:1002 "},                      /* 1005 */
        {BYTES("\x88\x82\0\0\0\0\xff\xff"), "x:1002 "},                      /**/
        {BYTES("\x88\x83\0\0\0\0\x03\xe8\xff"), "x:1007 "},                  /* its reason */
        {BYTES("\x88\x80\0\0\0\0"), "c:1005 "},                              /* without one */
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct stream s = {.len = 0};
        bytes_add(&s, bad[i].bytes, bad[i].len);
        frame_add(&s, 0x81, "what follows is not looked at");
        check(&s, bad[i].wanted);
    }
}

static void fragments_count_together(void **state)
{
    (void)state;
    struct stream s = {.len = 0};
    char half[501];
    struct transcript t;
    memset(half, 'h', sizeof(half) - 1);
    half[sizeof(half) - 1] = '\0';
    frame_add(&s, 0x01, half);
    frame_add(&s, 0x00, half);
    frame_add(&s, 0x80, "1");
    read_all(&s, s.len, SIZE_MAX, &t);
    assert_int_equal(t.len, 2 + 1000 + strlen("x:1009 "));
    assert_string_equal(t.text + t.len - 7, "x:1009 ");
}

static void a_message_in_a_message_is_refused(void **state)
{
    (void)state;
    struct stream s = {.len = 0};
    struct transcript t;
    frame_add(&s, 0x01, "a");
    frame_add(&s, 0x81, "b");
    read_all(&s, s.len, SIZE_MAX, &t);
    assert_string_equal(t.text, "t:ax:1002 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_the_same_however_they_arrive),
        cmocka_unit_test(control_frames_may_stand_between_fragments),
        cmocka_unit_test(each_kind_of_malformed_frame_has_its_code),
        cmocka_unit_test(fragments_count_together),
        cmocka_unit_test(a_message_in_a_message_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
