/*
 * A socket whose end costs a minute: full of bytes that nobody reads, it lingers, and whoever drops the
 * last of it waits. Of programs that tests build and run inside a sandbox (compiling.py).
 */
#ifndef LINGERING_H
#define LINGERING_H

#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Where the other ends stay: they are never accepted. */
static inline int lingering_listen(void)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    listen(listener, 200);
    return listener;
}

static inline int lingering_socket(int listener)
{
    struct sockaddr_in at;
    socklen_t len = sizeof(at);
    static char data[65536];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    getsockname(listener, (struct sockaddr *)&at, &len);
    connect(fd, (struct sockaddr *)&at, sizeof(at));
    while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
        ;
    if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 60}, sizeof(struct linger)) < 0)
        perror("setsockopt");
    return fd;
}

static inline void lingering_nothing(int sig)
{
    (void)sig;
}

/* If ours has become the last of it we would wait ourselves. */
static inline void lingering_drop(int fd)
{
    struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, lingering_nothing);
    setitimer(ITIMER_REAL, &often, NULL);
    close(fd);
    setitimer(ITIMER_REAL, &never, NULL);
}

/* Sends a new one over the unix socket `to`, where it is on its way or dropped by who reads there. */
static inline bool lingering_send(int to, int listener)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } control = {{0}};
    struct iovec iov = {"x", 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof(control)};
    int fd = lingering_socket(listener);
    control.head = (struct cmsghdr){CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    bool sent = sendmsg(to, &m, MSG_NOSIGNAL) == 1;
    lingering_drop(fd);
    return sent;
}

static inline int lingering_connect(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    return connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 ? fd : -1;
}

#endif
