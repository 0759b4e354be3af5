/* The door as a process: started with its spec and listener, found and stopped again. */
#ifndef RUNTIME_DOOR_PROCESS_H
#define RUNTIME_DOOR_PROCESS_H

#include <sys/types.h>

#include "leasehold/sandbox_host.h"

/* How long a sandbox lasts at most before it ends by itself, and a door without a gateway with it. */
int64_t sandbox_life_s(const struct config_sandbox *cfg);

/* Starts leasedoor for the session with the listening descriptor (borrowed). */
int door_process_start(const struct sandbox_host *h, const struct sandbox_start *start,
                       const char *run_path, int listener_fd, pid_t *ret_pid, int64_t *ret_start,
                       struct err *e) MUST_CHECK;

/* TERM, two seconds, KILL; gone already is a success. pid 0: looks for one by its pid file in the
 * run directory. */
int door_process_stop(const char *run_path, pid_t pid, int64_t start, struct err *e) MUST_CHECK;

#endif
