/*
 * leaseinit TRANSPORT [memory_bytes=N] [pids=N] -- COMMAND…
 *
 * Pid 1 of a sandbox. Connects out to the door (leasehold/agent_link.h), runs COMMAND as the agent,
 * carries messages between the two, forwards signals and reaps. It leaves with the agent's status
 * once the agent has ended and its output is delivered, or when the door's link ends. As pid 1 its
 * own end is the end of everything in the sandbox. The numbers become rlimits of the agent.
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
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "init_ready.h"
#include "init_transport.h"
#include "leasehold/keep_spec.h"
#include "mono.h"

#define CONNECT_MS 10000
#define FLUSH_MS   10000 /* for the rest of the output after the agent's end */
#define TERM_MS    2000  /* between TERM and KILL after the link's end */

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
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void handle_signals(struct init *in)
{
    struct signalfd_siginfo info;
    while (read(in->sig_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            agent_reap(&in->agent);
        else
            agent_signal(&in->agent, (int)info.ssi_signo);
    }
}

static void lose_link(struct init *in)
{
    if (in->link.fd < 0)
        return;
    link_close(&in->link);
    if (in->agent.exited)
        return;
    fprintf(stderr, "leaseinit: the door's link ended; stopping the agent\n");
    agent_signal(&in->agent, SIGTERM);
    in->deadline_ms = mono_ms() + TERM_MS;
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

static void close_inherited(void)
{
    if (close_range(3, ~0u, 0) == 0)
        return;
    /* A container's filter may be older than the call. */
    for (int fd = 3, end = (int)sysconf(_SC_OPEN_MAX); fd < end && fd < 65536; fd++)
        close(fd);
}

/* Takes the words from TRANSPORT to "--". The index of the command, 0: wrong usage. */
static int parse_limits(int argc, char **argv, struct agent *ret)
{
    int i = 2;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        char *number = strchr(argv[i], '=');
        char *end = "?";
        if (number == NULL)
            return 0;
        uint64_t n = strtoull(number + 1, &end, 10);
        if (strncmp(argv[i], "memory_bytes=", 13) == 0)
            ret->memory_bytes = n;
        else if (strncmp(argv[i], "pids=", 5) == 0)
            ret->pids = n;
        else
            return 0;
        if (*end != '\0')
            return 0;
    }
    return i + 1 < argc ? i + 1 : 0;
}

int main(int argc, char **argv)
{
    struct agent agent = {.pid = 0};
    int command = parse_limits(argc, argv, &agent);
    if (command == 0) {
        fprintf(stderr, "usage: leaseinit TRANSPORT [memory_bytes=N] [pids=N] -- COMMAND "
                        "[ARGUMENT…]\n");
        return 2;
    }
    close_inherited();
    struct transport *transport = transport_new(argv[1]);
    if (transport == NULL)
        return 2;
    struct init *in = calloc(1, sizeof(*in));
    if (in == NULL) {
        perror("leaseinit");
        return 1;
    }
    in->transport = transport;
    in->agent = agent;
    in->command = argv + command;
    in->keep_fd = keep_attach();
    in->sig_fd = block_signals();
    /* Not dumpable: the agent has our uid, and our memory and descriptors are not its business. */
    if (in->sig_fd < 0 || detach_stdio() < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) < 0) {
        perror("leaseinit");
        free(in);
        return 1;
    }
    int status = start(in);
    free(in);
    return status;
}
