/*
 * The control groups are removed by leasekeep itself. The guard is a small process beside the
 * sandbox, because leasekeep may be killed and then does nothing more. It holds one end of a pipe
 * that ends with leasekeep; then it kills what is left and removes the control groups. Nobody waits
 * for the guard: it may have been stopped or killed. When both are killed the gateway finds the
 * groups by KEEP_GROUPS_FILE.
 *
 * What could be left, death signals notwithstanding: bwrap's child when bwrap was killed between
 * making it and the child's own request for a death signal. That child waits for bwrap for ever,
 * but it still is in bwrap's process group, and that is the guard's: as the guard leads it, the
 * number cannot come to mean strangers.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keep.h"
#include "mono.h"

#define GUARD_MS 10000 /* to remove the groups; there is nobody whom it keeps waiting */
#define OWN_MS   1000  /* the same for leasekeep, whose end is waited for */
#define PAUSE_MS 5

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

/* `dirs`: NUL-terminated, one after the other. True once all are gone. */
static bool remove_groups(const char *dirs, size_t len, int64_t within_ms)
{
    for (int64_t deadline_ms = mono_ms() + within_ms;;) {
        bool all_gone = true;
        for (const char *p = dirs; p < dirs + len; p += strlen(p) + 1)
            all_gone &= group_kill_and_remove(p);
        if (all_gone || mono_ms() >= deadline_ms)
            return all_gone;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
}

static void run_guard(void)
{
    char dirs[KEEP_GROUP_DIRS_SIZE];
    size_t len = 0;
    ssize_t n;
    while ((n = read(STDIN_FILENO, dirs + len, sizeof(dirs) - len)) > 0 ||
           (n < 0 && errno == EINTR))
        len += n > 0 ? (size_t)n : 0;
    remove_groups(dirs, len, GUARD_MS);
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
    g->pidfd = g->pid > 0 ? (int)syscall(SYS_pidfd_open, g->pid, 0) : -1;
    /* Here too, so that the group exists before anybody joins it. */
    if (g->pidfd >= 0 && setpgid(g->pid, g->pid) == 0)
        return 0;
    return fault_sys(f, "cannot start the guard");
}

int guard_tell(struct keep_guard *g, const char *dir)
{
    size_t len = strlen(dir) + 1;
    if (len > sizeof(g->dirs) - g->dirs_len || write(g->pipe, dir, len) != (ssize_t)len)
        return -1;
    memcpy(g->dirs + g->dirs_len, dir, len);
    g->dirs_len += len;
    return g->noted ? files_write_groups(g->dirs, g->dirs_len) : 0;
}

int guard_join(const struct keep_guard *g)
{
    return setpgid(0, g->pid);
}

/* By descriptor: the pid may be another's, if the guard has ended before. */
static void guard_end(const struct keep_guard *g)
{
    struct pollfd ended = {.fd = g->pidfd, .events = POLLIN};
    if (g->pidfd < 0)
        return;
    syscall(SYS_pidfd_send_signal, g->pidfd, SIGKILL, NULL, 0);
    poll(&ended, 1, OWN_MS);
    waitpid(g->pid, NULL, WNOHANG);
}

void guard_finish(struct keep_guard *g)
{
    if (remove_groups(g->dirs, g->dirs_len, OWN_MS)) {
        guard_end(g);
        if (g->noted)
            unlink(KEEP_GROUPS_FILE);
    }
    /* Else the guard goes on where we stopped. */
    if (g->pipe >= 0)
        close(g->pipe);
    if (g->pidfd >= 0)
        close(g->pidfd);
    g->pipe = g->pidfd = -1;
}
