/*
 * Sandbox sessions: the records of sandboxes, their leases' end, and the machine's side
 * (sandbox_host.h) brought together. Opening, stopping and checking a chat's sandbox run on the
 * RUNTIME lane, keyed by the chat, so that they never overlap for one chat.
 */
#ifndef GATEWAY_SESSIONS_H
#define GATEWAY_SESSIONS_H

#include "services.h"

/* Loop thread, at start and end. */
struct sessions *sessions_new(struct services *s);
void sessions_free(struct sessions *ss);

/* Loop thread, at SIGTERM: no start waits for its image any more, which may take long to come. */
void sessions_draining(struct sessions *ss);

/* Behind the loop: no start waits for its agent any more. */
void sessions_stopping(struct sessions *ss);

/* Before the loop: what the store calls active goes to the broker; what died meanwhile, and what
 * runs without a record, is ended by jobs on the RUNTIME lane. */
int sessions_adopt(struct sessions *ss, struct err *e) MUST_CHECK;

/* Committed changes (loop thread): a running session is watched, an ended one no more. */
void sessions_apply(struct sessions *ss, const struct change *changes, size_t n);

/* From the broker (loop thread). */
void sessions_door_state(struct sessions *ss, const struct id *session_id, bool door_live,
                         enum door_agent agent);
void sessions_activity(struct sessions *ss, const struct id *session_id, int64_t last_ms);

/* Whether the engine has told what it has, once since the start: before, nothing new may run. Any
 * thread. */
bool sessions_listed(const struct sessions *ss);

/* The caller, who may stop sandboxes, asks for the end of this one: a start of it that waits for its
 * image waits no more, so that the stop gets its turn. Loop thread. */
void sessions_interrupt(struct sessions *ss, const struct caller *caller,
                        const struct id *session_id, const char *reason);

/* How far the image of a starting session has come; false: it waits for none. Any thread. */
struct pull_progress;
bool sessions_pull_progress(const struct sessions *ss, const struct id *session_id,
                            struct pull_progress *ret);

struct sessions_counts {
    size_t running, watches; /* sessions; processes of them that are watched */
};
void sessions_counts(const struct sessions *ss, struct sessions_counts *ret); /* loop thread */

/* Looks for sessions past their time; loop thread, every cleanup_interval_seconds. */
void sessions_cleanup(struct sessions *ss);

/* --- in a write ------------------------------------------------------------------------------- */

/* "sandbox:<session_id>" in the audit trail. caller NULL: the gateway itself. */
int session_audit(struct store_tx *tx, const struct caller *caller, const char *action,
                  const struct sandbox *s, const char *outcome, struct err *e) MUST_CHECK;

/* It is in use now; idle_ttl_s 0: as it was. */
void session_touch(struct sandbox *s, int64_t now_ms, int64_t idle_ttl_s);

/* --- on the RUNTIME lane, under the chat's key ------------------------------------------------- */

struct session_opened {
    struct sandbox sandbox;
    bool reused;
    struct lease lease; /* if one was asked for */
};

/* What the caller adds to the writes of an open; each may be NULL. Never on the loop. */
struct session_hooks {
    void *ctx;
    /* In the write that begins a new session, and behind its commit. */
    int (*begun)(struct store_tx *tx, void *ctx, const struct session_opened *o, struct err *e);
    void (*starting)(void *ctx, const struct session_opened *o);
    /* In the write that makes the session one that runs, or is used again. */
    int (*running)(struct store_tx *tx, void *ctx, const struct session_opened *o, struct err *e);
};

struct session_open {
    struct id chat_id;
    const char *profile;               /* NULL: the default one */
    int64_t idle_ttl_s;                /* 0: the configured one */
    const struct lease_request *lease; /* NULL: none */
    const struct engine_env *env;      /* of a new sandbox */
    size_t env_n;
    const struct session_hooks *hooks; /* NULL: none */
    const struct caller *caller;
    /* Its span, where the caller was told of one already, and the parent of that; NULL or none: a
     * trace of its own. */
    const struct trace_context *trace, *trace_parent;
};

/* Reuses the chat's running sandbox or starts one, and issues the lease in the write that records
 * it. The caller was authorised for the chat by the caller. */
int session_open(struct services *s, const struct session_open *o, struct session_opened *ret,
                 struct err *e) MUST_CHECK;

/* Under no key, as it begins and ends nothing: names the session that starts for the chat, if there is one.
 * Of the hooks `begun` is called. */
enum session_joined {
    SESSION_JOINED,
    SESSION_JOIN_NONE,  /* nothing starts */
    SESSION_JOIN_LATER, /* what it asks for can be had in its turn only */
};
int session_join(struct services *s, const struct session_open *o, struct session_opened *ret,
                 enum session_joined *ret_joined, struct err *e) MUST_CHECK;

/* Revokes the leases, lets the door confirm, ends everything, records it. Idempotent: an ended
 * session is answered as it is. `status` is SANDBOX_STOPPED or SANDBOX_FAILED. */
struct session_stop {
    struct id session_id;
    const char *reason;
    enum sandbox_status status;
    int close_code; /* that clients see at the door */
    int64_t grace_ms;
    bool replacing;                    /* a new one takes its place: told by who does it */
    const struct caller *caller;       /* NULL: the gateway itself */
    const struct trace_context *trace; /* of who asks; NULL: none */
};
int session_stop(struct services *s, const struct session_stop *o, struct sandbox *ret,
                 struct err *e) MUST_CHECK;

/* For sandbox_host: waits for door and agent. ctx is struct sessions *. Any thread but the loop. */
int sessions_wait_ready(void *ctx, const struct id *session_id, int64_t timeout_ms, struct err *e);

#endif
