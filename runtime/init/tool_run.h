/*
 * One run of a tool, by a process of its own: the tool's parent and the subreaper of all that the tool
 * starts, so that nothing of it is left when the run is over.
 */
#ifndef INIT_TOOL_RUN_H
#define INIT_TOOL_RUN_H

#include <stdint.h>
#include <sys/types.h>

#include "leasehold/tool_link.h"

struct tool_rules {
    const char *tools; /* their directory */
    const char *chat;  /* where tools may begin, and do if they are not told otherwise */
    uint64_t timeout_ms, memory_bytes, pids; /* 0: none */
    int runs_fd;
};

/* Records this end of the run of which *note says that it has begun. */
void tool_run_ended(const struct tool_rules *rules, struct tool_record *note, enum tool_how how,
                    int status);

void tool_refuse(int fd, uint8_t code, const char *why);

/* The whole life of that process. `fd`: of the one who asks. *note: what it has recorded, for its parent, in
 * memory that they share and no tool has. */
_Noreturn void tool_run(const struct tool_rules *rules, struct tool_record *note, int fd);

#endif
