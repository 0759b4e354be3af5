/* What a sandbox sees of the host beside its run directory. */
#ifndef RUNTIME_HOST_BINDS_H
#define RUNTIME_HOST_BINDS_H

#include "leasehold/sandbox_host.h"
#include "leasehold/tool_link.h"
#include "rundir.h"

#define HOST_BINDS_COMMON 5

struct host_binds {
    char dependencies[PATH_MAX], lambda_tools[PATH_MAX], static_tools[PATH_MAX];
    struct engine_bind binds[HOST_BINDS_COMMON + 1];
    size_t binds_n;
    struct engine_bind of_tools[HOST_BINDS_COMMON];
    struct engine_tools tools;
};

/* Paths point into *ret and the rest of what is given. `tools_dir`: the run directory of a session whose
 * agent has tools to run that it may not read; NULL: it has none. */
int host_binds_fill(struct host_binds *ret, const struct sandbox_host *h,
                    const struct sandbox_start *in, const struct rundir *tools_dir,
                    struct err *e) MUST_CHECK;

#endif
