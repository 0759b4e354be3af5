#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/json.h"

struct lease_args {
    int64_t ttl_s;
    int use;
    unsigned scope;
};

struct args {
    struct id chat_id;
    char *title;
    char *metadata;
    int64_t count;
    double ratio;
    int64_t at;
    bool wait, has_count;
    struct lease_args *lease;
    struct lease_args inline_lease;
    struct list tags;
    struct list ids;
    struct list leases;
    char *path_part;
    char *query_part;
};

static const char *const uses[] = {"multi", "once", NULL};
static const char *const scopes[] = {"read", "write", "admin", NULL};

static const struct field lease_fields[] = {
    FIELD_INT(struct lease_args, ttl_s, .min = 1, .max = 900, .def = "120"),
    FIELD_ENUM(struct lease_args, use, .names = uses),
    FIELD_SET(struct lease_args, scope, .names = scopes, .def = "read,write"),
    {0},
};

static const struct field fields[] = {
    FIELD_ID(struct args, chat_id, .flags = FIELD_REQUIRED),
    FIELD_STR(struct args, title, .max = 16, .def = ""),
    FIELD_RAW(struct args, metadata, .max = 64),
    FIELD_INT(struct args, count, .has = offsetof(struct args, has_count)),
    FIELD_REAL(struct args, ratio, .min = 0, .max = 10),
    FIELD_TIME(struct args, at),
    FIELD_BOOL(struct args, wait, .def = "true"),
    FIELD_OBJPTR(struct args, lease, lease_fields, struct lease_args),
    FIELD_OBJECT(struct args, inline_lease, lease_fields),
    FIELD_STRLIST(struct args, tags, .max = 3),
    FIELD_IDLIST(struct args, ids),
    FIELD_OBJLIST(struct args, leases, lease_fields, struct lease_args),
    FIELD_STR(struct args, path_part, .flags = FIELD_PATH | FIELD_REQUIRED),
    FIELD_STR(struct args, query_part, .flags = FIELD_QUERY),
    {0},
};

#define ID_A    "0f5d2c1a-9b3e-4c7d-8a6f-0123456789ab"
#define CHAT    "\"chat_id\":\"" ID_A "\""
#define BODY(x) "{" CHAT "," x "}"

static struct arena *arena;
static struct args args;
static struct err e;

static int set_up(void **state)
{
    (void)state;
    arena = arena_new(1 << 20);
    memset(&args, 0, sizeof(args));
    err_clear(&e);
    return arena == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

/* From a copy of exactly len bytes on the heap, so that a sanitizer sees every read beyond. */
static int decode(const char *text, size_t len)
{
    char *copy = malloc(len + 1);
    memcpy(copy, text, len);
    char *exact = realloc(copy, len > 0 ? len : 1);
    memset(&args, 0, sizeof(args));
    int rc = json_decode(exact, len, fields, &args, arena, &e);
    free(exact);
    return rc;
}

static void assert_decodes(const char *text)
{
    if (decode(text, strlen(text)) != 0) {
        fail_msg("%s: %s (%s)", text, e.msg, e.pointer);
    }
}

static void assert_invalid(const char *text, const char *pointer, const char *part)
{
    if (decode(text, strlen(text)) == 0) {
        fail_msg("accepted: %s", text);
    }
    assert_string_equal(err_code_name(e.code), "invalid_request");
    assert_string_equal(e.pointer, pointer);
    if (strstr(e.msg, part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, e.msg);
    }
}

/* --- decoding ------------------------------------------------------------------------------- */

static void every_kind_is_decoded(void **state)
{
    (void)state;
    assert_decodes(" {\"chat_id\":\"urn:uuid:0F5D2C1A-9B3E-4C7D-8A6F-0123456789AB\","
                   "\"title\":\"\\u0436\\n\",\"metadata\":{ \"k\" : [1, 2.50, true, null, \"x\"] },"
                   "\"count\":9007199254740992,\"ratio\":2.5,\"at\":\"1970-01-01T00:00:01.500Z\","
                   "\"wait\":false,\"lease\":{\"ttl_s\":60,\"use\":\"once\",\"scope\":[\"admin\"]},"
                   "\"inline_lease\":{\"ttl_s\":61},\"tags\":[\"a\",\"\"],\"ids\":[\"" ID_A "\"],"
                   "\"leases\":[{},{\"ttl_s\":1}]}\n");
    assert_string_equal(ID_STR(&args.chat_id), ID_A);
    assert_string_equal(args.title, "\xd0\xb6\n");
    assert_string_equal(args.metadata, "{\"k\":[1,2.5,true,null,\"x\"]}");
    assert_true(args.count == INT64_C(1) << 53);
    assert_true(args.has_count);
    assert_true(args.ratio > 2.49 && args.ratio < 2.51);
    assert_int_equal(args.at, 1500);
    assert_false(args.wait);
    assert_int_equal(args.lease->ttl_s, 60);
    assert_int_equal(args.lease->use, 1);
    assert_int_equal(args.lease->scope, 4);
    assert_int_equal(args.inline_lease.ttl_s, 61);
    assert_int_equal(args.tags.n, 2);
    assert_string_equal(((char **)args.tags.items)[0], "a");
    assert_string_equal(((char **)args.tags.items)[1], "");
    assert_int_equal(args.ids.n, 1);
    assert_string_equal(ID_STR((struct id *)args.ids.items), ID_A);
    assert_int_equal(args.leases.n, 2);
    assert_int_equal(((struct lease_args *)args.leases.items)[0].ttl_s, 120);
    assert_int_equal(((struct lease_args *)args.leases.items)[1].ttl_s, 1);
}

static void absent_and_null_members_get_defaults(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{" CHAT "}",
        BODY("\"title\":null,\"metadata\":null,\"count\":null,\"ratio\":null,\"at\":null,"
             "\"wait\":null,\"lease\":null,\"inline_lease\":null,\"tags\":null,\"ids\":null,"
             "\"leases\":null"),
    };
    for (size_t i = 0; i < 2; i++) {
        assert_decodes(bodies[i]);
        assert_string_equal(args.title, "");
        assert_null(args.metadata);
        assert_false(args.has_count);
        assert_true(args.wait);
        assert_null(args.lease);
        assert_int_equal(args.inline_lease.ttl_s, 120);
        assert_int_equal(args.inline_lease.scope, 3);
        assert_int_equal(args.tags.n, 0);
    }
}

static void an_empty_body_is_an_empty_object(void **state)
{
    (void)state;
    static const struct field optional[] = {
        FIELD_INT(struct lease_args, ttl_s, .def = "120"),
        {0},
    };
    struct lease_args lease = {0};
    assert_int_equal(json_decode(NULL, 0, optional, &lease, arena, &e), 0);
    assert_int_equal(lease.ttl_s, 120);
    assert_int_equal(json_decode(" ", 1, optional, &lease, arena, &e), -1);
    assert_int_equal(e.code, ERR_MALFORMED_JSON);
    assert_int_equal(decode("", 0), -1);
    assert_string_equal(e.pointer, "/chat_id");
}

static void wrong_types_are_refused_with_a_pointer(void **state)
{
    (void)state;
    assert_invalid("[]", "", "must be a JSON object");
    assert_invalid("null", "", "must be a JSON object");
    assert_invalid("{\"chat_id\":1}", "/chat_id", "must be a string");
    assert_invalid("{\"chat_id\":null}", "/chat_id", "must not be null");
    assert_invalid("{\"chat_id\":\"1\"}", "/chat_id", "must be a UUID");
    assert_invalid(BODY("\"count\":\"1\""), "/count", "a whole number");
    assert_invalid(BODY("\"count\":1.5"), "/count", "a whole number from 0");
    assert_invalid(BODY("\"count\":1e300"), "/count", "a whole number from 0");
    assert_invalid(BODY("\"count\":-1"), "/count", "a whole number from 0");
    assert_invalid(BODY("\"ratio\":10.5"), "/ratio", "a number from 0 to 10");
    assert_invalid(BODY("\"ratio\":true"), "/ratio", "a number");
    assert_invalid(BODY("\"at\":1"), "/at", "a string");
    assert_invalid(BODY("\"at\":\"x\""), "/at", "RFC 3339");
    assert_invalid(BODY("\"wait\":1"), "/wait", "true or false");
    assert_invalid(BODY("\"wait\":\"true\""), "/wait", "true or false");
    assert_invalid(BODY("\"metadata\":[]"), "/metadata", "an object");
    assert_invalid(BODY("\"metadata\":\"{}\""), "/metadata", "an object");
    assert_invalid(BODY("\"title\":\"12345678901234567\""), "/title", "at most 16 bytes");
    assert_invalid(BODY("\"lease\":[]"), "/lease", "an object");
    assert_invalid(BODY("\"inline_lease\":1"), "/inline_lease", "an object");
    assert_invalid(BODY("\"tags\":{}"), "/tags", "a list");
    assert_invalid(BODY("\"tags\":[\"a\",null]"), "/tags/1", "a list of strings");
    assert_invalid(BODY("\"tags\":[\"\",\"\",\"\",\"\"]"), "/tags", "at most 3 items");
    assert_invalid(BODY("\"ids\":[\"x\"]"), "/ids/0", "a UUID");
    assert_invalid(BODY("\"leases\":[{},3]"), "/leases/1", "a list of objects");
}

static void pointers_reach_into_nested_members(void **state)
{
    (void)state;
    assert_invalid(BODY("\"lease\":{\"ttl_s\":901}"), "/lease/ttl_s", "from 1 to 900");
    assert_invalid(BODY("\"leases\":[{},{\"ttl_s\":0}]"), "/leases/1/ttl_s", "from 1 to 900");
    assert_invalid(BODY("\"inline_lease\":{\"x\":0}"), "/inline_lease/x", "unknown member \"x\"");
    assert_invalid("{}", "/chat_id", "chat_id is missing");
}

static void unknown_members_are_named_safely(void **state)
{
    (void)state;
    assert_invalid(BODY("\"lease\":{\"ttl\":1}"), "/lease/ttl",
                   "unknown member \"ttl\"; known: ttl_s, use, scope");
    assert_invalid(BODY("\"Title\":\"x\""), "/Title", "unknown member \"Title\"");
    assert_invalid(BODY("\"a/b~c\":1"), "/a~1b~0c", "unknown member \"a/b~c\"");
    assert_invalid(BODY("\"\\u001b[31m\\u202e\\\"\":1"), "/\x1b[31m\xe2\x80\xae\"",
                   "unknown member \"\\u001b[31m\\u202e\\u0022\"");
    char text[600] = "{" CHAT ",\"";
    for (int i = 0; i < 100; i++) {
        strcat(text, "\xd0\xb6");
    }
    strcat(text, "\":1}");
    assert_invalid(text, "", "\xd0\xb6...\"; known: chat_id, ");
    assert_true(utf8_valid(e.msg, strlen(e.msg)));
}

static void enums_and_sets_name_the_allowed_values(void **state)
{
    (void)state;
    assert_invalid(BODY("\"lease\":{\"use\":\"twice\"}"), "/lease/use",
                   "use must be one of: multi, once");
    assert_invalid(BODY("\"lease\":{\"use\":\"Once\"}"), "/lease/use", "must be one of");
    assert_invalid(BODY("\"lease\":{\"scope\":[\"root\"]}"), "/lease/scope",
                   "scope may hold: read, write, admin");
    assert_invalid(BODY("\"lease\":{\"scope\":[\"read\",\"read\"]}"), "/lease/scope", "twice");
    assert_invalid(BODY("\"lease\":{\"scope\":[]}"), "/lease/scope", "at least one of");
    assert_invalid(BODY("\"lease\":{\"scope\":\"read\"}"), "/lease/scope", "a list of strings");
    assert_invalid(BODY("\"lease\":{\"scope\":[1]}"), "/lease/scope", "a list of strings");
}

static void path_and_query_members_are_not_taken_from_a_body(void **state)
{
    (void)state;
    assert_invalid(BODY("\"path_part\":\"x\""), "/path_part", "unknown member");
    assert_invalid(BODY("\"query_part\":\"x\""), "/query_part", "unknown member");
    static char kept[] = "kept";
    memset(&args, 0, sizeof(args));
    args.path_part = kept;
    args.query_part = kept;
    const char *body = "{" CHAT "}";
    assert_int_equal(json_decode(body, strlen(body), fields, &args, arena, &e), 0);
    assert_ptr_equal(args.path_part, kept);
    assert_ptr_equal(args.query_part, kept);
}

static void args_of_a_message_hold_them_all(void **state)
{
    (void)state;
    const char *body = BODY("\"path_part\":\"p\",\"query_part\":\"q\"");
    assert_int_equal(json_decode_args(body, strlen(body), fields, &args, arena, &e), 0);
    assert_string_equal(args.path_part, "p");
    assert_string_equal(args.query_part, "q");
    body = "{" CHAT "}";
    assert_int_equal(json_decode_args(body, strlen(body), fields, &args, arena, &e), -1);
    assert_string_equal(e.pointer, "/path_part");
}

static void foreign_json_may_hold_integers_nobody_reads(void **state)
{
    (void)state;
    const char body[] = "{\"chat_id\":\"00000000-0000-4000-8000-000000000001\",\"nano\":"
                        "1795983945631711981,\"deep\":{\"n\":[18446744073709551615]}}";
    assert_int_equal(json_decode_lenient(body, strlen(body), fields, &args, arena, &e), -1);
    assert_int_equal(e.code, ERR_MALFORMED_JSON);
    assert_int_equal(json_decode_foreign(body, strlen(body), fields, &args, arena, &e), 0);
    const char twice[] = "{\"a\":1,\"a\":2}";
    assert_int_equal(json_decode_foreign(twice, strlen(twice), fields, &args, arena, &e), -1);
}

static void lenient_skips_unknown_members_only(void **state)
{
    (void)state;
    const char *body = BODY("\"new\":{\"deep\":[1]},\"lease\":{\"later\":1,\"ttl_s\":5}");
    assert_int_equal(json_decode_lenient(body, strlen(body), fields, &args, arena, &e), 0);
    assert_int_equal(args.lease->ttl_s, 5);
    body = BODY("\"count\":\"x\"");
    assert_int_equal(json_decode_lenient(body, strlen(body), fields, &args, arena, &e), -1);
    body = "{\"a\":1,\"a\":1}";
    assert_int_equal(json_decode_lenient(body, strlen(body), fields, &args, arena, &e), -1);
    assert_int_equal(e.code, ERR_MALFORMED_JSON);
}

static void raw_objects_keep_their_numbers_and_names(void **state)
{
    (void)state;
    assert_decodes(BODY("\"metadata\":{\"n\":[9007199254740991,0.1,1e-7,-0.0,1e300]}"));
    assert_string_equal(args.metadata, "{\"n\":[9007199254740991,0.1,1e-07,-0,1e+300]}");
    assert_decodes(BODY("\"metadata\":{\"\\u0061\\\"\":\"\\u007f\\/\\u0001\xd0\xb6\"}"));
    assert_string_equal(args.metadata, "{\"a\\\"\":\"\\u007f/\\u0001\xd0\xb6\"}");
    assert_invalid(BODY("\"metadata\":{\"a\":\"0123456789012345678901234567890123456789"
                        "0123456789012345678901234567890123456789\"}"),
                   "/metadata", "at most 64 bytes");
}

static void a_full_arena_is_an_error(void **state)
{
    (void)state;
    struct arena *tiny = arena_new(64);
    const char *body = BODY("\"leases\":[{},{},{},{}]");
    assert_int_equal(json_decode(body, strlen(body), fields, &args, tiny, &e), -1);
    assert_int_equal(e.code, ERR_TOO_LARGE);
    arena_free(tiny);
}

/* --- encoding ------------------------------------------------------------------------------- */

static const struct field out_fields[] = {
    FIELD_ID(struct args, chat_id, .flags = FIELD_NULL_ZERO),
    FIELD_STR(struct args, title),
    FIELD_STR(struct args, path_part, .flags = FIELD_NULL_ZERO),
    FIELD_RAW(struct args, metadata),
    FIELD_INT(struct args, count, .has = offsetof(struct args, has_count)),
    FIELD_REAL(struct args, ratio),
    FIELD_TIME(struct args, at),
    FIELD_BOOL(struct args, wait),
    FIELD_OBJPTR(struct args, lease, lease_fields, struct lease_args),
    FIELD_OBJECT(struct args, inline_lease, lease_fields),
    FIELD_STRLIST(struct args, tags),
    FIELD_IDLIST(struct args, ids),
    FIELD_OBJLIST(struct args, leases, lease_fields, struct lease_args),
    {0},
};

static void assert_encodes(const struct args *in, const char *want)
{
    struct buf b;
    buf_init(&b, 4096);
    json_encode(out_fields, in, &b);
    assert_true(buf_ok(&b));
    assert_string_equal(b.data, want);
    assert_int_equal(json_check(b.data, b.len, true, &e), 0);
    buf_done(&b);
}

static void unset_members_are_null_or_empty(void **state)
{
    (void)state;
    assert_encodes(&args, "{\"chat_id\":null,\"title\":\"\",\"path_part\":null,\"metadata\":{},"
                          "\"count\":null,\"ratio\":0,\"at\":null,\"wait\":false,\"lease\":null,"
                          "\"inline_lease\":{\"ttl_s\":0,\"use\":\"multi\",\"scope\":[]},"
                          "\"tags\":[],\"ids\":[],\"leases\":[]}");
}

static void every_kind_is_encoded(void **state)
{
    (void)state;
    assert_decodes(
        BODY("\"title\":\"\\\"\\u0001\",\"metadata\":{\"a\":1},\"count\":5,\"ratio\":0.1,"
             "\"at\":\"2026-11-29T17:04:10.123Z\",\"lease\":{\"ttl_s\":1},"
             "\"tags\":[\"x\",\"y\"],\"ids\":[\"" ID_A "\"],\"leases\":[{\"use\":\"once\"}]"));
    assert_encodes(
        &args,
        "{\"chat_id\":\"" ID_A "\",\"title\":\"\\\"\\u0001\",\"path_part\":null,"
        "\"metadata\":{\"a\":1},\"count\":5,\"ratio\":0.1,\"at\":\"2026-11-29T17:04:10.123Z\","
        "\"wait\":true,\"lease\":{\"ttl_s\":1,\"use\":\"multi\",\"scope\":[\"read\",\"write\"]},"
        "\"inline_lease\":{\"ttl_s\":120,\"use\":\"multi\",\"scope\":[\"read\",\"write\"]},"
        "\"tags\":[\"x\",\"y\"],\"ids\":[\"" ID_A "\"],"
        "\"leases\":[{\"ttl_s\":120,\"use\":\"once\",\"scope\":[\"read\",\"write\"]}]}");
}

static void a_string_inside_the_struct_is_encoded_and_never_decoded(void **state)
{
    (void)state;
    struct answer {
        char name[8], none[8];
    } in = {.name = "a\"b"};
    static const struct field table[] = {
        FIELD_CHARS(struct answer, name),
        FIELD_CHARS(struct answer, none, .flags = FIELD_NULL_ZERO),
        {0},
    };
    struct buf b;
    buf_init(&b, 100);
    json_encode(table, &in, &b);
    assert_string_equal(b.data, "{\"name\":\"a\\\"b\",\"none\":null}");
    assert_int_equal(json_decode(b.data, b.len, table, &in, arena, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    buf_done(&b);
}

static void strings_are_escaped_and_repaired(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 256);
    const char in[] = "a\"\\/\b\f\n\r\t\0\x1f\x7f\xd0\xb6\xff\xed\xa0\x80\xf0\x9f\x98\x80\xe2\x82";
    json_add_string(&b, in, sizeof(in) - 1);
    assert_string_equal(
        b.data, "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\\u007f\xd0\xb6\xef\xbf\xbd"
                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\"");
    buf_done(&b);
}

static void reals_read_back_the_same(void **state)
{
    (void)state;
    static const double values[] = {
        0.1,    1.0 / 3.0,          1e21, 5e-324, 1.7976931348623157e308, -2.5e3, 123456.789,
        1e-300, 0.30000000000000004};
    static const struct field real[] = {FIELD_REAL(struct args, ratio), {0}};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct args in = {.ratio = values[i]}, out = {0};
        struct buf b;
        buf_init(&b, 256);
        json_encode(real, &in, &b);
        assert_int_equal(json_decode(b.data, b.len, real, &out, arena, &e), 0);
        assert_memory_equal(&in.ratio, &out.ratio, sizeof(double));
        buf_done(&b);
    }
}

static void an_encoder_that_passes_the_cap_fails_the_buffer(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 20);
    json_encode(out_fields, &args, &b);
    assert_false(buf_ok(&b));
    assert_in_range(b.len, 0, 20);
    buf_done(&b);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_kind_is_decoded),
        TEST(absent_and_null_members_get_defaults),
        TEST(an_empty_body_is_an_empty_object),
        TEST(wrong_types_are_refused_with_a_pointer),
        TEST(pointers_reach_into_nested_members),
        TEST(unknown_members_are_named_safely),
        TEST(enums_and_sets_name_the_allowed_values),
        TEST(path_and_query_members_are_not_taken_from_a_body),
        TEST(args_of_a_message_hold_them_all),
        TEST(lenient_skips_unknown_members_only),
        TEST(foreign_json_may_hold_integers_nobody_reads),
        TEST(raw_objects_keep_their_numbers_and_names),
        TEST(a_full_arena_is_an_error),
        TEST(unset_members_are_null_or_empty),
        TEST(every_kind_is_encoded),
        TEST(a_string_inside_the_struct_is_encoded_and_never_decoded),
        TEST(strings_are_escaped_and_repaired),
        TEST(reals_read_back_the_same),
        TEST(an_encoder_that_passes_the_cap_fails_the_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
