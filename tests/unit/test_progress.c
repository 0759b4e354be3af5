/* What a terminal sees of a transfer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../gateway/cli/progress.h"

static void has(const struct progress *p, int64_t us, const char *part)
{
    char line[PROGRESS_LINE];

    progress_line(p, us, line);
    if (!strstr(line, part))
        fail_msg("%s is not in %s", part, line);
}

static void rate_and_time_left(void **state)
{
    struct progress p = {.name = "f", .total = 100 << 20, .done = 25 << 20};

    (void)state;
    has(&p, 1000000, " 25%");
    has(&p, 1000000, "25.0 MiB/s");
    has(&p, 1000000, "0:03 left");
    has(&p, 100000000, "5:00 left");
}

static void what_was_there_before_took_no_time(void **state)
{
    struct progress p = {.name = "f", .total = 100 << 20, .done = 60 << 20, .begun_at = 50 << 20};

    (void)state;
    has(&p, 1000000, "10.0 MiB/s");
    has(&p, 1000000, "0:04 left");
}

static void nothing_yet_and_nothing_at_all(void **state)
{
    struct progress p = {.name = "f", .total = 10}, empty = {.name = "f"};

    (void)state;
    has(&p, 0, "  0%");
    has(&p, 0, "0.0 B/s");
    has(&empty, 0, "100%");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_and_time_left),
        cmocka_unit_test(what_was_there_before_took_no_time),
        cmocka_unit_test(nothing_yet_and_nothing_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
