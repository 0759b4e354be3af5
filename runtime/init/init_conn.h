/*
 * One client's own connection to the agent, and the one to the door that belongs to it. Two flows
 * between them, and a codec that says what the bytes become on the way: raw bytes of tcp and unix
 * as they are, or WebSocket frames in frames of the link.
 *
 *   CONNECTING → SHAKING (ws) → JOINING (the door) → OPEN → LINGERING → free
 *        └──────────────┴─────────── FAILED (tells the door by DIAL_FAILED) ──┘
 */
#ifndef INIT_CONN_H
#define INIT_CONN_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "init_flow.h"

enum conn_state {
    CONN_FREE,
    CONN_CONNECTING,
    CONN_SHAKING,
    CONN_JOINING,
    CONN_OPEN,
    CONN_LINGERING, /* the door's side has ended; the agent gets its time to end */
    CONN_FAILED,
};

enum { CONN_FD_AGENT, CONN_FD_DOOR, CONN_FDS };

struct conn_address {
    struct sockaddr_storage addr;
    socklen_t len;
};

struct ws;

struct conn {
    enum conn_state state;
    uint32_t number;
    int agent_fd, door_fd;
    int64_t dial_by_ms; /* until then it has to be open */
    int64_t due_ms;     /* when time alone does something; 0: never */
    bool in_progress;   /* the connect is, so that poll() can tell of it */
    bool agent_ended;   /* nothing more comes from the agent */
    bool agent_said_so; /* by a Close of its own, which is an end that needs no further reason */
    bool agent_deaf;    /* it takes nothing more */
    bool door_ended;
    bool door_deaf;
    bool dry;     /* the last read of the agent found nothing */
    bool more_up; /* the codec holds more that it had no room to convert */
    bool more_down;
    struct flow *up;   /* to the door */
    struct flow *down; /* to the agent */
    struct ws *ws;     /* NULL with raw bytes */
};

struct codec {
    /* Begins a handshake with the agent. -1: no memory. Goes on by shake(): 1 done, 0 not yet, -1
     * refused. NULL: none is needed. */
    int (*begin)(struct conn *c, const void *ctx);
    int (*shake)(struct conn *c);
    /* Reads and converts as far as the flow has room: not at all while it is not empty. */
    void (*up)(struct conn *c);
    void (*down)(struct conn *c);
    /* The door's side has ended: says the last word to the agent. False: no room for it yet. */
    bool (*bye)(struct conn *c);
    void (*end)(struct conn *c);
};

int conn_socket(const struct conn_address *a); /* a non-blocking one, -1 with errno */

/* Takes up a client. -1: no memory; then the connection is FAILED. */
int conn_start(struct conn *c, uint32_t number, int64_t now_ms);
void conn_free(struct conn *c, const struct codec *codec);

void conn_fds(const struct conn *c, struct pollfd ret[static CONN_FDS]);

struct conn_context {
    const struct codec *codec;
    const void *codec_ctx;
    const struct conn_address *agent;
    bool agent_exited; /* then only EXIT tells the door of the end */
};

void conn_step(struct conn *c, const struct conn_context *x, const struct pollfd *fds,
               int64_t now_ms);

enum conn_rest { CONN_DRAINED, CONN_BLOCKED, CONN_HAS_MORE };

/* After the agent's end: is everything it said with the door? BLOCKED: not until the door takes
 * more; HAS_MORE: ask again. */
enum conn_rest conn_drain(struct conn *c, const struct conn_context *x);

#endif
