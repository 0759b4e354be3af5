#include "run_words.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "leasehold/clock.h"
#include "leasehold/process.h"

#define RUN_MS 10000

/* Reads to the end of the pipe, which is the end of everything that was started, and keeps the
 * first line. */
static void read_words(int fd, char *ret, size_t size)
{
    int64_t deadline_us = clock_boot_us(&clock_system) + RUN_MS * 1000;
    char chunk[256];
    size_t len = 0;
    for (;;) {
        int64_t left_ms = (deadline_us - clock_boot_us(&clock_system)) / 1000;
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        int r = left_ms > 0 ? poll(&pfd, 1, (int)left_ms) : 0;
        ssize_t n = r > 0 ? read(fd, chunk, sizeof(chunk)) : r;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        size_t part = (size_t)n < size - 1 - len ? (size_t)n : size - 1 - len;
        memcpy(ret + len, chunk, part);
        len += part;
    }
    ret[len] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
}

/* The child is not reaped elsewhere, so its pid is safe. */
static int end_status(pid_t pid)
{
    int status;
    pid_t r;
    kill(pid, SIGKILL); /* of no effect on one that ended as it should */
    do
        r = waitpid(pid, &status, 0);
    while (r < 0 && errno == EINTR);
    return r == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int run_words(const char *const *argv, const char *program, bool stdout_too, char *ret, size_t size,
              struct err *e)
{
    int64_t start;
    int pipe_fd[2];
    pid_t pid;
    if (pipe2(pipe_fd, O_CLOEXEC) < 0)
        return err_sys(e, ERR_ENGINE_UNAVAILABLE, errno, "%s", argv[0]);
    int status = process_spawn(&(struct process_spawn){.path = program,
                                                       .argv = argv,
                                                       .cwd = "/",
                                                       .stderr_fd = pipe_fd[1],
                                                       .stdout_too = stdout_too},
                               &pid, &start, e);
    close(pipe_fd[1]);
    if (status == 0) {
        read_words(pipe_fd[0], ret, size);
        status = end_status(pid);
        if (status < 0)
            err_set(e, ERR_ENGINE_UNAVAILABLE, "%s was killed", argv[0]);
    }
    close(pipe_fd[0]);
    return status;
}
