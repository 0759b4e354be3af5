/*
 * How messages of the link reach the agent and back. One implementation a file; leaseinit picks it
 * by the word before ':' in TRANSPORT. The main loop polls the link and the transport together and
 * calls step() after every poll.
 */
#ifndef INIT_TRANSPORT_H
#define INIT_TRANSPORT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "init_agent.h"
#include "init_link.h"

#define DIAL_CONNS_MAX    64 /* on their way to the door at once */
#define TRANSPORT_FDS_MAX DIAL_CONNS_MAX

struct transport;

struct transport_vtable {
    const char *name;

    /* Checks the whole TRANSPORT word. NULL with a message on stderr: it is not valid. */
    struct transport *(*new)(const char *word);

    /* Starts the agent with its descriptors as this transport needs them. -1 with errno. */
    int (*start)(struct transport *t, struct agent *a, char **command);

    /* Can the agent be talked to? Asked until it says so, and from then on the door is told. */
    bool (*ready)(struct transport *t);

    /* When step() has to come without any event, in mono_ms(); 0: never. */
    int64_t (*due_ms)(const struct transport *t);

    /* What to wait for now; unused entries have fd -1. Returns the number of entries. */
    size_t (*fds)(struct transport *t, const struct link *l, struct pollfd *ret);

    /* Moves what can be moved both ways without blocking. -1: the door broke the protocol. */
    int (*step)(struct transport *t, struct link *l, const struct pollfd *fds);

    /* After the agent's end: true once all its output is in frames of the link. */
    bool (*drained)(struct transport *t, struct link *l);
};

struct transport {
    const struct transport_vtable *v;
};

extern const struct transport_vtable transport_stdio, transport_tcp, transport_unix, transport_ws;

#endif
