/*
 * Processes that outlive us and are found again: identified by pid and start time, watched by
 * pidfd. Any thread.
 */
#ifndef LEASEHOLD_PROCESS_H
#define LEASEHOLD_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "leasehold/err.h"

/* Field 22 of /proc/PID/stat, -1 if there is no such process (a zombie counts as none). */
int64_t process_start_ticks(pid_t pid);

/* Is it that process, and has its end not begun? One that is being killed closes its descriptors before
 * it is a zombie, so that others may see the effect and end while it is still counted above. */
bool process_is_there(pid_t pid, int64_t start_ticks);

/* A pidfd of exactly this process (pid and start time verified after the open), -1 and
 * ERR_NOT_FOUND when it is gone. */
int process_open(pid_t pid, int64_t start_ticks, struct err *e) MUST_CHECK;

/* Waits until the process behind the pidfd has ended, reaps it if it is our child.
 * 1 ended, 0 the time is over. */
int process_wait(int pidfd, int64_t timeout_ms);

int process_signal(int pidfd, int sig); /* 0, or -1 with errno */

/* Takes the flock(2) of an open file, 0, or -1 with errno. Waits a second for it: when a holder is
 * killed while it starts a program, the child holds the lock on until its exec. */
int process_lock(int fd) MUST_CHECK;

struct process_spawn {
    const char *path;
    const char *const *argv; /* NULL-terminated */
    const char *cwd;
    const int *fds; /* fds[i] becomes descriptor 3 + i; everything else is closed */
    int fds_n;
    int stderr_fd;   /* -1: /dev/null */
    bool stdout_too; /* goes where stderr goes, not to /dev/null */
};

/* Starts a program in its own session with an empty environment (PATH alone), signals at default,
 * stdin and stdout /dev/null. Returns the pid and its start ticks. */
int process_spawn(const struct process_spawn *s, pid_t *ret_pid, int64_t *ret_start,
                  struct err *e) MUST_CHECK;

#endif
