/* What a sandbox sees of the host beside its run directory. */
#ifndef RUNTIME_HOST_BINDS_H
#define RUNTIME_HOST_BINDS_H

#include "leasehold/sandbox_host.h"
#include "leasehold/tool_link.h"
#include "rundir.h"

#define HOST_BINDS_COMMON 5 /* of agent and tools */

struct host_binds {
    char dependencies[PATH_MAX], lambda_tools[PATH_MAX], client[PATH_MAX];
    char names[TOOLS_MAX][PATH_MAX / 8];
    struct engine_bind binds[HOST_BINDS_COMMON + TOOLS_MAX];
    size_t binds_n;
    struct engine_tools tools;
};

/* Paths point into *ret and the rest of what is given. `tools_dir`: the run directory of a session whose
 * agent has tools to run that it may not read; NULL: it has none. */
int host_binds_fill(struct host_binds *ret, const struct sandbox_host *h,
                    const struct sandbox_start *in, const struct rundir *tools_dir,
                    struct err *e) MUST_CHECK;

#endif
