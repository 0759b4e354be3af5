/* Shared by the files of sessions.h. */
#ifndef GATEWAY_SESSIONS_STATE_H
#define GATEWAY_SESSIONS_STATE_H

#include <uthash.h>

#include "ready.h"
#include "session_pull.h"
#include "sessions.h"
#include "spans.h"

/* A session that has not ended, as the loop watches it. */
struct live {
    struct id session_id, chat_id, user_id;
    int64_t expires_at, max_expires_at, last_activity_at, idle_ttl_s;
    int64_t saved_activity_at; /* as the store has it */
    int64_t told_expiry;       /* expires_at that was told of as near; 0: none */
    bool watched;              /* it runs, and its processes are watched */
    bool running;              /* the store says so */
    bool suspect;              /* and its door misses the agent, or is missed itself */
    bool doubtful; /* it does not run, or a process of it has ended: every round looks at it */
    bool checking, check_again; /* a look is under way; another one is due after it */
    int keep_fd, door_fd;       /* pidfds */
    struct server_watch *keep_watch, *door_watch; /* NULL: beyond the cap, or ended */
    struct sessions *sessions;
    UT_hash_handle hh;
};

/* One look around for sessions past their time: its span ends with the last of its checks. */
struct cleanup_round {
    struct span span;
    size_t pending; /* and one for who looks around */
    size_t cleaned;
};

struct sessions {
    struct services *s;
    struct ready *ready;         /* any thread */
    struct session_pulls *pulls; /* any thread */
    struct live *live;           /* loop */
    struct reconcile *reconcile; /* session_reconcile.c */
    size_t watches, watches_max; /* loop: pidfds */
    struct cleanup_round *round; /* loop: that checks are submitted for right now */
    struct server_timer *idle_timer;
};

/* The environment of an agent: what the open gives, before what the profile does. */
int session_env(struct arena *arena, const struct config_profile *profile,
                const struct session_open *o, const struct engine_env **ret, size_t *ret_n,
                struct err *e) MUST_CHECK;

/* Is what runs, or starts, what this open asks for? (session_join.c) */
int session_may_share(const struct sandbox *s, const struct session_open *o,
                      struct err *e) MUST_CHECK;

/* --- events (session_events.c) ---------------------------------------------------------------- */

/* "sandbox.<status>" in the event log, in the write that makes it so. */
int session_event(struct store_tx *tx, const struct sandbox *s, struct err *e) MUST_CHECK;

/* "sandbox.pulling": a layer of its image has come. */
int session_pull_event(struct store_tx *tx, const struct sandbox *s, const struct pull_progress *p,
                       const char *layer, struct err *e) MUST_CHECK;

/* Looks each second for sessions that will be stopped soon. Loop thread. */
int sessions_idle_begin(struct sessions *ss) MUST_CHECK;
void sessions_idle_end(struct sessions *ss);

/* Something about it is to be found out: soon, under its chat's key (loop). */
void session_look(struct live *l);

/* --- the engine's word against the store's (session_reconcile.c) ------------------------------- */

struct reconcile *reconcile_new(void); /* NULL without memory */
void reconcile_free(struct reconcile *r);
void reconcile_at_start(struct sessions *ss); /* before the loop */
void reconcile_round(struct sessions *ss);    /* loop */

/* From now on the engine's own words are heard. */
int reconcile_watch(struct sessions *ss, struct err *e) MUST_CHECK;

/* --- the machine's side, measured (session_host.c); RUNTIME lane ------------------------------- */

/* `trace`: whose part it is; NULL: nobody's. */
int session_host_start(struct services *s, const struct sandbox_start *start,
                       const struct trace_context *trace, struct sandbox *ret,
                       struct err *e) MUST_CHECK;
int session_host_stop(struct services *s, const struct sandbox *sandbox, int64_t grace_ms,
                      const struct sandbox_door_gone *gone, const struct trace_context *trace,
                      struct err *e) MUST_CHECK;
int session_host_list(struct services *s,
                      int (*each)(void *ctx, const struct engine_seen *seen, struct err *e),
                      void *ctx, const struct trace_context *trace, struct err *e) MUST_CHECK;

/* A sandbox could not be ended: logs and counts it. */
void session_clean_failed(struct services *s, const struct id *session_id, const struct err *e,
                          const struct trace_context *trace);
void session_cleaned(struct services *s, const struct id *session_id, const char *reason,
                     size_t leases_n, const struct trace_context *trace);

/* The chat, the session and, once it has one, the container. */
void session_span_names(struct span *span, const struct sandbox *s);

/* A reason of an end that nobody asked for: the session has failed, also when its end has to be tried
 * again. */
bool session_ended_itself(const char *reason);

/* min(created + max_ttl, last activity + idle ttl) */
int64_t session_expiry(int64_t max_expires_at, int64_t last_activity_at, int64_t idle_ttl_s);

#endif
