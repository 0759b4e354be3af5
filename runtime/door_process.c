#include "door_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "leasehold/json.h"
#include "leasehold/process.h"

#define STOP_MS 2000

/* The gateway ends it at its max_ttl, in a clean-up round. */
int64_t sandbox_life_s(const struct config_sandbox *cfg)
{
    return cfg->max_ttl_seconds + 2 * cfg->cleanup_interval_seconds;
}

static int spec_fill(const struct sandbox_host *h, const struct sandbox_start *start,
                     struct buf *out)
{
    const struct config *cfg = h->cfg;
    struct door_spec spec = {
        .session_id = start->sandbox->session_id,
        .ep = start->sandbox->generation,
        .secret = (char *)start->secret,
        .issuer = cfg->lease.issuer,
        .node = cfg->app.node,
        .uid = cfg->door.uid,
        .gid = cfg->door.gid,
        /* Without root an agent has our ids, and we could give nothing away. */
        .agent_gid = geteuid() == 0 ? cfg->sandbox.gid : (int64_t)getegid(),
        .leeway_s = cfg->lease.clock_skew_seconds,
        .ttl_max_s = cfg->lease.ttl_max_seconds,
        .stale_s = cfg->lease.stale_after_seconds,
        .seal_s = cfg->lease.seal_after_seconds,
        .cert_pem = (char *)start->cert_pem,
        .key_pem = (char *)start->key_pem,
        .transport = start->profile->transport,
        .origins = cfg->door.origins,
        .record = start->spool_max,
        .life_s = sandbox_life_s(&cfg->sandbox),
    };

    json_encode(door_spec_fields, &spec, out);
    return buf_ok(out) ? 0 : -1;
}

/* The spec as a readable descriptor. It holds the control secret: memory only, never a file with a
 * name. */
static int spec_open(const struct sandbox_host *h, const struct sandbox_start *start, struct err *e)
{
    struct buf b;
    int fd = memfd_create("door-spec", MFD_CLOEXEC);

    buf_init(&b, 4 * DOOR_PEM_MAX);
    if (fd < 0 || spec_fill(h, start, &b) || write(fd, b.data, b.len) != (ssize_t)b.len ||
        lseek(fd, 0, SEEK_SET)) {
        err_sys(e, ERR_SANDBOX_START_FAILED, errno, "write the door's spec");
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    if (b.data)
        explicit_bzero(b.data, b.size);
    buf_done(&b);
    return fd;
}

static int log_open(const char *run_path)
{
    char path[PATH_MAX];

    if ((size_t)snprintf(path, sizeof path, "%s/" DOOR_LOG_FILE, run_path) >= sizeof path)
        return -1;
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

int door_process_start(const struct sandbox_host *h, const struct sandbox_start *start,
                       const char *run_path, int listener_fd, pid_t *ret_pid, int64_t *ret_start,
                       struct err *e)
{
    char program[PATH_MAX];
    const char *argv[] = {"leasedoor", NULL};
    int spec_fd = spec_open(h, start, e), log_fd, rc;

    if (spec_fd < 0)
        return -1;
    snprintf(program, sizeof program, "%s/leasedoor", h->bin_dir);
    log_fd = log_open(run_path);
    rc =
        process_spawn(&(struct process_spawn){.path = program,
                                              .argv = argv,
                                              .cwd = h->cfg->run_dir,
                                              .fds = (int[]){spec_fd, listener_fd, start->spool_fd},
                                              .fds_n = start->spool_max ? 3 : 2,
                                              .stderr_fd = log_fd},
                      ret_pid, ret_start, e);
    close(spec_fd);
    if (log_fd >= 0)
        close(log_fd);
    return rc;
}

/* Whom the pid file names: only a process that still holds the lock on it is believed. */
static int pid_file_owner(const char *run_path, pid_t *ret_pid, int64_t *ret_start)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_MAX];
    int fd, rc;

    if ((size_t)snprintf(path, sizeof path, "%s/" DOOR_PID_FILE, run_path) >= sizeof path)
        return -1;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -1;
    rc = fcntl(fd, F_GETLK, &lock);
    close(fd);
    if (rc || lock.l_type == F_UNLCK || lock.l_pid <= 0)
        return -1;
    *ret_pid = lock.l_pid;
    *ret_start = process_start_ticks(lock.l_pid);
    return *ret_start < 0 ? -1 : 0;
}

int door_process_stop(const char *run_path, pid_t pid, int64_t start, struct err *e)
{
    struct err gone;
    int fd;

    if (!pid && pid_file_owner(run_path, &pid, &start))
        return 0;
    fd = process_open(pid, start, &gone);
    if (fd < 0)
        return gone.code == ERR_NOT_FOUND ? 0 : (*e = gone, -1);
    (void)process_signal(fd, SIGTERM);
    if (!process_wait(fd, STOP_MS)) {
        (void)process_signal(fd, SIGKILL);
        if (!process_wait(fd, STOP_MS)) {
            close(fd);
            return err_set(e, ERR_SANDBOX_STOP_FAILED, "the door (pid %d) does not end", (int)pid);
        }
    }
    close(fd);
    return 0;
}
