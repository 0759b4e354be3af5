/* leasectl's option tables: parsing, the rules of a whole line, usage, and the request made of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../gateway/cli/options.h"
#include "../../gateway/cli/request.h"

#define UUID_A "0b7f3c9e-5a64-4c0e-9b1d-2f6a8e4d7c10"
#define UUID_B "9a1e2d3c-4b5f-4687-9a0b-c1d2e3f40516"

static const struct opt_spec specs[] = {
    {.name = "CHAT", .kind = OPT_UUID, .flags = OPT_OPERAND | OPT_REQUIRED, .member = "chat_id"},
    {.name = "--title", .kind = OPT_TEXT, .member = "title", .value = "T", .help = "the title"},
    {.name = "--ttl", .kind = OPT_INT, .member = "ttl_s", .value = "N", .min = 0, .max = 100},
    {.name = "--lease", .kind = OPT_FLAG, .member = "lease/"},
    {.name = "--scope",
     .kind = OPT_WORDS,
     .member = "lease/scope",
     .value = "S",
     .needs = "--lease"},
    {.name = "--mc",
     .kind = OPT_INT,
     .member = "lease/max_connections",
     .value = "N",
     .needs = "--lease",
     .min = 1,
     .max = 8},
    {.name = "--user",
     .kind = OPT_UUID,
     .flags = OPT_REPEATED,
     .member = "allowed_users",
     .value = "UUID"},
    {.name = "--metadata", .kind = OPT_OBJECT, .member = "metadata", .value = "JSON"},
    {.name = "--local", .kind = OPT_TEXT, .value = "X"},
    {0},
};

static const struct opt_spec one_of[] = {
    {.name = "ID", .kind = OPT_UUID, .flags = OPT_OPERAND | OPT_ONE_OF, .member = "{}"},
    {.name = "--session",
     .kind = OPT_UUID,
     .flags = OPT_ONE_OF,
     .member = "selector/session_id",
     .value = "ID"},
    {.name = "--reason", .kind = OPT_TEXT, .member = "reason", .value = "R"},
    {.name = "--wait", .kind = OPT_INT, .member = "wait_ms", .value = "MS", .max = 10000},
    {0},
};

static const struct opt_spec some_of[] = {
    {.name = "--name", .kind = OPT_TEXT, .flags = OPT_SOME_OF, .member = "name", .value = "N"},
    {.name = "--role", .kind = OPT_TEXT, .flags = OPT_SOME_OF, .member = "role", .value = "R"},
    {.name = "--wait", .kind = OPT_INT, .member = "wait_ms", .value = "MS", .max = 10000},
    {0},
};

static const struct opt_spec globals[] = {
    {.name = "--json", .kind = OPT_FLAG},
    {.name = "--url", .kind = OPT_TEXT, .value = "U"},
    {0},
};

/* The line is cut at blanks; none of the tests needs one inside a word, except by argv of its own. */
static int parse(const struct opt_spec *table, const char *line, struct options *o, struct err *e)
{
    static char text[512]; /* values borrow it: one line at a time */
    char *argv[32];
    int argc = 0;
    int used = 0;
    snprintf(text, sizeof(text), "%s", line);
    char *save = NULL;
    for (char *w = strtok_r(text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        argv[argc++] = w;
    }
    *o = (struct options){0};
    return options_parse(table, globals, argc, argv, o, &used, e);
}

static void assert_refused(const struct opt_spec *table, const char *line, const char *why)
{
    struct options o;
    struct err e = {0};
    int rc = parse(table, line, &o, &e);
    if (rc == 0) {
        rc = options_check(table, &o, &e);
    }
    assert_int_equal(rc, -1);
    assert_int_equal(e.code, ERR_INVALID_REQUEST);
    assert_string_equal(e.msg, why);
}

static void assert_accepted(const struct opt_spec *table, const char *line, struct options *o)
{
    struct err e = {0};
    assert_int_equal(parse(table, line, o, &e), 0);
    assert_int_equal(options_check(table, o, &e), 0);
}

static void assert_body(const char *line, const char *want)
{
    struct options o;
    struct err e;
    struct request r;
    assert_accepted(specs, line, &o);
    request_init(&r);
    assert_int_equal(request_build("POST", "/sandboxes", &o, &r, &e), 0);
    assert_string_equal(r.path.data, "/sandboxes");
    assert_string_equal(r.body.data, want);
    request_done(&r);
}

static void test_options_and_operands_mix(void **state)
{
    (void)state;
    struct options o;
    assert_accepted(specs, "--ttl 7 " UUID_A " --json --title=a=b", &o);
    assert_int_equal(options_int(&o, "--ttl", -1), 7);
    assert_true(options_has(&o, "--json"));
    assert_string_equal(options_text(&o, "--title", ""), "a=b");
    assert_string_equal(options_text(&o, "--url", "none"), "none");
    assert_int_equal(options_int(&o, "--mc", 3), 3);
}

static void test_double_dash_ends_the_options(void **state)
{
    (void)state;
    struct options o;
    struct err e;
    assert_accepted(specs, "-- " UUID_A, &o);
    assert_int_equal(parse(specs, "-- --json", &o, &e), -1); /* an operand now, and no UUID */
    assert_string_equal(e.msg, "CHAT takes a UUID");
}

static void test_globals_before_the_command_stop_at_its_first_word(void **state)
{
    (void)state;
    char *argv[] = {"--url", "http://x", "--json", "chat", "--json"};
    struct options o = {0};
    struct err e;
    int used = 0;
    assert_int_equal(options_parse(NULL, globals, 5, argv, &o, &used, &e), 0);
    assert_int_equal(used, 3);
    assert_int_equal(options_parse(NULL, globals, 2, argv + 3, &o, &used, &e), 0);
    assert_int_equal(used, 0);
    /* The same option behind the command is the second one. */
    assert_int_equal(options_parse(specs, globals, 1, argv + 4, &o, &used, &e), -1);
    assert_string_equal(e.msg, "--json is given twice");
}

static void test_mistakes_are_named_without_the_value(void **state)
{
    (void)state;
    assert_refused(specs, "", "CHAT is missing");
    assert_refused(specs, "nonsense", "CHAT takes a UUID");
    assert_refused(specs, UUID_A " more", "one argument too many");
    assert_refused(specs, UUID_A " --nope", "no such option: --nope");
    assert_refused(specs, UUID_A " --nope=secret", "no such option: --nope");
    assert_refused(specs, "-Ab", "no such option: -Ab (what is none goes behind '--')");
    assert_refused(specs, UUID_A " --title", "--title needs a value");
    assert_refused(specs, UUID_A " --json=1", "--json takes no value");
    assert_refused(specs, UUID_A " --title a --title b", "--title is given twice");
    assert_refused(specs, UUID_A " --title \xff", "--title is not valid UTF-8");
    assert_refused(specs, UUID_A " --metadata [1]", "--metadata takes a JSON object");
    assert_refused(specs, UUID_A " --lease --scope ,", "--scope takes words with commas between");
    assert_refused(specs, UUID_A " --lease --scope a,,b",
                   "--scope takes words with commas between");
    assert_refused(specs, UUID_A " --scope read", "--scope needs --lease");
}

static void test_numbers_are_whole_and_in_range(void **state)
{
    (void)state;
    const char *bad[] = {"-1", "101", "1x", "+1", "0x1", "1.0", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char line[96];
        snprintf(line, sizeof(line), UUID_A " --ttl=%s", bad[i]);
        assert_refused(specs, line, "--ttl takes a number from 0 to 100");
    }
    assert_refused(specs, UUID_A " --ttl=", "--ttl takes a number from 0 to 100");
}

static void test_one_of_takes_exactly_one(void **state)
{
    (void)state;
    struct options o;
    assert_accepted(one_of, UUID_A, &o);
    assert_accepted(one_of, "--session " UUID_A, &o);
    assert_refused(one_of, "", "give ID or --session");
    assert_refused(one_of, UUID_B " --session " UUID_A, "give ID or --session, only one of them");
}

static void test_some_of_takes_at_least_one(void **state)
{
    (void)state;
    struct options o;
    assert_accepted(some_of, "--name n", &o);
    assert_accepted(some_of, "--name n --role r --wait 1", &o);
    assert_refused(some_of, "", "nothing to do: give --name or --role");
    assert_refused(some_of, "--wait 1", "nothing to do: give --name or --role");
}

static void test_too_many_arguments_are_refused(void **state)
{
    (void)state;
    char *argv[2 * (OPTIONS_MAX + 1)];
    for (size_t i = 0; i < OPTIONS_MAX + 1; i++) {
        argv[2 * i] = "--user";
        argv[2 * i + 1] = UUID_A;
    }
    struct options o = {0};
    struct err e;
    int used = 0;
    assert_int_equal(options_parse(specs, NULL, 2 * (OPTIONS_MAX + 1), argv, &o, &used, &e), -1);
    assert_string_equal(e.msg, "too many arguments");
}

static void test_the_body_holds_what_was_given_and_no_more(void **state)
{
    (void)state;
    assert_body(UUID_A, "{\"chat_id\":\"" UUID_A "\"}");
    assert_body("{0B7F3C9E-5A64-4C0E-9B1D-2F6A8E4D7C10}", "{\"chat_id\":\"" UUID_A "\"}");
    assert_body(UUID_A " --ttl 0 --local x", "{\"chat_id\":\"" UUID_A "\",\"ttl_s\":0}");
    assert_body("--title a\"b " UUID_A, "{\"title\":\"a\\\"b\",\"chat_id\":\"" UUID_A "\"}");
    assert_body(UUID_A " --metadata {\"k\":1}",
                "{\"chat_id\":\"" UUID_A "\",\"metadata\":{\"k\":1}}");
}

static void test_members_of_a_member_stand_together(void **state)
{
    (void)state;
    assert_body(UUID_A " --lease", "{\"chat_id\":\"" UUID_A "\",\"lease\":{}}");
    assert_body("--scope read,write " UUID_A " --lease --mc 2",
                "{\"chat_id\":\"" UUID_A
                "\",\"lease\":{\"scope\":[\"read\",\"write\"],\"max_connections\":2}}");
    assert_body("--lease " UUID_A " --scope read",
                "{\"chat_id\":\"" UUID_A "\",\"lease\":{\"scope\":[\"read\"]}}");
}

static void test_repeated_options_become_an_array(void **state)
{
    (void)state;
    assert_body("--user " UUID_B " " UUID_A " --user " UUID_A,
                "{\"allowed_users\":[\"" UUID_B "\",\"" UUID_A "\"],\"chat_id\":\"" UUID_A "\"}");
}

static void test_delete_carries_its_options_in_the_query(void **state)
{
    (void)state;
    struct options o;
    struct err e;
    struct request r;
    assert_accepted(one_of, UUID_A " --reason a/b&c=\xc3\xa9 --wait 50", &o);
    request_init(&r);
    assert_int_equal(request_build("DELETE", "/leases/{}", &o, &r, &e), 0);
    assert_string_equal(r.path.data, "/leases/" UUID_A "?reason=a%2Fb%26c%3D%C3%A9&wait_ms=50");
    assert_int_equal(r.body.len, 0);
    request_done(&r);
}

static void test_a_post_without_options_has_an_empty_object(void **state)
{
    (void)state;
    struct options o;
    struct err e;
    struct request r;
    assert_accepted(one_of, UUID_A, &o);
    request_init(&r);
    assert_int_equal(request_build("POST", "/leases/{}/renew", &o, &r, &e), 0);
    assert_string_equal(r.path.data, "/leases/" UUID_A "/renew");
    assert_string_equal(r.body.data, "{}");
    request_done(&r);
}

static void assert_usage(const struct opt_spec *table, const char *want)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    options_print_usage(table, out);
    fclose(out);
    assert_string_equal(text, want);
    free(text);
}

static void test_usage_shows_what_may_stand_where(void **state)
{
    (void)state;
    assert_usage(specs, " CHAT [--title T] [--ttl N] [--lease [--scope S] [--mc N]]"
                        " [--user UUID]… [--metadata JSON] [--local X]");
    assert_usage(one_of, " (ID | --session ID) [--reason R] [--wait MS]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_and_operands_mix),
        cmocka_unit_test(test_double_dash_ends_the_options),
        cmocka_unit_test(test_globals_before_the_command_stop_at_its_first_word),
        cmocka_unit_test(test_mistakes_are_named_without_the_value),
        cmocka_unit_test(test_numbers_are_whole_and_in_range),
        cmocka_unit_test(test_one_of_takes_exactly_one),
        cmocka_unit_test(test_some_of_takes_at_least_one),
        cmocka_unit_test(test_too_many_arguments_are_refused),
        cmocka_unit_test(test_the_body_holds_what_was_given_and_no_more),
        cmocka_unit_test(test_members_of_a_member_stand_together),
        cmocka_unit_test(test_repeated_options_become_an_array),
        cmocka_unit_test(test_delete_carries_its_options_in_the_query),
        cmocka_unit_test(test_a_post_without_options_has_an_empty_object),
        cmocka_unit_test(test_usage_shows_what_may_stand_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
