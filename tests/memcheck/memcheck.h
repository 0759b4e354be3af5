/* Between a program under valgrind (preload.c) and its helper outside (helper.c): the helper does
 * one call that valgrind does not know and sends the outcome, with the descriptor it made if any. */
#ifndef TESTS_MEMCHECK_H
#define TESTS_MEMCHECK_H

#include <sys/socket.h>

#define MEMCHECK_HELPER "MEMCHECK_HELPER" /* of the environment: its path */

#define MEMCHECK_OPENAT2      "openat2"           /* SOCKET DIR PATH FLAGS MODE RESOLVE */
#define MEMCHECK_PIDFD_OPEN   "pidfd_open"        /* SOCKET PID */
#define MEMCHECK_PIDFD_SIGNAL "pidfd_send_signal" /* SOCKET PIDFD SIGNAL */

union memcheck_room { /* for one descriptor beside the message */
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

#endif
