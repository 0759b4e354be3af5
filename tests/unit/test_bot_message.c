#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../gateway/bot_message.h"

struct fixture {
    struct arena *arena;
    struct bot_message m;
    struct err e;
};

static int decode(struct fixture *f, const char *text)
{
    f->m = (struct bot_message){0};
    f->e = (struct err){0};
    return bot_message_decode(text, strlen(text), f->arena, &f->m, &f->e);
}

static int setup(void **state)
{
    static struct fixture f;
    f.arena = arena_new(1024 * 1024);
    *state = &f;
    return f.arena ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    arena_free(f->arena);
    return 0;
}

static void a_message_is_taken_apart(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(decode(f, "{\"args\":{\"a\":[1,\"\\u00e9\"]},\"op\":\"x.y\",\"id\":\"7\"}"),
                     0);
    assert_string_equal(f->m.id, "7");
    assert_string_equal(f->m.op, "x.y");
    assert_string_equal(f->m.args, "{\"a\":[1,\"é\"]}");
}

static void absent_and_null_args_are_none(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(decode(f, "{\"id\":\"1\",\"op\":\"x\"}"), 0);
    assert_string_equal(f->m.args, "{}");
    assert_int_equal(decode(f, "{\"id\":\"1\",\"op\":\"x\",\"args\":null}"), 0);
    assert_string_equal(f->m.args, "{}");
}

static void refused(struct fixture *f, const char *text, enum err_code code, const char *id)
{
    assert_int_equal(decode(f, text), -1);
    assert_int_equal(f->e.code, code);
    assert_null(f->m.op);
    if (id)
        assert_string_equal(f->m.id, id);
    else
        assert_null(f->m.id);
}

static void a_refused_message_keeps_its_id_where_it_has_one(void **state)
{
    struct fixture *f = *state;

    refused(f, "{\"id\":\"1\"}", ERR_INVALID_REQUEST, "1");
    refused(f, "{\"id\":\"1\",\"op\":\"x\",\"args\":[]}", ERR_INVALID_REQUEST, "1");
    refused(f, "{\"id\":\"1\",\"op\":\"x\",\"more\":{}}", ERR_INVALID_REQUEST, "1");
    refused(f, "{\"op\":\"x\"}", ERR_INVALID_REQUEST, NULL);
    refused(f, "{\"id\":\"\",\"op\":\"x\"}", ERR_INVALID_REQUEST, NULL);
    refused(f, "{\"id\":{},\"op\":\"x\"}", ERR_INVALID_REQUEST, NULL);
}

static void what_is_not_strict_json_has_no_id(void **state)
{
    struct fixture *f = *state;

    refused(f, "", ERR_MALFORMED_JSON, NULL);
    refused(f, "x", ERR_MALFORMED_JSON, NULL);
    refused(f, "{\"id\":\"1\",\"op\":\"x\"}{}", ERR_MALFORMED_JSON, NULL);
    refused(f, "{\"id\":\"1\",\"id\":\"1\",\"op\":\"x\"}", ERR_MALFORMED_JSON, NULL);
    refused(f, "{\"id\":\"1\",\"op\":\"x\",\"args\":{\"n\":9007199254740993}}", ERR_MALFORMED_JSON,
            NULL);
}

static void rest_ways_and_raw_answers_have_no_message(void **state)
{
    static const struct op table[] = {
        {.name = "a.way", .rest_alias = true},
        {.name = "a.way", .doc = "the row"},
        {.name = "only.rest", .rest_alias = true},
        {.name = "a.stream", .media = "text/plain"},
        {0},
    };
    const struct op *op = NULL;
    struct err e;

    (void)state;
    assert_int_equal(bot_op_find(table, "a.way", &op, &e), 0);
    assert_ptr_equal(op, &table[1]);
    assert_int_equal(bot_op_find(table, "only.rest", &op, &e), -1);
    assert_int_equal(e.code, ERR_UNSUPPORTED_OP);
    assert_int_equal(bot_op_find(table, "a.stream", &op, &e), -1);
    assert_int_equal(e.code, ERR_UNSUPPORTED_OP);
    assert_int_equal(bot_op_find(table, "a.wa", &op, &e), -1);
    assert_int_equal(e.code, ERR_UNKNOWN_OP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_message_is_taken_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(absent_and_null_args_are_none, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refused_message_keeps_its_id_where_it_has_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_not_strict_json_has_no_id, setup, teardown),
        cmocka_unit_test(rest_ways_and_raw_answers_have_no_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
