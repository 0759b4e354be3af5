#include "use_stats.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/process.h"

#define TEXT_MAX 4096

bool use_is_known(const struct engine_stats *s)
{
    return s->cpu_usage_us >= 0 && s->memory_bytes >= 0 && s->memory_peak_bytes >= 0 &&
           s->pids >= 0;
}

/* --- small files ------------------------------------------------------------------------------- */

static bool text_read(const char *dir, const char *name, char ret[static TEXT_MAX])
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = n > 0 && n < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t len = fd < 0 ? -1 : read(fd, ret, TEXT_MAX - 1);

    if (fd >= 0)
        close(fd);
    if (len < 0)
        return false;
    ret[len] = '\0';
    return true;
}

/* The number behind `key` in the file, or at its start where key is "". -1: there is none. */
static int64_t number_read(const char *dir, const char *name, const char *key)
{
    char text[TEXT_MAX];
    const char *at = text_read(dir, name, text) ? strstr(text, key) : NULL;
    char *end;
    long long n = at ? strtoll(at + strlen(key), &end, 10) : -1;

    return at && end != at + strlen(key) && n >= 0 ? n : -1;
}

/* --- control groups ---------------------------------------------------------------------------- */

static void fill(int64_t *value, int64_t n)
{
    if (*value < 0)
        *value = n;
}

/* No two of these files stand in one group, so each is tried in each. The peak of version 2 is there
 * from kernel 5.19 on. */
static void fill_from_group(const char *dir, struct engine_stats *s)
{
    int64_t usage_ns = number_read(dir, "cpuacct.usage", "");

    fill(&s->cpu_usage_us, usage_ns < 0 ? -1 : usage_ns / 1000);
    fill(&s->cpu_usage_us, number_read(dir, "cpu.stat", "usage_usec "));
    fill(&s->memory_bytes, number_read(dir, "memory.usage_in_bytes", ""));
    fill(&s->memory_bytes, number_read(dir, "memory.current", ""));
    fill(&s->memory_peak_bytes, number_read(dir, "memory.max_usage_in_bytes", ""));
    fill(&s->memory_peak_bytes, number_read(dir, "memory.peak", ""));
    fill(&s->pids, number_read(dir, "pids.current", ""));
}

void use_of_groups(const char *groups, struct engine_stats *s)
{
    while (*groups) {
        size_t len = strcspn(groups, "\n");
        char dir[PATH_MAX];

        if (len > 0 && len < sizeof dir) {
            memcpy(dir, groups, len);
            dir[len] = '\0';
            fill_from_group(dir, s);
        }
        groups += len + (groups[len] == '\n');
    }
}

/* --- processes --------------------------------------------------------------------------------- */

static bool namespace_read(const char *proc, char ret[static 64])
{
    char path[80];
    ssize_t n;

    snprintf(path, sizeof path, "%s/ns/pid", proc);
    n = readlink(path, ret, 63);
    ret[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* utime, stime, cutime and cstime, fields 14 to 17 of stat, behind the name in its last parenthesis: its
 * own time and that of the children it has waited for, with theirs. leaseinit waits for orphans, so the
 * time of what has ended is in the sum of those that live. */
static int64_t cpu_read(const char *proc)
{
    char text[TEXT_MAX];
    const char *at = text_read(proc, "stat", text) ? strrchr(text, ')') : NULL;
    unsigned long long user, kernel;
    long long children_user, children_kernel;

    if (!at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld",
                      &user, &kernel, &children_user, &children_kernel) != 4)
        return 0;
    user += kernel + (unsigned long long)(children_user + children_kernel);
    return (int64_t)(user * 1000000 / (unsigned long long)sysconf(_SC_CLK_TCK));
}

static int64_t kilobytes_read(const char *proc, const char *key)
{
    int64_t n = number_read(proc, "status", key);

    return n < 0 ? 0 : n * 1024;
}

static void add_process(const char *proc, struct engine_stats *sum)
{
    sum->cpu_usage_us += cpu_read(proc);
    sum->memory_bytes += kilobytes_read(proc, "VmRSS:");
    sum->memory_peak_bytes += kilobytes_read(proc, "VmHWM:");
    sum->pids++;
}

static int add_processes(const char *namespace, struct engine_stats *sum, struct err *e)
{
    DIR *d = opendir("/proc");
    struct dirent *entry;
    char proc[sizeof "/proc/" + NAME_MAX], own[64];

    if (!d)
        return err_set(e, ERR_INTERNAL, "/proc cannot be read");
    while ((entry = readdir(d))) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(proc, sizeof proc, "/proc/%s", entry->d_name);
        if (namespace_read(proc, own) && !strcmp(own, namespace))
            add_process(proc, sum);
    }
    closedir(d);
    return 0;
}

int use_of_namespace(pid_t init, int64_t start_ticks, struct engine_stats *s, struct err *e)
{
    struct engine_stats sum = {0};
    char proc[32], namespace[64];
    bool named;

    snprintf(proc, sizeof proc, "/proc/%d", (int)init);
    named = namespace_read(proc, namespace);
    if (process_start_ticks(init) != start_ticks || !named)
        return err_set(e, ERR_SESSION_NOT_RUNNING, "the sandbox has ended");
    if (add_processes(namespace, &sum, e))
        return -1;
    fill(&s->cpu_usage_us, sum.cpu_usage_us);
    fill(&s->memory_bytes, sum.memory_bytes);
    fill(&s->memory_peak_bytes, sum.memory_peak_bytes);
    fill(&s->pids, sum.pids);
    return 0;
}
