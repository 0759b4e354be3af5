/*
 * The host's side of the sandbox of a user's tools (leasehold/tool_link.h): what it sees of the run
 * directory, and the taking away of what it may write there once it has opened it.
 */
#ifndef RUNTIME_TOOLS_BOX_H
#define RUNTIME_TOOLS_BOX_H

#include "leasehold/sandbox_host.h"
#include "rundir.h"

/* `runs_path`: an empty file of ours. All goes with the run directory. */
int tools_box_make(const struct rundir *r, const char *runs_path, int64_t uid, int64_t gid,
                   struct err *e) MUST_CHECK;

/* The directory of tools as the agent sees it, in which it can list nothing. `at`: where it sees it. */
int tools_links_make(const struct rundir *r, const struct sandbox_tool *tools, size_t n,
                     const char *at, struct err *e) MUST_CHECK;

/* Waits, not long, until leasetools is ready, and lets it serve. ERR_SANDBOX_START_FAILED: why not. */
int tools_box_take(const struct rundir *r, const char *runs_path, struct err *e) MUST_CHECK;

#endif
