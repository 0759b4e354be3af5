/* The short way of decoding takes what json_encode has written, and says of it what json_decode says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/json.h"

struct row {
    int kind;
    bool has_n;
    struct id id;
    int64_t n;
    int64_t open;
    unsigned scope;
};

static const char *const kinds[] = {"PUT", "PUT_DONE", "ACK", NULL};
static const char *const scopes[] = {"read", "write", "admin", NULL};

static const struct field row_fields[] = {
    FIELD_ENUM(struct row, kind, .flags = FIELD_REQUIRED, .names = kinds),
    FIELD_ID(struct row, id, .flags = FIELD_REQUIRED),
    FIELD_INT(struct row, n, .has = offsetof(struct row, has_n), .min = 1, .max = 4096),
    FIELD_INT(struct row, open),
    FIELD_SET(struct row, scope, .flags = FIELD_REQUIRED, .names = scopes),
    {0},
};

static const struct field head_fields[] = {
    FIELD_ENUM(struct row, kind, .flags = FIELD_REQUIRED, .names = kinds),
    {0},
};

static const struct row sample = {
    .kind = 1,
    .has_n = true,
    .id = {{0xf4, 1, 2, 3, 4, 5, 0x46, 7, 0x88, 9, 10, 11, 12, 13, 14, 15}},
    .n = 4096,
    .open = INT64_C(999999999999999),
    .scope = 5};

static struct buf text_of(const struct row *r)
{
    struct buf text;

    buf_init(&text, 4096);
    json_encode(row_fields, r, &text);
    assert_true(buf_ok(&text));
    return text;
}

static bool is_same(const struct row *a, const struct row *b)
{
    return a->kind == b->kind && a->has_n == b->has_n && id_equal(&a->id, &b->id) && a->n == b->n &&
           a->open == b->open && a->scope == b->scope;
}

static void what_was_written_is_taken(void **state)
{
    struct buf text = text_of(&sample);
    struct row got = {0};

    (void)state;
    assert_true(json_decode_written(text.data, text.len, row_fields, &got));
    assert_true(is_same(&got, &sample));
    buf_done(&text);
}

static void a_head_is_taken_whatever_follows(void **state)
{
    static const char text[] = "{\"kind\":\"PUT_DONE\"}, or anything";
    struct row got = {0};

    (void)state;
    assert_true(json_decode_written_head(text, sizeof text - 1, head_fields, &got));
    assert_int_equal(got.kind, 1);
    assert_false(json_decode_written(text, sizeof text - 1, head_fields, &got));
}

/* Whoever is taken the short way is taken the long way, too, and is the same. */
static bool agrees(const char *text, size_t len)
{
    struct row got = {0}, strict = {0};
    struct arena *arena;
    struct err e;
    bool taken;
    char *exact = malloc(len + 1); /* what is read beyond it, a sanitizer sees */

    memcpy(exact, text, len);
    taken = json_decode_written(exact, len, row_fields, &got);
    free(exact);
    if (taken) {
        arena = arena_new(65536);
        assert_int_equal(json_decode(text, len, row_fields, &strict, arena, &e), 0);
        assert_true(is_same(&got, &strict));
        arena_free(arena);
    }
    return taken;
}

static void whatever_a_byte_becomes_both_ways_agree(void **state)
{
    struct buf text = text_of(&sample);
    size_t taken = 0;

    (void)state;
    for (size_t i = 0; i < text.len; i++) {
        char was = text.data[i];
        for (int c = 0; c < 256; c++) {
            text.data[i] = (char)c;
            taken += agrees(text.data, text.len);
        }
        text.data[i] = was;
    }
    assert_true(taken > text.len); /* other digits are right, too */
    buf_done(&text);
}

static void no_piece_of_it_is_taken(void **state)
{
    struct buf text = text_of(&sample);

    (void)state;
    for (size_t len = 0; len < text.len; len++)
        assert_false(agrees(text.data, len));
    buf_add_char(&text, ' ');
    assert_false(agrees(text.data, text.len));
    buf_done(&text);
}

static void bounds_are_those_of_the_table(void **state)
{
    static const struct {
        int64_t n, open;
    } outside[] = {{0, 0}, {4097, 0}, {1, -1}};

    (void)state;
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        struct row r = sample;
        r.n = outside[i].n;
        r.open = outside[i].open;
        struct buf text = text_of(&r);
        assert_false(agrees(text.data, text.len));
        buf_done(&text);
    }
}

static void what_needs_a_closer_look_is_left(void **state)
{
    static const char *const left[] = {
        "{\"kind\":\"PUT\",\"id\":\"f4010203-0405-4607-8809-0a0b0c0d0e0f\",\"n\":01,\"open\":0,"
        "\"scope\":[\"read\"]}",
        "{\"kind\":\"PUT\",\"id\":\"f4010203-0405-4607-8809-0a0b0c0d0e0f\",\"n\":1,\"open\":0,"
        "\"scope\":[\"read\",\"read\"]}",
        "{\"kind\":\"PUT\",\"id\":\"f4010203-0405-4607-8809-0a0b0c0d0e0f\",\"n\":1,\"open\":0,"
        "\"scope\":[]}",
        "{\"kind\":\"PUT\",\"id\":\"f4010203-0405-4607-8809-0a0b0c0d0e0f\",\"n\":1,"
        "\"open\":1000000000000000,\"scope\":[\"read\"]}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++)
        assert_false(agrees(left[i], strlen(left[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_taken),
        cmocka_unit_test(a_head_is_taken_whatever_follows),
        cmocka_unit_test(whatever_a_byte_becomes_both_ways_agree),
        cmocka_unit_test(no_piece_of_it_is_taken),
        cmocka_unit_test(bounds_are_those_of_the_table),
        cmocka_unit_test(what_needs_a_closer_look_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
