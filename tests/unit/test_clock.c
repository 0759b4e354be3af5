#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "leasehold/clock.h"

static void check(const char *text, int64_t want)
{
    int64_t ms = -1;
    if (time_parse(text, strlen(text), &ms) != 0 || ms != want) {
        fail_msg("%s: %lld, not %lld", text, (long long)ms, (long long)want);
    }
}

static void format_writes_utc_milliseconds(void **state)
{
    (void)state;
    char text[TIME_TEXT];
    assert_string_equal(time_format(0, text), "1970-01-01T00:00:00.000Z");
    assert_string_equal(time_format(1795971850123, text), "2026-11-29T17:04:10.123Z");
    assert_string_equal(time_format(951782400007, text), "2000-02-29T00:00:00.007Z");
}

static void format_clamps_what_has_no_text(void **state)
{
    (void)state;
    char text[TIME_TEXT];
    assert_string_equal(time_format(-1, text), "1970-01-01T00:00:00.000Z");
    assert_string_equal(time_format(INT64_MIN, text), "1970-01-01T00:00:00.000Z");
    assert_string_equal(time_format(INT64_MAX, text), "9999-12-31T23:59:59.999Z");
}

static void parse_reads_offsets_and_fractions(void **state)
{
    (void)state;
    check("2026-11-29T17:04:10.123Z", 1795971850123);
    check("2026-11-29t17:04:10.123z", 1795971850123);
    check("2026-11-29T19:34:10.123+02:30", 1795971850123);
    check("2026-11-29T12:04:10.123-05:00", 1795971850123);
    check("2026-11-29T17:04:10-00:00", 1795971850000);
    check("2026-11-29T17:04:10.1Z", 1795971850100);
    check("2026-11-29T17:04:10.123456789Z", 1795971850123);
    check("1969-12-31T23:59:59.500Z", -500);
    check("2024-02-29T00:00:00Z", 1709164800000);
    check("2016-12-31T23:59:60Z", 1483228800000);
    check("2017-01-01T01:59:60+02:00", 1483228800000);
}

static void parse_refuses_everything_else(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "2026-11-29",
        "2026-11-29 17:04:10Z",
        "2026-11-29T17:04:10",
        "2026-11-29T17:04Z",
        "2026-11-29T17:04:10.Z",
        "2026-11-29T17:04:10.1234567890Z",
        "2026-11-29T17:04:10,1Z",
        "2026-11-29T24:00:00Z",
        "2026-11-29T17:60:00Z",
        "2026-11-29T17:04:61Z",
        "2026-11-29T17:04:60Z",
        "2026-00-29T17:04:10Z",
        "2026-13-29T17:04:10Z",
        "2026-02-29T17:04:10Z",
        "1900-02-29T17:04:10Z",
        "2026-04-31T17:04:10Z",
        "2026-11-00T17:04:10Z",
        "2026-11-29T17:04:10+24:00",
        "2026-11-29T17:04:10+0100",
        "2026-11-29T17:04:10+01:60",
        "2026-11-29T17:04:10Zx",
        "+026-11-29T17:04:10Z",
        "2026-1 -29T17:04:10Z",
        "2026\r11\r29T17:04:10Z",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t ms = 42;
        if (time_parse(bad[i], strlen(bad[i]), &ms) != -1 || ms != 42) {
            fail_msg("accepted: %s", bad[i]);
        }
    }
}

static void parse_reads_only_len_bytes(void **state)
{
    (void)state;
    int64_t ms;
    const char *text = "2026-11-29T17:04:10Z";
    for (size_t len = 0; len < strlen(text); len++) {
        assert_int_equal(time_parse(text, len, &ms), -1);
    }
}

static void what_format_writes_parse_reads(void **state)
{
    (void)state;
    for (int64_t ms = 1; ms < INT64_C(253402300799999); ms = ms * 3 + 1) {
        char text[TIME_TEXT];
        check(time_format(ms, text), ms);
    }
}

static void every_day_is_written_as_the_library_has_it(void **state)
{
    (void)state;
    for (int64_t day = 0; day * 86400 < INT64_C(253402300800); day++) {
        time_t seconds = (time_t)(day * 86400 + day % 86400);
        char text[TIME_TEXT], want[64];
        struct tm tm;
        gmtime_r(&seconds, &tm);
        strftime(want, sizeof want, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
        if (strcmp(time_format((int64_t)seconds * 1000, text), want) != 0) {
            fail_msg("%s, not %s", text, want);
        }
    }
}

static void system_clock_runs(void **state)
{
    (void)state;
    int64_t boot = clock_boot_us(&clock_system);
    assert_true(clock_wall_ms(&clock_system) > INT64_C(1600000000000));
    assert_true(clock_boot_us(&clock_system) >= boot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(format_writes_utc_milliseconds),
        cmocka_unit_test(format_clamps_what_has_no_text),
        cmocka_unit_test(parse_reads_offsets_and_fractions),
        cmocka_unit_test(parse_refuses_everything_else),
        cmocka_unit_test(parse_reads_only_len_bytes),
        cmocka_unit_test(what_format_writes_parse_reads),
        cmocka_unit_test(every_day_is_written_as_the_library_has_it),
        cmocka_unit_test(system_clock_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
