/* The lease core of production in a world of chance: every invariant holds in every seed tried here, and
 * a seed is the same each time. `make sim T=seconds` goes on with fresh ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "sim.h"

#define SEEDS       120
#define STEPS       300
#define QUIET_STEPS 16
#define MANY        700

static void run(uint64_t seed, int64_t steps, int64_t seen[SEEN_KINDS])
{
    struct sim *s = sim_new(seed);
    char failure[sizeof s->failure] = "";

    if (!sim_run(s, steps)) {
        memcpy(failure, s->failure, sizeof failure);
        sim_print_tail(s, stderr);
    }
    for (int i = 0; i < SEEN_KINDS; i++)
        seen[i] += s->seen[i];
    sim_free(s);
    if (failure[0])
        fail_msg("lease_sim --seed %llu --steps %lld: %s", (unsigned long long)seed,
                 (long long)steps, failure);
}

static void every_invariant_holds_in_every_seed_and_everything_happens(void **state)
{
    int64_t seen[SEEN_KINDS] = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        run(seed, STEPS, seen);
    for (int i = 0; i < SEEN_KINDS; i++) {
        print_message("%s %lld\n", seen_names[i], (long long)seen[i]);
        if (!seen[i])
            fail_msg("%s has not happened in any seed", seen_names[i]);
    }
}

static uint64_t trace_of(uint64_t seed, int64_t *ret_writes)
{
    struct sim *s = sim_new(seed);
    uint64_t hash;

    assert_true(sim_run(s, STEPS));
    hash = s->trace_hash;
    *ret_writes = sim_disk_writes(s->disk);
    sim_free(s);
    return hash;
}

static void a_seed_replays_exactly(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        int64_t writes, again_writes;
        uint64_t trace = trace_of(seed, &writes), again = trace_of(seed, &again_writes);

        assert_true(trace == again);
        assert_true(writes == again_writes);
        assert_true(writes > 100);
        assert_true(trace != trace_of(seed + 100, &writes));
    }
}

/* The writes of a short run without other trouble, with the store ending at the nth of them (0: at none). */
static int64_t run_quietly(int64_t nth)
{
    struct sim *s = sim_new(4);
    char failure[sizeof s->failure] = "";
    int64_t before = sim_disk_writes(s->disk), writes;

    s->quiet = true;
    sim_disk_end_at(s->disk, nth);
    if (!sim_run(s, QUIET_STEPS)) {
        memcpy(failure, s->failure, sizeof failure);
        sim_print_tail(s, stderr);
    }
    writes = s->writes_at_rest - before;
    if (nth)
        assert_true(s->seen[SEEN_KILL_IN_WRITE] > 0);
    sim_free(s);
    if (failure[0])
        fail_msg("ended at write %lld: %s", (long long)nth, failure);
    return writes;
}

static void every_write_may_be_the_last(void **state)
{
    int64_t writes = run_quietly(0);

    (void)state;
    assert_true(writes > 50);
    for (int64_t nth = 1; nth <= writes; nth++)
        run_quietly(nth);
}

/* --- the clock --------------------------------------------------------------------------------- */

/* In the time that is no time: leases, and a key that is retired. */
static void live_far_ahead(struct sim *s)
{
    struct op *rotate = op_new(s, OP_ROTATE, 0);

    sim_act_first(s);
    sim_clock_far(s, INT64_C(200) * 1000);
    for (int i = 0; i < 6; i++)
        sim_grant(s, i % s->sessions_n, 0, 30);
    gateway_submit(s, rotate);
    sim_advance(s, 2 * SEC);
    assert_int_equal(s->leases_n, 6);
    assert_int_equal(s->seen[SEEN_ROTATED], 1);
    sim_clock_far(s, 0);
    sim_grant(s, 0, 0, 30);
    sim_advance(s, 1 * SEC);
    assert_int_equal(s->seen[SEEN_BEHIND], 1);
    assert_int_equal(s->leases_n, 6);
}

/* The writes of a reset that ends at the nth of them (0: at none) and is done again; behind it all goes on.
 * Its crash may take the machine with it. */
static int64_t reset_ending_at(uint64_t seed, int64_t nth, int64_t *broken)
{
    struct sim *s = sim_new(seed);
    int64_t writes;

    s->quiet = true;
    live_far_ahead(s);
    gateway_stop(s);
    sim_advance(s, 4 * SEC);
    writes = sim_disk_writes(s->disk);
    sim_disk_end_at(s->disk, nth);
    if (!reset_clock(s) && !s->failed)
        assert_true(nth > 0 && reset_clock(s));
    writes = sim_disk_writes(s->disk) - writes;
    *broken += s->seen[SEEN_RESET_BROKEN];
    s->gw.restart_at_us = s->boot_us;
    sim_advance(s, 2 * SEC);
    sim_grant(s, s->sessions_n - 1, 0,
              30); /* none of its session is left where the machine ended */
    if (!s->failed)
        sim_run(s, QUIET_STEPS);
    if (s->failed) {
        sim_print_tail(s, stderr);
        fail_msg("ended at write %lld of a reset: %s", (long long)nth, s->failure);
    }
    sim_free(s);
    return writes;
}

static void every_write_of_a_reset_of_the_clock_may_be_the_last(void **state)
{
    int64_t broken = 0, writes = reset_ending_at(9, 0, &broken);

    (void)state;
    assert_true(writes > 10 && broken == 0);
    for (int64_t nth = 1; nth < writes; nth++)
        for (uint64_t seed = 9; seed < 12; seed++)
            reset_ending_at(seed, nth, &broken);
    assert_true(broken > 10);
}

static void issuing_goes_on_behind_a_reset_and_stops_again_behind_its_mark(void **state)
{
    struct sim *s = sim_new(9);

    (void)state;
    s->quiet = true;
    live_far_ahead(s);
    gateway_stop(s);
    sim_advance(s, 4 * SEC);
    assert_true(reset_clock(s));
    for (int i = 0; i < s->leases_n; i++)
        assert_int_equal(s->leases[i].l.state, LEASE_REVOKING);
    s->gw.restart_at_us = s->boot_us;
    sim_advance(s, 2 * SEC);
    sim_grant(s, 0, 0, 30);
    sim_advance(s, SEC);
    assert_int_equal(s->leases_n, 7);
    for (int i = 0; i < 6; i++)
        assert_true(s->leases[i].closed);
    sim_step_wall(s, -10000);
    sim_grant(s, 0, 0, 30);
    sim_advance(s, SEC);
    assert_int_equal(s->leases_n, 7);
    assert_int_equal(s->seen[SEEN_BEHIND], 2);
    assert_false(s->failed);
    sim_free(s);
}

/* --- many -------------------------------------------------------------------------------------- */

/* More than one turn of the broker's timer may ask for. */
static void many_leases_that_end_together_take_bounded_turns(void **state)
{
    struct sim *s = sim_new(1);
    int64_t turns;

    (void)state;
    s->quiet = true;
    s->policy.per_user = s->policy.per_session = s->policy.global_max = MANY;
    sim_act_first(s);
    for (int i = 0; i < MANY; i++)
        sim_grant(s, i % s->sessions_n, 0, 30);
    sim_advance(s, 2 * SEC);
    assert_int_equal(s->leases_n, MANY);
    assert_int_equal(s->seen[SEEN_EXPIRED], 0);
    sim_advance(s, 33 * SEC);
    turns = s->seen[SEEN_EXPIRED];
    if (!s->failed)
        sim_rest(s);
    if (s->failed)
        sim_print_tail(s, stderr);
    assert_false(s->failed);
    assert_int_equal(s->seen[SEEN_EXPIRED], turns); /* nobody was asked for twice */
    /* They were granted within two seconds: so many ends there may be. */
    assert_in_range(turns, (MANY + BROKER_BATCH - 1) / BROKER_BATCH,
                    (MANY + BROKER_BATCH - 1) / BROKER_BATCH + 2);
    sim_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_invariant_holds_in_every_seed_and_everything_happens),
        cmocka_unit_test(a_seed_replays_exactly),
        cmocka_unit_test(every_write_may_be_the_last),
        cmocka_unit_test(every_write_of_a_reset_of_the_clock_may_be_the_last),
        cmocka_unit_test(issuing_goes_on_behind_a_reset_and_stops_again_behind_its_mark),
        cmocka_unit_test(many_leases_that_end_together_take_bounded_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
