/* The simulation can fail: each of these faults, planted into the production code (faults.py), is caught
 * within some seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults_planted.h"
#include "planted.h"
#include "sim.h"

#define SEEDS   100
#define STEPS   300
#define SOUND   5
#define PLANTED (sizeof planted / sizeof planted[0])

int fault_planted;

struct catch
{
    int64_t seeds; /* it took; 0: it was not caught */
    char failure[200];
};

static struct catch try_seeds(int fault, int64_t seeds)
{
    struct catch c = {0};

    fault_planted = fault;
    for (int64_t seed = 1; seed <= seeds && !c.seeds; seed++) {
        struct sim *s = sim_new((uint64_t)seed);

        if (!sim_run(s, STEPS)) {
            c.seeds = seed;
            snprintf(c.failure, sizeof c.failure, "%.199s", s->failure);
        }
        sim_free(s);
    }
    return c;
}

/* In a process of its own: a fault may break more than an invariant. */
static struct catch try_apart(int fault)
{
    struct catch c = {0};
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        c = try_seeds(fault, SEEDS);
        _exit(write(fds[1], &c, sizeof c) == (ssize_t)sizeof c ? 0 : 1);
    }
    close(fds[1]);
    if (read(fds[0], &c, sizeof c) != (ssize_t)sizeof c)
        c.seeds = 0;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return c;
}

static void without_a_fault_nothing_is_caught(void **state)
{
    struct catch c = try_seeds(0, SOUND);

    (void)state;
    if (c.seeds)
        fail_msg("seed %lld: %s", (long long)c.seeds, c.failure);
}

static void every_planted_fault_is_caught(void **state)
{
    size_t caught = 0;

    (void)state;
    for (size_t i = 0; i < PLANTED; i++) {
        struct catch c = planted[i].there ? try_apart(planted[i].number) : (struct catch){0};

        print_message("%2d %s: %s\n", planted[i].number, planted[i].what,
                      !planted[i].there ? "its place is gone, adapt tests/property/faults.py"
                      : c.seeds         ? c.failure
                                        : "NOT CAUGHT");
        caught += c.seeds > 0;
    }
    assert_int_equal(caught, PLANTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_fault_nothing_is_caught),
        cmocka_unit_test(every_planted_fault_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
