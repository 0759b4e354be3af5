#include "tool_request.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mono.h"

#define RECEIVE_MS 5000

/* ---- words ---- */

static bool name_is_valid(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= TOOL_NAME_MAX && name[0] != '.' && strchr(name, '/') == NULL;
}

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* A value that is a path somewhere (a locale's, a time zone's, a terminal's) must not lead out of where
 * such things are. */
static bool value_is_plain(const char *name, size_t name_len, const char *value)
{
    bool zone = name_len == 2 && memcmp(name, "TZ", 2) == 0;
    if (value[0] == '/' || value[0] == ':' || strstr(value, "..") != NULL ||
        strlen(value) > TOOL_ENV_VALUE_MAX)
        return false;
    for (const char *p = value; *p != '\0'; p++)
        if (!is_alnum(*p) && strchr("._@+-:", *p) == NULL && !(zone && *p == '/'))
            return false;
    return true;
}

static bool env_is_valid(const char *word)
{
    size_t len = strcspn(word, "=");
    if (word[len] == '\0')
        return false;
    for (size_t i = 0; i < TOOL_ENV_NAMES; i++)
        if (strlen(tool_env_names[i]) == len && memcmp(tool_env_names[i], word, len) == 0)
            return value_is_plain(word, len, word + len + 1);
    return false;
}

/* An environment that is not plain is left out: it says how things look. */
static int take_word(struct tool_request *r, char *word)
{
    char *text = word + 1;
    switch (word[0]) {
    case TOOL_WORD_NAME:
        if (r->name != NULL || !name_is_valid(text))
            return -1;
        r->name = text;
        return 0;
    case TOOL_WORD_CWD:
        if (r->cwd != NULL || text[0] != '/')
            return -1;
        r->cwd = text;
        return 0;
    case TOOL_WORD_ARG:
        if (r->argc == TOOL_WORDS_MAX + 1)
            return -1;
        r->argv[r->argc++] = text;
        return 0;
    case TOOL_WORD_ENV:
        if (r->env_n < TOOL_ENV_NAMES && env_is_valid(text))
            r->env[r->env_n++] = text;
        return 0;
    default:
        return -1;
    }
}

int tool_request_parse(struct tool_request *r, char *text, size_t len)
{
    r->name = r->cwd = NULL;
    r->argc = 1;
    r->env_n = 0;
    if (len == 0 || text[len - 1] != '\0')
        return -1;
    for (char *p = text; p < text + len; p += strlen(p) + 1)
        if (p[0] == '\0' || take_word(r, p) < 0)
            return -1;
    r->argv[r->argc] = NULL;
    return r->name != NULL ? 0 : -1;
}

/* ---- from the socket ---- */

static bool wait_readable(int fd, int64_t until_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int64_t left = until_ms - mono_ms();
    return left > 0 && poll(&p, 1, (int)left) > 0;
}

static void take_descriptors(struct tool_request *r, struct msghdr *m, bool *ret_extra)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        *ret_extra = n != 3 || r->fds[0] >= 0 || (m->msg_flags & MSG_CTRUNC) != 0;
        if (!*ret_extra)
            memcpy(r->fds, CMSG_DATA(c), sizeof(r->fds));
        /* What is too much goes with our process, which runs one tool at most. */
    }
}

/* Exactly `len` bytes; descriptors only with the first. */
static int receive_all(struct tool_request *r, int fd, char *ret, size_t len, int64_t until_ms)
{
    for (size_t at = 0; at < len;) {
        union {
            char space[CMSG_SPACE(3 * sizeof(int))];
            struct cmsghdr align;
        } control;
        struct iovec iov = {ret + at, len - at};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control.space,
                           .msg_controllen = sizeof(control.space)};
        bool extra = false;
        if (!wait_readable(fd, until_ms))
            return -1;
        ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        take_descriptors(r, &m, &extra);
        if (n <= 0 || extra)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

/* One that only names a file (O_PATH) is to be had for files that the agent may not read, and the tool
 * that opens its /dev/stdin would do so with its own rights. */
static bool are_open(const struct tool_request *r)
{
    for (size_t i = 0; i < 3; i++) {
        int flags = fcntl(r->fds[i], F_GETFL);
        if (flags < 0 || (flags & O_PATH) != 0)
            return false;
    }
    return true;
}

int tool_request_receive(struct tool_request *r, int fd, char *text)
{
    int64_t until_ms = mono_ms() + RECEIVE_MS;
    uint8_t head[4];
    for (size_t i = 0; i < 3; i++)
        r->fds[i] = -1;
    if (receive_all(r, fd, (char *)head, sizeof(head), until_ms) < 0 || r->fds[0] < 0)
        return -1;
    uint32_t len =
        (uint32_t)head[0] << 24 | (uint32_t)head[1] << 16 | (uint32_t)head[2] << 8 | head[3];
    if (!are_open(r) || len == 0 || len > TOOL_REQUEST_MAX ||
        receive_all(r, fd, text, len, until_ms) < 0)
        return -1;
    return tool_request_parse(r, text, len);
}
