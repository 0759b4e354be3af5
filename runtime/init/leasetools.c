/*
 * leasetools chat=PATH tools=PATH runs=N per_second=N
 *     [timeout_ms=N] [max_ms=N] [memory_bytes=N] [pids=N]
 *
 * Pid 1 of a session's second sandbox: runs the user's tools that the agent may run and not read
 * (leasehold/tool_link.h), `runs` at once, and `per_second` that begin. Its uid is the tools' and nobody
 * else's; the chat's files are mounted so that they look like its own. After max_ms it ends, for a
 * gateway that does not come back.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "init_filter.h"
#include "keep.h"
#include "leasehold/tool_link.h"
#include "mono.h"
#include "tool_run.h"
#include "tool_runs.h"

#define SECOND_US   1000000
#define RUNS_MAX    64
#define TAKEN_MS    120000 /* for the gateway, whose start has the sandbox itself to wait for, too */
#define LOOK_NS     2000000L
#define LINGER_NS   20000000L
#define BACKLOG     64
#define MESSAGE_MAX 200
#define PAUSE_MS    100 /* when there is no descriptor or memory for one who asks */
#define CLEAR_MS                                                                                   \
    2000 /* for the end of what a run has left, one by one; then all are killed at once */

struct tools {
    struct tool_rules rules;
    uint64_t runs_max, per_second, max_ms;
    int64_t until_ms; /* of our own time; 0: none */
    int64_t paced_us; /* when those that have begun would have, one by one */
    int listen_fd, sig_fd;
    timer_t timer;             /* interrupts what would block */
    pid_t runs[RUNS_MAX];      /* 0: free */
    struct tool_record *notes; /* of each, shared with it */
    bool unsettled;      /* a run left what it has started: nothing begins before that is gone */
    int64_t clear_by_ms; /* if so */
};

/* ---- words ---- */

static bool take_number(const char *word, const char *name, uint64_t *ret)
{
    size_t len = strlen(name);
    char *end;
    if (strncmp(word, name, len) != 0 || word[len] < '0' || word[len] > '9')
        return false;
    *ret = strtoull(word + len, &end, 10);
    return *end == '\0';
}

static bool take_path(const char *word, const char *name, const char **ret)
{
    size_t len = strlen(name);
    if (strncmp(word, name, len) != 0 || word[len] != '/')
        return false;
    *ret = word + len;
    return true;
}

static int take_words(struct tools *t, char **words)
{
    struct tool_rules *r = &t->rules;
    for (; *words != NULL; words++)
        if (!take_path(*words, "chat=", &r->chat) && !take_path(*words, "tools=", &r->tools) &&
            !take_number(*words, "runs=", &t->runs_max) &&
            !take_number(*words, "per_second=", &t->per_second) &&
            !take_number(*words, "timeout_ms=", &r->timeout_ms) &&
            !take_number(*words, "max_ms=", &t->max_ms) &&
            !take_number(*words, "memory_bytes=", &r->memory_bytes) &&
            !take_number(*words, "pids=", &r->pids))
            return -1;
    return r->chat != NULL && r->tools != NULL && t->runs_max > 0 && t->runs_max <= RUNS_MAX &&
                   t->per_second > 0 && t->per_second <= SECOND_US
               ? 0
               : -1;
}

/* ---- start ---- */

/* Not its own: the file system or the engine did not take the mount as it was meant, and what a tool
 * leaves in the chat would be nobody's. */
static int check_chat(const struct tools *t)
{
    struct stat st;
    if (stat(t->rules.chat, &st) == 0 && st.st_uid == getuid())
        return 0;
    fprintf(stderr, "leasetools: the chat is not mounted for the uid of tools\n");
    return -1;
}

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGALRM);
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void interrupt(int sig)
{
    (void)sig;
}

static int open_timer(struct tools *t)
{
    struct sigevent by = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    return sigaction(SIGUSR1, &(struct sigaction){.sa_handler = interrupt}, NULL) < 0
               ? -1
               : timer_create(CLOCK_MONOTONIC, &by, &t->timer);
}

static int open_socket(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = TOOL_SOCKET};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        chmod(TOOL_SOCKET, 0666) < 0 || listen(fd, BACKLOG) < 0)
        return -1;
    return fd;
}

static int wait_taken(const struct tools *t)
{
    int64_t until_ms = mono_ms() + TAKEN_MS;
    while (!tool_runs_taken(t->rules.runs_fd)) {
        if (mono_ms() >= until_ms) {
            errno = ETIMEDOUT;
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    return 0;
}

static int end_after(struct tools *t, uint64_t ms)
{
    t->until_ms = ms > 0 ? mono_ms() + (int64_t)ms : 0;
    struct itimerval once = {
        .it_value = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)}};
    return setitimer(ITIMER_REAL, &once, NULL);
}

static int open_notes(struct tools *t)
{
    void *m = mmap(NULL, RUNS_MAX * sizeof(*t->notes), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    t->notes = m != MAP_FAILED ? m : NULL;
    return t->notes != NULL ? 0 : -1;
}

static int open_all(struct tools *t)
{
    const struct rlimit no_core = {0};
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    /* Not dumpable: tools have our uid, and our descriptors are not their business. */
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || setrlimit(RLIMIT_CORE, &no_core) < 0)
        return -1;
    if (open_notes(t) < 0)
        return -1;
    t->sig_fd = open_signals();
    t->listen_fd = t->sig_fd < 0 || open_timer(t) < 0 ? -1 : open_socket();
    t->rules.runs_fd = t->listen_fd < 0 ? -1 : tool_runs_open();
    return t->rules.runs_fd < 0 || end_after(t, t->max_ms) < 0 ? -1 : wait_taken(t);
}

/* ---- runs ---- */

static size_t running(const struct tools *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->runs_max; i++)
        n += t->runs[i] != 0;
    return n;
}

static void begin(struct tools *t, int fd)
{
    size_t i = 0;
    while (i < t->runs_max && t->runs[i] != 0)
        i++;
    if (i == t->runs_max || t->unsettled) {
        tool_refuse(fd, 126,
                    t->unsettled ? "what another tool has left is being ended"
                                 : "as many tools run already as may at once");
        return;
    }
    t->notes[i] = (struct tool_record){.what = 0};
    pid_t pid = fork();
    if (pid == 0) {
        close(t->listen_fd);
        tool_run(&t->rules, &t->notes[i], fd);
    }
    if (pid < 0)
        tool_refuse(fd, 126, strerror(errno));
    else
        t->runs[i] = pid;
}

static void record_cut(struct tools *t)
{
    for (size_t i = 0; i < t->runs_max; i++)
        if (t->runs[i] == 0 && t->notes[i].what == TOOL_BEGUN)
            tool_run_ended(&t->rules, &t->notes[i], TOOL_CUT, 0);
}

/* Where no scope holds it (tool_scope.h) a tool can stop its minder, so that it counts no time, or kill it:
 * what the tool has started is then ours, and whoever is our child and no minder is of it. One that starts
 * others as fast as we end them is ended with all there is, at once. */
static void settle(struct tools *t)
{
    if (!t->unsettled)
        return;
    if (running(t) == 0 || mono_ms() >= t->clear_by_ms)
        kill(-1, SIGKILL); /* all but ourselves, as pid 1 */
    if (kill_children_but(t->runs, t->runs_max) > 0)
        return; /* the end of each of them brings us here again */
    t->unsettled = false;
    record_cut(t);
}

static void unsettle(struct tools *t)
{
    if (!t->unsettled)
        t->clear_by_ms = mono_ms() + CLEAR_MS;
    t->unsettled = true;
}

static void reap(struct tools *t)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
        for (size_t i = 0; i < t->runs_max; i++)
            if (t->runs[i] == pid && WIFSTOPPED(status)) {
                kill(pid, SIGKILL);
            } else if (t->runs[i] == pid) {
                t->runs[i] = 0;
                if (WIFSIGNALED(status))
                    unsettle(t);
            }
    settle(t);
}

/* False: our time is over. The signal alone does not say so, as tools can send it. */
static bool on_signals(struct tools *t)
{
    struct signalfd_siginfo info;
    while (read(t->sig_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        ;
    reap(t);
    return t->until_ms == 0 || mono_ms() < t->until_ms;
}

/* How long until one more may begin: as many as may run are let in at once. Meanwhile who asks waits in
 * the socket's queue. */
static int pace_ms(const struct tools *t)
{
    int64_t step_us = SECOND_US / (int64_t)t->per_second;
    int64_t ahead_us = t->paced_us - mono_ms() * 1000 - step_us * ((int64_t)t->runs_max - 1);
    return ahead_us > 0 ? (int)(ahead_us / 1000) + 1 : 0;
}

static void pace_count(struct tools *t)
{
    int64_t now_us = mono_ms() * 1000;
    if (t->paced_us < now_us)
        t->paced_us = now_us;
    t->paced_us += SECOND_US / (int64_t)t->per_second;
}

/* With a connection goes what is on its way in it, a socket maybe that the asker has told to linger at
 * its end, for hours: only a signal ends that wait. */
static void close_asker(struct tools *t, int fd)
{
    const struct timespec soon = {.tv_nsec = LINGER_NS};
    timer_settime(t->timer, 0, &(struct itimerspec){soon, soon}, NULL);
    close(fd);
    timer_settime(t->timer, 0, &(struct itimerspec){.it_value = {0}}, NULL);
}

/* One at a time: who asks without end does not keep the ends of runs from us. False: who asks could not
 * be taken and stays, so that to look again at once would spin. */
static bool on_asker(struct tools *t)
{
    int fd = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    pace_count(t);
    begin(t, fd);
    close_asker(t, fd);
    return true;
}

static void serve(struct tools *t)
{
    for (bool paused = false;;) {
        struct pollfd p[] = {{.fd = t->sig_fd, .events = POLLIN},
                             {.fd = t->listen_fd, .events = POLLIN}};
        int wait_ms = paused ? PAUSE_MS : pace_ms(t);
        int until_ms = wait_ms > 0 ? wait_ms : t->unsettled ? PAUSE_MS : -1;
        if (poll(p, wait_ms > 0 ? 1 : 2, until_ms) < 0)
            continue;
        settle(t);
        if (p[0].revents != 0 && !on_signals(t))
            return;
        paused = p[1].revents != 0 && !on_asker(t);
    }
}

/* Descriptors 0 to 2 are taken, and nothing else is open. */
static int clean_descriptors(void)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(null_fd, STDOUT_FILENO) < 0)
        return -1;
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    return 0;
}

int main(int argc, char **argv)
{
    static struct tools t;
    if (argc < 2 || take_words(&t, argv + 1) < 0 || getpid() != 1 || getuid() == 0) {
        fprintf(stderr, "leasetools is started by leasehold, as pid 1 of a sandbox\n");
        return 2;
    }
    if (check_chat(&t) < 0)
        return 1;
    if (clean_descriptors() < 0 || init_filter_apply(true) < 0 || open_all(&t) < 0) {
        perror("leasetools");
        return 1;
    }
    serve(&t);
    return 0;
}
