/*
 * An engine runs sandboxes: `local` (bubblewrap under leasekeep), or `docker`. The life cycle
 * (runtime/host.c) knows only this vtable.
 *
 * All members may block (each has its deadline) and run on RUNTIME lane threads, different sessions
 * in parallel, one session never twice at once. Nothing here touches the metadata store.
 */
#ifndef LEASEHOLD_ENGINE_H
#define LEASEHOLD_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "leasehold/arena.h"
#include "leasehold/config.h"
#include "leasehold/err.h"
#include "leasehold/id.h"

struct engine_bind {
    const char *source; /* absolute host path, made by us, checked */
    const char *target; /* absolute path in the sandbox */
    bool writable;
};

struct engine_env {
    const char *name, *value;
};

/*
 * A second sandbox beside the agent's, for the user's tools that the agent may run and not read
 * (tool_link.h): with the same limits, gone with the first one. The agent's start does not fail with it:
 * run_path/KEEP_TOOLS_FILE then says why it is not there.
 */
struct engine_tools {
    int64_t uid, gid;
    const char *box_path;            /* seen read-only as /run/leasehold there */
    const char *socket_path;         /* the directory of the socket */
    const char *runs_path;           /* the file of what was run */
    const struct engine_bind *binds; /* writable: with the agent's files as the tools' own */
    size_t binds_n;
    const char *tools_path; /* of them, where they are in both sandboxes */
    int64_t timeout_ms, at_once, per_second;
};

/* What an image says of itself; in the arena of who has asked. */
struct engine_image {
    struct list entrypoint, cmd; /* char * */
    char *working_dir;           /* "": none */
};

/* An image on its way. Its layers and sizes become known while it comes. */
struct engine_pull {
    const char *image;
    int64_t layers, layers_done;
    int64_t bytes, bytes_done;
};

/* Who waits for it; the callbacks come on the waiting thread and may block. */
struct engine_pull_wait {
    void *ctx;
    void (*progress)(void *ctx, const struct engine_pull *p); /* a few times a second */
    void (*layer)(void *ctx, const struct engine_pull *p,
                  const char *layer); /* each that has come */
    const atomic_bool *cancel;        /* seen within a second */
    int64_t timeout_ms;
};

/* What to run. Borrowed for the call. */
struct engine_spec {
    struct id session_id, chat_id;
    int64_t generation;
    int64_t created_at, expires_at; /* ms; the first deadline */
    const char *run_path;           /* run/<session_id>, absolute; the engine may keep files here */
    const char *box_path;           /* run/<session_id>/box: seen read-only as /run/leasehold */
    const struct config_profile *profile;
    const struct engine_image *image; /* of an engine that has images */
    int64_t uid, gid;
    const struct engine_bind *binds;
    size_t binds_n;
    const struct engine_env *env;
    size_t env_n;
    const struct engine_tools *tools; /* NULL: none */
    const char *cwd;
    int64_t grace_ms;
    int64_t max_ms;     /* of the sandbox's life without us, 0: no limit */
    int64_t timeout_ms; /* of the start */
};

struct engine_isolation {
    bool netns, userns, seccomp;
    int64_t uid;
};

/* A sandbox that was started: what the store keeps of it. */
struct engine_handle {
    char container_id[80]; /* `local-<session_id>`, or the engine's own */
    int64_t pid;           /* of the supervisor or the first process; 0: not known (docker) */
    int64_t pid_start;     /* its start time in clock ticks since boot (/proc/PID/stat field 22) */
    struct engine_isolation isolation;
};

/* How it ended; alive = it has not. */
struct engine_status {
    bool alive;
    /* "exited(3)", "oom", "signaled(9)", "max_ttl", "engine_lost", "start_failed" */
    char reason[64];
    char detail[128];
};

/* What it uses now. */
struct engine_stats {
    int64_t cpu_usage_us; /* since its start, of all its processes */
    int64_t memory_bytes, memory_peak_bytes;
    int64_t pids;
};

/* One sandbox of ours as the engine has it, by what it says itself and no row of the store. */
struct engine_seen {
    struct id session_id;
    char container_id[80];
    bool alive;
};

/* What an engine tells by itself, on a thread of its own; the callbacks must not block. */
struct engine_watch {
    void *ctx;
    void (*ended)(void *ctx, const struct id *session_id); /* maybe: look at it */
    void (*changed)(void *ctx); /* it can be asked (again), and much may have been missed: list */
    void (*lost)(void *ctx, const struct err *why); /* once an outage */
};

/* What runs sandboxes here, for an operator. */
#define ENGINE_WARNINGS_MAX 8
struct engine_info {
    char version[80];                        /* "bubblewrap 0.8.0" */
    char warnings[ENGINE_WARNINGS_MAX][160]; /* what should be set up otherwise */
    size_t warnings_n;
};

/* What the agent says on its standard error, read piece by piece. One thread at a time; it may outlive the
 * sandbox, not the engine. */
struct engine_log {
    const struct engine_log_vtable *v;
};

struct engine_log_vtable {
    /* Up to `size` bytes from where the last read has ended; *ret_n = 0: there is no more now. */
    int (*read)(struct engine_log *l, char *data, size_t size, size_t *ret_n, struct err *e);
    void (*free)(struct engine_log *l);
};

/* Where a log is read from: the later of the two. */
struct engine_log_from {
    int64_t since_ms; /* wall clock; up to 100 ms more may come; 0: the oldest that is kept */
    int64_t tail;     /* lines before its present end; -1: all */
};

struct engine;

struct engine_vtable {
    const char *name;

    /* What the profile's image says, and its name in *ret_name. ERR_NOT_FOUND: the engine does not
     * have it, pull gets it. NULL, as `pull`: it has no images. */
    int (*image)(struct engine *g, const struct config_profile *profile, struct arena *arena,
                 struct engine_image *ret, const char **ret_name, struct err *e);

    /* Waits until the image is there. Those who wait for one share its pull, which ends with the last
     * of them. ERR_SANDBOX_START_FAILED; ERR_BUSY: cancelled. */
    int (*pull)(struct engine *g, const char *image, const struct engine_pull_wait *w,
                struct err *e);

    /* Starts and returns when the sandbox's init process runs (not: when the agent is ready). On
     * failure everything it made is gone again. ERR_SANDBOX_START_FAILED says what to do. */
    int (*start)(struct engine *g, const struct engine_spec *spec, struct engine_handle *ret,
                 struct err *e);

    /* Asks the sandbox to end and waits for that as long as the grace: a first half of stop, which then
     * only removes. NULL: they are one. */
    void (*halt)(struct engine *g, const struct engine_handle *h, int64_t grace_ms);

    /* Ends the sandbox: TERM, grace, KILL; returns once nothing of it runs. One that is gone
     * already is a success. ERR_SANDBOX_STOP_FAILED otherwise. */
    int (*stop)(struct engine *g, const char *run_path, const struct engine_handle *h,
                int64_t grace_ms, struct err *e);

    /* Is it alive, and if not, how did it end? Verifies that the pid is still the same process. */
    int (*status)(struct engine *g, const char *run_path, const struct engine_handle *h,
                  struct engine_status *ret, struct err *e);

    /* For recovery when the store has no handle: the handle of what runs out of this run
     * directory. ERR_NOT_FOUND when nothing does. */
    int (*find)(struct engine *g, const char *run_path, struct engine_handle *ret, struct err *e);

    /* Any thread, also while another call of the session runs. ERR_SESSION_NOT_RUNNING: it has
     * ended. */
    int (*stats)(struct engine *g, const char *run_path, const struct engine_handle *h,
                 struct engine_stats *ret, struct err *e);

    /* Any thread. ERR_NOT_FOUND: nothing is kept of this sandbox any more. */
    int (*log_open)(struct engine *g, const char *run_path, const struct engine_handle *h,
                    const struct engine_log_from *from, struct engine_log **ret, struct err *e);

    /* Any thread. ERR_ENGINE_UNAVAILABLE: it does not answer. */
    int (*info)(struct engine *g, struct engine_info *ret, struct err *e);

    /* Calls each for everything of this gateway's that the engine has, running or not; the list is
     * whole or an error. ERR_ENGINE_UNAVAILABLE, ERR_SANDBOX_LIST_FAILED. */
    int (*list)(struct engine *g,
                int (*each)(void *ctx, const struct engine_seen *seen, struct err *e), void *ctx,
                struct err *e);

    /* Begins to tell. At most once; until free. An engine whose sandboxes tell of their end by their
     * pid alone has nothing to tell. */
    int (*watch)(struct engine *g, const struct engine_watch *w, struct err *e);

    /* The end of what the sandbox wrote to its stderr, as text; "": nothing is known. */
    void (*last_words)(struct engine *g, const char *run_path, const struct engine_handle *h,
                       char *ret, size_t size);

    void (*free)(struct engine *g);
};

struct engine {
    const struct engine_vtable *v;
    char weakness[160]; /* what limits it cannot hold as it should here; "": it can */
};

/* Docker Engine, or what speaks its API. Does not ask it: an engine that is away now may come.
 * `bin_dir` must be on the engine's machine under the same path, and cfg outlive the engine. */
int engine_docker_new(const struct config *cfg, const char *bin_dir, struct engine **ret,
                      struct err *e) MUST_CHECK;

/* Are the files of profiles' secrets such that a start could copy them? */
int engine_secrets_check(const struct config *cfg, struct err *e) MUST_CHECK;

/* Are the passwords of docker.registries such that a pull could use them? */
int engine_docker_check(const struct config *cfg, struct err *e) MUST_CHECK;

/* `bin_dir`: where leasekeep, leaseinit and demo-agent stand. Probes once that bubblewrap can run
 * as uid/gid with all we demand; ERR_ENGINE_UNAVAILABLE says what to install or enable. */
int engine_local_new(const struct config *cfg, const char *bin_dir, struct engine **ret,
                     struct err *e) MUST_CHECK;

#endif
