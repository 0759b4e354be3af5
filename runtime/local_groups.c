/*
 * The last resort for the control groups of a sandbox: both leasekeep and its guard were killed, and
 * nobody else knows of them.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "leasehold/clock.h"
#include "local_keep.h"

#define REMOVE_MS 1000
#define PAUSE_MS  5

static void kill_all(const char *dir)
{
    char path[PATH_MAX];
    int pid;
    FILE *file = keep_path(dir, "cgroup.procs", path, sizeof(path)) == 0 ? fopen(path, "re") : NULL;

    while (file != NULL && fscanf(file, "%d", &pid) == 1)
        if (pid > 0)
            kill(pid, SIGKILL);
    if (file != NULL)
        fclose(file);
}

/* False while something is in it. What we may not remove, no other try will. */
static bool group_remove(const char *dir)
{
    if (rmdir(dir) == 0 || errno != EBUSY)
        return true;
    kill_all(dir);
    return false;
}

/* leasehold-SESSION, where the run directory has the session's name: nothing else is touched. */
static bool is_group_of(const char *dir, const char *run_path)
{
    const char *session = strrchr(run_path, '/');
    const char *name = strrchr(dir, '/');

    return session != NULL && name != NULL && strncmp(name, "/leasehold-", 11) == 0 &&
           strcmp(name + 11, session + 1) == 0;
}

static bool remove_each(char *list, const char *run_path)
{
    bool gone = true;
    char *rest;

    for (char *dir = strtok_r(list, "\n", &rest); dir != NULL; dir = strtok_r(NULL, "\n", &rest))
        gone &= !is_group_of(dir, run_path) || group_remove(dir);
    return gone;
}

bool keep_groups_remove(const char *run_path)
{
    char list[KEEP_GROUPS_MAX], copy[KEEP_GROUPS_MAX];
    int64_t deadline_us = clock_boot_us(&clock_system) + REMOVE_MS * 1000;

    if (keep_file_read(run_path, KEEP_GROUPS_FILE, list, sizeof(list)) < 0)
        return true;
    for (;;) {
        memcpy(copy, list, sizeof(copy));
        if (remove_each(copy, run_path))
            return true;
        if (clock_boot_us(&clock_system) >= deadline_us)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
}
