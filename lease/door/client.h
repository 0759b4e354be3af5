/*
 * One client's connection: WebSocket on one side, the core and the agent on the other. server.c
 * owns the list of them and the listener; what the bytes mean is read by base's http_headers.c and
 * ws_reader.c. Loop thread only.
 */
#ifndef LEASEHOLD_DOOR_CLIENT_H
#define LEASEHOLD_DOOR_CLIENT_H

#include "core.h"
#include "crowd.h"
#include "leasehold/buf.h"
#include "leasehold/http_headers.h"
#include "leasehold/ws_reader.h"
#include "msg.h"
#include "server.h"
#include "utf8_stream.h"
#include "wire.h"

#define CLIENT_AUTH_MAX 4096 /* a message of a client that is not admitted yet */
#define CLIENT_PROTOCOL "leasehold.door.v1"
#define CLIENT_VANISHED 1006  /* the code of an end without a Close */
#define CLIENT_NAME_MAX 64    /* of a foreign subprotocol that is answered */
#define CLIENT_RX_MAX   65536 /* read at once: a piece of a message is no longer */

struct out_item {
    struct msg *msg;
    size_t chunk; /* the next one to send */
    struct out_item *next;
};

enum close_step {
    CLOSE_STEP_NONE,
    CLOSE_STEP_FLUSH, /* the Close follows when the queue is empty */
    CLOSE_STEP_ASKED, /* to be done outside of a read of its own */
    CLOSE_STEP_SENT,  /* a peer that does not answer is killed at `step_until_us` */
    CLOSE_STEP_KILLED,
};

struct client {
    struct door_peer peer;
    struct server *server;
    struct wire wire;
    bool upgraded;
    bool counted;          /* among those without an admitted token */
    int64_t auth_until_us; /* for those */
    struct crowd_entry crowd;
    struct ws_reader reader;
    struct buf in;         /* the head of the upgrade; then the message under way, where it is
                               needed whole */
    struct buf stash;      /* came while it was not read */
    struct bridge *bridge; /* from admission to the end, if the transport has any */
    struct utf8_stream utf8;
    struct spool_parts said, heard; /* the text messages over the bridge that are under way */
    bool close_is_agents;           /* the code is: no reason of ours goes with it */
    struct out_item *out_head, *out_tail;
    size_t out_bytes;
    bool owes_pong;
    size_t pong_len;
    uint8_t pong[WS_CONTROL_MAX];
    bool rx_paused;
    bool peer_closed; /* its Close, or the end, has come: no byte of it counts any more */
    enum close_step step;
    int close_code;
    int64_t step_until_us;
    int peer_code; /* of the client's own Close */
    bool dirty;    /* among those that server_step flushes */
    struct client *prev, *next;
    struct client *dirty_prev, *dirty_next;
};

/* A client on the socket, which it takes. NULL: no memory, with errno. */
struct client *client_new(struct server *s, int fd);
void client_free(struct client *cl); /* its wire has ended */

/* Queues text for the client; a reader too far behind is closed. Takes no reference. */
void client_send(struct client *cl, struct msg *m);

/* Ends the connection: noted here, done by client_step. */
void client_close(struct client *cl, int code);
void client_step(struct client *cl, int64_t now_us);
void client_over(struct client *cl); /* all is said on both sides: closes once that is out */
void client_kill(struct client *cl); /* closes without a word */
int64_t client_deadline_us(const struct client *cl);

/* Writes what waits, as far as the socket takes it. server_step calls it for those that asked by
 * server_dirty. */
void client_flush(struct client *cl);

/* Reads from the client or not, as its state and the agent's queue allow. */
void client_flow(struct client *cl);

/* --- client_head.c: until it speaks WebSocket ------------------------------------------------- */

/* Takes of the head what there is; at its end it is answered. Returns how many bytes it used. */
size_t client_head_take(struct client *cl, char *data, size_t len);

/* --- client_read.c ---------------------------------------------------------------------------- */

void client_readable(struct client *cl);
void client_stash_feed(struct client *cl); /* what came while it was not read, if it is again */
void client_refuse(struct client *cl, int code, const char *why);

/* --- client_auth.c: until `ready` ------------------------------------------------------------- */

void client_token_present(struct client *cl, const char *token, size_t len);
void client_auth_take(struct client *cl); /* the message in cl->in is whole */
void client_challenge(struct client *cl);
void client_ready(struct client *cl); /* admitted: says so and starts to listen */
void client_buf_wipe(struct buf *b);  /* done, and nothing of it left in memory */

/* --- client_bridge.c: the agent's connection of its own ---------------------------------------- */

void client_admitted(struct client *cl); /* ready, or once its bridge stands */
void client_bridge_piece(struct client *cl, const struct ws_event *event);
void client_bridge_write(struct client *cl); /* some pieces */
void client_bridge_leave(struct client *cl, bool deliver, int code, const void *reason, size_t len);

#endif
