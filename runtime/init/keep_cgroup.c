/*
 * Limits by control groups, version 1 (a hierarchy a controller) and 2 (one for all). A sandbox
 * gets a group `leasehold-SESSION` below the group we run in, so limits set on us from above hold
 * for it too. Version 2 forbids that while processes stand in our own group; then it becomes our
 * sibling.
 *
 * Limits that this machine does not let us set here are left to rlimits; isolation does not rest on
 * any.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keep.h"

#define PATH_SIZE  KEEP_PATH_SIZE
#define PERIOD_US  UINT64_C(100000)
#define OWN_PIDS   2 /* bwrap and leaseinit: the limit is the agent's */
#define FILE_LINES 1024

const char *const keep_limit_names[LIMITS] = {"memory", "pids", "cpu"};

struct hierarchy {
    bool found;
    bool v2;
    char base[PATH_SIZE]; /* our own group in it */
};

/* ---- small files ---- */

__attribute__((format(printf, 2, 3))) static bool path_make(char ret[static PATH_SIZE],
                                                            const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(ret, PATH_SIZE, fmt, ap);
    va_end(ap);
    return n >= 0 && n < PATH_SIZE;
}

static int write_file(const char *dir, const char *name, const char *text)
{
    char path[PATH_SIZE];
    if (!path_make(path, "%s/%s", dir, name))
        return -1;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t len = strlen(text);
    ssize_t n = write(fd, text, len);
    int why = errno;
    close(fd);
    errno = why;
    return n == (ssize_t)len ? 0 : -1;
}

static int write_number(const char *dir, const char *name, uint64_t n)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
    return write_file(dir, name, text);
}

static bool list_has(const char *list, const char *word, const char *separators)
{
    size_t len = strlen(word);
    for (const char *p = list; *p != '\0'; p += strcspn(p, separators)) {
        p += strspn(p, separators);
        if (strncmp(p, word, len) == 0 && (p[len] == '\0' || strchr(separators, p[len]) != NULL))
            return true;
    }
    return false;
}

static bool file_has(const char *dir, const char *name, const char *word)
{
    char path[PATH_SIZE], text[1024];
    if (!path_make(path, "%s/%s", dir, name))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return list_has(text, word, " \n");
}

/* ---- where we are ---- */

/* A line of /proc/self/cgroup is ID:CONTROLLERS:PATH; version 2 has no controllers. */
static bool own_path(const char *controller, bool v2, char ret[static PATH_SIZE])
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[FILE_LINES];
    bool found = false;
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':');
        char *path = list != NULL ? strchr(list + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        list++;
        if (v2 ? *list == '\0' : list_has(list, controller, ","))
            found = path_make(ret, "%s", path);
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* The base is the mount point plus what our path has beyond the mount's root. */
static bool base_make(const char *root, const char *point, const char *own,
                      char ret[static PATH_SIZE])
{
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(own, root, len) != 0 || (own[len] != '\0' && own[len] != '/'))
        return false;
    const char *rest = own + len;
    return path_make(ret, "%s%s", point, strcmp(rest, "/") == 0 ? "" : rest);
}

/* One line of /proc/self/mountinfo: ID PARENT DEV ROOT POINT OPTIONS … - TYPE SOURCE SUPER. */
static void match_mount(char *line, const char *controller, struct hierarchy *h)
{
    char root[PATH_SIZE], point[PATH_SIZE], type[32], super[PATH_SIZE], own[PATH_SIZE];
    char *tail = strstr(line, " - ");
    if (tail == NULL || sscanf(line, "%*s %*s %*s %511s %511s", root, point) != 2 ||
        sscanf(tail, " - %31s %*s %511s", type, super) != 2)
        return;
    bool v1 = strcmp(type, "cgroup") == 0 && list_has(super, controller, ",");
    bool v2 = strcmp(type, "cgroup2") == 0 && !h->found;
    if (!v1 && !v2)
        return;
    struct hierarchy candidate = {.found = true, .v2 = v2};
    if (own_path(controller, v2, own) && base_make(root, point, own, candidate.base))
        *h = candidate;
}

/* A controller that version 1 holds is not in version 2. */
static struct hierarchy find_hierarchy(const char *controller)
{
    struct hierarchy h = {.found = false};
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[4096];
    while (file != NULL && (!h.found || h.v2) && fgets(line, sizeof(line), file) != NULL)
        match_mount(line, controller, &h);
    if (file != NULL)
        fclose(file);
    return h;
}

/* ---- one group ---- */

static int make_dir(const char *dir)
{
    if (mkdir(dir, 0755) == 0)
        return 0;
    /* One left over by a machine that lost its leasekeep and its guard is empty. */
    return errno == EEXIST && rmdir(dir) == 0 ? mkdir(dir, 0755) : -1;
}

/* Version 2: below our group if the controller can be handed down there, else beside it. */
static bool parent_offers(const char *parent, const char *controller)
{
    char enable[32];
    snprintf(enable, sizeof(enable), "+%s", controller);
    return file_has(parent, "cgroup.controllers", controller) &&
           (file_has(parent, "cgroup.subtree_control", controller) ||
            write_file(parent, "cgroup.subtree_control", enable) == 0);
}

/* Decided once: a process is in one group of version 2, so all its limits must be there. */
static bool v2_parent(struct keep_cgroups *c, const char *own, const char *controller)
{
    if (c->v2_parent[0] != '\0')
        return parent_offers(c->v2_parent, controller);
    if (!path_make(c->v2_parent, "%s", own))
        return false;
    if (parent_offers(c->v2_parent, controller))
        return true;
    char *slash = strrchr(c->v2_parent, '/');
    if (slash != NULL)
        *slash = '\0';
    if (slash != NULL && parent_offers(c->v2_parent, controller))
        return true;
    c->v2_parent[0] = '\0';
    return false;
}

static int group_find(const struct keep_cgroups *c, const char *dir)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->group[i].dir, dir) == 0)
            return (int)i;
    return -1;
}

/* Makes the group, or finds it when controllers share a hierarchy. */
static const char *group_get(struct keep_cgroups *c, struct keep_guard *g, const char *parent,
                             const char *session)
{
    char dir[PATH_SIZE], procs[PATH_SIZE];
    if (!path_make(dir, "%s/leasehold-%s", parent, session) ||
        !path_make(procs, "%s/cgroup.procs", dir))
        return NULL;
    int known = group_find(c, dir);
    if (known >= 0)
        return c->group[known].dir;
    if (c->n == KEEP_CGROUPS_MAX || guard_tell(g, dir) < 0 || make_dir(dir) < 0)
        return NULL;
    int fd = open(procs, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    memcpy(c->group[c->n].dir, dir, sizeof(dir));
    c->group[c->n].procs_fd = fd;
    return c->group[c->n++].dir;
}

static int set_memory(struct keep_cgroups *c, const char *dir, bool v2, uint64_t bytes)
{
    char path[PATH_SIZE];
    if (!path_make(path, "%s/%s", dir, v2 ? "memory.events" : "memory.oom_control"))
        return -1;
    c->oom_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (v2) {
        /* There is no swap file without swap support; then there is nothing to limit. */
        write_file(dir, "memory.swap.max", "0");
        return write_number(dir, "memory.max", bytes);
    }
    if (write_number(dir, "memory.limit_in_bytes", bytes) < 0)
        return -1;
    /* Memory and swap together. */
    return write_number(dir, "memory.memsw.limit_in_bytes", bytes) < 0 && errno != ENOENT ? -1 : 0;
}

static int set_cpu(const char *dir, bool v2, uint64_t milli)
{
    uint64_t quota_us = milli * PERIOD_US / 1000;
    if (quota_us < 1000)
        quota_us = 1000;
    if (v2) {
        char text[64];
        snprintf(text, sizeof(text), "%llu %llu", (unsigned long long)quota_us,
                 (unsigned long long)PERIOD_US);
        return write_file(dir, "cpu.max", text);
    }
    return write_number(dir, "cpu.cfs_period_us", PERIOD_US) == 0 &&
                   write_number(dir, "cpu.cfs_quota_us", quota_us) == 0
               ? 0
               : -1;
}

static int limit_set(struct keep_cgroups *c, struct keep_guard *g, const struct keep_spec *s,
                     enum keep_limit which)
{
    struct hierarchy h = find_hierarchy(keep_limit_names[which]);
    if (!h.found || (h.v2 && !v2_parent(c, h.base, keep_limit_names[which])))
        return -1;
    const char *dir = group_get(c, g, h.v2 ? c->v2_parent : h.base, s->session);
    if (dir == NULL)
        return -1;
    switch (which) {
    case LIMIT_MEMORY:
        return set_memory(c, dir, h.v2, s->memory_bytes);
    case LIMIT_PIDS:
        return write_number(dir, "pids.max",
                            s->pids + OWN_PIDS + (s->beside != NULL ? s->beside->own_pids : 0));
    case LIMIT_CPU:
        return set_cpu(dir, h.v2, s->cpus_milli);
    case LIMITS:
        break;
    }
    return -1;
}

void cgroups_make(struct keep_cgroups *c, struct keep_guard *g, const struct keep_spec *s)
{
    const uint64_t wanted[LIMITS] = {s->memory_bytes, s->pids, s->cpus_milli};
    for (enum keep_limit i = 0; i < LIMITS; i++)
        c->missing[i] = wanted[i] != 0 && limit_set(c, g, s, i) < 0;
}

int cgroups_join(const struct keep_cgroups *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (write(c->group[i].procs_fd, "0", 1) != 1)
            return -1;
    return 0;
}

bool cgroups_oom_killed(const struct keep_cgroups *c)
{
    char text[1024];
    ssize_t n = c->oom_fd >= 0 ? pread(c->oom_fd, text, sizeof(text) - 1, 0) : 0;
    text[n > 0 ? n : 0] = '\0';
    const char *p = strstr(text, "oom_kill ");
    return p != NULL && strtoll(p + strlen("oom_kill "), NULL, 10) > 0;
}
