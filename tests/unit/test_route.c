/* Routing and percent escapes: what a path names, and what it never names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "../../gateway/route.h"
#include "../../gateway/trace.h"

static const struct op table[] = {
    {.name = "chat.get", .method = HTTP_GET, .path = "/chats/{chat_id}"},
    {.name = "chat.delete", .method = HTTP_DELETE, .path = "/chats/{chat_id}"},
    {.name = "file.get", .method = HTTP_GET, .path = "/chats/{chat_id}/files/{name}"},
    {.name = "chat.list", .method = HTTP_GET, .path = "/chats"},
    {0},
};

static void a_template_matches_segment_by_segment(void **state)
{
    struct route r;
    struct err e;

    (void)state;
    assert_int_equal(route_find(table, HTTP_GET, "/chats/abc/files/x%2fy", &r, &e), 0);
    assert_string_equal(r.op->name, "file.get");
    assert_int_equal(r.params_n, 2);
    assert_memory_equal(r.params[0].name, "chat_id", r.params[0].name_len);
    assert_memory_equal(r.params[0].value, "abc", r.params[0].value_len);
    assert_int_equal(r.params[1].value_len, strlen("x%2fy"));
}

static void other_paths_are_not_found(void **state)
{
    static const char *const paths[] = {
        "",        "/",          "chats",           "/chats/",
        "//chats", "/chats//",   "/chats/a/",       "/chats/a/files",
        "/chatsx", "/chats/a/b", "/chats/a/files/", "/chat"};
    struct route r;
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(route_find(table, HTTP_GET, paths[i], &r, &e), -1);
        assert_int_equal(e.code, ERR_NOT_FOUND);
    }
}

static void head_finds_what_get_does(void **state)
{
    struct route r;
    struct err e;

    (void)state;
    assert_int_equal(route_find(table, HTTP_HEAD, "/chats/a", &r, &e), 0);
    assert_string_equal(r.op->name, "chat.get");
    assert_int_equal(r.params_n, 1);
}

static void a_wrong_method_names_the_right_ones(void **state)
{
    struct route r;
    struct err e;

    (void)state;
    assert_int_equal(route_find(table, HTTP_POST, "/chats/a", &r, &e), -1);
    assert_int_equal(e.code, ERR_METHOD_NOT_ALLOWED);
    assert_string_equal(r.allow, "GET, HEAD, DELETE");
}

static void escapes_are_decoded_and_broken_ones_refused(void **state)
{
    static const char *const broken[] = {"%", "%4", "%zz", "a%", "%00", "a%4", "%ff", "%c3"};
    struct arena *arena = arena_new(65536);
    struct err e;
    char *out;
    size_t len;

    (void)state;
    assert_int_equal(percent_decode("a%2Fb+%c3%a9", 12, false, arena, &out, &len, &e), 0);
    assert_string_equal(out, "a/b+\xc3\xa9");
    assert_int_equal(percent_decode("a+b", 3, true, arena, &out, &len, &e), 0);
    assert_string_equal(out, "a b");
    assert_int_equal(percent_decode("%41", 3, true, arena, &out, &len, &e), 0);
    assert_string_equal(out, "A");
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        assert_int_equal(percent_decode(broken[i], strlen(broken[i]), true, arena, &out, &len, &e),
                         -1);
        assert_int_equal(e.code, ERR_MALFORMED_REQUEST);
    }
    arena_free(arena);
}

static void a_length_ends_an_escape(void **state)
{
    struct arena *arena = arena_new(65536);
    struct err e;
    char *out;
    size_t len;

    (void)state;
    assert_int_equal(percent_decode("%41", 2, true, arena, &out, &len, &e), -1);
    arena_free(arena);
}

static void a_request_id_is_the_clients_if_it_is_visible_ascii(void **state)
{
    char id[65], long_id[66];

    (void)state;
    request_id_choose("mine", id);
    assert_string_equal(id, "mine");
    memset(long_id, 'x', 65);
    long_id[65] = '\0';
    request_id_choose(long_id, id);
    assert_int_equal(strlen(id), 36);
    request_id_choose(long_id + 1, id);
    assert_int_equal(strlen(id), 64);
    request_id_choose("a b", id);
    assert_int_equal(strlen(id), 36);
    request_id_choose("", id);
    assert_int_equal(strlen(id), 36);
}

static void only_a_valid_traceparent_is_continued(void **state)
{
    static const char good[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    static const char *const bad[] = {
        "",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
    };
    struct trace_context sent, ours;
    char out[56];

    (void)state;
    assert_true(traceparent_read(good, &sent));
    assert_string_equal(sent.span_id, "00f067aa0ba902b7");
    assert_true(sent.sampled);
    trace_child(&ours, &sent);
    traceparent_write(&ours, out);
    assert_memory_equal(out, good, 36);
    assert_memory_not_equal(out + 36, good + 36, 16);
    assert_string_equal(out + 52, "-01");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(traceparent_read(bad[i], &sent));
}

static void the_senders_choice_to_record_is_kept(void **state)
{
    static const char *const flags[] = {"00", "01", "02", "03", "a0", "ff"};
    char text[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    struct trace_context sent, ours;

    (void)state;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        memcpy(text + 53, flags[i], 2);
        assert_true(traceparent_read(text, &sent));
        assert_int_equal(sent.sampled, i == 1 || i == 3 || i == 5);
        trace_child(&ours, &sent);
        assert_int_equal(ours.sampled, sent.sampled);
    }
    trace_child(&ours, NULL);
    assert_true(ours.sampled);
    assert_int_equal(strspn(ours.trace_id, "0123456789abcdef"), 32);
    assert_int_equal(strspn(ours.span_id, "0123456789abcdef"), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_matches_segment_by_segment),
        cmocka_unit_test(other_paths_are_not_found),
        cmocka_unit_test(head_finds_what_get_does),
        cmocka_unit_test(a_wrong_method_names_the_right_ones),
        cmocka_unit_test(escapes_are_decoded_and_broken_ones_refused),
        cmocka_unit_test(a_length_ends_an_escape),
        cmocka_unit_test(a_request_id_is_the_clients_if_it_is_visible_ascii),
        cmocka_unit_test(only_a_valid_traceparent_is_continued),
        cmocka_unit_test(the_senders_choice_to_record_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
