/* Does one system call for a program under valgrind (memcheck.h). */
#include <errno.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memcheck.h"

static int number(const char *text)
{
    return (int)strtol(text, NULL, 10);
}

/* A descriptor, 0 of a call that makes none, or -1. */
static int do_call(int argc, char **argv)
{
    struct open_how how;

    if (argc == 8 && strcmp(argv[1], MEMCHECK_OPENAT2) == 0) {
        how = (struct open_how){.flags = strtoull(argv[5], NULL, 10),
                                .mode = strtoull(argv[6], NULL, 10),
                                .resolve = strtoull(argv[7], NULL, 10)};
        return (int)syscall(SYS_openat2, number(argv[3]), argv[4], &how, sizeof(how));
    }
    if (argc == 4 && strcmp(argv[1], MEMCHECK_PIDFD_OPEN) == 0)
        return pidfd_open(number(argv[3]), 0);
    if (argc == 5 && strcmp(argv[1], MEMCHECK_PIDFD_SIGNAL) == 0)
        return pidfd_send_signal(number(argv[3]), number(argv[4]), NULL, 0);
    errno = ENOSYS;
    return -1;
}

int main(int argc, char **argv)
{
    int fd = do_call(argc, argv), err = fd < 0 ? errno : 0;
    union memcheck_room room = {0};
    struct iovec iov = {&err, sizeof(err)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd > 0) {
        m.msg_control = &room;
        m.msg_controllen = sizeof(room);
        room.head = (struct cmsghdr){CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&room.head), &fd, sizeof(fd));
    }
    return argc > 2 && sendmsg(number(argv[2]), &m, 0) == sizeof(err) ? 0 : 1;
}
