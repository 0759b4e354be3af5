/*
 * What a sandbox uses: by the files of its control groups, of version 1 and 2 (kernel
 * Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst), and where it has none, by its processes.
 * Any thread; blocks on /proc and /sys alone.
 */
#ifndef RUNTIME_USE_STATS_H
#define RUNTIME_USE_STATS_H

#include <sys/types.h>

#include "leasehold/engine.h"

#define USE_UNKNOWN                                                                                \
    {                                                                                              \
        -1, -1, -1, -1                                                                             \
    } /* a member that is negative is not known yet */

bool use_is_known(const struct engine_stats *s); /* all of it */

/* Fills what the groups tell; `groups` has a directory a line. */
void use_of_groups(const char *groups, struct engine_stats *s);

/* Fills what is not known yet by adding up the processes of the pid namespace of `init`. What has
 * ended counts no more, and the peak is the sum of each one's own. ERR_SESSION_NOT_RUNNING: init is
 * gone. */
int use_of_namespace(pid_t init, int64_t start_ticks, struct engine_stats *s,
                     struct err *e) MUST_CHECK;

#endif
