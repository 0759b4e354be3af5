#include "local_keep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "leasehold/tool_link.h"

/* ---- leasekeep's files ---- */

int keep_path(const char *run_path, const char *name, char *ret, size_t size)
{
    int n = snprintf(ret, size, "%s/%s", run_path, name);
    return n > 0 && (size_t)n < size ? 0 : -1;
}

int keep_file_read(const char *run_path, const char *name, char *ret, size_t size)
{
    char path[PATH_MAX];
    if (keep_path(run_path, name, path, sizeof(path)) < 0)
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, ret, size - 1);
    close(fd);
    if (n < 0)
        return -1;
    ret[n] = '\0';
    return 0;
}

void keep_state_read(const char *run_path, struct keep_state *ret)
{
    char text[512];
    *ret = (struct keep_state){.phase = KEEP_NONE};
    if (keep_file_read(run_path, KEEP_STATE_FILE, text, sizeof(text)) < 0)
        return;
    if (strcmp(text, "starting\n") == 0)
        ret->phase = KEEP_STARTING;
    else if (strcmp(text, "running\n") == 0)
        ret->phase = KEEP_RUNNING;
    else if (sscanf(text, "ended\n%31s %d %d\n%127[^\n]", ret->reason, &ret->code, &ret->signal,
                    ret->detail) >= 3)
        ret->phase = KEEP_ENDED;
}

int keep_pid_read(const char *run_path, const char *name, pid_t *ret_pid, int64_t *ret_start)
{
    char text[64];
    int pid;
    long long start;
    if (keep_file_read(run_path, name, text, sizeof(text)) < 0 ||
        sscanf(text, "%d %lld", &pid, &start) != 2 || pid <= 0)
        return -1;
    *ret_pid = pid;
    *ret_start = start;
    return 0;
}

bool keep_pid_is_locked(const char *run_path, pid_t pid)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_MAX];
    if (keep_path(run_path, KEEP_PID_FILE, path, sizeof(path)) < 0)
        return false;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    int r = fcntl(fd, F_GETLK, &lock);
    close(fd);
    return r == 0 && lock.l_type != F_UNLCK && lock.l_pid == pid;
}

/* ---- the spec ---- */

/* Records go straight into the memory file: their values may be secrets and are not copied. */
struct spec_out {
    int fd;
    size_t len;
    bool failed;
};

#define PARTS_MAX     8
#define TOOL_OWN_PIDS 2 /* bubblewrap and leasetools, beside one for each run */

static void record(struct spec_out *o, const char *const *parts)
{
    struct iovec iov[PARTS_MAX + 1];
    int n = 0;
    size_t len = 1;
    for (; parts[n] != NULL; n++) {
        iov[n] = (struct iovec){(void *)(uintptr_t)parts[n], strlen(parts[n])};
        len += iov[n].iov_len;
    }
    iov[n++] = (struct iovec){(void *)(uintptr_t) "", 1};
    o->len += len;
    if (o->failed || o->len > KEEP_SPEC_MAX || writev(o->fd, iov, n) != (ssize_t)len)
        o->failed = true;
}

#define RECORD(o, ...) record((o), (const char *const[]){__VA_ARGS__, NULL})

static void record_number(struct spec_out *o, const char *name, int64_t n)
{
    char text[32];
    snprintf(text, sizeof(text), "%lld", (long long)n);
    RECORD(o, name, "=", text);
}

/* A tab separates the parts of a record; no path of ours has one. */
static void record_paths(struct spec_out *o, const char *kind, const char *source,
                         const char *target)
{
    if (strchr(source, '\t') != NULL || strchr(target, '\t') != NULL)
        o->failed = true;
    RECORD(o, "bind=", kind, "\t", source, "\t", target);
}

static void record_limits(struct spec_out *o, const struct config_limits *l)
{
    record_number(o, "memory_bytes", l->memory_bytes);
    record_number(o, "pids", l->pids);
    record_number(o, "cpus_milli", (int64_t)(l->cpus * 1000.0 + 0.5));
}

static void record_tools(struct spec_out *o, const struct engine_spec *spec, const char *bin_dir)
{
    const struct engine_tools *t = spec->tools;
    RECORD(o, "beside=tools");
    record_number(o, "uid", t->uid);
    record_number(o, "gid", t->gid);
    RECORD(o, "box=", t->box_path);
    RECORD(o, "helper=" TOOL_RUNNER "\t", bin_dir, "/" TOOL_RUNNER);
    for (size_t i = 0; i < t->binds_n; i++)
        record_paths(o, t->binds[i].writable ? "map" : "ro", t->binds[i].source,
                     t->binds[i].target);
    record_paths(o, "rw", t->socket_path, TOOL_DIR);
    record_paths(o, "rw", t->runs_path, TOOL_RUNS);
    RECORD(o, "cwd=/");
    RECORD(o, "arg=" BOX_DIR "/" TOOL_RUNNER);
    RECORD(o, "arg=chat=", spec->cwd);
    RECORD(o, "arg=tools=", t->tools_path);
    record_number(o, "arg=runs", t->at_once);
    record_number(o, "arg=per_second", t->per_second);
    record_number(o, "arg=timeout_ms", t->timeout_ms);
    record_number(o, "own_pids", TOOL_OWN_PIDS + t->at_once);
}

static void record_all(struct spec_out *o, const struct engine_spec *spec, const char *bin_dir)
{
    static const char *const helpers[] = {"leaseinit", "demo-agent", "lease-artifact", TOOL_CLIENT};
    const struct config_profile *profile = spec->profile;
    char *const *command = profile->command.items;
    RECORD(o, "session=", ID_STR(&spec->session_id));
    record_number(o, "uid", spec->uid);
    record_number(o, "gid", spec->gid);
    RECORD(o, "root=");
    RECORD(o, "box=", spec->box_path);
    for (size_t i = 0; i < sizeof(helpers) / sizeof(helpers[0]); i++)
        RECORD(o, "helper=", helpers[i], "\t", bin_dir, "/", helpers[i]);
    for (size_t i = 0; i < spec->binds_n; i++)
        record_paths(o, spec->binds[i].writable ? "rw" : "ro", spec->binds[i].source,
                     spec->binds[i].target);
    RECORD(o, "cwd=", spec->cwd);
    for (size_t i = 0; i < spec->env_n; i++)
        RECORD(o, "env=", spec->env[i].name, "=", spec->env[i].value);
    RECORD(o, "transport=", profile->transport);
    for (size_t i = 0; i < profile->command.n; i++)
        RECORD(o, "arg=", command[i]);
    record_limits(o, &profile->limits);
    record_number(o, "grace_ms", spec->grace_ms);
    record_number(o, "max_ms", spec->max_ms);
    if (spec->tools != NULL)
        record_tools(o, spec, bin_dir);
}

int keep_spec_open(const struct engine_spec *spec, const char *bin_dir, struct err *e)
{
    const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct spec_out o = {.fd = memfd_create("keep-spec", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (o.fd < 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "no memory file for the spec");
    record_all(&o, spec, bin_dir);
    if (!o.failed && fcntl(o.fd, F_ADD_SEALS, seals) == 0 && lseek(o.fd, 0, SEEK_SET) == 0)
        return o.fd;
    close(o.fd);
    return err_set(e, ERR_SANDBOX_START_FAILED,
                   "command, environment and mounts of the sandbox do not fit %d KiB",
                   KEEP_SPEC_MAX / 1024);
}
