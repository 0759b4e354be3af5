/* A form comes out the same however it is cut; what is no such form is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../gateway/multipart.h"

#define TYPE "multipart/form-data; boundary=XX"
#define HEAD "--XX\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n"
#define END  "\r\n--XX--\r\n"

struct got {
    char name[1024], type[128], data[4096];
    size_t len;
    int files;
};

static int on_file(void *ctx, const struct multipart *m, struct err *e)
{
    struct got *g = ctx;

    (void)e;
    g->files++;
    snprintf(g->name, sizeof g->name, "%s", m->file_name);
    snprintf(g->type, sizeof g->type, "%s", m->content_type);
    return 0;
}

static int on_data(void *ctx, const char *data, size_t len, struct err *e)
{
    struct got *g = ctx;

    (void)e;
    assert_true(g->len + len <= sizeof g->data);
    memcpy(g->data + g->len, data, len);
    g->len += len;
    return 0;
}

/* In pieces of `step` bytes. */
static int feed(const char *type, const char *body, size_t len, size_t step, struct got *g)
{
    struct multipart m = {.ctx = g, .file = on_file, .data = on_data};
    struct err e;

    *g = (struct got){0};
    if (multipart_begin(&m, type, &e))
        return -1;
    for (size_t at = 0; at < len; at += step)
        if (multipart_feed(&m, body + at, len - at < step ? len - at : step, &e))
            return -1;
    return multipart_end(&m, &e);
}

static void every_cut_gives_the_same(void **state)
{
    static const char content[] = "\r\n--X\r\n\r\r\n--XY--\r\n--\r\n";
    static const char body[] =
        "preamble\r\n" HEAD "Content-Type: text/plain\r\n\r\n\r\n--X\r\n\r\r\n--XY--\r\n--\r\n" END
        "epilogue --XX";
    struct got g;

    (void)state;
    for (size_t step = 1; step <= sizeof body; step++) {
        assert_int_equal(feed(TYPE, body, sizeof body - 1, step, &g), 0);
        assert_int_equal(g.files, 1);
        assert_string_equal(g.name, "a.txt");
        assert_string_equal(g.type, "text/plain");
        assert_int_equal(g.len, sizeof content - 1);
        assert_memory_equal(g.data, content, g.len);
    }
}

static void names_are_unescaped(void **state)
{
    static const char *const cases[][2] = {
        {"\"a%22b.txt\"", "a\"b.txt"},    {"\"a\\\"b\"", "a\"b"}, {"plain", "plain"},
        {"\"C:\\dir\\x\"", "C:\\dir\\x"}, {"\"100%\"", "100%"},
    };
    struct got g;
    char body[400];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int n =
            snprintf(body, sizeof body,
                     "--XX \r\ncontent-disposition: form-data; name=f; filename=%s\r\n\r\nx" END,
                     cases[i][0]);
        assert_int_equal(feed(TYPE, body, (size_t)n, 1000, &g), 0);
        assert_string_equal(g.name, cases[i][1]);
    }
}

static void what_is_no_such_form(void **state)
{
    static const char *const bodies[] = {
        "",
        "--XX--\r\n",
        HEAD "\r\nx",
        HEAD "\r\nx\r\n--XX\r\n",
        HEAD "\r\nx\r\n--XXy",
        HEAD "\r\nx\r\n" HEAD "\r\ny" END,
        "--XX\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\nx" END,
        "--XX\r\nContent-Disposition: attachment; filename=x\r\n\r\nx" END,
        "--XX\r\nContent-Disposition: form-data; filename=\"x\r\n\r\nx" END,
        "--XX\r\nContent-Disposition: form-data; filename=\"\xff\"\r\n\r\nx" END,
        "--XX\r\nno colon\r\n\r\nx" END,
        "--XX\r\n\r\nx" END,
        HEAD "Content-Transfer-Encoding: base64\r\n\r\nx" END,
    };
    static const char *const types[] = {
        "text/plain", "multipart/form-data",
        "multipart/form-data; boundary=", "multipart/form-datax; boundary=XX",
        "multipart/form-data; boundary=\"XX"};
    static const char good[] = HEAD "\r\nx" END;
    struct got g;

    (void)state;
    assert_int_equal(feed(TYPE, good, sizeof good - 1, 7, &g), 0);
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        for (size_t step = 1; step < 40; step += 13)
            assert_int_equal(feed(TYPE, bodies[i], strlen(bodies[i]), step, &g), -1);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        assert_int_equal(feed(types[i], good, sizeof good - 1, 7, &g), -1);
}

static void a_head_without_an_end_is_cut_off(void **state)
{
    size_t size = MULTIPART_HEAD_MAX * 2;
    char *body = malloc(size);
    struct got g;

    (void)state;
    memset(body, 'h', size);
    memcpy(body, "--XX\r\n", 6);
    assert_int_equal(feed(TYPE, body, size, 100, &g), -1);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_same),
        cmocka_unit_test(names_are_unescaped),
        cmocka_unit_test(what_is_no_such_form),
        cmocka_unit_test(a_head_without_an_end_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
