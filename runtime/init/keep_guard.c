/*
 * The guard: a small process beside the sandbox, because leasekeep may be killed and then does
 * nothing more. It holds one end of a pipe that ends with leasekeep; then it kills what is left and
 * removes the control groups.
 *
 * What could be left, death signals notwithstanding: bwrap's child when bwrap was killed between
 * making it and the child's own request for a death signal. That child waits for bwrap for ever,
 * but it still is in bwrap's process group, and that is the guard's: as the guard leads it, the
 * number cannot come to mean strangers.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keep.h"

#define REMOVE_MS 10000
#define PAUSE_MS  5

/* True once it is gone. */
static bool group_kill_and_remove(const char *dir)
{
    if (rmdir(dir) == 0 || errno == ENOENT)
        return true;
    char path[KEEP_PATH_SIZE + 16];
    int len = snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
    FILE *file = len < (int)sizeof(path) ? fopen(path, "re") : NULL;
    int pid;
    while (file != NULL && fscanf(file, "%d", &pid) == 1)
        if (pid > 0)
            kill(pid, SIGKILL);
    if (file != NULL)
        fclose(file);
    return false;
}

/* `dirs`: NUL-terminated, one after the other. */
static void remove_groups(const char *dirs, size_t len)
{
    for (int tries = 0; tries < REMOVE_MS / PAUSE_MS; tries++) {
        bool all_gone = true;
        for (const char *p = dirs; p < dirs + len; p += strlen(p) + 1)
            all_gone &= group_kill_and_remove(p);
        if (all_gone)
            return;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
}

static void run_guard(void)
{
    char dirs[KEEP_CGROUPS_MAX * KEEP_PATH_SIZE];
    size_t len = 0;
    ssize_t n;
    while ((n = read(STDIN_FILENO, dirs + len, sizeof(dirs) - len)) > 0 ||
           (n < 0 && errno == EINTR))
        len += n > 0 ? (size_t)n : 0;
    remove_groups(dirs, len);
    kill(0, SIGKILL); /* the group, and so the guard with it */
}

static void become_guard(int pipe_fd, struct keep_spec *s)
{
    spec_forget(s);
    prctl(PR_SET_NAME, "leasekeep-guard");
    if (setpgid(0, 0) == 0 && dup2(pipe_fd, STDIN_FILENO) >= 0 && close_range(1, ~0u, 0) == 0)
        run_guard();
    _exit(1);
}

int guard_start(struct keep_guard *g, struct keep_spec *s, struct fault *f)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fault_sys(f, "cannot make a pipe");
    g->pid = fork();
    if (g->pid == 0)
        become_guard(ends[0], s);
    close(ends[0]);
    g->pipe = ends[1];
    /* Here too, so that the group exists before anybody joins it. */
    if (g->pid > 0 && setpgid(g->pid, g->pid) == 0)
        return 0;
    return fault_sys(f, "cannot start the guard");
}

int guard_tell(const struct keep_guard *g, const char *dir)
{
    ssize_t len = (ssize_t)strlen(dir) + 1;
    return write(g->pipe, dir, (size_t)len) == len ? 0 : -1;
}

int guard_join(const struct keep_guard *g)
{
    return setpgid(0, g->pid);
}

void guard_finish(struct keep_guard *g)
{
    if (g->pipe >= 0)
        close(g->pipe);
    g->pipe = -1;
    while (g->pid > 0 && waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
