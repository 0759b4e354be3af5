/*
 * What the kernel counts by uid would be one account for all sandboxes, as they share a uid. Of
 * inotify it keeps a second account in each user namespace, with a limit that can be lowered there:
 * so one sandbox cannot take it all. By a process of its own, since entering the namespace is for
 * ever. Where it cannot be done the sharing stays; isolation does not rest on it.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "keep.h"

static const struct count {
    const char *machine, *sandbox;
    long long share; /* of the machine's: one part in so many */
} counts[] = {
    {"/proc/sys/fs/inotify/max_user_instances", "/proc/sys/user/max_inotify_instances", 4},
    {"/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches", 2},
};

static void count_limit(const struct count *c)
{
    char text[32];
    int from = open(c->machine, O_RDONLY | O_CLOEXEC);
    int to = open(c->sandbox, O_WRONLY | O_CLOEXEC);
    ssize_t n = from >= 0 && to >= 0 ? read(from, text, sizeof(text) - 1) : -1;
    if (n <= 0)
        return;
    text[n] = '\0';
    n = snprintf(text, sizeof(text), "%lld", strtoll(text, NULL, 10) / c->share);
    (void)!write(to, text, (size_t)n);
}

pid_t counts_limit(int pidfd)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (setns(pidfd, CLONE_NEWUSER) == 0)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
            count_limit(&counts[i]);
    _exit(0);
}
