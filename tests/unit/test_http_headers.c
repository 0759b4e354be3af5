#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/http_headers.h"

#define HOST "Host: x\r\n"

/* The head stands in memory of its exact size, so that a sanitizer sees a step past it. */
static struct http_head parse(char **text, const char *head, enum err_code *code)
{
    struct http_head ret;
    struct err e = {.code = ERR_NONE};
    size_t len = strlen(head);
    *text = malloc(len + 1);
    memcpy(*text, head, len + 1);
    assert_int_equal(http_head_end(*text, len, 0), (long)len);
    int r = http_head_parse(*text, len, "X-API-Token", &ret, &e);
    assert_int_equal(r, e.code == ERR_NONE ? 0 : -1);
    *code = e.code;
    return ret;
}

static void assert_code(const char *head, enum err_code want)
{
    char *text;
    enum err_code code;
    (void)parse(&text, head, &code);
    if (code != want) {
        fail_msg("%s: %s", head, err_code_name(code));
    }
    free(text);
}

static void assert_target(const char *target, enum err_code want)
{
    char head[256];
    (void)snprintf(head, sizeof head, "GET %s HTTP/1.1\r\n" HOST "\r\n", target);
    assert_code(head, want);
}

static void assert_line(const char *line, enum err_code want)
{
    char head[256];
    (void)snprintf(head, sizeof head, "POST / HTTP/1.1\r\n" HOST "%s\r\n\r\n", line);
    assert_code(head, want);
}

static void a_whole_head_is_taken_apart(void **state)
{
    (void)state;
    char *text;
    enum err_code code;
    struct http_head h = parse(&text,
                               "PATCH /a%2Fb/../c?q=%20&r HTTP/1.1\r\nHOST:x\r\n"
                               "x-api-token: \t tok en \t\r\nContent-Length: 0012\r\nAccept:\r\n"
                               "Connection: keep-alive, Upgrade\r\nConnection: CLOSE\r\n"
                               "X-Unknown: a: b\r\n\r\n",
                               &code);
    assert_int_equal(code, ERR_NONE);
    assert_int_equal(h.method, HTTP_PATCH);
    assert_int_equal(h.minor, 1);
    assert_string_equal(h.path, "/a%2Fb/../c");
    assert_string_equal(h.query, "q=%20&r");
    assert_string_equal(h.field[HDR_TOKEN], "tok en");
    assert_string_equal(h.field[HDR_ACCEPT], "");
    assert_string_equal(h.field[HDR_AUTHORIZATION], "");
    assert_int_equal(h.body_len, 12);
    assert_true(h.connection_close);
    assert_true(h.connection_upgrade);
    free(text);
}

static void the_end_is_found_across_any_two_pieces(void **state)
{
    (void)state;
    const char *head = "GET / HTTP/1.1\r\nHost: x\r\n\r\nbody\x01";
    size_t len = strlen(head), end = len - 5;
    for (size_t cut = 1; cut < end; cut++) {
        assert_int_equal(http_head_end(head, cut, 0), 0);
        assert_int_equal(http_head_end(head, len, cut), (long)end);
    }
    assert_int_equal(http_head_end("GET /\x01", 6, 0), -1);
    assert_int_equal(http_head_end("GET /\0", 6, 5), -1);
}

static void targets_are_visible_ascii_with_whole_escapes(void **state)
{
    (void)state;
    assert_target("/", ERR_NONE);
    assert_target("/%2f%2F//..", ERR_NONE);
    assert_target("http://h", ERR_MALFORMED_REQUEST);
    assert_target("http://h?x=/healthz", ERR_MALFORMED_REQUEST);
    assert_target("https://h/x", ERR_NONE);
    static const char *const bad[] = {"/%",   "/%0",     "/%00",      "/%0g", "/%zz",
                                      "/?%",  "/?a=%00", "/#",        "x",    "*",
                                      "h:80", "",        "/\xc3\xa4", "/a b", "//h/%"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_target(bad[i], ERR_MALFORMED_REQUEST);
    }
    assert_code("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", ERR_NONE);
}

static void lengths_are_one_number(void **state)
{
    (void)state;
    static const char *const bad[] = {"Content-Length: ",
                                      "Content-Length: -1",
                                      "Content-Length: +1",
                                      "Content-Length: 1,1",
                                      "Content-Length: 1 1",
                                      "Content-Length: 0x1",
                                      "Content-Length: 1\r\nContent-Length: 1",
                                      "Content-Length : 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_line(bad[i], ERR_MALFORMED_REQUEST);
    }
    assert_line("Transfer-Encoding: chunked", ERR_LENGTH_REQUIRED);
    assert_line("Transfer-Encoding: identity\r\nContent-Length: 5", ERR_LENGTH_REQUIRED);
    char *text;
    enum err_code code;
    static const char *const huge[] = {"18446744073709551615", "18446744073709551616",
                                       "99999999999999999999999999"};
    for (size_t i = 0; i < 3; i++) {
        char head[128];
        (void)snprintf(head, sizeof head, "PUT / HTTP/1.1\r\n" HOST "Content-Length: %s\r\n\r\n",
                       huge[i]);
        assert_true(parse(&text, head, &code).body_len == UINT64_MAX);
        assert_int_equal(code, ERR_NONE);
        free(text);
    }
}

static void lines_that_two_readers_read_differently_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "A : b", " A: b",   "A: b\r\n c", "A: b\nB: c", "A: b\rB: c", "A",
        ": b",   "A\tB: c", "Host: y",    "\x80: b",    "A: b\n",     "Upgrade: a\r\nUpgrade: b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_line(bad[i], ERR_MALFORMED_REQUEST);
    }
    assert_line("A: \x80\xff", ERR_NONE);
    assert_code("GET / HTTP/1.1\r\n\r\n", ERR_MALFORMED_REQUEST);
    assert_code("GET / HTTP/1.0\r\n\r\n", ERR_NONE);
}

static void a_refused_head_keeps_what_was_read(void **state)
{
    (void)state;
    char *text;
    enum err_code code;
    struct http_head h =
        parse(&text, "POST /p?q HTTP/1.1\r\n" HOST "X-Request-Id: r\r\nbroken\r\n\r\n", &code);
    assert_int_equal(code, ERR_MALFORMED_REQUEST);
    assert_string_equal(h.path, "/p");
    assert_string_equal(h.query, "q");
    assert_string_equal(h.field[HDR_REQUEST_ID], "r");
    free(text);
    h = parse(&text, "POST /%00 HTTP/1.1\r\n" HOST "\r\n", &code);
    assert_string_equal(h.path, "");
    free(text);
}

static void lists_are_searched_by_whole_tokens(void **state)
{
    (void)state;
    assert_true(http_list_has("a, B ,c", "b"));
    assert_true(http_list_has(" ,,c\t", "C"));
    assert_false(http_list_has("ab, bc", "b"));
    assert_false(http_list_has("a b", "b"));
    assert_false(http_list_has("", "b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_head_is_taken_apart),
        cmocka_unit_test(the_end_is_found_across_any_two_pieces),
        cmocka_unit_test(targets_are_visible_ascii_with_whole_escapes),
        cmocka_unit_test(lengths_are_one_number),
        cmocka_unit_test(lines_that_two_readers_read_differently_are_refused),
        cmocka_unit_test(a_refused_head_keeps_what_was_read),
        cmocka_unit_test(lists_are_searched_by_whole_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
