#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../gateway/openapi.h"
#include "../../gateway/route.h"
#include "leasehold/json.h"

static const struct openapi_info info = {.version = "1.2.3", .token_header = "X-Some-Token"};

/* The document of a table, in memory of its own. */
static char *document(const struct op *table)
{
    struct buf out;

    buf_init(&out, 8u * 1024 * 1024);
    openapi_write(table, &info, &out);
    assert_true(buf_ok(&out));
    return out.data;
}

static void require(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("%s is not in\n%s", part, text);
}

static void forbid(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("%s is in\n%s", part, text);
}

/* --- a table with a field of every kind ------------------------------------------------------ */

struct inner {
    int64_t n;
};
static const struct field inner_fields[] = {
    FIELD_INT(struct inner, n, .flags = FIELD_REQUIRED, .min = -1, .max = 7),
    {0},
};
static const char *const colours[] = {"red", "green", NULL};

struct all {
    int64_t unused; /* `has` is never the first member */
    bool has_when;
    struct id thing_id, other;
    char *word, *raw;
    int64_t count, when;
    double share;
    bool on;
    int colour;
    unsigned colours;
    struct inner inner, *maybe;
    struct list inners, words, ids;
    char chars[8];
};

static const struct field all_in[] = {
    FIELD_ID(struct all, thing_id, .flags = FIELD_REQUIRED | FIELD_PATH, .doc = "the thing"),
    FIELD_INT(struct all, count, .flags = FIELD_QUERY, .max = 9, .def = "3"),
    FIELD_ID(struct all, other),
    FIELD_STR(struct all, word, .flags = FIELD_REQUIRED, .min = 1, .max = 5, .doc = "a \"word\""),
    FIELD_RAW(struct all, raw),
    FIELD_TIME(struct all, when, .has = offsetof(struct all, has_when)),
    FIELD_REAL(struct all, share),
    FIELD_BOOL(struct all, on, .def = "true"),
    FIELD_ENUM(struct all, colour, .names = colours, .def = "green"),
    FIELD_SET(struct all, colours, .names = colours),
    FIELD_OBJECT(struct all, inner, inner_fields),
    FIELD_OBJPTR(struct all, maybe, inner_fields, struct inner),
    FIELD_OBJLIST(struct all, inners, inner_fields, struct inner, .max = 2),
    FIELD_STRLIST(struct all, words),
    FIELD_IDLIST(struct all, ids),
    {0},
};
static const struct field all_out[] = {
    FIELD_ID(struct all, other, .flags = FIELD_NULL_ZERO),
    FIELD_CHARS(struct all, chars),
    FIELD_TIME(struct all, when, .has = offsetof(struct all, has_when)),
    FIELD_OBJPTR(struct all, maybe, inner_fields, struct inner),
    {0},
};

static const struct op table[] = {
    {.name = "thing.change",
     .method = HTTP_POST,
     .path = "/things/{thing_id}",
     .role = ROLE_BOT,
     .status = 201,
     .also = {200, 202},
     .in = all_in,
     .out = all_out,
     .doc = "Changes it."},
    {.name = "thing.change",
     .method = HTTP_DELETE,
     .path = "/things/{thing_id}",
     .role = ROLE_ADMIN,
     .status = 204,
     .in = all_in,
     .rest_alias = true,
     .doc = "Ends it."},
    {.name = "raw",
     .method = HTTP_GET,
     .path = "/raw",
     .status = 200,
     .media = "text/plain",
     .role = ROLE_NONE,
     .doc = "Text."},
    {0},
};

static void inputs_of_every_kind_have_their_bounds(void **state)
{
    (void)state;
    char *text = document(table);

    require(text, "\"ThingChangeRequest\":{\"type\":\"object\",\"additionalProperties\":false");
    require(text, "\"other\":{\"type\":\"string\",\"format\":\"uuid\"}");
    require(text, "\"word\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":5,"
                  "\"description\":\"a \\\"word\\\"\"}");
    require(text, "\"raw\":{\"type\":\"object\"}");
    require(text, "\"when\":{\"type\":\"string\",\"format\":\"date-time\"}");
    require(text, "\"share\":{\"type\":\"number\"}");
    require(text, "\"on\":{\"type\":\"boolean\",\"default\":true}");
    require(text, "\"colour\":{\"type\":\"string\",\"enum\":[\"red\",\"green\"],"
                  "\"default\":\"green\"}");
    require(text, "\"colours\":{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":1,\"items\":"
                  "{\"type\":\"string\",\"enum\":[\"red\",\"green\"]}}");
    require(text, "\"n\":{\"type\":\"integer\",\"format\":\"int64\",\"minimum\":-1,\"maximum\":7}");
    require(text, "\"inners\":{\"type\":\"array\",\"maxItems\":2,\"items\":{\"type\":\"object\"");
    require(text, "\"ids\":{\"type\":\"array\",\"maxItems\":1000,\"items\":{\"type\":\"string\","
                  "\"format\":\"uuid\"}}");
    require(text, "\"required\":[\"word\"]");
    free(text);
}

static void answers_say_what_may_be_null_and_have_every_member(void **state)
{
    (void)state;
    char *text = document(table);

    require(text, "\"ThingChangeAnswer\":{\"type\":\"object\",\"properties\":{\"other\":{\"type\":"
                  "[\"string\",\"null\"],\"format\":\"uuid\"},\"chars\":{\"type\":\"string\"},"
                  "\"when\":{\"type\":[\"string\",\"null\"],\"format\":\"date-time\"},"
                  "\"maybe\":{\"oneOf\":[{\"type\":\"object\"");
    require(text, "\"required\":[\"other\",\"chars\",\"when\",\"maybe\"]");
    free(text);
}

static void path_and_query_are_parameters_and_not_in_the_body(void **state)
{
    (void)state;
    char *text = document(table);

    require(text, "{\"name\":\"thing_id\",\"in\":\"path\",\"required\":true,"
                  "\"description\":\"the thing\",\"schema\":{\"type\":\"string\","
                  "\"format\":\"uuid\"}}");
    require(text, "{\"name\":\"count\",\"in\":\"query\",\"required\":false,\"schema\":{\"type\":"
                  "\"integer\",\"format\":\"int64\",\"minimum\":0,\"maximum\":9,\"default\":3}}");
    forbid(text, "\"thing_id\":{");
    forbid(text, "\"count\":{");
    free(text);
}

static void rows_become_operations_with_ids_of_their_own(void **state)
{
    (void)state;
    char *text = document(table);

    require(text, "\"/things/{thing_id}\":{\"post\":{\"operationId\":\"thing.change\"");
    require(text, "\"delete\":{\"operationId\":\"thing.change.delete\"");
    require(text, "\"x-leasehold-role\":\"bot\",\"x-leasehold-op\":\"thing.change\"");
    require(text, "\"204\":{\"description\":\"Done.\"}");
    require(text, "\"get\":{\"operationId\":\"raw\",\"summary\":\"Text.\",\"tags\":[\"meta\"],"
                  "\"x-leasehold-role\":\"none\",\"security\":[]"); /* and no message form */
    require(text, "\"text/plain\":{\"schema\":{\"type\":\"string\"}}");
    require(text, "\"name\":\"X-Some-Token\"");
    require(text, "\"version\":\"1.2.3\"");
    free(text);
}

/* --- the gateway's own table ----------------------------------------------------------------- */

static void each_row_of_the_table_appears(void **state)
{
    (void)state;
    char *text = document(ops_table);

    for (const struct op *op = ops_table; op->name; op++) {
        char part[256];
        snprintf(part, sizeof part, "\"%s\":{", op->path);
        require(text, part);
        snprintf(part, sizeof part, "\"operationId\":\"%s\"", op->name);
        require(text, part);
        assert_non_null(op->doc);
        require(text, op->doc);
    }
    free(text);
}

static bool has_member(const struct field *f, const char *name)
{
    for (; f && f->name; f++)
        if (!strcmp(f->name, name) && (f->kind == FIELD_KIND_ID || f->kind == FIELD_KIND_STR))
            return true;
    return false;
}

static void each_row_that_needs_a_key_says_what_it_is_an_access_to(void **state)
{
    (void)state;
    for (const struct op *op = ops_table; op->name; op++) {
        const struct op_object *o = op->audit;

        if (op->role != ROLE_NONE && !o->kind)
            fail_msg("%s: the row needs .audit (op.h, docs/audit.md)", op->name);
        for (; o < op->audit + OP_OBJECTS && o->kind; o++) {
            if (o->member && !has_member(op->in, o->member) && !has_member(op->out, o->member))
                fail_msg("%s: .audit names %s, which is no id or text of it", op->name, o->member);
            if (o->within && !has_member(op->in, o->within))
                fail_msg("%s: .audit names %s, which is no id of it", op->name, o->within);
        }
    }
}

static void every_error_code_is_named(void **state)
{
    (void)state;
    char *text = document(ops_table);

    for (int code = ERR_NONE + 1; code < ERR_CODE_COUNT; code++)
        require(text, err_code_name((enum err_code)code));
    free(text);
}

static void it_is_strict_json_and_the_same_each_time(void **state)
{
    (void)state;
    char *one = document(ops_table), *two = document(ops_table);
    struct err e;

    assert_string_equal(one, two);
    if (json_check(one, strlen(one), true, &e))
        fail_msg("%s", e.msg);
    free(one);
    free(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_of_every_kind_have_their_bounds),
        cmocka_unit_test(answers_say_what_may_be_null_and_have_every_member),
        cmocka_unit_test(path_and_query_are_parameters_and_not_in_the_body),
        cmocka_unit_test(rows_become_operations_with_ids_of_their_own),
        cmocka_unit_test(each_row_of_the_table_appears),
        cmocka_unit_test(each_row_that_needs_a_key_says_what_it_is_an_access_to),
        cmocka_unit_test(every_error_code_is_named),
        cmocka_unit_test(it_is_strict_json_and_the_same_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
