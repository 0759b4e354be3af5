#include "init_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init_child.h"

static void become_agent(const struct agent *a, char **command, const struct agent_stdio *io,
                         pid_t parent, int why_fd)
{
    child_reset_signals();
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Below a pid 1 of our own getppid() is right too; a parent that died before is not ours. */
    if (getppid() != parent)
        _exit(126);
    /* All other descriptors are ours and close on exec: what we inherited was closed at our start. */
    if (dup2(io->in, STDIN_FILENO) >= 0 && dup2(io->out, STDOUT_FILENO) >= 0 &&
        child_set_limits(a->memory_bytes, a->pids) == 0)
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
