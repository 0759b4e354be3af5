/*
 * Engine `local`: every sandbox is a leasekeep with bubblewrap below it. All state is with the
 * processes and in the run directory, so any number of gateways in a row find the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "leasehold/clock.h"
#include "leasehold/process.h"
#include "local_keep.h"
#include "local_probe.h"
#include "rundir.h"
#include "use_stats.h"

#define KILL_MS 5000 /* for an end that nothing can hold up */

struct engine_local {
    struct engine base;
    char *bin_dir;
    const char *run_dir; /* the configuration's */
    int64_t uid;         /* of the agents */
    char version[80];
};

static int64_t now_ms(void)
{
    return clock_boot_us(&clock_system) / 1000;
}

/* ---- the end ---- */

/* The sandbox's pid 1 is the last of its processes. True once it is gone. */
static bool init_end(const char *run_path)
{
    pid_t pid;
    int64_t start;
    struct err e;
    if (keep_pid_read(run_path, KEEP_INIT_FILE, &pid, &start) < 0)
        return true;
    int fd = process_open(pid, start, &e);
    if (fd < 0)
        return e.code == ERR_NOT_FOUND;
    process_signal(fd, SIGKILL);
    int ended = process_wait(fd, KILL_MS);
    close(fd);
    return ended == 1;
}

/* Without leasekeep its sandbox dies by itself; this waits for that. */
static bool keep_kill(const char *run_path, int fd)
{
    process_signal(fd, SIGKILL);
    return process_wait(fd, KILL_MS) == 1 && init_end(run_path);
}

static bool keep_stop(const char *run_path, int fd, int64_t grace_ms)
{
    process_signal(fd, SIGTERM);
    if (process_wait(fd, grace_ms) == 1)
        return init_end(run_path);
    process_signal(fd, SIGTERM); /* the second one ends the grace */
    if (process_wait(fd, KILL_MS) == 1)
        return init_end(run_path);
    return keep_kill(run_path, fd);
}

static int local_stop(struct engine *g, const char *run_path, const struct engine_handle *h,
                      int64_t grace_ms, struct err *e)
{
    (void)g;
    struct err why;
    int fd = process_open((pid_t)h->pid, h->pid_start, &why);
    bool ended = false;
    if (fd >= 0) {
        ended = keep_stop(run_path, fd, grace_ms);
        close(fd);
    } else if (why.code == ERR_NOT_FOUND) {
        ended = init_end(run_path);
    }
    if (ended && keep_groups_remove(run_path))
        return 0;
    return err_set(e, ERR_SANDBOX_STOP_FAILED, "processes of %s do not end", h->container_id);
}

/* ---- the start ---- */

struct watch {
    int notify_fd; /* gets a byte once the sandbox runs */
    int pid_fd;    /* -1: leasekeep has ended already */
    int64_t deadline_ms;
};

/* Waits for leasekeep's word or end. False: the time is over. */
static bool watch_wait(struct watch *w)
{
    struct pollfd pfd[] = {{.fd = w->notify_fd, .events = POLLIN},
                           {.fd = w->pid_fd, .events = POLLIN}};
    int64_t left = w->deadline_ms - now_ms();
    if (left <= 0)
        return false;
    poll(pfd, 2, left > INT_MAX ? INT_MAX : (int)left);
    if (pfd[0].revents != 0) { /* it says no more */
        close(w->notify_fd);
        w->notify_fd = -1;
    }
    return true;
}

static bool watch_ended(const struct watch *w)
{
    struct pollfd pfd = {.fd = w->pid_fd, .events = POLLIN};
    return w->pid_fd < 0 || poll(&pfd, 1, 0) == 1;
}

static int start_failed(struct err *e, const struct keep_state *st)
{
    return err_set(e, ERR_SANDBOX_START_FAILED, "%s",
                   st->detail[0] != '\0' ? st->detail : "leasekeep ended without a word");
}

static int watch_until_running(const char *run_path, struct watch *w, struct err *e)
{
    for (;;) {
        /* In this order: what leasekeep wrote before its end is not missed. */
        bool ended = watch_ended(w);
        struct keep_state st;
        keep_state_read(run_path, &st);
        if (st.phase == KEEP_RUNNING)
            return 0;
        /* A sandbox that ran and ended is a start; its status tells of the end. */
        if (st.phase == KEEP_ENDED && strcmp(st.reason, "start_failed") != 0)
            return 0;
        if (st.phase == KEEP_ENDED || ended)
            return start_failed(e, &st);
        if (!watch_wait(w))
            return err_set(e, ERR_SANDBOX_START_FAILED, "the sandbox did not start in time");
    }
}

static int keep_spawn(struct engine_local *l, const struct engine_spec *spec, int notify_fd,
                      pid_t *ret_pid, int64_t *ret_start, struct err *e)
{
    char program[PATH_MAX], state[PATH_MAX];
    const char *const argv[] = {"leasekeep", NULL};
    if (keep_path(l->bin_dir, "leasekeep", program, sizeof(program)) < 0 ||
        keep_path(spec->run_path, KEEP_STATE_FILE, state, sizeof(state)) < 0)
        return err_set(e, ERR_SANDBOX_START_FAILED, "the path of the run directory is too long");
    int spec_fd = keep_spec_open(spec, l->bin_dir, e);
    if (spec_fd < 0)
        return -1;
    unlink(state); /* of an earlier try */
    int r = process_spawn(&(struct process_spawn){.path = program,
                                                  .argv = argv,
                                                  .cwd = spec->run_path,
                                                  .fds = (int[]){spec_fd, notify_fd},
                                                  .fds_n = 2,
                                                  .stderr_fd = -1},
                          ret_pid, ret_start, e);
    close(spec_fd);
    if (r < 0)
        e->code = ERR_SANDBOX_START_FAILED;
    return r;
}

static void handle_fill(struct engine_handle *h, const char *session, pid_t pid, int64_t start,
                        int64_t uid)
{
    *h = (struct engine_handle){
        .pid = pid,
        .pid_start = start,
        .isolation = {.netns = true, .userns = true, .seccomp = true, .uid = uid}};
    snprintf(h->container_id, sizeof(h->container_id), "local-%s", session);
}

/* The pidfd of the child just started; -1 in *ret_fd if it has ended. */
static int keep_open(pid_t pid, int64_t start, int *ret_fd, struct err *e)
{
    *ret_fd = process_open(pid, start, e);
    if (*ret_fd >= 0 || e->code == ERR_NOT_FOUND)
        return 0;
    /* Nobody else reaps it, so the pid is still its own. */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    e->code = ERR_SANDBOX_START_FAILED;
    return -1;
}

static int start_and_watch(struct engine_local *l, const struct engine_spec *spec, struct watch *w,
                           int notify_fd, struct engine_handle *ret, struct err *e)
{
    pid_t pid;
    int64_t start;
    int r = keep_spawn(l, spec, notify_fd, &pid, &start, e);
    close(notify_fd);
    if (r < 0 || keep_open(pid, start, &w->pid_fd, e) < 0)
        return -1;
    r = watch_until_running(spec->run_path, w, e);
    if (r < 0 && w->pid_fd >= 0)
        keep_kill(spec->run_path, w->pid_fd);
    if (r < 0)
        keep_groups_remove(spec->run_path);
    if (w->pid_fd >= 0)
        close(w->pid_fd);
    if (r == 0)
        handle_fill(ret, ID_STR(&spec->session_id), pid, start, l->uid);
    return r;
}

static int local_start(struct engine *g, const struct engine_spec *spec, struct engine_handle *ret,
                       struct err *e)
{
    int notify[2];
    if (pipe2(notify, O_CLOEXEC) < 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "no pipe to leasekeep");
    struct watch w = {
        .deadline_ms = now_ms() + spec->timeout_ms, .notify_fd = notify[0], .pid_fd = -1};
    int r = start_and_watch((struct engine_local *)g, spec, &w, notify[1], ret, e);
    if (w.notify_fd >= 0)
        close(w.notify_fd);
    return r;
}

/* ---- questions ---- */

static void describe_end(const struct keep_state *st, struct engine_status *ret)
{
    snprintf(ret->detail, sizeof(ret->detail), "%s", st->detail);
    if (st->phase != KEEP_ENDED)
        snprintf(ret->reason, sizeof(ret->reason), "engine_lost");
    else if (strcmp(st->reason, "exited") == 0)
        snprintf(ret->reason, sizeof(ret->reason), "exited(%d)", st->code);
    else if (strcmp(st->reason, "signaled") == 0)
        snprintf(ret->reason, sizeof(ret->reason), "signaled(%d)", st->signal);
    else
        snprintf(ret->reason, sizeof(ret->reason), "%s", st->reason);
}

static int local_status(struct engine *g, const char *run_path, const struct engine_handle *h,
                        struct engine_status *ret, struct err *e)
{
    (void)g;
    struct engine_status status = {.alive = false};
    struct err why;
    int fd = process_open((pid_t)h->pid, h->pid_start, &why);
    if (fd < 0 && why.code != ERR_NOT_FOUND) {
        *e = why;
        return -1;
    }
    struct keep_state st;
    keep_state_read(run_path, &st);
    status.alive = fd >= 0 && st.phase != KEEP_ENDED;
    if (fd >= 0)
        close(fd);
    if (!status.alive)
        describe_end(&st, &status);
    *ret = status;
    return 0;
}

static int local_stats(struct engine *g, const char *run_path, const struct engine_handle *h,
                       struct engine_stats *ret, struct err *e)
{
    char groups[KEEP_GROUPS_MAX] = "";
    struct engine_stats use = USE_UNKNOWN;
    pid_t init;
    int64_t start;
    (void)g;
    if (process_start_ticks((pid_t)h->pid) != h->pid_start ||
        keep_pid_read(run_path, KEEP_INIT_FILE, &init, &start) < 0)
        return err_set(e, ERR_SESSION_NOT_RUNNING, "the sandbox has ended");
    if (keep_file_read(run_path, KEEP_GROUPS_FILE, groups, sizeof(groups)) == 0)
        use_of_groups(groups, &use);
    if (!use_is_known(&use) && use_of_namespace(init, start, &use, e) < 0)
        return -1;
    *ret = use;
    return 0;
}

static int local_log_open(struct engine *g, const char *run_path, const struct engine_handle *h,
                          const struct engine_log_from *from, struct engine_log **ret,
                          struct err *e)
{
    (void)g;
    (void)h;
    return keep_log_open(run_path, from, ret, e);
}

/* Nobody will be asked to stop it, so what it has left goes here. */
static int not_found(const char *run_path, struct err *e)
{
    if (!keep_groups_remove(run_path))
        return err_set(e, ERR_SANDBOX_STOP_FAILED, "processes of %s do not end", run_path);
    return err_set(e, ERR_NOT_FOUND, "nothing runs out of this run directory");
}

static int local_find(struct engine *g, const char *run_path, struct engine_handle *ret,
                      struct err *e)
{
    struct engine_local *l = (struct engine_local *)g;
    pid_t pid;
    int64_t start;
    const char *session = strrchr(run_path, '/');
    if (keep_pid_read(run_path, KEEP_PID_FILE, &pid, &start) < 0 ||
        process_start_ticks(pid) != start || !keep_pid_is_locked(run_path, pid))
        return not_found(run_path, e);
    handle_fill(ret, session != NULL ? session + 1 : run_path, pid, start, l->uid);
    return 0;
}

struct listing {
    struct engine *g;
    int (*each)(void *ctx, const struct engine_seen *seen, struct err *e);
    void *ctx;
};

static int list_one(void *ctx, const struct id *session_id, struct err *e)
{
    struct listing *l = ctx;
    struct engine_local *local = (struct engine_local *)l->g;
    struct engine_seen seen = {.session_id = *session_id};
    struct engine_handle h;
    struct rundir dir;
    if (rundir_paths(local->run_dir, session_id, &dir, e) < 0)
        return -1;
    if (local_find(l->g, dir.path, &h, e) < 0)
        return e->code == ERR_NOT_FOUND ? 0 : -1;
    memcpy(seen.container_id, h.container_id, sizeof(seen.container_id));
    seen.alive = true;
    return l->each(l->ctx, &seen, e);
}

static int local_list(struct engine *g,
                      int (*each)(void *ctx, const struct engine_seen *seen, struct err *e),
                      void *ctx, struct err *e)
{
    struct listing l = {.g = g, .each = each, .ctx = ctx};
    return rundir_each(((struct engine_local *)g)->run_dir, list_one, &l, e);
}

/* Its sandboxes tell of their end by their pids, and it is always there. */
static int local_watch(struct engine *g, const struct engine_watch *w, struct err *e)
{
    (void)g;
    (void)w;
    (void)e;
    return 0;
}

static void local_last_words(struct engine *g, const char *run_path, const struct engine_handle *h,
                             char *ret, size_t size)
{
    (void)g;
    (void)h;
    rundir_log_tail(run_path, KEEP_LOG_FILE, ret, size);
    if (ret[0] == '\0') /* a new file was begun just now */
        rundir_log_tail(run_path, KEEP_LOG_FILE KEEP_OLD, ret, size);
}

static int local_info(struct engine *g, struct engine_info *ret, struct err *e)
{
    (void)e;
    *ret = (struct engine_info){.warnings_n = 0};
    snprintf(ret->version, sizeof(ret->version), "%s", ((struct engine_local *)g)->version);
    if (g->weakness[0] != '\0')
        snprintf(ret->warnings[ret->warnings_n++], sizeof(ret->warnings[0]), "%s", g->weakness);
    return 0;
}

/* ---- life of the engine ---- */

static void local_free(struct engine *g)
{
    struct engine_local *l = (struct engine_local *)g;
    if (l == NULL)
        return;
    free(l->bin_dir);
    free(l);
}

static const struct engine_vtable local_vtable = {
    .name = "local",
    .start = local_start,
    .stop = local_stop,
    .status = local_status,
    .find = local_find,
    .stats = local_stats,
    .log_open = local_log_open,
    .info = local_info,
    .list = local_list,
    .watch = local_watch,
    .last_words = local_last_words,
    .free = local_free,
};

static void tell_ungrouped(const char *names, struct engine *g)
{
    if (names[0] != '\0')
        snprintf(g->weakness, sizeof(g->weakness),
                 "no control group can be made here for: %s- rlimits stand in for memory (of each "
                 "process) and pids, nothing for cpu",
                 names);
}

int engine_local_new(const struct config *cfg, const char *bin_dir, struct engine **ret,
                     struct err *e)
{
    bool is_root = geteuid() == 0;
    int64_t uid = is_root ? cfg->sandbox.uid : (int64_t)geteuid();
    int64_t gid = is_root ? cfg->sandbox.gid : (int64_t)getegid();
    struct engine_local *l = calloc(1, sizeof(*l));
    char ungrouped[64] = "";
    if (l == NULL)
        return err_set(e, ERR_INTERNAL, "no memory");
    l->base.v = &local_vtable;
    l->uid = uid;
    l->run_dir = cfg->run_dir;
    l->bin_dir = realpath(bin_dir, NULL); /* leasekeep takes no path with a symlink */
    if (l->bin_dir == NULL)
        err_sys(e, ERR_ENGINE_UNAVAILABLE, errno, "the directory of the programs");
    if (l->bin_dir == NULL ||
        local_probe(l->bin_dir, uid, gid, ungrouped, sizeof(ungrouped), e) < 0 ||
        rundir_unmount_left(l->run_dir, e) < 0) {
        local_free(&l->base);
        return -1;
    }
    tell_ungrouped(ungrouped, &l->base);
    local_version(l->version, sizeof(l->version));
    *ret = &l->base;
    return 0;
}
