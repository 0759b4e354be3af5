/*
 * A deterministic world around the lease core of production: the real rules and store (on a disk
 * that ends at any write), the real broker, the real core of each door. What is played here is only
 * what lies between and around them: the gateway's glue, sockets, clients, clocks, crashes. One seed
 * decides everything; the trace of a seed is the same in every run.
 *
 * Facts (sim_facts.c) are what was committed, in commit order, as the store told it. The invariants of
 * docs/leases.md (invariants.h) hold everything that is said and done against them.
 */
#ifndef PROPERTY_SIM_H
#define PROPERTY_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "../../lease/door/core.h"
#include "leasehold/broker.h"
#include "leasehold/lanes.h"
#include "leasehold/store.h"
#include "sim_disk.h"
#include "sim_rng.h"

#define SIM_USERS    3
#define SIM_CHATS    4
#define SIM_APIS     4 /* API keys: an admin's, and bots' of some users */
#define SIM_SIGNERS  10
#define SIM_SESSIONS 64
#define SIM_LEASES   1024
#define SIM_LINKS    256
#define SIM_SOCKETS  10 /* clients at one door */
#define SIM_LOG      1024
#define SIM_TOKENS   3
#define FORMER_KEYS  8

#define SIM_SESSION_MAX_S  600
#define SIM_SESSION_IDLE_S 300

#define US  INT64_C(1)
#define MS  INT64_C(1000)
#define SEC INT64_C(1000000)

#define DELAY_MOST_US (100 * MS) /* of a network that works */
#define NEVER         INT64_MAX

struct sim;

/* --- facts ------------------------------------------------------------------------------------- */

/* One entry of a session's log, as committed. */
struct fact {
    enum change_kind kind;
    struct id lease_id; /* of GRANT, EXTEND, REVOKE */
    int64_t exp_ms;
    int code;
    int64_t at_us;                /* boot clock of the commit */
    unsigned trusted;             /* KEYS: bit i: signer i is in the set … */
    int64_t retired[SIM_SIGNERS]; /* … and retired at (seconds), 0: not */
};

struct lease_fact {
    struct lease l; /* as of the newest change */
    int session;    /* place in sim.sessions */
    int64_t term_us,
        ends_us; /* boot clock: when its term began, and is over whatever the wall clock does */
    int api;     /* that issued it */
    int64_t first_seq; /* of its grant */
    int64_t end_seq;   /* of what ended it; 0: open */
    int64_t end_us;
    bool closed;
    int64_t closed_us;
    int64_t lapsed_us;  /* boot clock since when its exp is over; 0: it is not */
    bool shortened;     /* by a renewal, of which a door that cannot be reached does not know */
    int admitted;       /* how often */
    bool consumed;      /* in its row */
    bool of_other_time; /* issued before the clock was reset */
    int tokens_n;
    char *tokens[SIM_TOKENS]; /* handed out, oldest first */
};

/* --- the network ------------------------------------------------------------------------------- */

struct wire_message {
    int64_t at_us; /* when it arrives */
    char *text;    /* NULL: the end of the connection */
    size_t len;
    struct wire_message *prev, *next;
};

struct link {
    uint64_t conn; /* 0: free */
    int door;
    bool door_open, gateway_open; /* as each side sees it */
    bool announced;               /* the gateway has accepted it */
    bool impostor;                /* its HELLO has another secret */
    struct wire_message *to_gateway, *to_door;
    int64_t last_to_gateway_us, last_to_door_us; /* order within a direction is kept */
    int64_t clean_since_us;                      /* neither held nor late */
};

/* --- doors and clients ------------------------------------------------------------------------- */

struct client {
    struct door_peer peer; /* the core's */
    struct sim *sim;
    bool used;
    int lease;           /* whose token it presented, -1: a forged one */
    bool wrong_key;      /* will not prove what it should */
    int64_t prove_at_us; /* 0: nothing to prove */
    int64_t gone_at_us;  /* 0: not yet */
};

struct sim_door {
    struct sim *sim;
    bool alive, zombie;
    int session;
    struct door_core *core;
    struct id boot_id;
    int link; /* -1: none */
    int64_t retry_at_us, retry_us, ping_at_us, agent_at_us;
    int64_t late_us;        /* its loop comes to its timer so much too late */
    int64_t break_at_us;    /* its connection */
    int64_t calm_since_us;  /* since then nothing kept it from its gateway */
    int64_t applied_before; /* the message that is being taken */
    int64_t heard_us;       /* the last word of a gateway it was in step with */
    int64_t latest_s;       /* the highest time it took for its gateway's */
    bool in_step;           /* had its SNAPSHOT or DELTA over this connection */
    bool cut_off;           /* partitioned */
    int64_t heal_at_us;
    struct client clients[SIM_SOCKETS];
};

struct session_sim {
    struct sandbox row; /* as of the newest change */
    char secret[DOOR_SECRET_TEXT];
    int chat;
    bool known; /* its first commit is a fact */
    bool ended; /* and so is its last */
    bool running_asked, ending_asked;
    int64_t stop_at_us; /* again: it failed */
    int64_t kill_at_us; /* of its door, once it is being stopped */
    int64_t n;          /* entries of its log: seq 1 … n */
    struct fact log[SIM_LOG];
    struct sim_door door;
    struct sim_door zombie; /* of an earlier generation, says the same session is its own */
};

/* --- keys -------------------------------------------------------------------------------------- */

struct signer {
    struct key_public pub;
    struct keyset *own; /* with the private half */
    char path[96];
    bool used;
    struct signing_key row; /* as committed */
};

struct api {
    struct api_key row, cached; /* as committed; as the gateway's authentication knows it */
    struct id users[SIM_USERS], cached_users[SIM_USERS];
    int64_t changed_us;
};

/* --- writes of the gateway --------------------------------------------------------------------- */

enum op_kind {
    OP_SESSION_BEGIN,
    OP_SESSION_RUN,
    OP_SESSION_STOP,
    OP_SESSION_END,
    OP_GRANT,
    OP_RENEW,
    OP_LOOK,
    OP_REVOKE,
    OP_REVOKE_BY,
    OP_KEY_UPDATE,
    OP_ROTATE,
    OP_KILL,
    OP_GONE,
    OP_EXPIRE,
    OP_CLOSE,
    OP_CONSUME,
    OP_RESET, /* one write of `leasehold clock-reset` */
    OP_KINDS
};

struct op {
    struct store_job job;
    struct sim *sim;
    enum op_kind kind;
    int api; /* who asks; -1: the gateway itself */
    struct caller caller;
    struct id users[SIM_USERS];
    int session, signer, chat;
    struct id lease_id;
    struct lease_request request;
    struct store_match match;
    struct api_key api_row;
    struct id api_users[SIM_USERS];
    char secret[DOOR_SECRET_TEXT]; /* of a door to be started */
    int64_t wall_ms;               /* when it ran */
    size_t ids_n, due_n;
    struct id *ids;
    struct lease_due *due;
    /* what it did */
    struct sandbox sandbox;
    struct lease lease;
    struct signing_key made[SIM_SIGNERS];
    size_t made_n, matched;
    bool made_keys;
    char *token;
    struct change *changes;
    size_t changes_n;
    int64_t audit_n; /* of the chain behind it */
    store_fn fn;     /* of OP_RESET: the write itself … */
    void *fn_arg;
    bool lowered; /* … that has lowered the mark */
    bool in_group, committed, answered;
    struct op *prev, *next; /* of its group */
};

/* What became of a group whose commit was broken off is learned from the next start. */
struct gateway {
    bool up;
    struct store *store;
    struct inbox *inbox;
    struct broker *broker;
    struct keyset *keys, *pending_keys, *former[FORMER_KEYS];
    size_t former_n;
    struct op *group; /* that ran in the transaction that is open */
    int64_t audit_n;  /* of the last commit */
    int64_t wake_at_us, turn_at_us, drain_at_us, restart_at_us, up_since_us;
    bool dying;
    int64_t operator_at_us; /* who has seen the clock behind its mark, and comes to reset it */
    bool reset_due;         /* it is stopped for that */
};

struct sim_wait {
    struct broker_wait wait;
    struct sim *sim;
};

/* How often what happened: a simulation in which nothing happens proves nothing. */
enum seen {
    SEEN_ADMITTED,
    SEEN_REFUSED,
    SEEN_WAITED,
    SEEN_PROVED,
    SEEN_BYTES,
    SEEN_CUT,
    SEEN_SEALED,
    SEEN_SNAPSHOT,
    SEEN_DELTA,
    SEEN_RESYNC,
    SEEN_ZOMBIE,
    SEEN_EXPIRED,
    SEEN_CLOSED_AT_ONCE,
    SEEN_CONSUMED,
    SEEN_KILL_IN_WRITE,
    SEEN_POWER_OFF,
    SEEN_LOST_COMMIT,
    SEEN_KEPT_COMMIT,
    SEEN_CRASH,
    SEEN_ROTATED,
    SEEN_KILLED_KEY,
    SEEN_NARROWED,
    SEEN_BULK,
    SEEN_DENIED_OP,
    SEEN_FORGED,
    SEEN_STEP,
    SEEN_SUSPEND,
    SEEN_DOOR_DEAD,
    SEEN_BURST,
    SEEN_FULL,
    SEEN_LIST_LOST,     /* a REVOKE_LIST, or a snapshot … */
    SEEN_SNAPSHOT_LOST, /* … on its way when the door's connection broke */
    SEEN_ACTIVE,
    SEEN_INACTIVE,
    SEEN_FAR,          /* the wall clock runs far ahead … */
    SEEN_BEHIND,       /* … something is refused when it has come back … */
    SEEN_RESET,        /* … and its mark is lowered, */
    SEEN_RESET_BROKEN, /* broken off before */
    SEEN_GAP,          /* in what a door is told */
    SEEN_TWICE,
    SEEN_IMPOSTOR,
    SEEN_QUOTA,
    SEEN_TOO_LATE, /* to be renewed */
    SEEN_WIDER,    /* a token that says more than was granted lets in */
    SEEN_KINDS
};
extern const char *const seen_names[SEEN_KINDS];

struct sim {
    uint64_t seed;
    struct sim_rng rng, ids, questions;
    int64_t step;
    int64_t writes_at_rest; /* of the disk */
    bool quiet;             /* no trouble but what the test makes */
    bool resting;           /* nor that any more */

    /* time */
    int64_t boot_us, wall_offset_ms;
    int64_t high_ms;              /* the highest time of a write that is durable */
    uint64_t reset_conns;         /* connections that were made before the clock was reset */
    int64_t far_ms;               /* so far ahead the wall clock runs; 0: it does not */
    int64_t stepped_us, slept_us; /* when it last did */
    int64_t full_until_us;        /* the disk */
    struct clock clock;

    /* the gateway */
    char dir[64], path[80];
    struct log *log;
    int log_fd;
    struct sim_disk *disk;
    struct lease_policy policy;
    struct config_lease limits;
    struct gateway gw;
    size_t tick_calls, tick_expired; /* of one turn of the broker's timer */
    struct signer signers[SIM_SIGNERS];
    struct api apis[SIM_APIS];
    struct id users[SIM_USERS];
    struct chat chats[SIM_CHATS];

    /* the rest */
    struct link links[SIM_LINKS];
    uint64_t conns;
    struct session_sim *sessions;
    int sessions_n;
    struct lease_fact *leases;
    int leases_n;
    void *proof_key; /* EVP_PKEY of the clients that are bound to one */
    char proof_x[44], proof_y[44], proof_jkt[TOKEN_KID_TEXT];

    /* outcome */
    int64_t seen[SEEN_KINDS];
    uint64_t trace_hash;
    bool trace_on;
    char tail[64][200];
    int64_t tail_n;
    bool failed;
    char failure[512];
};

/* --- life (sim.c) ------------------------------------------------------------------------------ */

struct sim *sim_new(uint64_t seed);
void sim_free(struct sim *s);

/* Runs `steps` steps of chance and lets the world come to rest. False: an invariant was broken, which
 * s->failure names. */
bool sim_run(struct sim *s, int64_t steps);
void sim_rest(struct sim *s);

void sim_trace(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first one counts. */
void sim_fail(struct sim *s, const char *invariant, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_print_tail(const struct sim *s, FILE *out);

int64_t sim_wall_ms(const struct sim *s);
/* Lets time pass, and everything happen that falls into it. */
void sim_advance(struct sim *s, int64_t us);
void sim_step_wall(struct sim *s, int64_t ms);

const char *short_id(const struct id *id, char out[static 9]);
#define SHORT(id) short_id(id, (char[9]){0})

/* --- the gateway (sim_gateway.c, sim_ops.c) ---------------------------------------------------- */

void gateway_start(struct sim *s);
void gateway_end(struct sim *s, enum disk_end how);
void gateway_stop(struct sim *s); /* as it is asked to */
void gateway_disk_back(struct sim *s);
void gateway_event(struct sim *s); /* whatever of its timers is due */
int64_t gateway_due_us(const struct sim *s);
void gateway_submit(struct sim *s, struct op *op); /* takes */
void session_stop(struct sim *s, int session);
void gateway_wait(struct sim *s, int session);
void gateway_group_committed(struct sim *s);
void gateway_group_failed(struct sim *s);
int gateway_audit_learn(struct sim *s, struct store *store, struct err *e) MUST_CHECK;
int gateway_keys_make(struct sim *s, const struct signing_key *extra, size_t extra_n,
                      struct keyset **ret, struct err *e) MUST_CHECK;

struct op *op_new(struct sim *s, enum op_kind kind, int api);
void op_free(struct op *op);
int op_run(struct store_tx *tx, void *arg, struct err *e);
void op_answered(struct op *op);
const char *op_name(enum op_kind kind);

/* --- the operator (sim_reset.c) ---------------------------------------------------------------- */

/* `leasehold clock-reset` on the store of the gateway that is stopped. False: it is to be done again. */
bool reset_clock(struct sim *s);
int reset_looked_at(struct op *op, struct store_tx *tx, struct err *e) MUST_CHECK;

/* --- the network (sim_net.c) ------------------------------------------------------------------- */

void net_connect(struct sim *s, struct sim_door *d);
void net_send_to_gateway(struct sim *s, struct sim_door *d, const struct door_msg *m);
void net_send_to_door(struct sim *s, uint64_t conn, const char *data, size_t len);
void net_damage(struct sim *s, struct sim_door *d);
void net_gateway_closes(struct sim *s, uint64_t conn);
void net_gateway_dead(struct sim *s);
void net_door_closes(struct sim *s, struct sim_door *d);
int64_t net_due_us(const struct sim *s);
void net_event(struct sim *s);
struct link *net_link(struct sim *s, uint64_t conn);
bool net_quiet(const struct sim *s);
void net_free(struct sim *s);

/* --- doors and clients (sim_door.c, sim_client.c) ---------------------------------------------- */

void door_start(struct sim *s, int session, bool zombie);
void door_die(struct sim *s, struct sim_door *d);
void door_receive(struct sim *s, struct sim_door *d, const char *text, size_t len);
void door_link_gone(struct sim *s, struct sim_door *d);
int64_t door_due_us(const struct sim *s, const struct sim_door *d);
void door_event(struct sim *s, struct sim_door *d);
void door_break_link(struct sim *s, struct sim_door *d);
void door_settle(struct sim *s, struct sim_door *d); /* behind every call of its core */
struct sim_door *door_next(struct sim *s, int *at);

void client_connect(struct sim *s, struct sim_door *d);
void client_talk(struct sim *s, struct sim_door *d);
void client_leave(struct sim *s, struct sim_door *d);
void client_admitted(void *ctx, struct door_peer *peer);
void client_challenged(void *ctx, struct door_peer *peer);
void client_closed(void *ctx, struct door_peer *peer, int code);
void client_prove(struct sim *s, struct sim_door *d, struct client *c);
void client_gone(struct sim *s, struct sim_door *d, struct client *c);

/* --- facts (sim_facts.c) ----------------------------------------------------------------------- */

void facts_commit(struct sim *s, struct op *op, int64_t at_us);
int facts_lease(const struct sim *s, const struct id *lease_id);     /* -1: none */
int facts_session(const struct sim *s, const struct id *session_id); /* -1: none */
/* Was the lease in the allow-set of a log applied up to `seq`, and with which end? */
bool facts_allowed(const struct sim *s, const struct lease_fact *f, int64_t seq,
                   int64_t *ret_exp_s);
/* The keys as of `seq` of a session's log. */
bool facts_trusts(const struct sim *s, int session, int64_t seq, const char *kid, int64_t iat);
bool facts_may(const struct sim *s, int api, const struct id *user_id);
bool facts_open(const struct lease_fact *f);
int facts_signer(const struct sim *s, const char *kid);
void facts_learn(struct sim *s, int64_t audit_n); /* a broken-off group: was it committed? */

/* --- introspection (sim_introspect.c) ---------------------------------------------------------- */

void introspect_any(struct sim *s); /* asks of some token, for some caller */

/* --- what happens (sim_actions.c) -------------------------------------------------------------- */

void sim_act_first(struct sim *s); /* a session of each chat */
void sim_act(struct sim *s);
void sim_grant(struct sim *s, int session, int api, int64_t ttl_s);
void sim_clock_far(struct sim *s, int64_t ms); /* 0: it comes back */

#endif
