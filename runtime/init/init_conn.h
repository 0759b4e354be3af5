/*
 * One client's connection to the agent on its way to the door: made here, where the agent is, and
 * handed over whole (leasehold/agent_link.h, from DIAL to CONN). Nothing of the talk passes here.
 *
 *   CONNECTING → SHAKING (ws) → JOINING (the door) → FREE
 *        └──────────────┴────────────┴─ FAILED (tells the door by DIAL_FAILED) → FREE
 */
#ifndef INIT_CONN_H
#define INIT_CONN_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum conn_state { CONN_FREE, CONN_CONNECTING, CONN_SHAKING, CONN_JOINING, CONN_FAILED };

struct conn_address {
    struct sockaddr_storage addr;
    socklen_t len;
};

struct conn {
    enum conn_state state;
    uint32_t number;
    int agent_fd, door_fd;
    int64_t dial_by_ms; /* until then it has to be with the door */
    int64_t due_ms;     /* when time alone does something; 0: never */
    bool in_progress;   /* the connect is, so that poll() can tell of it */
    void *shake;        /* the handshake's own; NULL: none goes on */
};

/* What has to be said to an agent before its connection is handed over; NULL: nothing. */
struct handshake {
    int (*begin)(struct conn *c, const void *ctx); /* -1: no memory */
    int (*step)(struct conn *c);                   /* 1: done, 0: not yet, -1: refused */
    bool (*wants_writable)(const struct conn *c);
    void (*end)(struct conn *c);
};

int conn_socket(const struct conn_address *a); /* a non-blocking one, -1 with errno */

void conn_start(struct conn *c, uint32_t number, int64_t now_ms);

struct conn_context {
    const struct handshake *handshake;
    const void *handshake_ctx;
    const struct conn_address *agent;
};

void conn_free(struct conn *c, const struct conn_context *x);

struct pollfd conn_poll(const struct conn *c, const struct conn_context *x);
void conn_step(struct conn *c, const struct conn_context *x, const struct pollfd *p,
               int64_t now_ms);

#endif
