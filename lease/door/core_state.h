/* What core.c and core_admit.c share. Nobody else looks inside the core. */
#ifndef LEASEHOLD_DOOR_CORE_STATE_H
#define LEASEHOLD_DOOR_CORE_STATE_H

#include <uthash.h>

#include "core.h"

#define US_PER_S  INT64_C(1000000)
#define US_PER_MS INT64_C(1000)

#define PRUNE_EVERY_US (60 * US_PER_S)

/* A lease the door was told about, or one that is gone but still has closing sockets or was used
 * up: it leaves the table when none of this holds. */
struct door_lease {
    struct id jti;
    bool allowed;
    int64_t exp;
    unsigned scope;
    int64_t mc;
    int use;
    int64_t consumed_until; /* a `once` lease that was used, its mex; 0: it was not */
    struct door_peer *peers;
    int64_t live;                   /* peers not really gone, closing ones included */
    struct door_lease *prev, *next; /* in `busy`, while live > 0 */
    UT_hash_handle hh;
};

struct door_core {
    struct door_core_config config;
    struct door_core_io io;
    enum door_state state;
    struct keyset *keys;
    struct token_memo *memo;   /* of signatures alone: whatever can change is asked each time */
    struct door_lease *leases; /* by jti */
    struct door_lease *busy;   /* those with peers: what timers and reports walk */
    struct door_peer *waiting;
    int64_t applied;

    bool linked;       /* a control connection is open */
    bool synced;       /* and its SNAPSHOT or DELTA was taken: what it says counts */
    int64_t live_at;   /* live once this seq of its log is applied */
    bool damaged;      /* half a snapshot, or no delta could be taken: only a whole one helps */
    bool resync;       /* and it fell silent */
    int64_t linked_us; /* since when */
    int64_t heard_us;  /* the last word that counted */
    int64_t over_us;   /* its sandbox has ended by then */
    bool has_time;
    int64_t offset_us; /* gateway wall time minus boot time */

    bool ack_due;
    int64_t ack_from_us; /* when the first operation not yet acknowledged came */
    int64_t ack_cut;

    bool active; /* something to report by ACTIVITY */
    int64_t activity_next_us;
    int64_t last_in_ms, last_out_ms;
    int64_t bytes_in, bytes_out;
    int64_t deny_window_us;
    int deny_n;
    int64_t prune_next_us;

    enum door_agent agent;
    bool done;
};

/* Judged by the time of the question, not by whether the timer has run: live enough to admit, to
 * carry on. */
bool core_may_admit(const struct door_core *c, int64_t now_us);
bool core_may_carry(const struct door_core *c, int64_t now_us);

int64_t core_gateway_s(const struct door_core *c, int64_t now_us);
struct door_lease *core_lease_find(const struct door_core *c, const struct id *jti);
void core_lease_drop_if_dead(struct door_core *c, struct door_lease *lease, int64_t now_us);

/* Flags and closes one peer, or all of a lease (returns how many it asked to close). */
bool core_peer_close(struct door_core *c, struct door_peer *peer, int code);
int64_t core_lease_cut(struct door_core *c, struct door_lease *lease, int code);

int64_t core_cut_all(struct door_core *c, int code);

/* The leases with connections, in memory of the caller's; -1 without memory. */
int core_conns_list(const struct door_core *c, struct list *ret);

/* What silence makes of the door: stale, sealed. */
void core_link_tick(struct door_core *c, int64_t now_us);

/* Judges every waiting peer again: after an operation, a change of state, in time. */
void core_waiting_judge(struct door_core *c, int64_t now_us);

#endif
