/*
 * One client's connection: WebSocket on one side, the core and the agent on the other. server.c
 * owns the list of them and the listener. Loop thread only.
 */
#ifndef LEASEHOLD_DOOR_CLIENT_H
#define LEASEHOLD_DOOR_CLIENT_H

#include <libwebsockets.h>

#include "core.h"
#include "leasehold/buf.h"
#include "msg.h"
#include "server.h"
#include "utf8_stream.h"

#define CLIENT_AUTH_MAX 4096 /* a message of a client that is not admitted yet */
#define CLIENT_PROTOCOL "leasehold.door.v1"
#define CLIENT_VANISHED 1006 /* the code of an end without a Close */
#define CLIENT_NAME_MAX 64   /* of a subprotocol libwebsockets can take */
/* Of a frame that comes in one piece: what the loop reads at once (SERV_BUF), or each read would leave
 * a piece of a few bytes. */
#define CLIENT_RX_MAX   65536
#define CLOSE_BAD_FRAME 1002
#define CLOSE_BAD_TEXT  1007
#define CLOSE_CODE_MAX  4999

struct out_item {
    struct msg *msg;
    size_t chunk; /* the next one to send */
    struct out_item *next;
};

enum close_step {
    CLOSE_STEP_NONE,
    CLOSE_STEP_FLUSH, /* the Close follows when the queue is empty */
    CLOSE_STEP_ASKED, /* to be done outside of libwebsockets' callbacks */
    CLOSE_STEP_SENT,  /* a peer that does not answer is killed at `step_until_us` */
    CLOSE_STEP_KILLED,
};

struct client {
    struct door_peer peer;
    struct server *server;
    struct lws *wsi;
    bool upgraded;
    bool counted;          /* among those without an admitted token */
    int64_t auth_until_us; /* for those */
    int refuse_code;       /* found wrong with the upgrade; told once it is complete */
    const char *refuse_why;
    struct buf token;      /* of the upgrade */
    struct buf in;         /* the message under way, where it is needed whole */
    struct bridge *bridge; /* from admission to the end, if the transport has any */
    bool in_message;       /* over the bridge */
    size_t message_bytes;
    struct utf8_stream utf8;
    struct spool_parts said, heard; /* the text messages over the bridge that are under way */
    bool close_is_agents;           /* the code is: no reason of ours goes with it */
    struct out_item *out_head, *out_tail;
    size_t out_bytes;
    bool rx_paused;
    enum close_step step;
    int close_code;
    int64_t step_until_us;
    int peer_code; /* of the client's own Close */
    struct client *prev, *next;
};

/* The libwebsockets protocols of the clients' virtual host, whose user is the struct server.
 * `declined` is the second one's name: a buffer in which the callback answers an offer of
 * subprotocols that are all foreign, so that the upgrade completes and the client sees the code. */
void client_protocols_fill(struct lws_protocols protocols[static 3], const char *declined);

void client_free(struct client *cl); /* its wsi is gone */

/* Queues text for the client; a reader too far behind is closed. Takes no reference. */
void client_send(struct client *cl, struct msg *m);

/* Ends the connection: noted here, done by client_step. */
void client_close(struct client *cl, int code);
void client_step(struct client *cl, int64_t now_us);
int64_t client_deadline_us(const struct client *cl);

/* Reads from the client or not, as its state and the agent's queue allow. */
void client_flow(struct client *cl);

/* --- client_auth.c: until `ready` ------------------------------------------------------------- */

void client_token_present(struct client *cl, const char *token, size_t len);
void client_auth_take(struct client *cl); /* the message in cl->in is whole */
void client_challenge(struct client *cl);
void client_ready(struct client *cl); /* admitted: says so and starts to listen */
void client_buf_wipe(struct buf *b);  /* done, and nothing of it left in memory */

/* --- client_bridge.c: the agent's connection of its own ---------------------------------------- */

void client_admitted(struct client *cl); /* ready, or once its bridge stands */
void client_bridge_piece(struct client *cl, struct lws *wsi, char *in, size_t len);
int client_bridge_write(struct client *cl, struct lws *wsi); /* some pieces; -1: hang up */
void client_bridge_leave(struct client *cl, bool deliver, int code, const void *reason, size_t len);

#endif
