/*
 * One WebSocket connection to a door, on a thread of its own: the only place of leasectl that knows
 * libwebsockets. What comes in goes to a queue, what is in the other queue goes out; an eventfd
 * wakes the user whenever something has changed.
 *
 * Called from one thread, which also owns both queues and outlives the client with them. Messages
 * still in `out` when the connection ends stay there, for the next one.
 */
#ifndef CLI_DOOR_CLIENT_H
#define CLI_DOOR_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "leasehold/err.h"

#include "message_queue.h"

/* More than this in a queue stops its source; below half of it the source goes on. */
#define DOOR_CLIENT_QUEUE_MAX (1024 * 1024)

struct door_client_spec {
    const char *url;         /* ws://host:port/ or wss://… */
    const char *protocol;    /* subprotocol */
    const char *token;       /* sent as bearer, after the certificate was checked */
    const char *ca_pem;      /* of wss; NULL or "": the system's */
    const char *cert_sha256; /* of wss, hex: the one certificate accepted; NULL or "": any valid */
    struct message_queue *in, *out;
    int wake_fd;
};

struct door_client_end {
    int code; /* of the peer's Close frame; 0: the connection was lost or never came about */
    char reason[128];
};

struct door_client;

/* Copies the strings. Returns new and connects meanwhile; NULL with *e. */
struct door_client *door_client_start(const struct door_client_spec *spec, struct err *e);

/* Ends the connection at once, if it still lives, and waits for the thread. */
void door_client_free(struct door_client *c);

/* From now on what is in `out` is sent: the door has said that it is ready. */
void door_client_allow_sending(struct door_client *c);

/* Something was put into `out`, or taken from `in`. */
void door_client_notify(struct door_client *c);

/* Sends what is in `out`, then Close with 1000. */
void door_client_close(struct door_client *c);

/* Reads what has come and stands unread, and wakes the user behind that; then door_client_looked says
 * true, once. Whoever was held up longer than it wanted to wait learns so that it was not in vain. */
void door_client_look(struct door_client *c);
bool door_client_looked(struct door_client *c);

/* Has it ended? All it received is in `in` by then. */
bool door_client_ended(struct door_client *c, struct door_client_end *ret);

#endif
