/*
 * How the `local` engine talks to leasekeep, the supervisor of one local sandbox. Header-only:
 * leasekeep is static and uses no library of ours.
 *
 * Start: the gateway runs `leasekeep` (no arguments, empty environment, own session, cwd = the
 * session's run directory) with the spec on descriptor KEEP_SPEC_FD: NUL-terminated records
 * "name=value", ended by end of file, KEEP_SPEC_MAX bytes at most. Nothing of it stands in argv
 * or environ: `env` records may hold secrets.
 *
 *   session=UUID         for messages
 *   uid=N gid=N          of the agent; leasekeep drops to them before bwrap when it is root
 *   root=                the host's /usr (the only root filesystem of this engine so far)
 *   box=PATH             host directory bound read-only at /run/leasehold (holds agent.sock)
 *   helper=NAME\tSRC     SRC (leaseinit, demo-agent) bound read-only at /run/leasehold/NAME;
 *                        repeatable
 *   bind=ro|rw\tSRC\tDST repeatable, in order; DST absolute, below an existing or made directory
 *   cwd=PATH             inside the sandbox
 *   env=NAME=VALUE       repeatable
 *   transport=stdio      handed to leaseinit
 *   arg=WORD             repeatable: the agent's command
 *   memory_bytes=N pids=N cpus_milli=N   0 = no limit
 *   grace_ms=N           between SIGTERM and SIGKILL at a stop
 *   beside=tools         what follows is of the second sandbox, of the user's tools (tool_link.h), in the
 *                        same control groups: uid, gid, box, helper, cwd, arg, bind (also with map: rw,
 *                        and what is the agent's looks like the tools' own; also on TOOL_DIR, TOOL_RUNS)
 *                        and own_pids=N, processes of ours that are allowed beside the agent's limit
 *   max_ms=N             the longest life, after which leasekeep stops the sandbox by itself, for a
 *                        gateway that does not come back; 0 = no limit
 *
 * A pipe on descriptor KEEP_NOTIFY_FD, if there is one, gets a byte once keep.state says running. (To
 * watch the file would cost the starter more: the kernel takes 10 ms to close an inotify.)
 *
 * Files leasekeep keeps in the run directory (root's, not visible in the sandbox):
 *   keep.pid   "PID STARTTICKS\n", written before anything else, POSIX-locked for its whole life
 *   keep.state "starting" | "running" | "ended\nREASON CODE SIGNAL\n" — each written by rename;
 *              REASON is exited | signaled | oom | max_ttl | start_failed, then on the next line
 *              a detail
 *   keep.init  "PID STARTTICKS\n" of the sandbox's pid 1 as the host sees it: when that process has
 *              ended, nothing of the sandbox runs any more
 *   keep.groups the directories of its control groups, one a line, each written before it is made;
 *              gone once they are
 *   keep.tools  why there is no sandbox for the user's tools, or no more; one line. While one that was killed
 *              is to be started again, it is not there
 *   keep.log   stderr of leasekeep, bwrap and the agent. At KEEP_LOG_MAX bytes, or KEEP_TIMES_MAX marks, it
 *              becomes keep.log.old, in the place of an older one, and a new one is begun. Each has a
 *              second name, keep.log.N, N counting up from 0, so that a reader sees whether it has missed one
 *   keep.times when what was written to keep.log: a struct keep_mark each; keep.times.old likewise
 *
 * Signals: SIGTERM = stop (TERM to the agent, after grace_ms KILL; a second SIGTERM ends the grace).
 * SIGKILL of leasekeep ends the whole sandbox (die-with-parent). Exit status: 0 once the sandbox has
 * ended and keep.state says how, 1 when it could not start.
 * leasekeep removes the cgroups it made, and its guard (a process beside it) does when leasekeep was
 * killed; when both were, the gateway does it by keep.groups. The gateway removes the run directory.
 *
 * `leasekeep --probe UID GID` runs /usr/bin/true in an empty sandbox with the same isolation: exit
 * status 0, or why not on stderr.
 *
 * `leasekeep --map UID GID UID GID SOURCE TARGET` mounts SOURCE on TARGET, where what is the first ids' on
 * the disk looks like the second ones', and the reverse: exit status 0, or why not on stderr.
 */
#ifndef LEASEHOLD_KEEP_SPEC_H
#define LEASEHOLD_KEEP_SPEC_H

#include <stdint.h>

#define KEEP_SPEC_FD    3
#define KEEP_NOTIFY_FD  4
#define KEEP_SPEC_MAX   (256 * 1024)
#define KEEP_LOG_MAX    (512 * 1024)
#define KEEP_TIMES_MAX  8192
#define KEEP_GROUPS_MAX 4096

#define KEEP_PID_FILE    "keep.pid"
#define KEEP_INIT_FILE   "keep.init"
#define KEEP_STATE_FILE  "keep.state"
#define KEEP_GROUPS_FILE "keep.groups"
#define KEEP_TOOLS_FILE  "keep.tools"
#define KEEP_LOG_FILE    "keep.log"
#define KEEP_TIMES_FILE  "keep.times"
#define KEEP_OLD         ".old"

/* What stands in keep.log from `offset` on was written at `at_ms` (wall clock) or later. */
struct keep_mark {
    int64_t at_ms;
    int64_t offset;
};

/* Inside the sandbox. leaseinit is started as
 *   /run/leasehold/leaseinit TRANSPORT -- COMMAND…      and connects to AGENT_SOCKET. */
#define BOX_DIR      "/run/leasehold"
#define AGENT_SOCKET "/run/leasehold/agent.sock"

#endif
