/* Starting and stopping one sandbox on this machine. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "door_process.h"
#include "host_binds.h"
#include "leasehold/clock.h"
#include "leasehold/process.h"
#include "leasehold/sandbox_host.h"
#include "leasehold/keep_spec.h"
#include "listener.h"
#include "rundir.h"
#include "secrets.h"
#include "tools_box.h"

/* --- last words ------------------------------------------------------------------------------ */

#define LAST_WORDS 512

/* The run directory goes with the sandbox, so what its logs say of the cause is told before. */
struct last_words {
    char engine[LAST_WORDS], door[LAST_WORDS];
};

static void last_words_read(struct sandbox_host *h, const char *run_path,
                            const struct engine_handle *handle, struct last_words *ret)
{
    h->engine->v->last_words(h->engine, run_path, handle, ret->engine, sizeof ret->engine);
    rundir_log_tail(run_path, DOOR_LOG_FILE, ret->door, sizeof ret->door);
}

#define LF_LAST_WORDS(w) LF_STR("keep_log", (w)->engine), LF_STR("door_log", (w)->door)

/* --- start: a table of steps, undone newest first -------------------------------------------- */

struct start {
    struct sandbox_host *h;
    const struct sandbox_start *in;
    struct sandbox s; /* what will be answered */
    struct rundir dir;
    int listener_fd;
    int64_t deadline_us; /* of all steps together */
    struct engine_handle handle;
};

static int64_t left_ms(const struct start *st)
{
    return (st->deadline_us - clock_boot_us(&clock_system)) / 1000;
}

static int step_rundir(struct start *st, struct err *e)
{
    return rundir_make(&st->dir, e);
}

static void undo_rundir(struct start *st)
{
    struct err e;

    if (rundir_remove(&st->dir, &e))
        log_error(st->h->log, "rundir_remove_failed", &e, LF_ID("session_id", &st->s.session_id));
}

static int step_listener(struct start *st, struct err *e)
{
    const struct config_door *door = &st->h->cfg->door;

    st->listener_fd = listener_bind(door->host, door->port_range, &st->s.door_port, e);
    return st->listener_fd < 0 ? -1 : 0;
}

static void undo_listener(struct start *st)
{
    if (st->listener_fd >= 0)
        close(st->listener_fd);
    st->listener_fd = -1;
}

static int step_door(struct start *st, struct err *e)
{
    pid_t pid;

    if (door_process_start(st->h, st->in, st->dir.path, st->listener_fd, &pid, &st->s.door_start,
                           e))
        return -1;
    st->s.door_pid = pid;
    undo_listener(st); /* the door's now: when it dies, the port must refuse */
    return 0;
}

static void undo_door(struct start *st)
{
    struct err e;

    if (door_process_stop(st->dir.path, (pid_t)st->s.door_pid, st->s.door_start, &e))
        log_error(st->h->log, "door_stop_failed", &e, LF_ID("session_id", &st->s.session_id));
}

static void undo_engine(struct start *st)
{
    struct err e;

    if (st->h->engine->v->stop(st->h->engine, st->dir.path, &st->handle, 0, &e))
        log_error(st->h->log, "sandbox_stop_failed", &e, LF_ID("session_id", &st->s.session_id));
}

static int64_t agent_uid(const struct config_sandbox *cfg)
{
    return geteuid() == 0 ? cfg->uid : (int64_t)geteuid();
}

static int64_t agent_gid(const struct config_sandbox *cfg)
{
    return geteuid() == 0 ? cfg->gid : (int64_t)getegid();
}

/* They go with the run directory. */
static int step_secrets(struct start *st, struct err *e)
{
    const struct config_sandbox *cfg = &st->h->cfg->sandbox;

    return secrets_put(st->dir.box, st->in->profile, (uid_t)agent_uid(cfg), (gid_t)agent_gid(cfg),
                       e);
}

static bool has_tools(const struct start *st)
{
    return st->in->tool_runs_path && geteuid() == 0;
}

static int step_tools(struct start *st, struct err *e)
{
    const struct config_sandbox *cfg = &st->h->cfg->sandbox;

    if (!has_tools(st))
        return 0;
    return tools_box_make(&st->dir, st->in->tool_runs_path, cfg->user_tools_uid,
                          cfg->user_tools_gid, e) ||
                   tools_links_make(&st->dir, st->in->tools, st->in->tools_n,
                                    cfg->user_tools_mount_path, e)
               ? -1
               : 0;
}

static int engine_start(struct start *st, struct host_binds *b, struct err *e)
{
    const struct config_sandbox *cfg = &st->h->cfg->sandbox;
    struct engine_spec spec = {
        .session_id = st->s.session_id,
        .chat_id = st->s.chat_id,
        .generation = st->s.generation,
        .created_at = st->s.created_at,
        .expires_at = st->s.expires_at,
        .run_path = st->dir.path,
        .box_path = st->dir.box,
        .profile = st->in->profile,
        .image = st->in->image,
        .uid = agent_uid(cfg),
        .gid = agent_gid(cfg),
        .binds = b->binds,
        .binds_n = b->binds_n,
        .env = st->in->env,
        .env_n = st->in->env_n,
        .tools = has_tools(st) ? &b->tools : NULL,
        .cwd = cfg->chat_mount_path,
        .grace_ms = 10000,
        .max_ms = sandbox_life_s(cfg) * 1000,
        .timeout_ms = left_ms(st),
    };

    if (st->h->engine->v->start(st->h->engine, &spec, &st->handle, e))
        return -1;
    if (st->handle.container_id[0])
        return 0;
    undo_engine(st);
    return err_set(e, ERR_SANDBOX_START_FAILED, "the engine gave no container id");
}

static int step_engine(struct start *st, struct err *e)
{
    struct host_binds *b = calloc(1, sizeof *b);
    int rc;

    if (!b)
        return err_set(e, ERR_INTERNAL, "no memory for a start");
    rc = host_binds_fill(b, st->h, st->in, has_tools(st) ? &st->dir : NULL, e) ||
                 engine_start(st, b, e)
             ? -1
             : 0;
    free(b);
    return rc;
}

/* The time is over: what was waited for, as far as the profile says it. */
static int not_ready(const struct start *st, struct err *e)
{
    const char *transport = st->in->profile->transport;

    if (strcmp(transport, "stdio") == 0)
        return -1;
    return err_set(e, ERR_SANDBOX_START_FAILED,
                   "the agent does not accept connections on %s within the start timeout",
                   transport);
}

/* Between two looks whether the sandbox still lives while we wait for its agent. */
#define READY_SLICE_MS 250

static const char *last_line(const char *words)
{
    const char *line = strrchr(words, '\n');

    return line ? line + 1 : words;
}

static int door_failed(const struct start *st, struct err *e)
{
    char words[LAST_WORDS];

    rundir_log_tail(st->dir.path, DOOR_LOG_FILE, words, sizeof words);
    return err_set(e, ERR_SANDBOX_START_FAILED, "the door did not start: %s",
                   words[0] ? last_line(words) : "it left no word");
}

/* Of the agent's own words nothing is told to callers, of leaseinit's the reason. */
static int agent_failed(const struct start *st, const struct engine_status *status, struct err *e)
{
    struct engine *g = st->h->engine;
    char words[LAST_WORDS];
    const char *why = status->detail;

    if (!why[0]) {
        g->v->last_words(g, st->dir.path, &st->handle, words, sizeof words);
        why = strncmp(last_line(words), "leaseinit: ", 11) ? "" : last_line(words) + 11;
    }
    return err_set(e, ERR_SANDBOX_START_FAILED, "the agent ended at once: %s%s%s", status->reason,
                   why[0] ? ": " : "", why);
}

/* Ready, or why it never will be. The door first: without it no agent can come up. */
static int step_ready(struct start *st, struct err *e)
{
    struct engine *g = st->h->engine;
    struct engine_status status;
    struct err ignored;

    for (;;) {
        if (!st->h->wait_ready(st->h->wait_ctx, &st->s.session_id, READY_SLICE_MS, e))
            return 0;
        if (e->code == ERR_BUSY)
            return -1;
        if (process_start_ticks((pid_t)st->s.door_pid) != st->s.door_start)
            return door_failed(st, e);
        if (left_ms(st) <= 0)
            return not_ready(st, e);
        if (!g->v->status(g, st->dir.path, &st->handle, &status, &ignored) && !status.alive)
            return agent_failed(st, &status, e);
    }
}

/* A session without them is better than none; they are told, and lease-tool says so to the agent. */
static int step_tools_take(struct start *st, struct err *e)
{
    struct err why;

    (void)e;
    if (has_tools(st) && tools_box_take(&st->dir, st->in->tool_runs_path, &why))
        log_error(st->h->log, "user_tools_unavailable", &why,
                  LF_ID("session_id", &st->s.session_id));
    return 0;
}

static const struct step {
    const char *name;
    int (*run)(struct start *st, struct err *e);
    void (*undo)(struct start *st);
} steps[] = {
    {"run directory", step_rundir, undo_rundir},
    {"listener", step_listener, undo_listener},
    {"door", step_door, undo_door},
    {"secrets", step_secrets, NULL},
    {"tools", step_tools, NULL},
    {"engine", step_engine, undo_engine},
    {"ready", step_ready, NULL},
    {"tools ready", step_tools_take, NULL},
};

#define STEPS (sizeof steps / sizeof *steps)

static void undo_from(struct start *st, size_t failed)
{
    for (size_t i = failed; i-- > 0;)
        if (steps[i].undo)
            steps[i].undo(st);
}

static void start_failed(struct start *st, size_t step, struct err *e)
{
    struct last_words words;

    last_words_read(st->h, st->dir.path, &st->handle, &words);
    log_error(st->h->log, "sandbox_start_failed", e, LF_ID("session_id", &st->s.session_id),
              LF_STR("step", steps[step].name), LF_LAST_WORDS(&words));
    undo_from(st, step);
    e->code = ERR_SANDBOX_START_FAILED;
}

static void start_answer(const struct start *st, struct sandbox *ret)
{
    *ret = st->s;
    snprintf(ret->container_id, sizeof ret->container_id, "%s", st->handle.container_id);
    snprintf(ret->engine, sizeof ret->engine, "%s", st->h->engine->v->name);
    ret->keep_pid = st->handle.pid;
    ret->keep_start = st->handle.pid_start;
    ret->uid = st->handle.isolation.uid;
    ret->netns = st->handle.isolation.netns;
    ret->userns = st->handle.isolation.userns;
    ret->seccomp = st->handle.isolation.seccomp;
}

int sandbox_host_image(struct sandbox_host *h, const struct config_profile *profile,
                       struct arena *arena, struct engine_image *ret, const char **ret_name,
                       struct err *e)
{
    *ret = (struct engine_image){.working_dir = (char *)""};
    *ret_name = "";
    return h->engine->v->image ? h->engine->v->image(h->engine, profile, arena, ret, ret_name, e)
                               : 0;
}

int sandbox_host_pull(struct sandbox_host *h, const char *image, const struct engine_pull_wait *w,
                      struct err *e)
{
    return h->engine->v->pull(h->engine, image, w, e);
}

int sandbox_host_start(struct sandbox_host *h, const struct sandbox_start *in, struct sandbox *ret,
                       struct err *e)
{
    struct start st = {.h = h, .in = in, .s = *in->sandbox, .listener_fd = -1};

    st.deadline_us = clock_boot_us(&clock_system) + h->cfg->sandbox.start_timeout_seconds * 1000000;

    if (rundir_paths(h->cfg->run_dir, &st.s.session_id, &st.dir, e))
        return -1;
    for (size_t i = 0; i < STEPS; i++) {
        if (!steps[i].run(&st, e))
            continue;
        start_failed(&st, i, e);
        return -1;
    }
    start_answer(&st, ret);
    return 0;
}

/* --- stop, status, sweep --------------------------------------------------------------------- */

static void handle_of(const struct sandbox *s, struct engine_handle *ret)
{
    *ret = (struct engine_handle){.pid = s->keep_pid, .pid_start = s->keep_start};
    snprintf(ret->container_id, sizeof ret->container_id, "%s", s->container_id);
}

/* Tells of one that ended by itself, while it still can be asked how. */
static void tell_end(struct sandbox_host *h, const struct sandbox *s, const char *run_path)
{
    struct engine_status status;
    struct engine_handle handle;
    struct last_words words;
    struct err ignored;
    bool well;

    if (!s->container_id[0] || sandbox_host_status(h, s, &status, &ignored) || status.alive)
        return;
    well = strcmp(status.reason, "exited(0)") == 0;
    handle_of(s, &handle);
    last_words_read(h, run_path, &handle, &words);
    log_event(h->log, well ? LOG_INFO : LOG_WARNING, "sandbox_ended",
              LF_ID("session_id", &s->session_id), LF_STR("reason", status.reason),
              LF_STR("detail", status.detail), LF_LAST_WORDS(&words));
}

static int end_door(const struct sandbox *s, const struct rundir *dir,
                    const struct sandbox_door_gone *gone, struct err *e)
{
    if (door_process_stop(dir->path, (pid_t)s->door_pid, s->door_start, e))
        return -1;
    if (gone)
        gone->fn(gone->ctx);
    return 0;
}

/* A removal takes most of an end; where it is apart from it, the door ends before it, and what follows
 * from that goes on beside it. The agent has the door for as long as its grace. */
static int end_both(struct sandbox_host *h, const struct sandbox *s, const struct rundir *dir,
                    const struct engine_handle *handle, int64_t grace_ms,
                    const struct sandbox_door_gone *gone, struct err *e)
{
    struct engine *g = h->engine;
    struct err why;
    int rc;

    if (!g->v->halt)
        return g->v->stop(g, dir->path, handle, grace_ms, e) || end_door(s, dir, gone, e) ? -1 : 0;
    if (grace_ms > 0)
        g->v->halt(g, handle, grace_ms);
    rc = end_door(s, dir, gone, &why);
    if (g->v->stop(g, dir->path, handle, 0, e))
        return -1;
    return rc ? (*e = why, -1) : 0;
}

int sandbox_host_stop(struct sandbox_host *h, const struct sandbox *s, int64_t grace_ms,
                      const struct sandbox_door_gone *gone, struct err *e)
{
    struct engine_handle handle;
    struct rundir dir;
    struct err why;
    bool found;

    if (rundir_paths(h->cfg->run_dir, &s->session_id, &dir, e))
        return -1;
    tell_end(h, s, dir.path);
    handle_of(s, &handle);
    found = handle.pid || !h->engine->v->find(h->engine, dir.path, &handle, &why);
    if (!found && why.code != ERR_NOT_FOUND)
        return *e = why, -1;
    if (found ? end_both(h, s, &dir, &handle, grace_ms, gone, e) : end_door(s, &dir, gone, e))
        return -1;
    return rundir_remove(&dir, e);
}

int sandbox_host_status(struct sandbox_host *h, const struct sandbox *s, struct engine_status *ret,
                        struct err *e)
{
    struct engine_handle handle;
    struct rundir dir;
    bool door_dead;

    if (rundir_paths(h->cfg->run_dir, &s->session_id, &dir, e))
        return -1;
    handle_of(s, &handle);
    if (h->engine->v->status(h->engine, dir.path, &handle, ret, e))
        return -1;
    door_dead = !process_is_there((pid_t)s->door_pid, s->door_start);
    /* An agent that loses its door is ended and reports an exit of its own; a door outlives its
     * agent. So of two dead the door was the first, unless the machine took both. */
    if (door_dead && strcmp(ret->reason, "engine_lost") != 0) {
        *ret = (struct engine_status){.alive = false};
        snprintf(ret->reason, sizeof ret->reason, "door_lost");
    }
    return 0;
}

int sandbox_host_stats(struct sandbox_host *h, const struct sandbox *s, struct engine_stats *ret,
                       struct err *e)
{
    struct engine_handle handle;
    struct rundir dir;

    if (rundir_paths(h->cfg->run_dir, &s->session_id, &dir, e))
        return -1;
    handle_of(s, &handle);
    return h->engine->v->stats(h->engine, dir.path, &handle, ret, e);
}

int sandbox_host_log(struct sandbox_host *h, const struct sandbox *s,
                     const struct engine_log_from *from, struct engine_log **ret, struct err *e)
{
    struct engine_handle handle;
    struct rundir dir;

    if (rundir_paths(h->cfg->run_dir, &s->session_id, &dir, e))
        return -1;
    handle_of(s, &handle);
    return h->engine->v->log_open(h->engine, dir.path, &handle, from, ret, e);
}

int sandbox_host_list(struct sandbox_host *h,
                      int (*each)(void *ctx, const struct engine_seen *seen, struct err *e),
                      void *ctx, struct err *e)
{
    if (!h->engine->v->list(h->engine, each, ctx, e))
        return 0;
    e->code = ERR_SANDBOX_LIST_FAILED;
    return -1;
}

struct sweep {
    struct sandbox_host *h;
    const struct sandbox_sweep *o;
    int n;
};

static int sweep_one(void *ctx, const struct id *session_id, struct err *e)
{
    struct sweep *w = ctx;
    struct sandbox s = {.session_id = *session_id};
    int rc;

    if (w->o->known(w->o->ctx, session_id))
        return 0;
    rc = sandbox_host_stop(w->h, &s, 0, NULL, e); /* the next sweep tries again */
    w->o->swept(w->o->ctx, session_id, rc ? e : NULL);
    w->n += !rc;
    return 0;
}

int sandbox_host_sweep(struct sandbox_host *h, const struct sandbox_sweep *sweep, struct err *e)
{
    struct sweep w = {.h = h, .o = sweep};

    return rundir_each(h->cfg->run_dir, sweep_one, &w, e) ? -1 : w.n;
}

void sandbox_host_url(const struct config *cfg, const struct sandbox *s, char *ret, size_t size)
{
    const char *host = cfg->door.public_host[0] ? cfg->door.public_host : cfg->door.host;
    bool v6 = strchr(host, ':') != NULL;

    snprintf(ret, size, "%s://%s%s%s:%lld/", s->door_cert_sha256[0] ? "wss" : "ws", v6 ? "[" : "",
             host, v6 ? "]" : "", (long long)s->door_port);
}
