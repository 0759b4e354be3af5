/* The agent's process group: started once, reaped with everything else that ends. */
#ifndef INIT_AGENT_H
#define INIT_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct agent {
    /* Where there is no control group for it, 0: none. Of each process, and of all together. */
    uint64_t memory_bytes, pids;
    pid_t pid;
    bool exited;
    int code;          /* exit code; 128 + signal when a signal ended it */
    int signal;        /* 0: none */
    bool unexecutable; /* exec failed: it ends with 126 or 127 */
};

/* What the agent gets as descriptors 0 and 1; it inherits stderr and nothing else. */
struct agent_stdio {
    int in, out;
};

/* Starts `command` in a session of its own. A command that cannot be run is no failure: the agent
 * then counts as exited with 127 (126: found but not runnable) and stderr says why. -1 with errno
 * when there is no process at all. */
int agent_start(struct agent *a, char **command, const struct agent_stdio *io);

/* Reaps all children that have ended. */
void agent_reap(struct agent *a);

void agent_signal(const struct agent *a, int sig); /* the whole group */

#endif
