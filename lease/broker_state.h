/* The broker's state, shared by its files: broker.c (life, changes, time), broker_door.c (doors),
 * broker_snapshot.c (what one of them is told at first), broker_claims.c (whether what they say can be),
 * broker_confirm.c (what they have confirmed), broker_wait.c (who waits for that), broker_count.c (how many there
 * are of what). */
#ifndef LEASE_BROKER_STATE_H
#define LEASE_BROKER_STATE_H

#include <uthash.h>

#include "heap.h"
#include "leasehold/broker.h"

/* A request to the store that brought no change back (a full disk, say) is made again after this
 * time. */
#define STORE_RETRY_MS 5000
#define ASKED_MAX      (8 * BROKER_BATCH)
#define LOOKED_MAX     (3 * BROKER_BATCH) /* leases whose time has come, in one turn */

/* How long a door may leave a push unacknowledged before its leases show as unconfirmed, and how
 * long a control connection may be silent or unauthenticated. */
#define UNCONFIRMED_AFTER_US 2000000
#define DOOR_SILENT_US       10000000
#define DOOR_HELLO_US        2000000
#define PING_MOST_US         1000000
#define PINGS_PER_STALE      3 /* of which one or two may be late before a door goes stale */

/* Leases of a snapshot in one turn: a quarter of a millisecond. */
#define SNAPSHOT_SLICE 512

/* Control connections that have not said hello; each has DOOR_HELLO_US for it. */
#define DOORS_UNKNOWN_MAX 1024

/* What one session's door may put into the audit trail. A stranger at the door can cause denials,
 * who holds a lease can come and go; neither may fill the disk, or displace the others' entries. */
#define DENY_PER_S    1
#define DENY_BURST    60
#define PUT_PER_S     1 /* files that an agent may have stored */
#define PUT_BURST     60
#define TRAFFIC_PER_S 20
#define TRAFFIC_BURST 400 /* a whole session cut at once is well below */
#define HELLO_PER_S   1   /* each is told in the trail and in the log, and may cost a snapshot */
#define HELLO_BURST   60

/* So long behind their time leases are asked for: what their doors have said of it meanwhile has
 * arrived. */
#define EXPIRED_HEARD_MS 20

struct session;

struct lease_node {
    struct lease l;
    struct session *session;
    struct heap_node
        due; /* open: soon before exp, then exp; ending: when nothing can hold the token any more */
    int64_t ahead_ms;   /* the broker's, when its term began */
    int64_t active_seq; /* the door knows the lease once it has applied this: the state never goes
                             back, whatever seq a renewal gets */
    int64_t ending_seq; /* of the log entry that ends it; 0: open */
    int64_t ending_us;  /* boot clock of that commit */
    bool warned;        /* `expiring` was called for this term */
    bool close_asked;   /* `closed` was called and its change has not come back yet */
    uint32_t asked;     /* round of asking in which `expired` or `closed` was called; 0: not now */
    uint32_t shown;     /* in the snapshot of this number */
    bool counted;       /* in the broker's counts, in the state … */
    enum lease_state counted_as;
    struct lease_node *prev, *next; /* of the session */
    struct lease_node **awaits;     /* the list of the session that it stands in, or NULL */
    struct lease_node *awaits_prev, *awaits_next;
    struct lease_node *connected_prev, *connected_next; /* while it has connections */
    UT_hash_handle hh;
};

/* A revocation pushed and not yet acknowledged. */
struct pending_cut {
    int64_t seq, committed_us;
    struct pending_cut *prev, *next;
};

/* How many of a session's latest operations are kept to catch a door up by DELTA. */
#define RECENT_OPS 32

struct door {
    uint64_t conn;           /* 0: none */
    struct session *session; /* NULL: not authenticated yet */
    int64_t opened_us, heard_us;
    int64_t time_ms; /* the gateway's time, as far as the door knows of it; 0: it has not said */
    bool said_hello;
    struct id boot_id;        /* of its hello */
    struct door *prev, *next; /* strangers, oldest first, until then */
    UT_hash_handle hh;        /* by conn */
};

/* A rate with a burst, as the time until which what was taken is paid off. */
struct rate {
    int64_t paid_us;
};

struct session {
    struct id session_id, chat_id;
    int64_t ep;
    uint8_t secret_hash[32];
    int64_t seq;       /* last one committed */
    int64_t acked;     /* by the door */
    struct door *door; /* live control connection, or NULL */
    struct id boot_id; /* of the door that had its snapshot from us; zero: none */
    bool had_door;
    bool snapshot_due; /* its door waits for one, and stands in the broker's queue */
    struct session *snapshot_prev, *snapshot_next;
    struct door_msg recent[RECENT_OPS]; /* the op of seq n stands at n % RECENT_OPS */
    int64_t recent_from;                /* the oldest one there; 0: none */
    enum door_agent agent;
    struct lease_node *leases;
    struct lease_node *connected; /* those with connections */
    /* What the door has not confirmed yet, each by sequence: grants, ends, and ends that are
     * unconfirmed for so long that they were told (broker_confirm.c). */
    struct lease_node *await_grant, *await_end, *await_end_late;
    struct pending_cut *cuts;
    struct rate denials, traffic, puts, hellos;
    int64_t unrecorded;                /* messages, as last told on */
    int64_t last_cut, last_latency_us; /* of the newest acknowledged revocation, for late waiters */
    UT_hash_handle hh;
};

/* The snapshot that is being written: of the first session in the queue, as of entry `seq` of its log. */
struct snapshot {
    bool begun;
    uint32_t number;
    int64_t seq;
    size_t allowed;          /* leases in it so far */
    struct lease_node *next; /* to be looked at */
    struct buf text;
    struct buf held; /* entries of the log behind `seq`, each encoded and ended by a line feed */
    struct id *consumed;
    size_t consumed_n, consumed_size;
    struct key_public *keys;
    struct list key_list;
    bool failed; /* no memory */
};

/* The wall clock, which may be set back; leases end as if it had not been. What it was set back by is
 * added from then on: `ahead_ms` of the wall clock stands the time by which leases end that began before.
 * The heap is in that time, which goes forward only, but for steps within the skew. */
struct lease_time {
    int64_t ahead_ms;
    int64_t wall_ms, boot_us; /* read together last, when the wall had not gone back; 0: never */
};

struct broker {
    struct broker_hooks hooks;
    const struct clock *clock;
    const struct lease_policy *policy;
    const struct config_lease *limits;
    const struct keyset *keys;
    struct session *sessions;
    struct lease_node *leases;
    struct door *doors;
    struct heap due;
    /* What the store was asked for because time has passed, and has not answered: not more than
     * ASKED_MAX, which keeps it busy while the answers are on their way. */
    size_t asked;
    uint32_t asked_round; /* those of earlier ones are not counted any more */
    int64_t asked_us;     /* boot clock of the last call */
    struct lease_time time;
    struct broker_wait *waits;
    struct door *strangers;
    size_t doors_unknown, connections;
    size_t state[LEASE_STATES]; /* leases in it */
    int64_t next_ping_us;
    struct session *snapshots; /* whose doors wait for one, oldest first */
    struct snapshot snapshot;
    size_t slice;   /* leases of it that are looked at in one turn */
    struct buf out; /* scratch of encoded messages */
};

struct session *broker_session_find(const struct broker *b, const struct id *session_id);
struct lease_node *broker_lease_find(const struct broker *b, const struct id *lease_id);

/* What the door has to confirm (broker_confirm.c): behind each change of it, when the lease goes, when
 * the door says what it has, when it has confirmed more (asks to make durable-closed whose end that
 * is), and when time has passed. */
void broker_await(struct session *s, struct lease_node *n);
void broker_await_no_more(struct lease_node *n);
void broker_await_anew(struct broker *b, struct session *s);
void broker_confirm(struct broker *b, struct session *s);
void broker_late(struct broker *b);

/* Why what this door of the session says cannot be (a constant), NULL: it can. */
const char *broker_claim_fault(const struct broker *b, const struct session *s,
                               const struct door_msg *m);

/* Encodes and sends on the session's control connection, if it has one. */
void broker_push(struct broker *b, struct session *s, const struct door_msg *m);

/* The same for an entry of the session's log, which is kept for doors that come back. */
void broker_push_op(struct broker *b, struct session *s, const struct door_msg *op);

/* The keys of now, as entry `seq` of the session's log. */
void broker_push_keys(struct broker *b, struct session *s, int64_t seq);

/* The public keys of now, to be freed; NULL without memory. */
struct key_public *broker_keys_list(const struct broker *b, struct list *ret);

/* Snapshots (broker_snapshot.c). `want`: the session's door has just come. `drop`: it has gone. `keep`: to be
 * called before what a snapshot says of a lease changes, or it goes. `holds`: does the snapshot that is due
 * take this entry of the log, so that it must not be sent now? */
void broker_snapshot_want(struct broker *b, struct session *s);
void broker_snapshot_drop(struct broker *b, struct session *s);
void broker_snapshot_keep(struct broker *b, struct lease_node *n);
void broker_snapshot_forget(struct broker *b, struct lease_node *n);
bool broker_snapshot_holds(struct broker *b, struct session *s, const struct door_msg *op);
void broker_snapshot_tick(struct broker *b);
void broker_snapshot_done(struct broker *b);

void broker_doors_tick(struct broker *b, int64_t now_us);

/* Counting (broker_count.c): to be called behind each change of a lease, or of what its session's door
 * has confirmed of it. */
void broker_count_lease(struct broker *b, struct lease_node *n);
void broker_count_connections(struct broker *b, struct lease_node *n, int64_t connections);
void broker_uncount(struct broker *b, struct lease_node *n);
enum lease_state broker_lease_state(const struct broker *b, const struct lease_node *n);

/* An acknowledgement of s arrived, with the connections it cut and its latency. */
void broker_waits_acked(struct broker *b, const struct session *s, int64_t cut, int64_t latency_us);
void broker_waits_session_gone(struct broker *b, const struct session *s);
void broker_waits_tick(struct broker *b, int64_t now_us);
void broker_waits_end(struct broker *b);

/* Asks for the next broker_tick. */
void broker_rearm(struct broker *b);

#endif
