#include "init_child.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGNALS_PENDING   4096 /* each timer is one, too */
#define DESCRIPTORS_USUAL 1024 /* what programs count on that use select() */

/* By system call, because glibc refuses its two internal signals, and those are what glibc's
 * posix_spawn leaves ignored. */
void child_reset_signals(void)
{
    const unsigned long default_action[4] = {0};
    sigset_t none;
    sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        syscall(SYS_rt_sigaction, sig, default_action, NULL, NSIG / 8);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Never above what holds already. */
static int limit(int resource, uint64_t n)
{
    struct rlimit now;
    if (n == 0)
        return 0;
    if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
        return -1;
    rlim_t least = now.rlim_max < n ? now.rlim_max : n;
    return setrlimit((__rlimit_resource_t)resource,
                     &(struct rlimit){.rlim_cur = least, .rlim_max = least});
}

/* The kernel counts descriptors on their way between processes by uid, for all sandboxes together, and
 * refuses more to whoever has a limit below that count. We hand connections over, so agents get less
 * than we have: they can use up theirs and not ours. */
static int limit_descriptors(void)
{
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) < 0)
        return -1;
    rlim_t most = now.rlim_max - now.rlim_max / 4;
    rlim_t usual = most < DESCRIPTORS_USUAL ? most : DESCRIPTORS_USUAL;
    return setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = usual, .rlim_max = most});
}

/* The kernel counts the processes and pending signals of a uid in each user namespace apart, so those
 * of other sandboxes do not count here; we ourselves do. */
int child_set_limits(uint64_t memory_bytes, uint64_t pids)
{
    return limit(RLIMIT_NPROC, pids != 0 ? pids + 1 : 0) < 0 ||
                   limit(RLIMIT_AS, memory_bytes) < 0 ||
                   limit(RLIMIT_SIGPENDING, SIGNALS_PENDING) < 0 || limit_descriptors() < 0
               ? -1
               : 0;
}
