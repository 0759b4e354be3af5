/*
 * A user's own tools: <root>/<user_id>/tools/, bound into the sandboxes of that user so that the agent
 * can run them and do nothing else with them. An operator puts them there; nothing that an agent can
 * write is ever looked at.
 *
 * Run but not read is held by the kernel for native static programs: mode 0111, a foreign owner, no
 * interpreter. A script must be read to be run, and a dynamic program is read by what LD_PRELOAD
 * names, so these are closed to agents, opened to the group of tools and found `brokered`: they are run
 * for the agent elsewhere (docs/adr/0010). Anything else is closed (mode 0000, directories
 * 0700) and told as `refused`. What stands elsewhere too, by a hard link or a mount, keeps its mode: it is
 * refused, and where others may read it, so is the start.
 * Blocks: RUNTIME lane.
 */
#ifndef LEASEHOLD_USERTOOLS_H
#define LEASEHOLD_USERTOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leasehold/err.h"
#include "leasehold/id.h"

#define USERTOOLS_NAME_MAX 100 /* with its NUL; of a brokered one */

struct usertools_report {
    void *ctx;
    /* A tool that no agent may run, and why. May be NULL. */
    void (*refused)(void *ctx, const char *name, const char *why);
    /* A tool that agents can run, by themselves or `brokered`. -1: no memory for its name. */
    int (*found)(void *ctx, const char *name, bool brokered);
    int64_t gid; /* of whoever runs the brokered ones */
};

/* Makes the directory if it is missing (0711, ours), checks each tool in it and sets its mode; its
 * absolute path into `ret`. The workspace must be there. ERR_CONFLICT: something that is not ours on
 * the way; ERR_SANDBOX_START_FAILED: something that agents could read and that is not ours to close, or
 * there are tools, and without root agents run with our own uid, so that nothing keeps them from reading. */
int usertools_prepare(const char *root, const struct id *user_id,
                      const struct usertools_report *report, char *ret, size_t size,
                      struct err *e) MUST_CHECK;

#endif
