/* What a sandbox uses, read from directories that look like control groups, and from /proc. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../runtime/use_stats.h"
#include "leasehold/process.h"

static char root[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test-use-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[96];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void put(const char *group, const char *name, const char *text)
{
    char path[128];
    FILE *out;

    snprintf(path, sizeof path, "%s/%s", root, group);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", root, group, name);
    out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void test_version_1_has_a_hierarchy_for_each_controller(void **state)
{
    struct engine_stats s = USE_UNKNOWN;
    char groups[256];

    (void)state;
    put("cpuacct", "cpuacct.usage", "2000500\n");
    put("memory", "memory.usage_in_bytes", "4096\n");
    put("memory", "memory.max_usage_in_bytes", "8192\n");
    put("pids", "pids.current", "3\n");
    snprintf(groups, sizeof groups, "%s/cpuacct\n%s/memory\n%s/pids\n", root, root, root);
    use_of_groups(groups, &s);
    assert_true(use_is_known(&s));
    assert_int_equal(s.cpu_usage_us, 2000);
    assert_int_equal(s.memory_bytes, 4096);
    assert_int_equal(s.memory_peak_bytes, 8192);
    assert_int_equal(s.pids, 3);
}

static void test_version_2_has_all_in_one_group(void **state)
{
    struct engine_stats s = USE_UNKNOWN;
    char groups[128];

    (void)state;
    put("all", "cpu.stat", "usage_usec 77\nuser_usec 70\nsystem_usec 7\n");
    put("all", "memory.current", "4096\n");
    put("all", "memory.peak", "12288\n");
    put("all", "pids.current", "2\n");
    snprintf(groups, sizeof groups, "%s/all", root);
    use_of_groups(groups, &s);
    assert_true(use_is_known(&s));
    assert_int_equal(s.cpu_usage_us, 77);
    assert_int_equal(s.memory_peak_bytes, 12288);
}

/* The cpu controller of version 1 has a cpu.stat too: of throttling, without usage. */
static void test_what_no_group_tells_stays_unknown(void **state)
{
    struct engine_stats s = USE_UNKNOWN;
    char groups[256];

    (void)state;
    put("cpu", "cpu.stat", "nr_periods 1\nnr_throttled 0\nthrottled_time 0\n");
    put("memory", "memory.current", "max\n");
    snprintf(groups, sizeof groups, "%s/cpu\n\n%s/memory\n%s/gone\n", root, root, root);
    use_of_groups(groups, &s);
    assert_false(use_is_known(&s));
    assert_int_equal(s.cpu_usage_us, -1);
    assert_int_equal(s.memory_bytes, -1);
}

static void test_processes_stand_in_for_what_is_unknown_alone(void **state)
{
    struct engine_stats s = {.cpu_usage_us = 5, .memory_bytes = -1, .memory_peak_bytes = -1, -1};
    struct err e;

    (void)state;
    assert_int_equal(use_of_namespace(getpid(), process_start_ticks(getpid()), &s, &e), 0);
    assert_true(use_is_known(&s));
    assert_int_equal(s.cpu_usage_us, 5);
    assert_true(s.memory_bytes > 0);
    assert_true(s.memory_peak_bytes >= s.memory_bytes);
    assert_true(s.pids > 0);
}

static void test_another_process_with_the_same_number_is_not_taken_for_it(void **state)
{
    struct engine_stats s = USE_UNKNOWN;
    struct err e;

    (void)state;
    assert_int_equal(use_of_namespace(getpid(), process_start_ticks(getpid()) + 1, &s, &e), -1);
    assert_int_equal(e.code, ERR_SESSION_NOT_RUNNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_version_1_has_a_hierarchy_for_each_controller, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_version_2_has_all_in_one_group, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_no_group_tells_stays_unknown, set_up, tear_down),
        cmocka_unit_test(test_processes_stand_in_for_what_is_unknown_alone),
        cmocka_unit_test(test_another_process_with_the_same_number_is_not_taken_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
