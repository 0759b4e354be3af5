#include "listener.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 128

static int bind_address(const struct addrinfo *a)
{
    int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, BACKLOG)) {
        int sys = errno;

        close(fd);
        errno = sys;
        return -1;
    }
    return fd;
}

static int bind_port(const char *host, long port, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list;
    char service[16];
    int rc, fd;

    snprintf(service, sizeof service, "%ld", port);
    rc = getaddrinfo(host, service, &hints, &list);
    if (rc)
        return err_set(e, ERR_SANDBOX_START_FAILED, "door.host %s: %s", host, gai_strerror(rc));
    fd = bind_address(list);
    if (fd < 0)
        err_sys(e, ERR_SANDBOX_START_FAILED, errno, "bind %s:%ld for a door", host, port);
    freeaddrinfo(list);
    return fd;
}

static int64_t bound_port(int fd)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    char service[16];

    if (getsockname(fd, (struct sockaddr *)&addr, &len) ||
        getnameinfo((struct sockaddr *)&addr, len, NULL, 0, service, sizeof service,
                    NI_NUMERICSERV))
        return 0;
    return strtol(service, NULL, 10);
}

int listener_bind(const char *host, const char *range, int64_t *ret_port, struct err *e)
{
    char *end;
    long first = strtol(range, &end, 10);
    long last = *end == '-' ? strtol(end + 1, NULL, 10) : first;
    int fd = -1;

    for (long port = first; port <= last && fd < 0; port++)
        fd = bind_port(host, port, e);
    if (fd < 0)
        return -1;
    *ret_port = bound_port(fd);
    return fd;
}
