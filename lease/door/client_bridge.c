/* A client and its bridge: each piece of a message goes on as it comes, and neither side is read
 * while the other does not take. */
#include <string.h>

#include "client.h"

#define PIECES_A_TURN 4 /* then others get theirs */

_Static_assert(BRIDGE_ROOM >= WS_HEADER_OUT_MAX, "no room for a frame header");

/* --- life ------------------------------------------------------------------------------------ */

void client_admitted(struct client *cl)
{
    struct bridges *bridges = agent_bridges(server_agent(cl->server));

    client_buf_wipe(&cl->in);
    if (!bridges) {
        client_ready(cl);
        return;
    }
    cl->bridge = bridge_new(bridges, cl);
    if (!cl->bridge)
        client_refuse(cl, CLOSE_NOT_LIVE, "no_bridge");
    client_flow(cl);
}

static void bridge_came_up(void *client)
{
    client_ready(client);
}

/* Written at once if the socket takes it: to wait for it to be writable costs a round of the loop. In
 * the middle of a long message it is a gain: more comes meanwhile, and goes on together. */
static void bridge_readable(void *client)
{
    struct client *cl = client;

    if (cl->out_head || bridge_has_much(cl->bridge))
        wire_want(&cl->wire);
    else
        client_bridge_write(cl);
}

static void bridge_drained(void *client)
{
    client_flow(client);
}

static void bridge_failed(void *client)
{
    struct client *cl = client;

    cl->bridge = NULL;
    client_refuse(cl, CLOSE_NOT_LIVE, "agent_does_not_answer");
}

const struct bridge_ops client_bridge_ops = {.up = bridge_came_up,
                                             .readable = bridge_readable,
                                             .drained = bridge_drained,
                                             .failed = bridge_failed};

void client_bridge_leave(struct client *cl, bool deliver, int code, const void *reason, size_t len)
{
    struct bridge *b = cl->bridge;

    cl->bridge = NULL;
    if (b)
        bridge_leave(b, deliver, code, reason, len);
}

/* --- from the client ------------------------------------------------------------------------- */

/* Recorded is the last piece before it goes on: whoever has an answer finds the question. */
static void piece_pass(struct client *cl, const struct bridge_piece *piece)
{
    if (piece->text)
        spool_piece(server_spool(cl->server), &cl->said, &cl->peer.claims.user_id, piece->data,
                    piece->len, piece->fin);
    if (!bridge_send(cl->bridge, piece))
        client_refuse(cl, CLOSE_LIMIT, "too_much");
}

static void piece_send(struct client *cl, const struct bridge_piece *piece)
{
    if (piece->text &&
        !utf8_stream_take(&cl->utf8, (const char *)piece->data, piece->len, piece->fin))
        client_refuse(cl, WS_CODE_NOT_UTF8, "not_utf8");
    else
        piece_pass(cl, piece);
}

void client_bridge_piece(struct client *cl, const struct ws_event *event)
{
    struct bridge_piece piece = {.text = event->text,
                                 .first = event->first,
                                 .fin = event->fin,
                                 .data = (unsigned char *)(uintptr_t)event->data,
                                 .len = event->len};

    if (!cl->bridge ||
        !door_core_pass_in(server_core(cl->server), &cl->peer, event->len, loop_now_us()))
        return;
    if (!bridge_is_up(cl->bridge)) {
        client_refuse(cl, CLOSE_LIMIT, "too_early");
        return;
    }
    piece_send(cl, &piece);
    client_flow(cl);
}

/* --- to the client --------------------------------------------------------------------------- */

/* The header stands in the room before the piece. */
static int piece_write(struct client *cl, const struct bridge_piece *piece)
{
    struct ws_frame f = {.fin = piece->fin, .opcode = WS_CONTINUATION, .len = piece->len};
    uint8_t head[WS_HEADER_OUT_MAX];
    size_t n;

    if (piece->first)
        f.opcode = piece->text ? WS_TEXT : WS_BINARY;
    n = ws_frame_put(head, &f);
    memcpy(piece->data - n, head, n);
    return wire_send(&cl->wire, &(struct iovec){piece->data - n, n + piece->len}, 1);
}

/* Without the right to read it is dropped. */
static bool may_pass(struct client *cl, size_t len)
{
    return door_core_pass_out(server_core(cl->server), &cl->peer, len, loop_now_us());
}

/* One piece; false: there is none, or the connection is broken. */
static bool piece_next(struct client *cl)
{
    struct bridge_piece piece;
    int code;

    switch (bridge_next(cl->bridge, &piece, &code)) {
    case BRIDGE_NOTHING:
        return false;
    case BRIDGE_END:
        cl->close_is_agents = true;
        client_refuse(cl, code, "agent_closed");
        return false;
    case BRIDGE_PIECE:
        break;
    }
    if (piece.text)
        spool_piece(server_spool(cl->server), &cl->heard, NULL, piece.data, piece.len, piece.fin);
    if (may_pass(cl, piece.len) && piece_write(cl, &piece) < 0)
        return false;
    if (!cl->bridge) /* it was cut at the question */
        return false;
    bridge_took(cl->bridge);
    return true;
}

void client_bridge_write(struct client *cl)
{
    if (!bridge_is_up(cl->bridge) || wire_flush(&cl->wire) < 0)
        return;
    for (int i = 0; i < PIECES_A_TURN && !cl->wire.blocked; i++) {
        if (!piece_next(cl))
            return;
        if (bridge_has_much(cl->bridge))
            break;
    }
    wire_want(&cl->wire);
}
