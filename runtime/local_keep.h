/*
 * The gateway's side of leasehold/keep_spec.h: writing the spec, reading leasekeep's files.
 * Any thread.
 */
#ifndef RUNTIME_LOCAL_KEEP_H
#define RUNTIME_LOCAL_KEEP_H

#include <sys/types.h>

#include "leasehold/engine.h"
#include "leasehold/keep_spec.h"

enum keep_phase { KEEP_NONE, KEEP_STARTING, KEEP_RUNNING, KEEP_ENDED };

struct keep_state {
    enum keep_phase phase;
    char reason[32]; /* of KEEP_ENDED, with code and signal */
    int code, signal;
    char detail[128];
};

/* An unreadable or strange keep.state reads as KEEP_NONE. */
void keep_state_read(const char *run_path, struct keep_state *ret);

/* PID and start ticks from keep.pid or keep.init. -1: there is none. */
int keep_pid_read(const char *run_path, const char *name, pid_t *ret_pid, int64_t *ret_start);

/* Whether `pid` holds the lock on keep.pid. */
bool keep_pid_is_locked(const char *run_path, pid_t pid);

/* RUN_PATH/NAME. */
int keep_path(const char *run_path, const char *name, char *ret, size_t size);

/* The whole of a small file as text. -1: there is none. */
int keep_file_read(const char *run_path, const char *name, char *ret, size_t size);

/* Kills what is in the control groups that are noted there, and removes them. Once leasekeep has
 * ended; with its guard at work too it does no harm. False: something in them does not end. */
bool keep_groups_remove(const char *run_path);

/* keep.log and the one before it: engine.h, log_open. */
int keep_log_open(const char *run_path, const struct engine_log_from *from, struct engine_log **ret,
                  struct err *e) MUST_CHECK;

/* A sealed memory file with the spec, read from its start. `bin_dir` holds the helpers. */
int keep_spec_open(const struct engine_spec *spec, const char *bin_dir, struct err *e) MUST_CHECK;

#endif
