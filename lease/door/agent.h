/*
 * The agent's side of the door: agent.sock and the one link over it (leasehold/agent_link.h). All
 * that comes from there is hostile: a wrong frame ends the link, and an ended link stays ended.
 * Transport stdio carries lines over it; the others have bridges beside it.
 * Loop thread only.
 */
#ifndef LEASEHOLD_DOOR_AGENT_H
#define LEASEHOLD_DOOR_AGENT_H

#include <stdbool.h>
#include <stddef.h>

#include "bridge.h"
#include "leasehold/door_proto.h"
#include "leasehold/log.h"
#include "loop.h"

struct agent_events {
    void *ctx;
    void (*up)(void *ctx);
    void (*ended)(void *ctx, const char *why);
    void (*line)(void *ctx, const char *text, size_t len);
    void (*drained)(void *ctx); /* after agent_line said the queue is full: there is room again */
    /* Somebody of the sandbox other than leaseinit has connected; takes the descriptor. */
    void (*visitor)(void *ctx, int fd);
    const struct bridge_ops *bridge;
};

struct agent;

/* Takes the listening socket. `transport` is borrowed. */
struct agent *agent_new(struct loop *l, int listen_fd, const char *transport,
                        const struct agent_events *events, struct err *e);

/* Queues a line for the agent, also before it has connected. Always taken; false: the queue is
 * full now, send no more before `drained`. */
bool agent_line(struct agent *a, const char *text, size_t len);
bool agent_is_full(const struct agent *a);

/* NULL with stdio. */
struct bridges *agent_bridges(const struct agent *a);

/* Backpressure: while off, nothing more is read from the agent. */
void agent_read(struct agent *a, bool on);

#endif
