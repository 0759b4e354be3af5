/*
 * leaseinit TRANSPORT [memory_bytes=N] [pids=N] [max_ms=N] [env=FILE] -- COMMAND…
 *
 * Pid 1 of a sandbox. Connects out to the door (leasehold/agent_link.h), runs COMMAND as the agent,
 * carries messages between the two, forwards signals and reaps. It leaves with the agent's status
 * once the agent has ended and its output is delivered, or when the door's link ends. As pid 1 its
 * own end is the end of everything in the sandbox. memory_bytes and pids become rlimits of the agent;
 * after max_ms it is stopped, for a gateway that does not come back; FILE has more of its environment,
 * NAME=VALUE each with a NUL behind it.
 *
 * Exit status: the agent's (128 + signal), 2 for wrong usage, 1 when the door cannot be reached.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "init_filter.h"
#include "init_ready.h"
#include "init_transport.h"
#include "leasehold/keep_spec.h"
#include "mono.h"

#define CONNECT_MS 10000
#define FLUSH_MS   10000 /* for the rest of the output after the agent's end */
#define TERM_MS    2000  /* between TERM and KILL after the link's end */
#define ENV_MAX    (1024 * 1024)

enum { FD_SIGNALS, FD_KEEP, FD_LINK, FD_TRANSPORT };

struct init {
    struct link link;
    struct agent agent;
    struct transport *transport;
    char **command;
    int sig_fd;
    int keep_fd;         /* leasekeep's socket, -1 without one */
    int64_t deadline_ms; /* of the phase that ends by time, 0: none */
    bool killed;
    bool hello_framed;
    bool exit_framed;
    bool keep_gone;
};

static const struct transport_vtable *const transports[] = {&transport_stdio, &transport_tcp,
                                                            &transport_unix, &transport_ws};

static struct transport *transport_new(const char *word)
{
    size_t len = strcspn(word, ":");
    for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++) {
        const struct transport_vtable *v = transports[i];
        if (strlen(v->name) == len && memcmp(v->name, word, len) == 0)
            return v->new (word);
    }
    fprintf(stderr, "leaseinit: there is no transport \"%s\", only stdio, tcp, unix and ws\n",
            word);
    return NULL;
}

/* Takes leasekeep's socket off stdin, if that is what stdin is, and tells it that we run. */
static int keep_attach(void)
{
    int type;
    socklen_t len = sizeof(type);
    int fd = -1;
    if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &len) == 0)
        fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return -1;
    uint8_t ready = INIT_READY;
    send(fd, &ready, sizeof(ready), MSG_NOSIGNAL | MSG_DONTWAIT);
    return fd;
}

static void keep_report(const struct init *in)
{
    uint8_t ended[INIT_ENDED_SIZE] = {INIT_ENDED, (uint8_t)in->agent.code,
                                      (uint8_t)in->agent.signal};
    if (in->keep_fd >= 0)
        send(in->keep_fd, ended, sizeof(ended), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Nothing but stderr is taken over, and stdin and stdout lead nowhere. */
static int detach_stdio(void)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(null_fd, STDOUT_FILENO) < 0)
        return -1;
    close(null_fd);
    return 0;
}

/* Signals stay blocked and are read: for pid 1 an unblocked signal without a handler is lost. */
static int block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGALRM);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void end_agent(struct init *in, const char *why)
{
    if (in->agent.exited)
        return;
    fprintf(stderr, "leaseinit: %s; stopping the agent\n", why);
    agent_signal(&in->agent, SIGTERM);
    in->deadline_ms = mono_ms() + TERM_MS;
}

static void handle_signals(struct init *in)
{
    struct signalfd_siginfo info;
    while (read(in->sig_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            agent_reap(&in->agent);
        else if (info.ssi_signo == SIGALRM)
            end_agent(in, "the sandbox's time is over");
        else
            agent_signal(&in->agent, (int)info.ssi_signo);
    }
}

static void lose_link(struct init *in)
{
    if (in->link.fd < 0)
        return;
    link_close(&in->link);
    end_agent(in, "the door's link ended");
}

/* HELLO makes the session ready: only for an agent that runs and can be talked to. */
static void say_hello(struct init *in)
{
    const char *name = in->transport->v->name;
    uint8_t version = LINK_VERSION;
    if (in->hello_framed || in->agent.exited || in->agent.unexecutable || in->link.fd < 0 ||
        !in->transport->v->ready(in->transport))
        return;
    /* First on the link, whose buffer has room for it. */
    link_frame_add(&in->link, &version, sizeof(version));
    link_frame_add(&in->link, name, strlen(name));
    in->hello_framed = link_frame_end(&in->link, LINK_HELLO);
    if (link_flush(&in->link) < 0)
        lose_link(in);
}

/* True once nothing is left to do for an agent that has ended. */
static bool finish(struct init *in)
{
    if (in->deadline_ms == 0)
        in->deadline_ms = mono_ms() + FLUSH_MS;
    if (in->link.fd < 0 || !in->hello_framed || mono_ms() >= in->deadline_ms)
        return true;
    if (!in->exit_framed && in->transport->v->drained(in->transport, &in->link)) {
        uint8_t how[] = {(uint8_t)in->agent.code, (uint8_t)in->agent.signal};
        in->exit_framed = link_frame_add(&in->link, how, sizeof(how)) == sizeof(how) &&
                          link_frame_end(&in->link, LINK_EXIT);
    }
    if (link_flush(&in->link) < 0)
        lose_link(in);
    return in->exit_framed && !link_has_output(&in->link);
}

static int64_t deadline_ms(const struct init *in)
{
    return in->killed ? 0 : in->deadline_ms;
}

/* Until the sooner of two times, of which 0 means never. */
static int poll_timeout(int64_t a, int64_t b)
{
    int64_t first = a == 0 || (b != 0 && b < a) ? b : a;
    if (first == 0)
        return -1;
    int64_t left = first - mono_ms();
    return left > 0 ? (int)left : 0;
}

static void link_step(struct init *in, const struct pollfd *pfd)
{
    struct link *l = &in->link;
    if (l->fd < 0)
        return;
    bool reads = (pfd->events & POLLIN) != 0;
    bool lost =
        reads ? pfd->revents != 0 && link_fill(l) < 0 : (pfd->revents & (POLLERR | POLLHUP)) != 0;
    if (lost || link_flush(l) < 0)
        lose_link(in);
}

static void wait_and_move(struct init *in)
{
    struct pollfd pfd[FD_TRANSPORT + TRANSPORT_FDS_MAX];
    short link_events = (short)((link_wants_input(&in->link) ? POLLIN : 0) |
                                (link_wants_writable(&in->link) ? POLLOUT : 0));
    pfd[FD_SIGNALS] = (struct pollfd){.fd = in->sig_fd, .events = POLLIN};
    pfd[FD_KEEP] = (struct pollfd){.fd = in->keep_fd, .events = 0};
    pfd[FD_LINK] = (struct pollfd){.fd = in->link.fd, .events = link_events};
    /* EXIT is the last frame: what descendants of the agent still write is not carried. */
    size_t n =
        in->exit_framed ? 0 : in->transport->v->fds(in->transport, &in->link, pfd + FD_TRANSPORT);
    bool carries = !in->exit_framed && in->link.fd >= 0;
    int64_t due_ms = !carries ? 0 : in->transport->v->due_ms(in->transport);
    if (poll(pfd, FD_TRANSPORT + n, poll_timeout(deadline_ms(in), due_ms)) < 0)
        return;
    if ((pfd[FD_KEEP].revents & (POLLHUP | POLLERR)) != 0)
        in->keep_gone = true;
    link_step(in, &pfd[FD_LINK]);
    in->link.starved = false;
    if (!in->exit_framed &&
        in->transport->v->step(in->transport, &in->link, pfd + FD_TRANSPORT) < 0) {
        fprintf(stderr, "leaseinit: the door sent a frame that is not valid\n");
        lose_link(in);
    }
    if (link_flush(&in->link) < 0)
        lose_link(in);
    if (pfd[FD_SIGNALS].revents != 0)
        handle_signals(in);
}

static int run(struct init *in)
{
    while (!in->keep_gone) {
        if (in->agent.exited && finish(in))
            break;
        say_hello(in);
        wait_and_move(in);
        if (!in->agent.exited && poll_timeout(deadline_ms(in), 0) == 0) {
            agent_signal(&in->agent, SIGKILL);
            in->killed = true;
        }
    }
    agent_signal(&in->agent, SIGKILL);
    keep_report(in);
    return in->keep_gone ? 128 + SIGKILL : in->agent.code;
}

static int start(struct init *in)
{
    in->link.fd = link_connect(AGENT_SOCKET, mono_ms() + CONNECT_MS, in->sig_fd);
    if (in->link.fd < 0 && errno == EINTR)
        return 128 + SIGTERM;
    if (in->link.fd < 0) {
        fprintf(stderr, "leaseinit: cannot connect to the door at " AGENT_SOCKET ": %s\n",
                strerror(errno));
        return 1;
    }
    if (in->transport->v->start(in->transport, &in->agent, in->command) < 0) {
        fprintf(stderr, "leaseinit: cannot start the agent: %s\n", strerror(errno));
        return 1;
    }
    if (in->agent.unexecutable)
        link_close(&in->link);
    return run(in);
}

/* See limit_descriptors() of init_agent.c. */
static int raise_descriptors(void)
{
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) < 0)
        return -1;
    now.rlim_cur = now.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &now);
}

/* A container's filter may be older than the system call. */
static void each_inherited(unsigned flags, int (*one)(int fd))
{
    if (close_range(3, ~0u, (int)flags) == 0)
        return;
    for (int fd = 3, end = (int)sysconf(_SC_OPEN_MAX); fd < end && fd < 65536; fd++)
        one(fd);
}

static int close_on_exec(int fd)
{
    return fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Lives as long as we do. */
static int env_load(const char *file)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char *text = fd < 0 ? NULL : calloc(1, ENV_MAX + 1);
    ssize_t n = text == NULL ? -1 : read(fd, text, ENV_MAX);
    if (fd >= 0)
        close(fd);
    for (char *at = text; n > 0 && at < text + n; at += strlen(at) + 1) {
        if (strchr(at, '=') != NULL && putenv(at) != 0)
            n = -1;
    }
    if (n < 0)
        fprintf(stderr, "leaseinit: %s: %s\n", file, strerror(errno));
    return n < 0 ? -1 : 0;
}

static int end_after(uint64_t ms)
{
    struct itimerval t = {
        .it_value = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)}};
    return setitimer(ITIMER_REAL, &t, NULL);
}

struct options {
    struct agent agent; /* its limits */
    uint64_t max_ms;    /* 0: none */
    const char *env_file;
};

static bool number_parse(const char *word, const char *name, uint64_t *ret)
{
    size_t len = strlen(name);
    char *end;
    if (strncmp(word, name, len) != 0 || word[len] < '0' || word[len] > '9')
        return false;
    *ret = strtoull(word + len, &end, 10);
    return *end == '\0';
}

/* Takes the words from TRANSPORT to "--". The index of the command, 0: wrong usage. */
static int parse_options(int argc, char **argv, struct options *ret)
{
    int i = 2;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "env=/", 5) == 0)
            ret->env_file = argv[i] + 4;
        else if (!number_parse(argv[i], "memory_bytes=", &ret->agent.memory_bytes) &&
                 !number_parse(argv[i], "pids=", &ret->agent.pids) &&
                 !number_parse(argv[i], "max_ms=", &ret->max_ms))
            return 0;
    }
    return i + 1 < argc ? i + 1 : 0;
}

int main(int argc, char **argv)
{
    struct options o = {.max_ms = 0};
    int command = parse_options(argc, argv, &o);
    if (command == 0) {
        fprintf(stderr, "usage: leaseinit TRANSPORT [memory_bytes=N] [pids=N] [max_ms=N] "
                        "[env=FILE] -- COMMAND [ARGUMENT…]\n");
        return 2;
    }
    each_inherited(0, close);
    if (o.env_file != NULL && env_load(o.env_file) < 0)
        return 2;
    struct transport *transport = transport_new(argv[1]);
    if (transport == NULL)
        return 2;
    if (init_filter_apply(false) < 0) {
        perror("leaseinit: cannot filter system calls");
        return 1;
    }
    struct init *in = calloc(1, sizeof(*in));
    if (in == NULL) {
        perror("leaseinit");
        return 1;
    }
    in->transport = transport;
    in->agent = o.agent;
    in->command = argv + command;
    in->keep_fd = keep_attach();
    in->sig_fd = block_signals();
    /* Not dumpable: the agent has our uid, and our memory and descriptors are not its business. */
    if (in->sig_fd < 0 || detach_stdio() < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || end_after(o.max_ms) < 0 ||
        raise_descriptors() < 0) {
        perror("leaseinit");
        free(in);
        return 1;
    }
    each_inherited(CLOSE_RANGE_CLOEXEC, close_on_exec);
    int status = start(in);
    free(in);
    return status;
}
