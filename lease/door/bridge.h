/*
 * Transports with a connection of the agent for each client: a bridge is that connection, which
 * leaseinit has made and handed over (leasehold/agent_link.h, from DIAL to CONN). It belongs to one
 * client, holds one piece each way and reads no more before that is taken, so whoever does not take
 * holds up who sends. All that comes from there is hostile, the descriptor itself included, and harms
 * its own sandbox only.
 *
 * Loop thread only. No libwebsockets here: client_bridge.c is the other end.
 */
#ifndef LEASEHOLD_DOOR_BRIDGE_H
#define LEASEHOLD_DOOR_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop.h"

#define BRIDGES_MAX        64
#define BRIDGE_ROOM        16u  /* bytes before a piece that may be written on */
#define CLOSE_AGENT_FAILED 1011 /* the agent's side broke off or made no sense */

struct bridges;
struct bridge;

/* What a bridge tells its client. */
struct bridge_ops {
    void (*up)(void *client);       /* it stands */
    void (*readable)(void *client); /* bridge_next has something to say */
    void (*drained)(void *client);  /* bridge_is_full no more */
    void (*failed)(void *client);   /* it will not stand */
};

struct bridges_events {
    void *ctx;
    /* Sends DIAL; false: not now. */
    bool (*dial)(void *ctx, uint32_t number);
    /* Has the agent ended? Asked before the end of a connection is made the end of its client; takes
     * in what the link has to say first. */
    bool (*ending)(void *ctx);
    void (*ended)(void *ctx); /* after bridges_end: the agent has said its last */
};

enum bridge_kind { BRIDGE_TCP, BRIDGE_UNIX, BRIDGE_WS };

/* NULL without memory. */
struct bridges *bridges_new(struct loop *l, enum bridge_kind kind,
                            const struct bridges_events *events, const struct bridge_ops *ops);

void bridges_adopt(struct bridges *bs, int fd); /* takes a connection just accepted */
void bridges_failed(struct bridges *bs, uint32_t number);

/* The agent has ended: what is under way may still come, for a moment; then events.ended. */
void bridges_end(struct bridges *bs);

/* --- for the client's side ------------------------------------------------------------------- */

/* Dials. NULL: no room or no memory; then nothing follows. */
struct bridge *bridge_new(struct bridges *bs, void *client);

/* The client goes. `deliver`: what it has said still goes down, then a Close with `code` (0: none).
 * Without, nothing of what it said is sent any more; where that leaves whole frames, a Close is. */
void bridge_leave(struct bridge *b, bool deliver, int code, const void *reason, size_t len);

bool bridge_is_up(const struct bridge *b);

struct bridge_piece {
    bool text, first, fin;
    unsigned char *data; /* with BRIDGE_ROOM before it */
    size_t len;
};

/* Sends a piece of a client's message; all of it is taken. False: it cannot be. */
bool bridge_send(struct bridge *b, const struct bridge_piece *piece);
bool bridge_is_full(const struct bridge *b); /* send no more before `drained` */

enum bridge_said { BRIDGE_NOTHING, BRIDGE_PIECE, BRIDGE_END };

/* What the agent said next. A piece stays until bridge_took. BRIDGE_END: the code to close with;
 * nothing follows. BRIDGE_NOTHING: `readable` will be called. */
enum bridge_said bridge_next(struct bridge *b, struct bridge_piece *ret, int *ret_code);
void bridge_took(struct bridge *b);

/* Is more under way than is worth hurrying for? */
bool bridge_has_much(const struct bridge *b);

#endif
