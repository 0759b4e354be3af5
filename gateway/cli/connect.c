/* The command `connect`: opens sandbox and lease, then runs the conversation on one poll(). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "leasehold/clock.h"

#include "command.h"
#include "request.h"
#include "session.h"
#include "start_watch.h"

#define RELEASE_TIMEOUT_MS 2000
#define WRITES_A_TURN      64
#define PROBLEM_ARENA      (1024UL * 1024)

/* What one turn of the loop waits for. */
struct waiter {
    struct session *session;
    int wake_fd;
    int signal_fd;
    int signal; /* that ends us; 0: none yet */
};

static int64_t now_ms(void)
{
    return clock_boot_us(&clock_system) / 1000;
}

/* `connect` always wants a lease, also when no option of it is given. */
static void ask_for_lease(struct options *o)
{
    static const struct opt_spec lease = {.name = "--lease", .kind = OPT_FLAG, .member = "lease/"};
    if (o->n < OPTIONS_MAX) {
        o->values[o->n++] = (struct opt_value){.spec = &lease};
    }
}

static int open_call(const struct cli *cli, const struct command *cmd, const struct options *o,
                     struct api_answer *ret, struct err *e)
{
    struct api *api = api_new(&cli->access);
    if (api == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    struct request req;
    request_init(&req);
    int rc = request_build(cmd->method, cmd->path, o, &req, e);
    if (rc == 0) {
        struct start_watch *watch = start_watch_begin(cli, o);
        rc = api_call(api, req.method, req.path.data, &req.body,
                      cli->timeout_ms > 0 ? cli->timeout_ms : cmd->timeout_ms, ret, e);
        start_watch_end(watch);
    }
    request_done(&req);
    api_free(api);
    return rc;
}

static int tell_problem(const struct events *ev, const struct api_answer *a)
{
    struct arena *arena = arena_new(PROBLEM_ARENA);
    struct api_problem p = {.status = a->status};
    if (arena != NULL) {
        api_problem_read(a, arena, &p);
    }
    events_problem(ev, &p);
    arena_free(arena);
    return api_exit_code(a->status);
}

/* Returns EXIT_OK and the grant, or the exit code of what was told to the user. */
static int open_sandbox(const struct cli *cli, const struct command *cmd, const struct options *o,
                        const struct events *ev, struct grant *ret)
{
    struct err e;
    struct api_answer answer;
    api_answer_init(&answer);
    int code = EXIT_OK;
    if (open_call(cli, cmd, o, &answer, &e) < 0) {
        events_error(ev, &e);
        code = api_exit_code_of_err(&e);
    } else if (!api_answer_ok(&answer)) {
        code = tell_problem(ev, &answer);
    } else if (grant_read(ret, &answer, true, false, now_ms(), &e) < 0) {
        events_error(ev, &e);
        code = EXIT_FAILED;
    }
    api_answer_done(&answer);
    return code;
}

static int poll_timeout(struct session *s)
{
    int64_t next = session_next_ms(s);
    int64_t now = now_ms();
    if (next < 0) {
        return -1;
    }
    int64_t wait = next > now ? next - now : 0;
    return wait > 60000 ? 60000 : (int)wait;
}

static void read_input(struct session *s)
{
    struct err e;
    if (line_reader_run(&s->reader, &s->out, &e) < 0) {
        session_fail(s, &e);
        return;
    }
    s->last_traffic_ms = now_ms(); /* the wait for answers begins at the end of stdin */
    if (s->door != NULL) {
        door_client_notify(s->door);
    }
}

static bool accepts_output(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1;
}

static void write_output(struct session *s)
{
    struct err e;
    for (int i = 0; i < WRITES_A_TURN && !line_writer_empty(&s->writer); i++) {
        if (i > 0 && !accepts_output(s->writer.fd)) {
            return;
        }
        if (line_writer_run(&s->writer, &e) < 0) {
            session_fail(s, &e);
            return;
        }
    }
}

static void drain(int fd)
{
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof(count));
    (void)n; /* nothing to read means nothing to do */
}

/* The first signal ends politely, the second at once. */
static void on_signal(struct waiter *w)
{
    struct signalfd_siginfo info;
    if (read(w->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return;
    }
    if (w->signal != 0) {
        session_end(w->session, EXIT_FAILED);
    } else {
        w->signal = (int)info.ssi_signo;
        session_leave(w->session, now_ms());
    }
}

static void turn(struct waiter *w)
{
    struct session *s = w->session;
    struct pollfd fds[4] = {
        {.fd = session_wants_input(s) ? s->reader.fd : -1, .events = POLLIN},
        {.fd = line_writer_empty(&s->writer) ? -1 : s->writer.fd, .events = POLLOUT},
        {.fd = w->wake_fd, .events = POLLIN},
        {.fd = w->signal_fd, .events = POLLIN},
    };
    if (poll(fds, 4, poll_timeout(s)) < 0) {
        return; /* interrupted: the next turn asks again */
    }
    if (fds[3].revents != 0) {
        on_signal(w);
    }
    if (fds[2].revents != 0) {
        drain(w->wake_fd);
    }
    if (fds[1].revents != 0) {
        write_output(s);
    }
    if (fds[0].revents != 0) {
        read_input(s);
    }
    session_step(s, now_ms());
}

/* What has been received is still written, unless nobody reads it or a signal says to go. */
static void flush_output(struct waiter *w)
{
    struct session *s = w->session;
    struct err e;
    line_writer_break(&s->writer);
    while (!line_writer_empty(&s->writer) && w->signal == 0) {
        struct pollfd fds[2] = {{.fd = s->writer.fd, .events = POLLOUT},
                                {.fd = w->signal_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0) {
            continue;
        }
        if (fds[1].revents != 0) {
            on_signal(w);
        }
        if (fds[0].revents != 0 && line_writer_run(&s->writer, &e) < 0) {
            return;
        }
    }
}

/* A lease not given back would count against the user's quota until it expires. Nobody needs to
 * know when that fails. */
static void release_lease(const struct cli *cli, const char *lease_id)
{
    struct err e;
    char path[128];
    struct api_answer answer;
    struct api *api = api_new(&cli->access);
    if (api == NULL) {
        return;
    }
    api_answer_init(&answer);
    snprintf(path, sizeof(path), "/leases/%s?reason=released", lease_id);
    int rc = api_call(api, "DELETE", path, NULL, RELEASE_TIMEOUT_MS, &answer, &e);
    (void)rc;
    api_answer_done(&answer);
    api_free(api);
}

static void give_back(const struct cli *cli, const struct session *s)
{
    if (s->replaced_lease[0] != '\0') {
        release_lease(cli, s->replaced_lease);
    }
    if (!s->lease_ended && s->grant.view != NULL) {
        release_lease(cli, s->grant.view->lease->lease_id);
    }
}

static int converse(const struct cli *cli, const struct options *o, const struct events *ev,
                    struct grant *grant, struct waiter *w)
{
    struct err e;
    struct session s;
    if (session_init(&s, &cli->access, o, ev, grant, w->wake_fd, now_ms(), &e) < 0) {
        session_fail(&s, &e);
    }
    w->session = &s;
    while (s.state != SESSION_OVER) {
        turn(w);
    }
    size_t unsent = message_queue_count(&s.out);
    if (unsent > 0) {
        events_unsent(ev, unsent);
    }
    give_back(cli, &s);
    flush_output(w);
    int code = s.exit_code;
    session_done(&s);
    w->session = NULL;
    return code;
}

/* Signals come by descriptor, in this thread; the others inherit the mask. */
static int catch_signals(struct err *e)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    int fd = sigprocmask(SIG_BLOCK, &set, NULL) == 0 ? signalfd(-1, &set, SFD_CLOEXEC) : -1;
    return fd >= 0 ? fd : err_sys(e, ERR_INTERNAL, errno, "no signalfd");
}

/* Whoever started us shall see what ended us. */
static void die_of(int sig)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    signal(sig, SIG_DFL);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static int run_with_descriptors(const struct cli *cli, const struct options *o,
                                const struct events *ev, struct grant *grant)
{
    struct err e;
    struct waiter w = {.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .signal_fd = -1};
    int code = EXIT_FAILED;
    if (w.wake_fd < 0) {
        err_sys(&e, ERR_INTERNAL, errno, "no eventfd");
        events_error(ev, &e);
        return code;
    }
    w.signal_fd = catch_signals(&e);
    if (w.signal_fd < 0) {
        events_error(ev, &e);
    } else {
        code = converse(cli, o, ev, grant, &w);
        close(w.signal_fd);
    }
    close(w.wake_fd);
    if (w.signal != 0) {
        die_of(w.signal);
    }
    return code;
}

int connect_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    struct events ev = {.json = cli->json, .talkative = isatty(STDERR_FILENO) == 1};
    struct options with_lease = *o;
    struct grant grant;
    ask_for_lease(&with_lease);
    grant_init(&grant);
    int code = open_sandbox(cli, cmd, &with_lease, &ev, &grant);
    if (code == EXIT_OK) {
        code = run_with_descriptors(cli, &with_lease, &ev, &grant);
    }
    grant_done(&grant);
    return code;
}
