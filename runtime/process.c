#include "leasehold/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "leasehold/clock.h"

#define FIRST_FD   3
#define PF_EXITING 0x4UL /* of the kernel's <linux/sched.h>; field 9 of /proc/PID/stat */

/* ---- identity ---- */

struct identity {
    char state;
    unsigned long flags;
    int64_t start_ticks;
};

/* The name in field 2 may hold anything, so the fields are counted from its last ')'. */
static int identity_parse(const char *text, struct identity *ret)
{
    const char *p = strrchr(text, ')');
    if (p == NULL || p[1] != ' ' || p[2] == '\0')
        return -1;
    ret->state = p[2];
    for (int field = 2; p != NULL && field < 22; field++) {
        p = strchr(p + 1, ' ');
        if (field == 8 && p != NULL)
            ret->flags = strtoul(p + 1, NULL, 10);
    }
    if (p == NULL)
        return -1;
    ret->start_ticks = strtoll(p + 1, NULL, 10);
    return 0;
}

/* -1: there is no process of this number, not even a zombie. */
static int identity_read(pid_t pid, struct identity *ret)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    return identity_parse(text, ret);
}

static bool is_over(const struct identity *id)
{
    return id->state == 'Z' || id->state == 'X';
}

int64_t process_start_ticks(pid_t pid)
{
    struct identity id;
    if (pid <= 0 || identity_read(pid, &id) < 0 || is_over(&id))
        return -1;
    return id.start_ticks;
}

bool process_is_there(pid_t pid, int64_t start_ticks)
{
    struct identity id;
    return pid > 0 && identity_read(pid, &id) == 0 && id.start_ticks == start_ticks &&
           !is_over(&id) && (id.flags & PF_EXITING) == 0;
}

/* ---- pidfds ---- */

static void reap(int pidfd)
{
    siginfo_t info;
    while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0 && errno == EINTR)
        ;
}

int process_open(pid_t pid, int64_t start_ticks, struct err *e)
{
    if (pid <= 0)
        return err_set(e, ERR_NOT_FOUND, "there is no such process");
    int fd = pidfd_open(pid, 0);
    if (fd < 0 && errno != ESRCH && errno != EINVAL)
        return err_sys(e, ERR_INTERNAL, errno, "cannot open process %d", (int)pid);
    struct identity id = {0};
    bool same = fd >= 0 && identity_read(pid, &id) == 0 && id.start_ticks == start_ticks;
    if (same && !is_over(&id))
        return fd;
    /* The zombie of our own child: who asks for it has no other way to be rid of it. */
    if (same)
        reap(fd);
    if (fd >= 0)
        close(fd);
    return err_set(e, ERR_NOT_FOUND, "process %d has ended", (int)pid);
}

int process_wait(int pidfd, int64_t timeout_ms)
{
    int64_t deadline_us = clock_boot_us(&clock_system) + timeout_ms * 1000;
    struct pollfd pfd = {.fd = pidfd, .events = POLLIN};
    for (;;) {
        int64_t left_ms = (deadline_us - clock_boot_us(&clock_system) + 999) / 1000;
        int wait_ms = left_ms < 0 ? 0 : left_ms > 60000 ? 60000 : (int)left_ms;
        int r = poll(&pfd, 1, wait_ms);
        if (r > 0) {
            reap(pidfd);
            return 1;
        }
        if (r == 0 && left_ms <= wait_ms)
            return 0;
    }
}

int process_signal(int pidfd, int sig)
{
    return pidfd_send_signal(pidfd, sig, NULL, 0);
}

/* ---- spawn ---- */

/* What posix_spawn does in the child is async-signal-safe, and it never copies our memory. */
struct spawn_plan {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int *copies; /* of the caller's descriptors, above all targets */
    int copies_n;
};

/* Copies cannot be overwritten by a target before their own turn. */
static int copy_above(struct spawn_plan *p, int fd, int above)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, above);
    if (copy >= 0)
        p->copies[p->copies_n++] = copy;
    return copy;
}

static int plan_descriptors(struct spawn_plan *p, const struct process_spawn *s)
{
    posix_spawn_file_actions_t *a = &p->actions;
    int above = FIRST_FD + s->fds_n;
    int r = posix_spawn_file_actions_addopen(a, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_addopen(a, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (r == 0 && s->stderr_fd < 0) {
        r = posix_spawn_file_actions_addopen(a, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    } else if (r == 0) {
        int copy = copy_above(p, s->stderr_fd, above);
        r = copy < 0 ? errno : posix_spawn_file_actions_adddup2(a, copy, STDERR_FILENO);
    }
    if (r == 0 && s->stdout_too)
        r = posix_spawn_file_actions_adddup2(a, STDERR_FILENO, STDOUT_FILENO);
    for (int i = 0; r == 0 && i < s->fds_n; i++) {
        int copy = copy_above(p, s->fds[i], above);
        r = copy < 0 ? errno : posix_spawn_file_actions_adddup2(a, copy, FIRST_FD + i);
    }
    if (r == 0)
        r = posix_spawn_file_actions_addclosefrom_np(a, above);
    if (r == 0 && s->cwd != NULL)
        r = posix_spawn_file_actions_addchdir_np(a, s->cwd);
    return r;
}

static int plan_attributes(struct spawn_plan *p)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int r = posix_spawnattr_setsigmask(&p->attr, &none);
    if (r == 0)
        r = posix_spawnattr_setsigdefault(&p->attr, &all);
    if (r == 0)
        r = posix_spawnattr_setflags(&p->attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                   POSIX_SPAWN_SETSIGDEF);
    return r;
}

/* Returns an errno, 0 for success. */
static int spawn(const struct process_spawn *s, pid_t *ret_pid)
{
    char *const env[] = {(char[]){"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"
                                  "/sbin:/bin"},
                         NULL};
    struct spawn_plan p = {.copies = calloc((size_t)s->fds_n + 1, sizeof(int))};
    int r = p.copies == NULL ? ENOMEM : posix_spawn_file_actions_init(&p.actions);
    if (r != 0) {
        free(p.copies);
        return r;
    }
    r = posix_spawnattr_init(&p.attr);
    if (r == 0) {
        r = plan_descriptors(&p, s);
        if (r == 0)
            r = plan_attributes(&p);
        if (r == 0)
            r = posix_spawn(ret_pid, s->path, &p.actions, &p.attr,
                            (char *const *)(uintptr_t)s->argv, env);
        posix_spawnattr_destroy(&p.attr);
    }
    posix_spawn_file_actions_destroy(&p.actions);
    for (int i = 0; i < p.copies_n; i++)
        close(p.copies[i]);
    free(p.copies);
    return r;
}

int process_spawn(const struct process_spawn *s, pid_t *ret_pid, int64_t *ret_start, struct err *e)
{
    pid_t pid = -1;
    int why = spawn(s, &pid);
    if (why != 0) {
        const char *name = strrchr(s->path, '/');
        return err_sys(e, ERR_INTERNAL, why, "cannot run %s", name != NULL ? name + 1 : s->path);
    }
    /* It may have ended already; as our child it is a zombie then and still has its start. */
    struct identity id = {.start_ticks = -1};
    identity_read(pid, &id);
    *ret_pid = pid;
    *ret_start = id.start_ticks;
    return 0;
}
