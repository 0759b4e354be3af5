/*
 * leasekeep: the supervisor of one local sandbox (leasehold/keep_spec.h is its contract). Parent of
 * bwrap and child subreaper, so it outlives the gateway, sees every end and leaves no zombie.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init_ready.h"
#include "keep.h"
#include "mono.h"

#define AFTER_KILL_MS 2000 /* for the end of everything after KILL, then bwrap itself is killed */

enum { FD_SIGNALS, FD_LOG, FD_INFO, FD_READY, FD_COUNT };

struct keep {
    struct keep_spec spec;
    struct keep_log log;
    struct keep_guard guard;
    struct keep_cgroups cgroups;
    struct fault fault;
    int sig_fd;
    int info_fd;   /* bwrap's --info-fd; -1 once read */
    int ready_fd;  /* leaseinit's stdin; -1 at its end */
    int notify_fd; /* our starter waits there until the sandbox runs; -1: nobody does */
    int init_pidfd;
    char info[512];
    size_t info_len;
    uint8_t said[1 + INIT_ENDED_SIZE]; /* by leaseinit */
    size_t said_len;
    pid_t bwrap;
    pid_t counts; /* sets limits beside us; 0: it has ended */
    struct keep_tools tools;
    int bwrap_status;
    bool bwrap_ended, running;
    bool stopping, killed;
    int64_t deadline_ms; /* of the grace, then of the kill; 0: none */
    int64_t max_at_ms;   /* by the boot clock: of the whole life; 0: none, or past */
    bool outlived;       /* that was why it is stopped */
};

/* ---- start ---- */

static int open_signals(struct keep *k)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
        return -1;
    k->sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return k->sig_fd < 0 ? -1 : 0;
}

static struct keep_place place_of(struct keep *k)
{
    return (struct keep_place){&k->log, &k->guard, &k->cgroups};
}

/* stdin tells leaseinit of us. */
static int fork_bwrap(struct keep *k, const struct keep_bwrap *b, int ready_fd)
{
    const struct keep_place place = place_of(k);
    pid_t parent = getpid();
    k->bwrap = fork();
    if (k->bwrap == 0)
        launch_child(&place, b, &k->spec, ready_fd, parent);
    return k->bwrap > 0 ? 0 : fault_sys(&k->fault, "cannot fork");
}

/* The sandbox of the user's tools, in the same groups. */
static void launch_tools(struct keep *k)
{
    const struct keep_place place = place_of(k);
    struct keep_spec *spec = k->spec.beside;
    if (spec == NULL)
        return;
    k->spec.beside = NULL;
    spec->memory_bytes = k->spec.memory_bytes;
    spec->pids = k->spec.pids;
    tools_start(&k->tools, spec, &place);
}

static int launch(struct keep *k)
{
    struct keep_bwrap b = {.args_fd = -1};
    int info[2], ready[2];
    if (pipe2(info, O_CLOEXEC) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ready) < 0)
        return fault_sys(&k->fault, "cannot make pipes");
    k->info_fd = info[0];
    k->ready_fd = ready[0];
    fcntl(k->info_fd, F_SETFL, O_NONBLOCK);
    int r = bwrap_prepare(&b, &k->spec, k->cgroups.missing, info[1], &k->fault);
    if (r == 0)
        r = fork_bwrap(k, &b, ready[1]);
    bwrap_release(&b); /* info[1] is one of its files */
    close(ready[1]);
    if (r == 0)
        launch_tools(k);
    if (k->tools.phase == TOOLS_NONE) /* else it is needed again */
        log_close_writer(&k->log);
    return r;
}

static int start(struct keep *k)
{
    if (log_open(&k->log, &k->fault) < 0)
        return -1;
    int r = spec_read(&k->spec, KEEP_SPEC_FD, &k->fault);
    close(KEEP_SPEC_FD);
    if (r < 0)
        return -1;
    k->max_at_ms = k->spec.max_ms != 0 ? boot_ms() + (int64_t)k->spec.max_ms : 0;
    if (open_signals(k) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return fault_sys(&k->fault, "cannot set up signals");
    struct fault why = {.text = ""};
    if (mounts_stage(&k->spec, &k->fault, &why) < 0 ||
        guard_start(&k->guard, &k->spec, &k->fault) < 0)
        return -1;
    if (why.text[0] != '\0') {
        k->tools.place = place_of(k);
        tools_missing(&k->tools, why.text);
    }
    cgroups_make(&k->cgroups, &k->guard, &k->spec);
    for (enum keep_limit i = 0; i < LIMITS; i++)
        if (k->cgroups.missing[i])
            log_note(&k->log, "no control group for %s: %s", keep_limit_names[i],
                     i == LIMIT_CPU ? "it is not limited" : "an rlimit stands in for it");
    return launch(k);
}

/* ---- events ---- */

static void kill_all(struct keep *k)
{
    k->killed = true;
    k->deadline_ms = mono_ms() + AFTER_KILL_MS;
    if (k->init_pidfd >= 0)
        syscall(SYS_pidfd_send_signal, k->init_pidfd, SIGKILL, NULL, 0);
    else
        kill(k->bwrap, SIGKILL);
}

/* Before the sandbox runs there is nobody to ask. */
static void stop(struct keep *k)
{
    bool again = k->stopping;
    k->stopping = true;
    if (k->killed)
        return;
    if (again || !k->running || k->init_pidfd < 0) {
        kill_all(k);
        return;
    }
    k->deadline_ms = mono_ms() + (int64_t)k->spec.grace_ms;
    syscall(SYS_pidfd_send_signal, k->init_pidfd, SIGTERM, NULL, 0);
}

static void reap(struct keep *k)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == k->guard.pid) /* its number may soon be another's */
            k->guard.pid = 0;
        if (pid == k->counts)
            k->counts = 0;
        tools_reaped(&k->tools, pid, k->stopping);
        if (pid != k->bwrap)
            continue;
        k->bwrap_ended = true;
        k->bwrap_status = status;
    }
}

static void on_signals(struct keep *k)
{
    struct signalfd_siginfo info;
    while (read(k->sig_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGTERM)
            stop(k);
    }
    reap(k);
}

/* bwrap's {"child-pid": N, …}. It is the child of a bwrap not reaped yet, so N cannot be another
 * process unless both ended already; then the pidfd is of no consequence. */
static void take_info(struct keep *k)
{
    static const char key[] = "\"child-pid\":";
    const char *p = strstr(k->info, key);
    long pid = p != NULL ? strtol(p + sizeof(key) - 1, NULL, 10) : 0;
    if (pid <= 1 || pid > INT32_MAX)
        return;
    k->init_pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (k->init_pidfd < 0)
        return;
    files_write_init((pid_t)pid);
    k->counts = counts_limit(k->init_pidfd);
}

static void on_info(struct keep *k)
{
    ssize_t n = read(k->info_fd, k->info + k->info_len, sizeof(k->info) - 1 - k->info_len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    k->info_len += n > 0 ? (size_t)n : 0;
    k->info[k->info_len] = '\0';
    if (n > 0 && k->info_len < sizeof(k->info) - 1)
        return;
    close(k->info_fd);
    k->info_fd = -1;
    take_info(k);
}

static void notify(struct keep *k)
{
    if (k->notify_fd < 0)
        return;
    while (write(k->notify_fd, "r", 1) < 0 && errno == EINTR)
        ;
    close(k->notify_fd);
    k->notify_fd = -1;
}

static void on_ready(struct keep *k)
{
    ssize_t n =
        recv(k->ready_fd, k->said + k->said_len, sizeof(k->said) - k->said_len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close(k->ready_fd);
        k->ready_fd = -1;
        return;
    }
    k->said_len += (size_t)n;
    if (!k->running && k->said[0] == INIT_READY) {
        k->running = true;
        /* All that was needed of it is with bwrap now. */
        spec_forget(&k->spec);
        files_write_state("running\n");
        notify(k);
    }
}

static void on_deadline(struct keep *k)
{
    if (!k->killed) {
        kill_all(k);
        return;
    }
    k->deadline_ms = 0;
    kill(k->bwrap, SIGKILL);
}

/* Nobody has ended it when it should have been: the gateway has not come back. */
static void on_max(struct keep *k)
{
    k->max_at_ms = 0;
    if (k->stopping)
        return;
    k->outlived = true;
    stop(k);
}

static int64_t time_left(int64_t at_ms, int64_t now_ms)
{
    return at_ms == 0 ? INT64_MAX : at_ms > now_ms ? at_ms - now_ms : 0;
}

/* Not long at once: poll() does not count while the machine sleeps, the boot clock does. */
static int poll_timeout(const struct keep *k)
{
    int64_t left = time_left(k->deadline_ms, mono_ms());
    int64_t life = time_left(k->max_at_ms, boot_ms());
    int64_t tools = k->stopping ? INT64_MAX : time_left(tools_next_ms(&k->tools), mono_ms());
    if (life < left)
        left = life;
    if (tools < left)
        left = tools;
    return left == INT64_MAX ? -1 : left > 60000 ? 60000 : (int)left;
}

static void supervise(struct keep *k)
{
    while (!k->bwrap_ended) {
        struct pollfd pfd[FD_COUNT] = {
            [FD_SIGNALS] = {.fd = k->sig_fd, .events = POLLIN},
            [FD_LOG] = {.fd = k->log.read_fd, .events = POLLIN},
            [FD_INFO] = {.fd = k->info_fd, .events = POLLIN},
            [FD_READY] = {.fd = k->ready_fd, .events = POLLIN},
        };
        int timeout = poll_timeout(k);
        if (poll(pfd, FD_COUNT, timeout) < 0)
            continue;
        if (pfd[FD_INFO].revents != 0)
            on_info(k);
        if (pfd[FD_READY].revents != 0)
            on_ready(k);
        if (pfd[FD_LOG].revents != 0)
            log_pump(&k->log);
        if (pfd[FD_SIGNALS].revents != 0)
            on_signals(k);
        if (k->deadline_ms != 0 && mono_ms() >= k->deadline_ms)
            on_deadline(k);
        if (!k->stopping)
            tools_look(&k->tools, (const pid_t[]){k->bwrap, k->guard.pid, k->counts}, 3);
        if (k->max_at_ms != 0 && boot_ms() >= k->max_at_ms)
            on_max(k);
    }
}

/* ---- end ---- */

/* bwrap is gone; makes sure of the rest and takes the last words. */
static void settle(struct keep *k)
{
    if (k->info_fd >= 0)
        on_info(k);
    log_close_writer(&k->log);
    reap_all_but(k->guard.pid);
    tools_end(&k->tools);
    while (k->ready_fd >= 0 && k->said_len < sizeof(k->said))
        on_ready(k);
    for (int i = 0; i < 64 && k->log.read_fd >= 0; i++)
        log_pump(&k->log);
}

struct ending {
    const char *reason;
    int code, signal;
    char detail[120];
};

static void failed_ending(struct keep *k, struct ending *ret)
{
    *ret = (struct ending){.reason = "start_failed", .code = 1};
    if (k->fault.text[0] == '\0' && k->stopping)
        fault_set(&k->fault, "stopped while it was starting");
    else if (k->fault.text[0] == '\0' && cgroups_oom_killed(&k->cgroups))
        fault_set(&k->fault, "memory_bytes is too little for a sandbox to start");
    else if (k->fault.text[0] == '\0')
        fault_set(&k->fault, "%s",
                  k->log.last_len > 0 ? k->log.last_line : "bubblewrap ended without a word");
    memcpy(ret->detail, k->fault.text, sizeof(ret->detail));
}

/* What leaseinit said is exact; without it bwrap's status tells of leaseinit's own end. */
static void find_ending(struct keep *k, struct ending *ret)
{
    if (!k->running) {
        failed_ending(k, ret);
        return;
    }
    *ret = (struct ending){.reason = "exited"};
    if (k->said_len == sizeof(k->said) && k->said[1] == INIT_ENDED) {
        ret->code = k->said[2];
        ret->signal = k->said[3];
    } else if (WIFSIGNALED(k->bwrap_status)) {
        ret->code = 128 + WTERMSIG(k->bwrap_status);
        ret->signal = WTERMSIG(k->bwrap_status);
    } else {
        ret->code = WEXITSTATUS(k->bwrap_status);
        ret->signal = ret->code > 128 ? ret->code - 128 : 0;
    }
    if (ret->signal != 0)
        ret->reason = "signaled";
    if (k->outlived)
        ret->reason = "max_ttl";
    if (ret->signal == SIGKILL && !k->killed && cgroups_oom_killed(&k->cgroups))
        ret->reason = "oom";
}

static int finish(struct keep *k)
{
    struct ending end;
    char text[256];
    find_ending(k, &end);
    guard_finish(&k->guard);
    if (!k->running)
        log_note(&k->log, "the sandbox did not start: %s", end.detail);
    snprintf(text, sizeof(text), "ended\n%s %d %d\n%s\n", end.reason, end.code, end.signal,
             end.detail);
    files_write_state(text);
    return k->running ? 0 : 1;
}

static int keep_run(void)
{
    struct keep *k = calloc(1, sizeof(*k));
    if (k == NULL)
        return 1;
    k->info_fd = k->ready_fd = k->init_pidfd = -1;
    k->notify_fd = fcntl(KEEP_NOTIFY_FD, F_SETFD, FD_CLOEXEC) == 0 ? KEEP_NOTIFY_FD : -1;
    k->log.read_fd = k->log.write_fd = k->log.file_fd = -1;
    k->cgroups.oom_fd = k->guard.pipe = k->guard.pidfd = -1;
    k->guard.noted = true;
    if (files_claim(&k->fault) < 0) {
        fprintf(stderr, "leasekeep: %s\n", k->fault.text);
        return 1;
    }
    unlink(KEEP_INIT_FILE);
    files_write_state("starting\n");
    if (start(k) == 0) {
        supervise(k);
        settle(k);
    }
    return finish(k);
}

/* ---- probe ---- */

/* The exit status of an empty sandbox; it says why not. */
static int probe_bwrap(const struct keep_spec *s)
{
    struct keep_bwrap b = {.args_fd = -1};
    struct fault f;
    int status = 1;
    if (bwrap_prepare(&b, s, NULL, -1, &f) < 0) {
        fprintf(stderr, "leasekeep: %s\n", f.text);
        return 1;
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        launch_bwrap(&b, s, parent);
        _exit(1);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Names the limits that no control group can hold here. */
static void probe_limits(struct keep_spec *s)
{
    struct keep_cgroups c = {.oom_fd = -1};
    struct keep_guard g = {.pipe = -1, .pidfd = -1};
    struct fault f;
    if (guard_start(&g, s, &f) == 0)
        cgroups_make(&c, &g, s);
    guard_finish(&g);
    for (enum keep_limit i = 0; i < LIMITS; i++)
        if (c.missing[i])
            fprintf(stderr, "%s ", keep_limit_names[i]);
}

static int probe(const char *uid, const char *gid)
{
    char session[32];
    struct keep_spec *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return 1;
    snprintf(session, sizeof(session), "probe-%d", (int)getpid());
    s->session = session;
    s->uid = strtoull(uid, NULL, 10);
    s->gid = strtoull(gid, NULL, 10);
    s->memory_bytes = UINT64_C(1) << 30;
    s->pids = s->cpus_milli = 1000;
    s->cwd = "/";
    s->args[s->args_n++] = "/usr/bin/true";
    int status = probe_bwrap(s);
    if (status == 0)
        probe_limits(s);
    free(s);
    return status;
}

/* ---- a mount for tools ---- */

/* For an engine whose sandboxes are not ours: UID GID UID GID SOURCE TARGET. */
static int map(char **words)
{
    const struct keep_ids from = {strtoull(words[0], NULL, 10), strtoull(words[1], NULL, 10)};
    const struct keep_ids to = {strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10)};
    struct fault f;
    if (mounts_map(words[4], words[5], from, to, &f) == 0)
        return 0;
    fprintf(stderr, "%s\n", f.text);
    return 1;
}

/* Descriptors 0 to 2 must be taken before anything else is opened. */
static int open_low_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    return fd < 0 ? -1 : close(fd);
}

int main(int argc, char **argv)
{
    umask(077);
    /* A core file of ours would hold the spec. */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    if (argc == 4 && strcmp(argv[1], "--probe") == 0 && close_range(3, ~0u, 0) == 0)
        return probe(argv[2], argv[3]);
    if (argc == 8 && strcmp(argv[1], "--map") == 0 && close_range(3, ~0u, 0) == 0)
        return map(argv + 2);
    if (argc != 1) {
        fprintf(stderr, "leasekeep is started by leasehold, with its spec on descriptor %d\n",
                KEEP_SPEC_FD);
        return 2;
    }
    if (close_range(KEEP_NOTIFY_FD + 1, ~0u, 0) < 0 || open_low_descriptors() < 0) {
        perror("leasekeep");
        return 1;
    }
    return keep_run();
}
