/*
 * The door's connection to its gateway: a WebSocket over the node's unix socket, opened again and
 * again for as long as the door lives. It carries messages; what they mean is the core's business.
 * Loop thread only.
 */
#ifndef LEASEHOLD_DOOR_CONTROL_H
#define LEASEHOLD_DOOR_CONTROL_H

#include <stdbool.h>

#include "leasehold/door_proto.h"
#include "leasehold/log.h"
#include "loop.h"

struct control_events {
    void *ctx;
    /* Connected: fill the HELLO. -1 ends the connection. */
    int (*hello)(void *ctx, struct door_msg *ret, struct err *e);
    void (*hello_sent)(void *ctx, struct door_msg *m); /* to free what `hello` put into it */
    /* A message; -1 ends the connection (and a new HELLO follows). */
    int (*message)(void *ctx, const struct door_msg *m, struct err *e);
    void (*ended)(void *ctx);
    int64_t (*gateway_ms)(void *ctx); /* for our PING */
};

struct control;

struct control *control_new(struct loop *l, struct log *log, const struct control_events *events,
                            struct err *e);

/* Drops the message when there is no connection. */
void control_send(struct control *c, const struct door_msg *m);
void control_flush(struct control *c);     /* at the end of a round: what must not wait goes out */
void control_reconnect(struct control *c); /* for a new SNAPSHOT */
bool control_is_idle(const struct control *c); /* nothing waits to be sent */

#endif
