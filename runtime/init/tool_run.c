#include "tool_run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init_child.h"
#include "keep.h"
#include "mono.h"
#include "tool_request.h"
#include "tool_runs.h"
#include "tool_scope.h"

#define TERM_MS   2000 /* between TERM and KILL */
#define WAKE_SECS 1

enum { NOT_RUNNABLE = 126, NO_SUCH_TOOL = 127 };

struct run {
    const struct tool_rules *rules;
    struct tool_record *note;
    struct tool_request request;
    char path[PATH_MAX];
    int fd, sig_fd;
    pid_t pid;
    int status;
    bool ended, left, overdue, killed;
    int64_t until_ms; /* then it is told to end, then killed; 0: no limit */
};

/* ---- answers ---- */

static void answer(int fd, const void *data, size_t len)
{
    (void)!send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void tool_refuse(int fd, uint8_t code, const char *why)
{
    uint8_t text[TOOL_ANSWER_MAX] = {TOOL_REFUSED, code};
    size_t len = strnlen(why, sizeof(text) - 2);
    memcpy(text + 2, why, len);
    answer(fd, text, len + 2);
}

static void answer_end(const struct run *r)
{
    int sig = WIFSIGNALED(r->status) ? WTERMSIG(r->status) : 0;
    int code = sig != 0 ? 128 + sig : WEXITSTATUS(r->status);
    if (r->overdue)
        answer(r->fd, &(uint8_t){TOOL_OVERDUE}, 1);
    else
        answer(r->fd, (uint8_t[]){TOOL_ENDED, (uint8_t)code, (uint8_t)sig}, 3);
}

static enum tool_how how_of(const struct run *r)
{
    if (r->left)
        return TOOL_LEFT;
    if (r->overdue)
        return TOOL_TIMED_OUT;
    if (WIFSIGNALED(r->status))
        return TOOL_SIGNALED;
    return WEXITSTATUS(r->status) == 0 ? TOOL_OK : TOOL_FAILED;
}

/* ---- the tool ---- */

static bool is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

/* Where the agent stands, if that is in the chat and no link leads out of it. */
static int enter_cwd(const struct run *r)
{
    const char *chat = r->rules->chat, *cwd = r->request.cwd;
    char now[PATH_MAX];
    if (cwd != NULL && is_below(cwd, chat) && chdir(cwd) == 0 && getcwd(now, sizeof(now)) != NULL &&
        is_below(now, chat))
        return 0;
    return chdir(chat);
}

/* HOME is nothing that an agent can write: interpreters load what lies there. */
static int set_environment(const struct run *r)
{
    if (setenv("HOME", "/tmp", 1) < 0)
        return -1;
    for (size_t i = 0; i < r->request.env_n; i++)
        if (putenv(r->request.env[i]) != 0)
            return -1;
    return 0;
}

static int take_stdio(const struct run *r)
{
    for (int i = 0; i < 3; i++)
        if (dup2(r->request.fds[i], i) < 0)
            return -1;
    return 0;
}

static void become_tool(struct run *r, pid_t parent, int why_fd)
{
    setsid();
    child_reset_signals();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(NOT_RUNNABLE);
    r->request.argv[0] = r->path;
    if (take_stdio(r) == 0 && set_environment(r) == 0 && enter_cwd(r) == 0 &&
        child_set_limits(r->rules->memory_bytes, r->rules->pids) == 0 &&
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) {
        tool_scope_enter();
        execv(r->path, r->request.argv);
    }
    int why = errno;
    (void)!write(why_fd, &why, sizeof(why));
    _exit(NOT_RUNNABLE);
}

static int refuse_exec(const struct run *r, int why)
{
    char text[160];
    snprintf(text, sizeof(text), "it cannot be run: %s%s", strerror(why),
             why == ENOENT ? " (its interpreter is not in the sandbox)" : "");
    tool_refuse(r->fd, NOT_RUNNABLE, text);
    return -1;
}

static int start(struct run *r)
{
    int why_pipe[2], why = 0;
    if (pipe2(why_pipe, O_CLOEXEC) < 0)
        return refuse_exec(r, errno);
    pid_t parent = getpid();
    r->pid = fork();
    if (r->pid == 0)
        become_tool(r, parent, why_pipe[1]);
    why = r->pid < 0 ? errno : 0;
    close(why_pipe[1]);
    /* From here on they are the tool's alone, and end with it. */
    for (size_t i = 0; i < 3; i++)
        close(r->request.fds[i]);
    if (r->pid > 0)
        (void)!read(why_pipe[0], &why, sizeof(why));
    close(why_pipe[0]);
    return why == 0 ? 0 : refuse_exec(r, why);
}

/* ---- while it runs ---- */

static void end_tool(struct run *r)
{
    kill(-r->pid, r->killed ? SIGKILL : SIGTERM);
    r->until_ms = mono_ms() + TERM_MS;
    r->killed = true;
}

static void on_asker(struct run *r)
{
    uint8_t sig[16];
    ssize_t n = recv(r->fd, sig, sizeof(sig), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        r->left = true;
        end_tool(r);
        return;
    }
    for (ssize_t i = 0; i < n; i++)
        for (size_t k = 0; k < TOOL_SIGNALS; k++)
            if (sig[i] == tool_signals[k])
                kill(-r->pid, sig[i]);
}

static void on_children(struct run *r)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;
    (void)!read(r->sig_fd, &info, sizeof(info));
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != r->pid)
            continue;
        r->ended = true;
        r->status = status;
    }
}

static int wait_ms(const struct run *r)
{
    int64_t left = r->until_ms - mono_ms();
    if (r->until_ms == 0)
        return -1;
    return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

static void watch(struct run *r)
{
    r->until_ms = r->rules->timeout_ms != 0 ? mono_ms() + (int64_t)r->rules->timeout_ms : 0;
    while (!r->ended) {
        struct pollfd p[] = {{.fd = r->sig_fd, .events = POLLIN},
                             {.fd = r->left ? -1 : r->fd, .events = POLLIN}};
        int n = poll(p, 2, wait_ms(r));
        if (n > 0 && p[1].revents != 0)
            on_asker(r);
        if (n > 0 && p[0].revents != 0)
            on_children(r);
        if (r->ended || wait_ms(r) != 0)
            continue;
        r->overdue |= !r->left;
        end_tool(r);
    }
}

/* ---- the whole ---- */

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int find_tool(struct run *r)
{
    int n = snprintf(r->path, sizeof(r->path), "%s/%s", r->rules->tools, r->request.name);
    if (n > 0 && (size_t)n < sizeof(r->path) && access(r->path, X_OK) == 0)
        return 0;
    tool_refuse(r->fd, NO_SUCH_TOOL, "there is no such tool");
    return -1;
}

/* Told twice rather than not at all, should it be killed in between. */
void tool_run_ended(const struct tool_rules *rules, struct tool_record *note, enum tool_how how,
                    int status)
{
    struct tool_record record = *note;
    record.what = TOOL_OVER;
    record.how = (uint8_t)how;
    record.code = (uint8_t)(WIFEXITED(status) ? WEXITSTATUS(status) : 0);
    record.sig = (uint8_t)(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    record.begun_ms = record.at_ms;
    (void)!tool_runs_add(rules->runs_fd, &record);
    note->what = TOOL_OVER;
}

static void run(struct run *r)
{
    struct tool_record record = {.what = TOOL_BEGUN};
    if (find_tool(r) < 0)
        return;
    snprintf(record.name, sizeof(record.name), "%s", r->request.name);
    if (tool_runs_add(r->rules->runs_fd, &record) < 0) {
        tool_refuse(r->fd, NOT_RUNNABLE, "its run cannot be recorded");
        return;
    }
    *r->note = record;
    r->status = NOT_RUNNABLE << 8;
    bool started = start(r) == 0;
    if (started)
        watch(r);
    reap_all_but(0);
    if (started)
        answer_end(r);
    tool_run_ended(r->rules, r->note, how_of(r), r->status);
}

static void wake(int sig)
{
    (void)sig;
}

/* A descriptor that is not taken from the asker is dropped by us, and a socket's end may wait as long as
 * the asker has said. The tool's time must go on. */
static int keep_awake(void)
{
    const struct timeval each = {.tv_sec = WAKE_SECS};
    const struct sigaction on_alarm = {.sa_handler = wake, .sa_flags = SA_RESTART};
    return sigaction(SIGALRM, &on_alarm, NULL) < 0
               ? -1
               : setitimer(ITIMER_REAL, &(struct itimerval){each, each}, NULL);
}

void tool_run(const struct tool_rules *rules, struct tool_record *note, int fd)
{
    static char text[TOOL_REQUEST_MAX];
    static struct run r;
    r = (struct run){.rules = rules, .note = note, .fd = fd, .sig_fd = open_signals()};
    if (r.sig_fd < 0 || keep_awake() < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        tool_refuse(fd, NOT_RUNNABLE, strerror(errno));
    else if (tool_request_receive(&r.request, fd, text) < 0)
        tool_refuse(fd, NOT_RUNNABLE, "the request is not valid");
    else
        run(&r);
    _exit(0);
}
