#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "keep.h"

#define BWRAP_PATH "/usr/bin/bwrap"

static int limit(int resource, rlim_t soft, rlim_t hard)
{
    struct rlimit now;
    if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
        return -1;
    if (now.rlim_max < hard)
        hard = now.rlim_max;
    now.rlim_cur = soft < hard ? soft : hard;
    now.rlim_max = hard;
    return setrlimit((__rlimit_resource_t)resource, &now);
}

/* Pending signals and timers. Newer kernels also count those of all sandboxes together, as they have
 * one uid, and compare the sum with what holds here when the user namespace is made: a low limit
 * would let one sandbox use up everybody's. leaseinit sets the limit of the one. */
static void unlimit_sum(void)
{
    const struct rlimit none = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    int r = setrlimit(RLIMIT_SIGPENDING, &none); /* root's right alone */
    (void)r;
}

/* When the whole machine runs out of memory, agents go before whoever started them. */
static void offer_to_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = write(fd, "500", 3);
    (void)n;
    close(fd);
}

static int drop_identity(const struct keep_spec *s)
{
    /* bwrap takes no capability that it has not from being set-uid. */
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -1;
    if (geteuid() != 0)
        return 0;
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
        if (prctl(PR_CAPBSET_DROP, cap) < 0)
            return -1;
    uid_t uid = (uid_t)s->uid;
    gid_t gid = (gid_t)s->gid;
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return -1;
    /* From here on no way leads back. */
    if (setresuid(0, 0, 0) == 0 || setgroups(0, NULL) == 0) {
        errno = EPERM;
        return -1;
    }
    return 0;
}

/* The session keyring would be inherited; one of our own is empty. */
static int leave_keyring(void)
{
    long r = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    return r < 0 && errno != ENOSYS ? -1 : 0;
}

static int keep_only(const struct keep_bwrap *b)
{
    if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
        return -1;
    for (size_t i = 0; i < b->files_n; i++)
        if (fcntl(b->files[i], F_SETFD, 0) < 0)
            return -1;
    return 0;
}

/* Signals for the sandbox's init must not be lost before it reads them: they stay blocked and
 * pending through bwrap. */
static int prepare_signals(void)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGHUP);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    return sigprocmask(SIG_SETMASK, &held, NULL);
}

/* The order matters: a change of uid clears the death signal, so that comes after it. */
static int give_up_everything(const struct keep_bwrap *b, const struct keep_spec *s, pid_t parent)
{
    offer_to_oom_killer();
    unlimit_sum();
    umask(022);
    if (chdir("/") < 0 || leave_keyring() < 0 || keep_only(b) < 0 || limit(RLIMIT_CORE, 0, 0) < 0 ||
        limit(RLIMIT_NOFILE, 1024, 4096) < 0 || limit(RLIMIT_MSGQUEUE, 0, 0) < 0 ||
        drop_identity(s) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prepare_signals() < 0)
        return -1;
    if (getppid() == parent)
        return 0;
    errno = ESRCH;
    return -1;
}

static int child_stdio(const struct keep_log *log, int stdin_fd)
{
    int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return null_fd >= 0 && dup2(log->write_fd, STDERR_FILENO) >= 0 &&
                   dup2(stdin_fd, STDIN_FILENO) >= 0 && dup2(null_fd, STDOUT_FILENO) >= 0
               ? 0
               : -1;
}

void launch_child(const struct keep_place *place, const struct keep_bwrap *b,
                  const struct keep_spec *s, int stdin_fd, pid_t parent)
{
    if (child_stdio(place->log, stdin_fd) < 0 || guard_join(place->guard) < 0 ||
        cgroups_join(place->cgroups) < 0)
        fprintf(stderr, "leasekeep: cannot enter the groups: %s\n", strerror(errno));
    else
        launch_bwrap(b, s, parent);
    _exit(1);
}

void launch_bwrap(const struct keep_bwrap *b, const struct keep_spec *s, pid_t parent)
{
    char *const env[] = {(char[]){"PATH=/usr/bin:/bin"}, NULL};
    if (give_up_everything(b, s, parent) < 0) {
        fprintf(stderr, "leasekeep: cannot give up privileges: %s\n", strerror(errno));
        return;
    }
    execve(BWRAP_PATH, (char *const *)(uintptr_t)b->argv, env);
    fprintf(stderr, "leasekeep: cannot run " BWRAP_PATH ": %s\n", strerror(errno));
}
