/* Whether this machine can run a fully isolated sandbox, and if not, what to do about it. */
#ifndef RUNTIME_LOCAL_PROBE_H
#define RUNTIME_LOCAL_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "leasehold/err.h"

/* Runs leasekeep's probe as uid/gid. ERR_ENGINE_UNAVAILABLE says what to install or enable. The
 * answer names the limits that no control group can hold here, "" for none. */
int local_probe(const char *bin_dir, int64_t uid, int64_t gid, char *ret_ungrouped, size_t size,
                struct err *e) MUST_CHECK;

/* "bubblewrap 0.8.0". At start: it runs a program. */
void local_version(char *ret, size_t size);

#endif
