/*
 * lease-tool stands in the agent's sandbox in the place of each tool that the agent may run and not read:
 * it has the tool run elsewhere (leasehold/tool_link.h) and ends as the tool does. Its name is the tool's;
 * as `lease-tool NAME [ARGUMENT…]` it runs the one that is named.
 *
 * Exit status: the tool's; 124 when its time was over, 125 when nobody runs tools here, 126 when the tool
 * cannot be run, 127 when there is none. A tool ended by a signal ends lease-tool by the same signal.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "leasehold/tool_link.h"
#include "init_usage.h"
#include "tool_words.h"

enum { EXIT_OVERDUE = 124, EXIT_NOBODY = 125 };

struct request {
    uint8_t data[4 + TOOL_REQUEST_MAX];
    size_t len;
    bool too_long;
};

static void add_word(struct request *r, enum tool_word tag, const char *text)
{
    size_t len = strlen(text) + 1;
    if (len + 1 > sizeof(r->data) - r->len) {
        r->too_long = true;
        return;
    }
    r->data[r->len++] = (uint8_t)tag;
    memcpy(r->data + r->len, text, len);
    r->len += len;
}

static void fill(struct request *r, const char *name, char **args)
{
    char cwd[PATH_MAX], word[128];
    r->len = 4;
    add_word(r, TOOL_WORD_NAME, name);
    if (getcwd(cwd, sizeof(cwd)) != NULL)
        add_word(r, TOOL_WORD_CWD, cwd);
    for (; *args != NULL; args++)
        add_word(r, TOOL_WORD_ARG, *args);
    for (size_t i = 0; i < TOOL_ENV_NAMES; i++) {
        const char *value = getenv(tool_env_names[i]);
        if (value != NULL && strlen(value) <= TOOL_ENV_VALUE_MAX) {
            snprintf(word, sizeof(word), "%s=%s", tool_env_names[i], value);
            add_word(r, TOOL_WORD_ENV, word);
        }
    }
    size_t len = r->len - 4;
    for (int i = 0; i < 4; i++)
        r->data[i] = (uint8_t)(len >> (24 - 8 * i));
}

/* A descriptor that the tool would miss leads nowhere. */
static int open_missing(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return -1;
    return 0;
}

static int connect_runner(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = TOOL_SOCKET};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 ? fd : -1;
}

/* The descriptors go with the first bytes. */
static int send_request(int fd, struct request *r)
{
    union {
        char space[CMSG_SPACE(3 * sizeof(int))];
        struct cmsghdr align;
    } control = {.space = {0}};
    for (size_t at = 0; at < r->len;) {
        struct iovec iov = {r->data + at, r->len - at};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        if (at == 0) {
            m.msg_control = control.space;
            m.msg_controllen = sizeof(control.space);
            struct cmsghdr *c = CMSG_FIRSTHDR(&m);
            *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                  .cmsg_type = SCM_RIGHTS,
                                  .cmsg_len = CMSG_LEN(3 * sizeof(int))};
            memcpy(CMSG_DATA(c), (int[]){STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO},
                   3 * sizeof(int));
        }
        ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return -1;
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < TOOL_SIGNALS; i++)
        sigaddset(&set, tool_signals[i]);
    return sigprocmask(SIG_BLOCK, &set, NULL) == 0 ? signalfd(-1, &set, SFD_CLOEXEC) : -1;
}

static void pass_signal(int sig_fd, int fd)
{
    struct signalfd_siginfo info;
    if (read(sig_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    uint8_t sig = (uint8_t)info.ssi_signo;
    (void)!send(fd, &sig, sizeof(sig), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Until the end of the connection. How many bytes were said. */
static size_t wait_answer(int fd, int sig_fd, uint8_t ret[static TOOL_ANSWER_MAX])
{
    struct pollfd pfd[] = {{.fd = fd, .events = POLLIN}, {.fd = sig_fd, .events = POLLIN}};
    for (size_t len = 0;;) {
        if (poll(pfd, 2, -1) < 0)
            continue;
        if (pfd[1].revents != 0)
            pass_signal(sig_fd, fd);
        if (pfd[0].revents == 0)
            continue;
        ssize_t n = recv(fd, ret + len, TOOL_ANSWER_MAX - len, MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return len;
        len += (size_t)n;
    }
}

/* As it would look without us. */
static int end_by_signal(int sig)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    signal(sig, SIG_DFL);
    kill(getpid(), sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    return 128 + sig;
}

static int judge(const char *name, const uint8_t *said, size_t len)
{
    if (len == 3 && said[0] == TOOL_ENDED)
        return said[2] != 0 ? end_by_signal(said[2]) : said[1];
    if (len >= 2 && said[0] == TOOL_REFUSED) {
        fprintf(stderr, "lease-tool: %s: %.*s\n", name, (int)(len - 2), (const char *)said + 2);
        return said[1];
    }
    bool overdue = len == 1 && said[0] == TOOL_OVERDUE;
    fprintf(stderr, "lease-tool: %s: %s\n", name,
            overdue ? "it was ended, its time was over" : "what ran it has ended");
    return overdue ? EXIT_OVERDUE : EXIT_NOBODY;
}

/* Nobody listens where somebody has, or has not yet again. */
static const char *why_nobody(int error)
{
    bool gone = error == ECONNREFUSED || error == ENOENT || error == EACCES;
    if (gone && access(TOOL_AGAIN, F_OK) == 0)
        return "what ran them has ended and is being started again; try again in a moment";
    return error == ECONNREFUSED ? "what ran them has ended; a new sandbox has them again"
                                 : strerror(error);
}

static int run(const char *name, char **args)
{
    static struct request request;
    uint8_t said[TOOL_ANSWER_MAX];
    fill(&request, name, args);
    if (request.too_long) {
        fprintf(stderr, "lease-tool: %s: more than %u bytes of arguments\n", name,
                TOOL_REQUEST_MAX);
        return 126;
    }
    int sig_fd = block_signals();
    int fd = open_missing() < 0 || sig_fd < 0 ? -1 : connect_runner();
    if (fd < 0) {
        fprintf(stderr, "lease-tool: %s: the user's tools cannot be run here: %s\n", name,
                why_nobody(errno));
        return EXIT_NOBODY;
    }
    /* One that was refused may have been before all was sent. */
    (void)!send_request(fd, &request);
    return judge(name, said, wait_answer(fd, sig_fd, said));
}

static const char usage[] =
    "usage: lease-tool NAME [ARGUMENT…]\n"
    "\n"
    "Runs a tool of the user, as its link does. Exit status: the tool's; 124 its time was over,\n"
    "125 nobody runs tools here, 126 it cannot be run, 127 there is none.\n";

int main(int argc, char **argv)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *name = slash != NULL ? slash + 1 : argc > 0 ? argv[0] : "";
    if (strcmp(name, TOOL_CLIENT) != 0 && argc > 0)
        return run(name, argv + 1);
    if (usage_is_wanted(argc, argv))
        return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
    if (argc < 2 || argv[1][0] == '-') { /* a tool of such a name has its link */
        fputs(usage, stderr);
        return 2;
    }
    return run(argv[1], argv + 2);
}
