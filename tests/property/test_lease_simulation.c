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
        cmocka_unit_test(many_leases_that_end_together_take_bounded_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
