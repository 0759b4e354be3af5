/* Reading keep.log and the file before it, as leasekeep leaves them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../runtime/local_keep.h"

static char root[64];

static void put(const char *name, const char *mode, const void *data, size_t len)
{
    char path[128];
    FILE *out;

    snprintf(path, sizeof path, "%s/%s", root, name);
    out = fopen(path, mode);
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, len, out), len);
    fclose(out);
}

static void put_text(const char *name, const char *text)
{
    put(name, "a", text, strlen(text));
}

static void put_mark(const char *name, int64_t at_ms, int64_t offset)
{
    struct keep_mark mark = {at_ms, offset};

    put(name, "a", &mark, sizeof mark);
}

static void rotate(void)
{
    char from[128], to[128];

    snprintf(from, sizeof from, "%s/keep.log", root);
    snprintf(to, sizeof to, "%s/keep.log.old", root);
    assert_int_equal(rename(from, to), 0);
    put("keep.log", "w", "", 0);
}

/* As leasekeep does: the two newest have numbers. */
static void rotate_numbered(int number)
{
    char from[128], to[128];

    rotate();
    snprintf(from, sizeof from, "%s/keep.log", root);
    snprintf(to, sizeof to, "%s/keep.log.%d", root, number);
    assert_int_equal(link(from, to), 0);
    snprintf(to, sizeof to, "%s/keep.log.%d", root, number - 2);
    unlink(to);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test-log-XXXXXX");
    assert_non_null(mkdtemp(root));
    put("keep.log", "w", "", 0);
    return 0;
}

static int tear_down(void **state)
{
    char command[96];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static struct engine_log *open_from(int64_t since_ms, int64_t tail)
{
    struct engine_log_from from = {since_ms, tail};
    struct engine_log *l = NULL;
    struct err e;

    if (keep_log_open(root, &from, &l, &e))
        fail_msg("%s", e.msg);
    return l;
}

/* All there is now, in reads of a few bytes. */
static const char *read_all(struct engine_log *l)
{
    static char text[4096];
    size_t len = 0, n;
    struct err e;

    do {
        assert_int_equal(l->v->read(l, text + len, 3, &n, &e), 0);
        len += n;
    } while (n > 0);
    text[len] = '\0';
    return text;
}

static void expect(int64_t since_ms, int64_t tail, const char *wanted)
{
    struct engine_log *l = open_from(since_ms, tail);

    assert_string_equal(read_all(l), wanted);
    l->v->free(l);
}

static void test_both_files_are_one_text(void **state)
{
    (void)state;
    put_text("keep.log", "one\ntwo\n");
    rotate();
    put_text("keep.log", "three\n");
    expect(0, -1, "one\ntwo\nthree\n");
}

static void test_a_tail_counts_lines_over_both_files(void **state)
{
    (void)state;
    put_text("keep.log", "one\ntwo\nth");
    rotate();
    put_text("keep.log", "ree\nfour");
    expect(0, 0, "");
    expect(0, 1, "four");
    expect(0, 2, "three\nfour");
    expect(0, 3, "two\nthree\nfour");
    expect(0, 4, "one\ntwo\nthree\nfour");
    expect(0, 1000, "one\ntwo\nthree\nfour");
}

static void test_since_begins_at_the_mark(void **state)
{
    (void)state;
    put_text("keep.log", "one\ntwo\n");
    put_mark("keep.times.old", 1000, 0);
    put_mark("keep.times.old", 2000, 4);
    rotate();
    put_text("keep.log", "three\n");
    put_mark("keep.times", 3000, 0);
    expect(500, -1, "one\ntwo\nthree\n");
    expect(1500, -1, "two\nthree\n");
    expect(2500, -1, "three\n");
    expect(3050, -1, "three\n"); /* it may have been written until then */
    expect(4000, -1, "");
    expect(1500, 1, "three\n");
}

static void test_what_is_written_later_is_read_later_also_over_rotations(void **state)
{
    struct engine_log *l = open_from(0, -1);

    (void)state;
    assert_string_equal(read_all(l), "");
    put_text("keep.log", "one\n");
    assert_string_equal(read_all(l), "one\n");
    put_text("keep.log", "two\n");
    rotate();
    put_text("keep.log", "three\n");
    assert_string_equal(read_all(l), "two\nthree\n");
    rotate();
    assert_string_equal(read_all(l), "");
    put_text("keep.log", "four\n");
    rotate();
    put_text("keep.log", "five\n");
    rotate();
    put_text("keep.log", "six\n");
    assert_string_equal(read_all(l), "four\nfive\nsix\n");
    l->v->free(l);
}

static struct engine_log *open_numbered(void)
{
    char from[128], to[128];

    snprintf(from, sizeof from, "%s/keep.log", root);
    snprintf(to, sizeof to, "%s/keep.log.0", root);
    assert_int_equal(link(from, to), 0);
    return open_from(0, -1);
}

static void test_what_was_missed_is_told(void **state)
{
    struct engine_log *l = open_numbered();

    (void)state;
    put_text("keep.log", "one\n");
    assert_string_equal(read_all(l), "one\n");
    for (int i = 1; i <= 3; i++) {
        rotate_numbered(i);
        put_text("keep.log", (const char *[]){"", "lost\n", "two\nthr", "ee\n"}[i]);
    }
    assert_string_equal(
        read_all(l), "leasehold: the agent said more than is kept before it could be read: a part "
                     "is missing here\ntwo\nthree\n");
    put_text("keep.log", "in a li");
    assert_string_equal(read_all(l), "in a li");
    for (int i = 4; i <= 6; i++)
        rotate_numbered(i);
    put_text("keep.log", "four\n");
    assert_string_equal(read_all(l),
                        "\nleasehold: the agent said more than is kept before it could be read: a "
                        "part is missing here\nfour\n");
    l->v->free(l);
}

static void test_what_two_rotations_took_is_read_and_nothing_told(void **state)
{
    struct engine_log *l = open_numbered();

    (void)state;
    put_text("keep.log", "one\n");
    for (int i = 1; i <= 10; i += 2) {
        read_all(l);
        put_text("keep.log", "two\n");
        rotate_numbered(i);
        put_text("keep.log", "three\n");
        rotate_numbered(i + 1);
        put_text("keep.log", "four\n");
        assert_string_equal(read_all(l), "two\nthree\nfour\n");
    }
    l->v->free(l);
}

/* The disk was full for the second name: it is not known any more, and again with the next one. */
static void test_without_a_number_it_goes_on(void **state)
{
    struct engine_log *l = open_numbered();

    (void)state;
    rotate();
    put_text("keep.log", "one\n");
    assert_string_equal(read_all(l), "one\n");
    rotate_numbered(2);
    put_text("keep.log", "two\n");
    assert_string_equal(read_all(l), "two\n");
    for (int i = 3; i <= 5; i++)
        rotate_numbered(i);
    put_text("keep.log", "three\n");
    assert_non_null(strstr(read_all(l), "missing here\nthree\n"));
    l->v->free(l);
}

static void test_a_log_that_is_gone_is_not_found(void **state)
{
    struct engine_log_from from = {0, -1};
    struct engine_log *l = NULL;
    struct err e;

    (void)state;
    assert_int_equal(keep_log_open("/tmp/there-is-no-such-directory", &from, &l, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_null(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_both_files_are_one_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_tail_counts_lines_over_both_files, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_since_begins_at_the_mark, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_what_is_written_later_is_read_later_also_over_rotations, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_missed_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_two_rotations_took_is_read_and_nothing_told,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_a_number_it_goes_on, set_up, tear_down),
        cmocka_unit_test(test_a_log_that_is_gone_is_not_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
