/*
 * The control protocol between gateway and door: one WebSocket (subprotocol
 * `leasehold.control.v1`, path /api/v1/door, on the node's unix socket) of JSON text messages.
 * docs/leases.md "Log and door protocol" is the model; this is its wire form.
 *
 *   door → HELLO{sid, ep, boot_id, secret, applied, agent, conns[], consumed[]}
 *   gw   → SNAPSHOT{seq, now, stale_s, seal_s, allow[], consumed[], keys[]}  replaces allow-set and
 *          keys at once; consumed are the `once` leases that have let in, whichever side knows of it
 *   gw   → DELTA{from, seq, now, stale_s, seal_s}  instead, when the door has applied `from` of this
 *          gateway's log and the rest is still known: the OPs from + 1 … seq follow, and the door is
 *          live once it has applied seq
 *   gw   → OP{seq, op, …}          seq = last applied + 1; anything else: the door resyncs
 *   door → ACK{seq, cut, latency_us}        cumulative
 *   door → AGENT{agent}            the agent's link came up or ended
 *   door → ACTIVITY{last_in, last_out, bytes_in, bytes_out, unrecorded, conns[]}  at most one a second
 *   door → ADMIT{jti} CLOSE{jti, code, bytes_in, bytes_out} DENY{verdict}
 *   door → PUT{n, path, name}      the agent wants a file stored as an artifact
 *   gw   → PUT_DONE{n, artifact, fault}     one of the two is ""
 *   both → PING{now}               every second; the gateway's carries its time, and the door answers
 *          it at once with the gateway's time as it knows it
 *   gw   → RETIRE                  the door closes everything and exits
 *
 * Shared by both sides; any thread; decoded strings live in the arena given.
 */
#ifndef LEASEHOLD_DOOR_PROTO_H
#define LEASEHOLD_DOOR_PROTO_H

#include "leasehold/field.h"
#include "leasehold/token.h"

#define DOOR_CONTROL_PATH     "/api/v1/door"
#define DOOR_CONTROL_PROTOCOL "leasehold.control.v1"
#define DOOR_CONTROL_SOCKET   "control.sock" /* in run_dir; the door's cwd is run_dir */
#define DOOR_CONTROL_MAX      (8 * 1024 * 1024)
#define DOOR_CLIENTS_MAX      512 /* connections of one door, admitted or not */
#define LEASE_CONNS_MAX       8   /* of one lease, whatever the policy */
#define DOOR_SECRET_TEXT      65  /* 32 random bytes in hex, and NUL */

enum door_msg_type {
    DOOR_HELLO,
    DOOR_SNAPSHOT,
    DOOR_OP,
    DOOR_ACK,
    DOOR_AGENT,
    DOOR_ACTIVITY,
    DOOR_ADMIT,
    DOOR_CLOSE,
    DOOR_DENY,
    DOOR_PING,
    DOOR_RETIRE,
    DOOR_DELTA,
    DOOR_PUT,
    DOOR_PUT_DONE,
};

enum door_op {
    DOOR_OP_GRANT,
    DOOR_OP_EXTEND,
    DOOR_OP_REVOKE,
    DOOR_OP_REVOKE_ALL,
    DOOR_OP_KEYS,
    DOOR_OP_REVOKE_LIST
};

enum door_agent { DOOR_AGENT_NONE, DOOR_AGENT_UP, DOOR_AGENT_ENDED };

/* Close codes at the door (docs/leases.md "Client protocol"). */
enum door_close {
    CLOSE_UNSUPPORTED = 1003,
    CLOSE_SLOW_READER = 1013,
    CLOSE_UNAUTHENTICATED = 4401, /* no, bad or expired token */
    CLOSE_REVOKED = 4403,
    CLOSE_IDLE = 4408,
    CLOSE_LIMIT = 4409,
    CLOSE_OLD_GENERATION = 4410,
    CLOSE_AGENT_ENDED = 4411,
    CLOSE_SCOPE = 4430,
    CLOSE_NOT_LIVE = 4503,
};

/* The constant reason text of a close code, "" if it is none of ours. */
const char *door_close_reason(int code);

/* An entry of the allow-set. */
struct door_allow {
    struct id jti;
    int64_t exp; /* seconds since the epoch */
    unsigned scope;
    int64_t mc;
    int use;
};

struct door_conn {
    struct id jti;
    int64_t n; /* live connections */
};

/* One message; which members count depends on `t`. Absent ones are zero. */
struct door_msg {
    int t; /* enum door_msg_type */
    /* HELLO */
    struct id sid;
    int64_t ep;
    struct id boot_id;
    char *secret;
    int64_t applied;
    int agent;            /* enum door_agent; also AGENT */
    struct list conns;    /* struct door_conn; also ACTIVITY */
    struct list consumed; /* struct id, of HELLO and SNAPSHOT; absent: none */
    int64_t from;         /* DELTA */
    /* SNAPSHOT, DELTA, OP, ACK */
    int64_t seq;
    int64_t now; /* ms, gateway wall time; also PING */
    int64_t stale_s, seal_s;
    struct list allow; /* struct door_allow */
    struct list keys;  /* struct key_public (kid, x, y as char arrays are sent as strings) */
    int op;            /* enum door_op */
    struct id jti;     /* also ADMIT, CLOSE */
    int64_t exp;
    unsigned scope;
    int64_t mc;
    int use;
    int64_t code;     /* close code of a REVOKE, of a CLOSE */
    struct list jtis; /* struct id, of REVOKE_LIST */
    int64_t cut, latency_us;
    /* ACTIVITY, CLOSE */
    int64_t last_in, last_out; /* ms, gateway time; 0 = never */
    int64_t bytes_in, bytes_out;
    int64_t unrecorded; /* ACTIVITY: messages that the history has lost so far; absent: 0 */
    char *verdict;      /* DENY: token_verdict_name or another constant */
    /* PUT, PUT_DONE */
    int64_t n; /* the door's, for the answer */
    char *path, *name;
    char *artifact, *fault;
};

/* Appends the message as JSON, members of its type only. */
void door_msg_encode(const struct door_msg *m, struct buf *out);

/* A SNAPSHOT in parts: the beginning, each entry of its allow-set, then the rest of *m. */
void door_snapshot_begin(struct buf *out);
void door_snapshot_allow(const struct door_allow *a, bool first, struct buf *out);
void door_snapshot_end(const struct door_msg *m, struct buf *out);

/* Decodes and checks: members that the type needs must be there. *ret is zeroed first. */
int door_msg_decode(const char *text, size_t len, struct arena *arena, struct door_msg *ret,
                    struct err *e) MUST_CHECK;

/*
 * How the gateway starts a door: `leasedoor` (no arguments, empty environment, own session, cwd =
 * run_dir) with descriptors
 *   3  the spec: one JSON object (struct door_spec) then end of file; holds the control secret
 *   4  the client listener, bound and listening
 *   5  with `record`: the spool (leasehold/spool.h), for reading and appending
 * The door then: binds <session_id>/box/agent.sock (0660, the agent's group) → opens and locks
 * <session_id>/door.pid ("PID STARTTICKS\n") → empty network namespace → drops to uid:gid, no new
 * privileges, not dumpable, no core → serves. Its log is stderr (the gateway gives it
 * <session_id>/door.log), cut at 1 MiB. Exit 0 after RETIRE, or when the agent has ended or life_s
 * is over and no gateway came back within the seal time; anything else is `door_lost`.
 */
struct door_spec {
    struct id session_id;
    int64_t ep;
    char *secret;
    char *issuer, *node;
    int64_t uid, gid;            /* of the door; used when started as root */
    int64_t agent_gid;           /* group of agent.sock */
    int64_t leeway_s, ttl_max_s; /* token checks */
    int64_t stale_s, seal_s;
    char *cert_pem, *key_pem; /* of the door's TLS; absent: plain. The key is secret */
    char *transport;          /* of the profile */
    struct list origins;      /* char *: allowed Origin values of browsers; empty: none */
    int64_t record; /* bytes of the spool that may wait for the gateway; 0: no recording */
    int64_t life_s; /* its sandbox has ended by then; 0: not known */
};
extern const struct field door_spec_fields[];

#define DOOR_PEM_MAX     32768 /* of a certificate chain, of a key */
#define DOOR_SPEC_FD     3
#define DOOR_LISTENER_FD 4
#define DOOR_SPOOL_FD    5
#define DOOR_PID_FILE    "door.pid"
#define DOOR_LOG_FILE    "door.log"

#endif
