#include "init_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIGNALS_PENDING   4096 /* each timer is one, too */
#define DESCRIPTORS_USUAL 1024 /* what programs count on that use select() */

/* What some launcher ignores, the agent would ignore too. By system call, because glibc refuses its
 * two internal signals, and those are what glibc's posix_spawn leaves ignored. */
static void reset_signals(void)
{
    const unsigned long default_action[4] = {0};
    for (int sig = 1; sig < NSIG; sig++)
        syscall(SYS_rt_sigaction, sig, default_action, NULL, NSIG / 8);
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
static int set_limits(const struct agent *a)
{
    return limit(RLIMIT_NPROC, a->pids != 0 ? a->pids + 1 : 0) < 0 ||
                   limit(RLIMIT_AS, a->memory_bytes) < 0 ||
                   limit(RLIMIT_SIGPENDING, SIGNALS_PENDING) < 0 || limit_descriptors() < 0
               ? -1
               : 0;
}

static void become_agent(const struct agent *a, char **command, const struct agent_stdio *io,
                         pid_t parent, int why_fd)
{
    sigset_t none;
    sigemptyset(&none);
    reset_signals();
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Below a pid 1 of our own getppid() is right too; a parent that died before is not ours. */
    if (getppid() != parent)
        _exit(126);
    /* All other descriptors are ours and close on exec: what we inherited was closed at our start. */
    if (dup2(io->in, STDIN_FILENO) >= 0 && dup2(io->out, STDOUT_FILENO) >= 0 && set_limits(a) == 0)
        execvp(command[0], command);
    int why = errno;
    ssize_t n = write(why_fd, &why, sizeof(why));
    _exit(n == (ssize_t)sizeof(why) && why == ENOENT ? 127 : 126);
}

int agent_start(struct agent *a, char **command, const struct agent_stdio *io)
{
    int why_pipe[2];
    if (pipe2(why_pipe, O_CLOEXEC) < 0)
        return -1;
    pid_t parent = getpid();
    a->pid = fork();
    if (a->pid == 0)
        become_agent(a, command, io, parent, why_pipe[1]);
    close(why_pipe[1]);
    int why = 0;
    ssize_t n = 0;
    if (a->pid > 0)
        n = read(why_pipe[0], &why, sizeof(why));
    close(why_pipe[0]);
    a->unexecutable = n == (ssize_t)sizeof(why);
    if (a->unexecutable)
        fprintf(stderr, "leaseinit: cannot run %s: %s\n", command[0], strerror(why));
    return a->pid < 0 ? -1 : 0;
}

void agent_reap(struct agent *a)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != a->pid)
            continue;
        a->exited = true;
        a->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        a->code = a->signal != 0 ? 128 + a->signal : WEXITSTATUS(status);
    }
}

void agent_signal(const struct agent *a, int sig)
{
    if (a->pid > 0)
        kill(-a->pid, sig);
}
