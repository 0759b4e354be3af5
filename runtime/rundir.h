/*
 * run/<session_id>/: what belongs to one sandbox while it lives. Ours alone (0700) but for box/,
 * which the sandbox sees read-only.
 */
#ifndef RUNTIME_RUNDIR_H
#define RUNTIME_RUNDIR_H

#include <limits.h>
#include <stdbool.h>

#include "leasehold/err.h"
#include "leasehold/id.h"

struct rundir {
    char path[PATH_MAX];
    char box[PATH_MAX];       /* what the agent sees of it */
    char tools_box[PATH_MAX]; /* what the user's tools see of it, if there are any */
    char tools_socket[PATH_MAX];
    char tools_links[PATH_MAX]; /* what the agent sees as the directory of tools */
};

/* Fills the paths; touches nothing. */
int rundir_paths(const char *run_dir, const struct id *session_id, struct rundir *ret,
                 struct err *e) MUST_CHECK;

int rundir_make(const struct rundir *r, struct err *e) MUST_CHECK;

/* Removes it with everything in it, following no symlink and crossing no mount. Absent: success. */
int rundir_remove(const struct rundir *r, struct err *e) MUST_CHECK;

/* The end of one of its logs as text, "" when there is none: for the gateway's log. */
void rundir_log_tail(const char *path, const char *name, char *ret, size_t size);

/* Calls each for every session that has a run directory. */
int rundir_each(const char *run_dir,
                int (*each)(void *ctx, const struct id *session_id, struct err *e), void *ctx,
                struct err *e) MUST_CHECK;

/* A mount, while a container of tools starts (docker_tools.c). */
#define RUNDIR_TOOLS_CHAT "tools-chat"

/* Whoever has that mount open, or one made of it, keeps it. */
void rundir_tools_chat_unmount(const char *path);

/* At a gateway's start: takes away the mounts of starts that their gateway did not live to end. */
int rundir_unmount_left(const char *run_dir, struct err *e) MUST_CHECK;

#endif
