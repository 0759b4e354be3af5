/* Rates: a burst, then the rate, by whom; and what happens when more are over it than are remembered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "../../gateway/limits.h"

#define SECOND INT64_C(1000000)
#define BURST  5

static struct limits *five_a_second(void)
{
    struct limits *l =
        limits_new(&(struct config_security){.requests_per_second = 5, .burst = BURST});

    assert_non_null(l);
    return l;
}

static bool refused(struct limits *l, const char *address, int64_t now_us)
{
    struct err e;
    int retry_s = 0;

    if (!limits_refusal(l, address, now_us, &retry_s, &e))
        return false;
    assert_int_equal(e.code, ERR_RATE_LIMITED);
    assert_true(retry_s > 0);
    return true;
}

/* How many go through at this time until the first that does not. */
static int through(struct limits *l, const char *address, int64_t now_us)
{
    int n = 0;

    while (n < 100 && !refused(l, address, now_us))
        n++;
    return n;
}

static void a_burst_goes_through_and_then_the_rate(void **state)
{
    struct limits *l = five_a_second();

    (void)state;
    assert_int_equal(through(l, "192.0.2.1", SECOND), BURST);
    assert_int_equal(through(l, "192.0.2.1", SECOND + SECOND / 5), 1);
    assert_int_equal(through(l, "192.0.2.2", SECOND), BURST);
    assert_int_equal(through(l, "192.0.2.1", 60 * SECOND), BURST);
    limits_free(l);
}

static void addresses_of_one_64_count_together_and_mapped_ones_as_themselves(void **state)
{
    struct limits *l = five_a_second();

    (void)state;
    assert_int_equal(through(l, "2001:db8:1:2::1", SECOND), BURST);
    assert_int_equal(through(l, "2001:db8:1:2:ffff::2", SECOND), 0);
    assert_int_equal(through(l, "2001:db8:1:3::1", SECOND), BURST);
    assert_int_equal(through(l, "::ffff:192.0.2.1", SECOND), BURST);
    assert_int_equal(through(l, "192.0.2.1", SECOND), 0);
    assert_int_equal(through(l, "::ffff:192.0.2.2", SECOND), BURST);
    assert_int_equal(through(l, "unix", SECOND), BURST);
    limits_free(l);
}

static const char *address_of(unsigned n, char ret[static 32])
{
    snprintf(ret, 32, "10.%u.%u.%u", n >> 16, n >> 8 & 255, n & 255);
    return ret;
}

/* It used to fail open: beyond the table's size nobody was refused. */
static void a_flood_from_more_addresses_than_are_remembered_is_held_to_one_each(void **state)
{
    struct limits *l = five_a_second();
    char text[32];

    (void)state;
    for (unsigned n = 0; n < LIMITS_COUNTED_MAX; n++)
        assert_int_equal(through(l, address_of(n, text), SECOND), BURST);
    for (unsigned n = 0; n < 1000; n++)
        assert_int_equal(through(l, address_of(LIMITS_COUNTED_MAX + n, text), SECOND), 1);
    limits_free(l);
}

static void who_owes_nothing_makes_room_first(void **state)
{
    struct limits *l = five_a_second();
    char text[32];

    (void)state;
    for (unsigned n = 0; n < LIMITS_COUNTED_MAX - 1; n++)
        assert_false(refused(l, address_of(n, text), SECOND));
    assert_int_equal(through(l, "192.0.2.1", 9 * SECOND), BURST);
    for (unsigned n = 0; n < 1000; n++)
        assert_int_equal(through(l, address_of(LIMITS_COUNTED_MAX + n, text), 9 * SECOND), BURST);
    assert_int_equal(through(l, "192.0.2.1", 9 * SECOND), 0);
    limits_free(l);
}

static void without_a_rate_nobody_is_refused(void **state)
{
    struct limits *l = limits_new(&(struct config_security){.requests_per_second = 0});

    (void)state;
    assert_non_null(l);
    assert_int_equal(through(l, "192.0.2.1", SECOND), 100);
    limits_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_goes_through_and_then_the_rate),
        cmocka_unit_test(addresses_of_one_64_count_together_and_mapped_ones_as_themselves),
        cmocka_unit_test(a_flood_from_more_addresses_than_are_remembered_is_held_to_one_each),
        cmocka_unit_test(who_owes_nothing_makes_room_first),
        cmocka_unit_test(without_a_rate_nobody_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
