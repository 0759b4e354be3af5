/*
 * What the door decides, without doing any of it: which token is admitted, what may pass, when a
 * connection ends. No I/O, no clock, no library but the token codec: time comes in as
 * microseconds of CLOCK_BOOTTIME, actions go out through struct door_core_io. So a simulation can
 * drive it through any interleaving (docs/leases.md "Invariants").
 *
 * Life: boot (deny) → sync (deny) → live → stale → sealed → live again after a SNAPSHOT.
 * The loop thread only. The I/O owns every struct door_peer and embeds it in its connection.
 *
 * Calls of `io` may come from inside any door_core_* call but door_core_gone: the I/O must only
 * note what to do and do it afterwards, so that no door_core_* call nests in another. Except that
 * `admitted` and `challenge` may refuse the very peer they are about.
 */
#ifndef LEASEHOLD_DOOR_CORE_H
#define LEASEHOLD_DOOR_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "leasehold/door_proto.h"
#include "leasehold/proof.h"
#include "leasehold/token.h"

enum door_state { DOOR_BOOT, DOOR_SYNC, DOOR_LIVE, DOOR_STALE, DOOR_SEALED };

enum peer_state {
    PEER_NEW,      /* no token yet */
    PEER_WAITING,  /* its token is newer than what the door has applied */
    PEER_PROVING,  /* asked for the proof that it holds the key its token names */
    PEER_ADMITTED, /* counted at its lease until door_core_gone */
    PEER_REFUSED,
};

struct door_lease;

/* A client's connection. Zeroed by the I/O before its first use. */
struct door_peer {
    enum peer_state state;
    bool revoked; /* set before anything else at a cut: no byte passes any more */
    int code;     /* why it was closed; 0: it was not, by us */
    unsigned scope;
    struct door_lease *lease; /* ADMITTED */
    struct token_claims claims;
    int64_t wait_until_us;        /* WAITING, PROVING */
    char nonce[PROOF_NONCE_TEXT]; /* PROVING */
    bool proved;
    int64_t bytes_in, bytes_out;
    struct door_peer *prev, *next; /* in its lease's or the core's list */
};

struct door_core_io {
    void *ctx;
    /* `peer` was admitted: send it `ready`, then let it talk. */
    void (*admitted)(void *ctx, struct door_peer *peer);
    /* Send `peer` the challenge with peer->nonce. */
    void (*challenge)(void *ctx, struct door_peer *peer);
    void (*random)(void *ctx, void *to, size_t len);
    /* End the connection with this code. If peer->revoked is set, and it is except with
     * CLOSE_AGENT_ENDED and CLOSE_SLOW_READER, nothing that is queued may go out any more. After
     * those two a second, harder close may follow; otherwise once a peer. */
    void (*close)(void *ctx, struct door_peer *peer, int code);
    /* Send to the gateway if it is connected, else drop. Borrows *m. */
    void (*send)(void *ctx, const struct door_msg *m);
};

struct door_core_config {
    struct id session_id, boot_id;
    int64_t ep;
    const char *issuer, *node; /* borrowed for the core's life */
    int64_t leeway_s, ttl_max_s, stale_s, seal_s;
    int64_t life_s; /* then it ends, sealed; 0: never of itself */
};

struct door_core;

/* NULL without memory. */
struct door_core *door_core_new(const struct door_core_config *config,
                                const struct door_core_io *io, int64_t now_us);
void door_core_free(struct door_core *c); /* every peer must be gone */

/* --- the gateway's side -------------------------------------------------------------------- */

/* A control connection is open: fills the HELLO to send (all but `secret`). conns.items and
 * consumed.items are malloc'd for the caller. Until its SNAPSHOT nothing the gateway says counts. */
int door_core_hello(struct door_core *c, int64_t now_us, struct door_msg *ret,
                    struct err *e) MUST_CHECK;
void door_core_unlinked(struct door_core *c);

/* Applies a message. -1: out of order or malformed, drop the connection and say HELLO again. */
int door_core_receive(struct door_core *c, const struct door_msg *m, int64_t now_us,
                      struct err *e) MUST_CHECK;

/* To be called when the closes asked for by earlier calls are under way: acknowledges what was
 * applied since the last call, with the time it took. */
void door_core_flush(struct door_core *c, int64_t now_us);

/* --- time ---------------------------------------------------------------------------------- */

int64_t door_core_deadline_us(const struct door_core *c); /* when to call tick; INT64_MAX: never */
void door_core_tick(struct door_core *c, int64_t now_us);

/* --- clients ------------------------------------------------------------------------------- */

/* Judges a token. The answer comes by io->admitted or io->close, perhaps later (WAITING),
 * perhaps after a challenge (PROVING). */
void door_core_present(struct door_core *c, struct door_peer *peer, const char *token, size_t len,
                       int64_t now_us);

/* Judges the answer to a challenge, like a token. */
void door_core_prove(struct door_core *c, struct door_peer *peer, const struct proof *proof,
                     int64_t now_us);

/* Refuses or ends a connection for a reason of the I/O's; `verdict` is a constant for the audit. */
void door_core_refuse(struct door_core *c, struct door_peer *peer, int code, const char *verdict,
                      int64_t now_us);

/* The connection is really gone: the only call that frees its place. `code`: of the Close. */
void door_core_gone(struct door_core *c, struct door_peer *peer, int code);

/* May this message of `len` bytes pass? Counts it. From a client: false may close the peer. */
bool door_core_pass_in(struct door_core *c, struct door_peer *peer, size_t len, int64_t now_us);
bool door_core_pass_out(struct door_core *c, struct door_peer *peer, size_t len, int64_t now_us);

/* --- the agent ------------------------------------------------------------------------------ */

void door_core_agent(struct door_core *c, enum door_agent agent, int64_t now_us);

/* --- looking -------------------------------------------------------------------------------- */

enum door_state door_core_state(const struct door_core *c);
const char *door_state_name(enum door_state s);
int64_t door_core_applied(const struct door_core *c);
int64_t door_core_gateway_ms(const struct door_core *c, int64_t now_us); /* 0: not known yet */
int64_t door_core_expires_ms(const struct door_peer *peer);              /* of its lease */
size_t door_core_live(const struct door_core *c, const struct id *jti);
bool door_core_wants_resync(const struct door_core *c); /* silent for stale_s: reconnect */
bool door_core_done(const struct door_core *c);         /* nothing left to serve: exit 0 */

#endif
