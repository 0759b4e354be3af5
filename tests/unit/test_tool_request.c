/* What an agent may ask leasetools for, word by word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../runtime/init/tool_request.h"

static struct tool_request request;

/* A copy of exactly this length, so that a read beyond it is seen. */
static char *text;

static int parse(const char *words, size_t len)
{
    free(text);
    text = malloc(len > 0 ? len : 1);
    assert_non_null(text);
    memcpy(text, words, len);
    return tool_request_parse(&request, text, len);
}

#define PARSE(words) parse((words), sizeof(words) - 1)

static void a_request_has_its_words(void **state)
{
    (void)state;
    assert_int_equal(PARSE("ntool\0c/workspace/chat/d\0aone\0a\0eLANG=C.UTF-8\0a-x\0"), 0);
    assert_string_equal(request.name, "tool");
    assert_string_equal(request.cwd, "/workspace/chat/d");
    assert_int_equal(request.argc, 4);
    assert_string_equal(request.argv[1], "one");
    assert_string_equal(request.argv[2], "");
    assert_string_equal(request.argv[3], "-x");
    assert_null(request.argv[4]);
    assert_int_equal(request.env_n, 1);
    assert_string_equal(request.env[0], "LANG=C.UTF-8");
    assert_int_equal(PARSE("nt\0"), 0);
    assert_null(request.cwd);
    assert_int_equal(request.argc, 1);
    assert_null(request.argv[1]);
}

static void what_is_no_request_is_refused(void **state)
{
    (void)state;
    assert_int_equal(PARSE(""), -1);
    assert_int_equal(PARSE("\0"), -1);
    assert_int_equal(PARSE("ntool"), -1); /* not ended */
    assert_int_equal(PARSE("n\0"), -1);
    assert_int_equal(PARSE("n.\0"), -1);
    assert_int_equal(PARSE("n..\0"), -1);
    assert_int_equal(PARSE("n.hidden\0"), -1);
    assert_int_equal(PARSE("na/b\0"), -1);
    assert_int_equal(PARSE("n/b\0"), -1);
    assert_int_equal(PARSE("na\0nb\0"), -1);
    assert_int_equal(PARSE("c/x\0"), -1);
    assert_int_equal(PARSE("na\0cx\0"), -1);
    assert_int_equal(PARSE("na\0c/x\0c/y\0"), -1);
    assert_int_equal(PARSE("na\0xb\0"), -1);
    assert_int_equal(PARSE("na\0\0"), -1);
}

static void a_name_and_a_list_of_arguments_have_an_end(void **state)
{
    (void)state;
    char name[TOOL_NAME_MAX + 3] = "n";
    memset(name + 1, 'x', TOOL_NAME_MAX);
    assert_int_equal(parse(name, TOOL_NAME_MAX + 2), 0);
    name[TOOL_NAME_MAX + 1] = 'x';
    assert_int_equal(parse(name, TOOL_NAME_MAX + 3), -1);
    static char many[3 + 2 * (TOOL_WORDS_MAX + 1)] = "nt";
    for (size_t i = 3; i < sizeof(many); i += 2)
        many[i] = 'a';
    assert_int_equal(parse(many, sizeof(many) - 2), 0);
    assert_int_equal(request.argc, TOOL_WORDS_MAX + 1);
    assert_null(request.argv[request.argc]);
    assert_int_equal(parse(many, sizeof(many)), -1);
}

static void only_plain_words_of_how_things_look_are_taken(void **state)
{
    static const char *const taken[] = {"eTERM=xterm-256color", "eTZ=Europe/Berlin",
                                        "eLANG=de_DE@euro",     "eCOLUMNS=80",
                                        "eNO_COLOR=",           "eLC_ALL=C"};
    static const char *const left_out[] = {
        "eLD_PRELOAD=x", "eBASH_ENV=x",      "ePATH=/x",   "eHOME=/x",    "eTERM=/x/y",
        "eLANG=../x",    "eTZ=:/etc/passwd", "eTZ=/etc/x", "eTZ=a/../b",  "eLC_ALL=a b",
        "eLANG",         "eLANGX=C",         "eLOCPATH=x", "eTERMINFO=x", "e=x",
        "eLC_CTYPE=a/b", "eTERM=a;b",        "eLINES=$(x)"};
    char words[300];
    (void)state;
    for (size_t i = 0;
         i < sizeof(taken) / sizeof(taken[0]) + sizeof(left_out) / sizeof(left_out[0]); i++) {
        size_t n = sizeof(taken) / sizeof(taken[0]);
        const char *word = i < n ? taken[i] : left_out[i - n];
        memcpy(words, "nt", 3);
        memcpy(words + 3, word, strlen(word) + 1);
        assert_int_equal(parse(words, 3 + strlen(word) + 1), 0);
        if (request.env_n != (i < n ? 1 : 0))
            fail_msg("%s", word);
    }
    memset(words, 'x', sizeof(words));
    memcpy(words, "nt\0eTERM=", 9);
    words[9 + TOOL_ENV_VALUE_MAX + 1] = '\0';
    assert_int_equal(parse(words, 9 + TOOL_ENV_VALUE_MAX + 2), 0);
    assert_int_equal(request.env_n, 0);
}

static int tear_down(void **state)
{
    (void)state;
    free(text);
    text = NULL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_has_its_words),
        cmocka_unit_test(what_is_no_request_is_refused),
        cmocka_unit_test(a_name_and_a_list_of_arguments_have_an_end),
        cmocka_unit_test(only_plain_words_of_how_things_look_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
