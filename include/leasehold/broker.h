/*
 * The lease broker: what every session's door has been told, told again, and has confirmed. It
 * holds the open leases and the live sessions in memory, pushes committed changes to doors, takes
 * their acknowledgements, knows when leases expire, and answers "is it cut?".
 *
 * Pure: no I/O, no clock of its own, no store. Time comes in by `clock`, everything that leaves goes
 * through hooks, so that a simulation drives exactly this code. Loop thread only.
 *
 * Source: docs/leases.md.
 */
#ifndef LEASEHOLD_BROKER_H
#define LEASEHOLD_BROKER_H

#include "leasehold/clock.h"
#include "leasehold/door_proto.h"
#include "leasehold/lease_rules.h"
#include "leasehold/log.h"

struct broker;

/* Something a door reported that belongs in audit or log. */
struct broker_event {
    enum {
        BROKER_ADMIT,
        BROKER_CUT,
        BROKER_DENY,
        BROKER_ACK,
        BROKER_DOOR_LIVE,
        BROKER_DOOR_LOST,
        BROKER_UNRECORDED, /* messages that the history has lost */
        BROKER_DOOR_FAULT  /* it has said what cannot be: `verdict`; its link is closed */
    } kind;
    struct id session_id, lease_id;
    int64_t code;            /* CUT: close code */
    int64_t latency_us;      /* ACK: from the durable commit to the acknowledgement */
    int64_t door_latency_us; /* ACK: the door's own figure */
    int64_t cut;             /* ACK: connections cut */
    int64_t bytes_in, bytes_out;
    const char *verdict; /* DENY, DOOR_FAULT */
    int64_t unrecorded;  /* UNRECORDED: of the session so far */
    bool again;          /* DOOR_LIVE: it was connected before */
    bool over_rate; /* ADMIT, CUT, DENY: so many of this session that it is for counting only */
};

struct broker_hooks {
    void *ctx;
    /* To the control connection `conn` of a door. A failed send closes it: broker_door_closed
     * follows. */
    void (*send)(void *ctx, uint64_t conn, const char *data, size_t len);
    void (*close)(void *ctx, uint64_t conn, int code, const char *reason);
    /* The control connection is a door's, which has shown its secret; may be NULL. */
    void (*known)(void *ctx, uint64_t conn);
    /* Make durable: these leases are closed | these leases have run out. Answered by the changes
     * that come back through broker_apply. At most BROKER_BATCH of them. */
    void (*closed)(void *ctx, const struct id *ids, size_t n);
    void (*expired)(void *ctx, const struct lease_due *due, size_t n);
    /* Worth telling, nothing more; may be NULL: these leases run out soon | have been ending for a
     * while without a word of their door. At most BROKER_BATCH ids. */
    void (*expiring)(void *ctx, const struct lease_due *due, size_t n);
    void (*unconfirmed)(void *ctx, const struct id *ids, size_t n);
    /* Make durable: this `once` lease has let in. */
    void (*consumed)(void *ctx, const struct id *lease_id);
    /* The door of a session is live and its agent is up (ready), or no more. */
    void (*session)(void *ctx, const struct id *session_id, bool door_live, enum door_agent agent);
    /* Client traffic was seen (wall time of the last byte, milliseconds). */
    void (*activity)(void *ctx, const struct id *session_id, int64_t last_ms);
    void (*event)(void *ctx, const struct broker_event *ev);
    /* The agent of a session wants a file stored; may be NULL. broker_put_done answers. Path and name
     * are borrowed, and as hostile as the agent. */
    void (*put)(void *ctx, const struct id *session_id, int64_t n, const char *path,
                const char *name);
    /* n leases began to end with this close code; may be NULL. */
    void (*ending)(void *ctx, int code, size_t n);
    /* Call broker_tick in this many milliseconds (replaces the earlier wish). */
    void (*wake)(void *ctx, int64_t delay_ms);
};

#define BROKER_BATCH LEASES_DUE_MAX

struct broker *broker_new(const struct broker_hooks *hooks, const struct clock *clock,
                          const struct lease_policy *policy, const struct config_lease *limits,
                          const struct keyset *keys);
void broker_free(struct broker *b);

/* --- state from the store -------------------------------------------------------------------- */

/* At start, before the first door connects: an active session, an open lease of it. */
int broker_load_session(struct broker *b, const struct sandbox *s, struct err *e) MUST_CHECK;
int broker_load_lease(struct broker *b, const struct lease *l, struct err *e) MUST_CHECK;

/* Behind these: the wall clock stands so far behind what the store has seen. They end as if it stood
 * there; so they do when it is set back later. */
void broker_clock_behind(struct broker *b, int64_t behind_ms);

/* The keys of now, which must outlive their use here; doors get them with CHANGE_KEYS. */
void broker_set_keys(struct broker *b, const struct keyset *keys);

/* Committed changes, in commit order. `committed_us`: boot clock right after the commit. */
void broker_apply(struct broker *b, const struct change *changes, size_t n, int64_t committed_us);

/* --- doors ----------------------------------------------------------------------------------- */

void broker_door_open(struct broker *b, uint64_t conn);
void broker_door_message(struct broker *b, uint64_t conn, const char *data, size_t len);
void broker_door_closed(struct broker *b, uint64_t conn);

/* Tells the door of a session to close everything and exit. */
void broker_retire(struct broker *b, const struct id *session_id);

/* Answers hook put: the artifact's id, or why not. Nobody may be there any more. */
void broker_put_done(struct broker *b, const struct id *session_id, int64_t n, const char *artifact,
                     const char *fault);

/* Time has passed: expiry (bounded batches), pings, unconfirmed leases, waits; and parts of snapshots. */
void broker_tick(struct broker *b);

/* Leases of a snapshot that are written in one turn: for simulations, whose sessions have few. */
void broker_set_slice(struct broker *b, size_t leases);

/* --- questions ------------------------------------------------------------------------------- */

/* Overlays what only the broker knows (state, connections) on a lease read from the store. */
void broker_lease_view(const struct broker *b, struct lease *l);

/* Is the door of this session live and its agent up? */
bool broker_session_ready(const struct broker *b, const struct id *session_id);

/* The chat of a live session. */
bool broker_session_chat(const struct broker *b, const struct id *session_id, struct id *ret);

#define LEASE_STATES (LEASE_CLOSED + 1)

struct broker_counts {
    size_t sessions, doors_live, leases, connections;
    size_t doors_unknown;       /* control connections that have not said who they are */
    size_t state[LEASE_STATES]; /* leases; unconfirmed ones as of the last second */
};
/* Costs nothing for each lease: they are counted as they change. */
void broker_counts(const struct broker *b, struct broker_counts *ret);

/* The same by looking at every lease: for tests, which compare. */
void broker_recount(const struct broker *b, struct broker_counts *ret);

/* Waiting for one session's door to confirm all its log up to `seq` (0: everything written so
 * far), `timeout_ms` at most. `done` is called exactly once, perhaps at once, inside a broker call;
 * *w must live until then. */
struct broker_wait {
    struct id session_id;
    int64_t seq;
    int64_t timeout_ms;
    void (*done)(struct broker_wait *w);
    /* the answer */
    bool acked;
    int64_t cut;        /* connections cut by the revocations waited for */
    int64_t latency_us; /* commit → acknowledgement, the largest of them */
    /* the broker's */
    int64_t deadline_us;
    struct broker_wait *prev, *next;
};
void broker_wait(struct broker *b, struct broker_wait *w);

#endif
