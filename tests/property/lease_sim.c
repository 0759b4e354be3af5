/*
 * The simulation from the command line.
 *
 *   lease_sim --seed N [--steps M] [--trace]     one seed; --trace shows all that happens
 *   lease_sim --time SECONDS [--steps M]         fresh seeds, until one fails
 *   lease_sim --from N --count K [--steps M]     K seeds from N on
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "sim.h"

#define STEPS 300

static void show_seen(const int64_t seen[SEEN_KINDS])
{
    for (int i = 0; i < SEEN_KINDS; i++)
        printf("%s%s %" PRId64, i ? ", " : "", seen_names[i], seen[i]);
    printf("\n");
}

static bool run_seed(uint64_t seed, int64_t steps, bool show, int64_t sum[SEEN_KINDS])
{
    struct sim *s = sim_new(seed);
    bool ok = sim_run(s, steps);

    if (!ok) {
        sim_print_tail(s, stderr);
        fprintf(stderr, "replay: lease_sim --seed %" PRIu64 " --steps %" PRId64 " --trace\n", seed,
                steps);
    } else if (show) {
        printf("seed %" PRIu64 ": %" PRId64 " steps, trace %016" PRIx64 "\n", seed, steps,
               s->trace_hash);
        show_seen(s->seen);
    }
    for (int i = 0; i < SEEN_KINDS; i++)
        sum[i] += s->seen[i];
    sim_free(s);
    return ok;
}

static int run_seeds(uint64_t from, int64_t count, int64_t steps, time_t until)
{
    int64_t n = 0, sum[SEEN_KINDS] = {0};

    for (; n < count && (!until || time(NULL) < until); n++)
        if (!run_seed(from + (uint64_t)n, steps, false, sum))
            return 1;
    printf("%" PRId64 " seeds from %" PRIu64 " on, %" PRId64 " steps each: all invariants held\n",
           n, from, steps);
    show_seen(sum);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                            {"steps", required_argument, NULL, 'n'},
                                            {"trace", no_argument, NULL, 't'},
                                            {"time", required_argument, NULL, 'T'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"count", required_argument, NULL, 'c'},
                                            {0}};
    uint64_t from = 0;
    int64_t steps = STEPS, count = 0;
    time_t until = 0;
    bool one = false;
    int opt;

    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == 's' || opt == 'f')
            from = strtoull(optarg, NULL, 0);
        if (opt == 's')
            one = true;
        if (opt == 'n')
            steps = strtoll(optarg, NULL, 10);
        if (opt == 't')
            setenv("SIM_TRACE", "1", 1);
        if (opt == 'c')
            count = strtoll(optarg, NULL, 10);
        if (opt == 'T')
            until = time(NULL) + strtoll(optarg, NULL, 10);
        if (opt == '?')
            return 2;
    }
    if (one)
        return run_seed(from, steps, true, (int64_t[SEEN_KINDS]){0}) ? 0 : 1;
    if (until && (count = INT64_MAX) && getrandom(&from, sizeof from, 0) != sizeof from)
        return 2;
    from >>= until ? 16 : 0; /* short enough to be typed */
    return run_seeds(from, count, steps, until);
}
