/*
 * Preloaded into programs under valgrind (tests/tools/memcheck.py), which answers ENOSYS to calls
 * newer than itself: those we use are done by a helper outside (memcheck.h).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memcheck.h"

#define EXPORTED __attribute__((visibility("default")))

#define NUMBER_TEXT 24

static int fail(int err)
{
    errno = err;
    return -1;
}

/* The descriptor or 0; -1 with what the call failed with. */
static int answer(int sock)
{
    union memcheck_room room = {0};
    int err = 0, fd = 0;
    struct iovec iov = {&err, sizeof(err)};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof(room)};

    if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) != sizeof(err))
        return fail(ENOSYS);
    if (CMSG_FIRSTHDR(&m) != NULL)
        memcpy(&fd, CMSG_DATA(&room.head), sizeof(fd));
    return err != 0 ? fail(err) : fd;
}

/* argv[2] is for the socket's number; `lent` is a descriptor the helper needs. */
static int ask(const char **argv, int lent)
{
    char sock_text[NUMBER_TEXT];
    int pair[2], result, saved;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    snprintf(sock_text, sizeof(sock_text), "%d", pair[1]);
    argv[2] = sock_text;
    pid_t pid = fork();
    if (pid == 0) {
        fcntl(pair[1], F_SETFD, 0);
        fcntl(lent, F_SETFD, 0);
        execve(argv[0], (char *const *)(void *)argv, (char *[]){NULL});
        _exit(1);
    }
    close(pair[1]);
    result = pid > 0 ? answer(pair[0]) : -1;
    saved = errno;
    close(pair[0]);
    waitpid(pid, NULL, 0);
    errno = saved;
    return result;
}

static int open_below(int dir, const char *path, const struct open_how *how)
{
    char dir_text[NUMBER_TEXT], flags[NUMBER_TEXT], mode[NUMBER_TEXT], resolve[NUMBER_TEXT];
    const char *argv[] = {getenv(MEMCHECK_HELPER),
                          MEMCHECK_OPENAT2,
                          NULL,
                          dir_text,
                          path,
                          flags,
                          mode,
                          resolve,
                          NULL};

    snprintf(dir_text, sizeof(dir_text), "%d", dir);
    snprintf(flags, sizeof(flags), "%llu", (unsigned long long)how->flags);
    snprintf(mode, sizeof(mode), "%llu", (unsigned long long)how->mode);
    snprintf(resolve, sizeof(resolve), "%llu", (unsigned long long)how->resolve);
    return ask(argv, dir);
}

/* We make this one call by its number. */
EXPORTED long syscall(long nr, ...)
{
    long dir, path, how;
    va_list ap;

    va_start(ap, nr);
    dir = va_arg(ap, long);
    path = va_arg(ap, long);
    how = va_arg(ap, long);
    va_end(ap);
    return nr == SYS_openat2
               ? open_below((int)dir, (const char *)path, (const struct open_how *)how)
               : fail(ENOSYS);
}

EXPORTED int pidfd_open(pid_t pid, unsigned flags)
{
    char text[NUMBER_TEXT];
    const char *argv[] = {getenv(MEMCHECK_HELPER), MEMCHECK_PIDFD_OPEN, NULL, text, NULL};

    snprintf(text, sizeof(text), "%d", (int)pid);
    return flags == 0 ? ask(argv, -1) : fail(EINVAL);
}

EXPORTED int pidfd_send_signal(int fd, int sig, siginfo_t *info, unsigned flags)
{
    char fd_text[NUMBER_TEXT], sig_text[NUMBER_TEXT];
    const char *argv[] = {
        getenv(MEMCHECK_HELPER), MEMCHECK_PIDFD_SIGNAL, NULL, fd_text, sig_text, NULL};

    snprintf(fd_text, sizeof(fd_text), "%d", fd);
    snprintf(sig_text, sizeof(sig_text), "%d", sig);
    return info == NULL && flags == 0 ? ask(argv, fd) : fail(EINVAL);
}

/* The vfork in it is a fork under valgrind, and what went wrong in the child gets lost. */
EXPORTED int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                         const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
    int (*next)(pid_t *, const char *, const posix_spawn_file_actions_t *,
                const posix_spawnattr_t *, char *const[], char *const[]);

    if (access(path, X_OK) != 0)
        return errno;
    *(void **)&next = dlsym(RTLD_NEXT, "posix_spawn");
    return next(pid, path, actions, attr, argv, envp);
}
