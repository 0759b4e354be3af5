/*
 * What the transports with one connection a client have in common: they wait until the agent
 * accepts connections, take DIAL frames off the link and hand a connection to the door for each.
 */
#ifndef INIT_DIAL_H
#define INIT_DIAL_H

#include "init_conn.h"
#include "init_transport.h"

/* 127.0.0.1 and the port at the start of `text`. Returns its number of digits, 0 if it is none. */
size_t dial_port(const char *text, struct conn_address *ret);

/* NULL with a message: no memory. `handshake` NULL: none; `handshake_ctx` is handed to its
 * begin() and never freed. */
struct transport *dial_new(const struct transport_vtable *v, const struct conn_address *agent,
                           const struct handshake *handshake, const void *handshake_ctx);

int dial_start(struct transport *t, struct agent *a, char **command);
bool dial_ready(struct transport *t);
size_t dial_fds(struct transport *t, const struct link *l, struct pollfd *ret);
int64_t dial_due_ms(const struct transport *t);
int dial_step(struct transport *t, struct link *l, const struct pollfd *fds);
bool dial_drained(struct transport *t, struct link *l);

/* A vtable; it differs by name and constructor. */
#define DIAL_TRANSPORT(word, constructor)                                                          \
    {                                                                                              \
        .name = (word), .new = (constructor), .start = dial_start, .ready = dial_ready,            \
        .fds = dial_fds, .due_ms = dial_due_ms, .step = dial_step, .drained = dial_drained         \
    }

#endif
