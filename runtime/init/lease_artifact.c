/*
 * lease-artifact PATH [NAME]: for programs in a sandbox, which have no credentials. The file, which must
 * be beneath the chat's files, is stored as an artifact of the chat; the artifact's id is printed. It
 * asks the door (leasehold/agent_link.h), the door the gateway, and the gateway opens the file itself.
 * Exit status: 0 stored, 1 not, 2 usage.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "leasehold/agent_link.h"
#include "leasehold/keep_spec.h"
#include "init_usage.h"

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "lease-artifact: %s: %s\n", what, why);
    return -1;
}

static int send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

static int receive_all(int fd, char *ret, size_t len)
{
    while (len > 0) {
        ssize_t n = recv(fd, ret, len, 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            return -1;
        if (n > 0) {
            ret += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

static int connect_door(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = AGENT_SOCKET};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
        return fail(AGENT_SOCKET, strerror(errno));
    return fd;
}

/* Where it is, whatever links lead there: the gateway follows none. */
static int ask(int fd, const char *path, const char *name)
{
    char frame[LINK_HEADER + LINK_PUT_MAX], whole[PATH_MAX];
    if (realpath(path, whole) == NULL)
        return fail(path, strerror(errno));
    size_t path_len = strlen(whole) + 1, name_len = strlen(name);
    if (path_len + name_len > LINK_PUT_MAX)
        return fail(path, "its name is too long");
    link_header_put((uint8_t *)frame, LINK_PUT, (uint32_t)(path_len + name_len));
    memcpy(frame + LINK_HEADER, whole, path_len);
    memcpy(frame + LINK_HEADER + path_len, name, name_len);
    return send_all(fd, frame, LINK_HEADER + path_len + name_len) == 0
               ? 0
               : fail(AGENT_SOCKET, strerror(errno));
}

static int take_answer(int fd, const char *path)
{
    char head[LINK_HEADER], text[LINK_DONE_MAX + 1];
    if (receive_all(fd, head, sizeof(head)) != 0)
        return fail(path, "the door has not answered");
    uint32_t len = link_header_len((const uint8_t *)head);
    if (head[0] != LINK_PUT_DONE || len < 1 || len > LINK_DONE_MAX ||
        receive_all(fd, text, len) != 0)
        return fail(path, "the door's answer is not valid");
    text[len] = '\0';
    if (text[0] != 1)
        return fail(path, text + 1);
    return printf("%s\n", text + 1) > 0 && fflush(stdout) == 0 ? 0 : -1;
}

static const char usage[] =
    "usage: lease-artifact PATH [NAME]\n"
    "\n"
    "Stores a file of the chat as an artifact, as NAME if that is given, and prints its id.\n"
    "A PATH that begins with a dash is written ./-….\n"
    "Exit status: 0 stored, 1 not, 2 usage.\n";

int main(int argc, char **argv)
{
    if (usage_is_wanted(argc, argv))
        return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
    if (argc < 2 || argc > 3 || argv[1][0] == '\0' || argv[1][0] == '-') {
        fputs(usage, stderr);
        return 2;
    }
    int fd = connect_door();
    bool ok =
        fd >= 0 && ask(fd, argv[1], argc > 2 ? argv[2] : "") == 0 && take_answer(fd, argv[1]) == 0;
    return ok ? 0 : 1;
}
