/*
 * One sandbox as a thing of the machine: run directory, the door's listener, the door, the engine's
 * sandbox. Starting is a table of steps with undo; stopping takes apart whatever is there. Knows
 * nothing of the metadata store and of leases.
 *
 * Blocks (each call has its deadline): RUNTIME lane threads. Different sessions in parallel, one
 * session never twice at once.
 */
#ifndef LEASEHOLD_SANDBOX_HOST_H
#define LEASEHOLD_SANDBOX_HOST_H

#include "leasehold/config.h"
#include "leasehold/door_proto.h"
#include "leasehold/engine.h"
#include "leasehold/log.h"
#include "leasehold/model.h"

struct sandbox_host {
    const struct config *cfg;
    struct log *log;
    struct engine *engine;
    const char *bin_dir; /* leasedoor stands here */

    /* Waits until the door of the session is live and its agent is up; called by start. ERR_BUSY:
     * there is no use in waiting on. */
    int (*wait_ready)(void *ctx, const struct id *session_id, int64_t timeout_ms, struct err *e);
    void *wait_ctx;
};

struct sandbox_tool {
    char *name;
    bool brokered; /* the agent may run it and not read it, so it is run elsewhere */
};

struct sandbox_start {
    const struct sandbox *sandbox; /* its ids and generation */
    const struct config_profile *profile;
    const struct engine_image *image; /* sandbox_host_image */
    const char *files_path;           /* of the chat, checked (chatdir.h) */
    const char *history_md_path;
    const char *tools_path; /* of the user, checked (usertools.h) */
    const struct sandbox_tool *tools;
    size_t tools_n;
    const char
        *tool_runs_path; /* where runs of brokered ones are recorded; NULL: they are not run */
    const char *secret;  /* of the control connection, DOOR_SECRET_TEXT */
    const char *cert_pem, *key_pem; /* of the door's TLS; NULL: plain */
    int spool_fd;                   /* of the history (spool.h), borrowed */
    int64_t spool_max;              /* bytes of it that may wait; 0: nothing is recorded */
    const struct engine_env *env;   /* of the agent, beside what every sandbox has */
    size_t env_n;
};

/* What a start needs of the profile's image: engine.h, also for its errors. An engine without images
 * has nothing to say. *ret_name is of the configuration. */
int sandbox_host_image(struct sandbox_host *h, const struct config_profile *profile,
                       struct arena *arena, struct engine_image *ret, const char **ret_name,
                       struct err *e) MUST_CHECK;
int sandbox_host_pull(struct sandbox_host *h, const char *image, const struct engine_pull_wait *w,
                      struct err *e) MUST_CHECK;

/* Starts door and sandbox and waits until the agent can be talked to. Fills the process identity,
 * door_port, container_id, uid and isolation of *ret (a copy of start->sandbox). On failure nothing
 * is left: ERR_SANDBOX_START_FAILED. */
int sandbox_host_start(struct sandbox_host *h, const struct sandbox_start *start,
                       struct sandbox *ret, struct err *e) MUST_CHECK;

/* Told, where the engine allows it, while the sandbox is still on its way out: its door has ended, so
 * nothing more is said through it. On the calling thread. */
struct sandbox_door_gone {
    void *ctx;
    void (*fn)(void *ctx);
};

/* Ends sandbox and door and removes the run directory. Nothing there is a success.
 * ERR_SANDBOX_STOP_FAILED: what is left is still named by the row; call again. `gone` may be
 * NULL. */
int sandbox_host_stop(struct sandbox_host *h, const struct sandbox *s, int64_t grace_ms,
                      const struct sandbox_door_gone *gone, struct err *e) MUST_CHECK;

/* Are door and sandbox alive? If not, ret->reason says which ended how ("door_lost",
 * "exited(3)" …). */
int sandbox_host_status(struct sandbox_host *h, const struct sandbox *s, struct engine_status *ret,
                        struct err *e) MUST_CHECK;

/* What the sandbox uses. Any thread. ERR_SESSION_NOT_RUNNING: it has ended. */
int sandbox_host_stats(struct sandbox_host *h, const struct sandbox *s, struct engine_stats *ret,
                       struct err *e) MUST_CHECK;

/* Its log: engine.h. Any thread. ERR_NOT_FOUND: the session's run directory is gone. */
int sandbox_host_log(struct sandbox_host *h, const struct sandbox *s,
                     const struct engine_log_from *from, struct engine_log **ret,
                     struct err *e) MUST_CHECK;

/* Everything of ours that the engine has, whole or ERR_SANDBOX_LIST_FAILED. */
int sandbox_host_list(struct sandbox_host *h,
                      int (*each)(void *ctx, const struct engine_seen *seen, struct err *e),
                      void *ctx, struct err *e) MUST_CHECK;

/* Ends what runs out of run directories whose session `known` does not know (left by a crash
 * between start and record), and removes them; `swept` hears of each, with the error if it is still
 * there. Returns how many are gone, -1 when the run directory cannot be listed. */
struct sandbox_sweep {
    void *ctx;
    bool (*known)(void *ctx, const struct id *session_id);
    void (*swept)(void *ctx, const struct id *session_id, const struct err *e);
};
int sandbox_host_sweep(struct sandbox_host *h, const struct sandbox_sweep *sweep,
                       struct err *e) MUST_CHECK;

/* "ws://host:port/", "wss://…" for a door with a certificate */
void sandbox_host_url(const struct config *cfg, const struct sandbox *s, char *ret, size_t size);

#endif
