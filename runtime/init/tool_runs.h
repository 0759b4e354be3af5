/* What leasetools did, for the gateway: leasehold/tool_link.h. */
#ifndef INIT_TOOL_RUNS_H
#define INIT_TOOL_RUNS_H

#include <stdbool.h>

#include "leasehold/tool_link.h"

/* Opens the records and says that we are ready. -1 with errno. */
int tool_runs_open(void);

/* Has the gateway taken file and socket directory for itself? */
bool tool_runs_taken(int fd);

/* Now: sets at_ms. -1: it could not be written, or so much waits for the gateway that it seems to be away. */
int tool_runs_add(int fd, struct tool_record *r);

#endif
