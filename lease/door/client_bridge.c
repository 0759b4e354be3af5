/* A client and its bridge: each piece of a message goes on as it comes, and neither side is read
 * while the other does not take. */
#include "client.h"
#include "leasehold/agent_link.h"

#define PIECES_A_TURN 4 /* then others get theirs */

_Static_assert(BRIDGE_ROOM >= LWS_PRE, "no room for a frame header");

static void refuse(struct client *cl, int code, const char *why)
{
    door_core_refuse(server_core(cl->server), &cl->peer, code, why, loop_now_us());
}

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
        refuse(cl, CLOSE_NOT_LIVE, "no_bridge");
    client_flow(cl);
}

static void bridge_came_up(void *client)
{
    client_ready(client);
}

/* Written at once if the socket takes it: to wait for a WRITEABLE costs a round of the loop. In the
 * middle of a long message it is a gain: more comes meanwhile, and goes on together. */
static void bridge_readable(void *client)
{
    struct client *cl = client;

    if (!cl->upgraded || cl->out_head || bridge_has_much(cl->bridge) ||
        lws_partial_buffered(cl->wsi) || lws_send_pipe_choked(cl->wsi))
        lws_callback_on_writable(cl->wsi);
    else if (client_bridge_write(cl, cl->wsi) < 0)
        lws_set_timeout(cl->wsi, 1, LWS_TO_KILL_ASYNC);
}

static void bridge_drained(void *client)
{
    client_flow(client);
}

static void bridge_failed(void *client)
{
    struct client *cl = client;

    cl->bridge = NULL;
    refuse(cl, CLOSE_NOT_LIVE, "agent_does_not_answer");
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
        refuse(cl, CLOSE_LIMIT, "too_much");
}

static void piece_send(struct client *cl, const struct bridge_piece *piece)
{
    if (piece->first)
        cl->message_bytes = 0;
    cl->message_bytes += piece->len;
    cl->in_message = !piece->fin;
    if (cl->message_bytes > LINK_MESSAGE_MAX)
        refuse(cl, CLOSE_LIMIT, "message_too_long");
    else if (piece->text &&
             !utf8_stream_take(&cl->utf8, (const char *)piece->data, piece->len, piece->fin))
        refuse(cl, CLOSE_BAD_TEXT, "not_utf8");
    else
        piece_pass(cl, piece);
}

void client_bridge_piece(struct client *cl, struct lws *wsi, char *in, size_t len)
{
    struct bridge_piece piece = {.text = !lws_frame_is_binary(wsi),
                                 .first = !cl->in_message,
                                 .fin = lws_is_final_fragment(wsi),
                                 .data = (unsigned char *)in,
                                 .len = len};

    if (!cl->bridge || !door_core_pass_in(server_core(cl->server), &cl->peer, len, loop_now_us()))
        return;
    if (!bridge_is_up(cl->bridge)) {
        refuse(cl, CLOSE_LIMIT, "too_early");
        return;
    }
    if (len > 0 || piece.first || piece.fin)
        piece_send(cl, &piece);
    client_flow(cl);
}

/* --- to the client --------------------------------------------------------------------------- */

static int piece_write(struct lws *wsi, const struct bridge_piece *piece)
{
    int how = LWS_WRITE_CONTINUATION;

    if (piece->first)
        how = piece->text ? LWS_WRITE_TEXT : LWS_WRITE_BINARY;
    if (!piece->fin)
        how |= LWS_WRITE_NO_FIN;
    return lws_write(wsi, piece->data, piece->len, (enum lws_write_protocol)how) < 0 ? -1 : 0;
}

/* Without the right to read it is dropped. */
static bool may_pass(struct client *cl, size_t len)
{
    return door_core_pass_out(server_core(cl->server), &cl->peer, len, loop_now_us());
}

/* One piece; false: there is none, or no more can be written for now. */
static bool piece_next(struct client *cl, struct lws *wsi, int *ret)
{
    struct bridge_piece piece;
    int code;

    switch (bridge_next(cl->bridge, &piece, &code)) {
    case BRIDGE_NOTHING:
        return false;
    case BRIDGE_END:
        cl->close_is_agents = true;
        refuse(cl, code, "agent_closed");
        return false;
    case BRIDGE_PIECE:
        break;
    }
    if (piece.text)
        spool_piece(server_spool(cl->server), &cl->heard, NULL, piece.data, piece.len, piece.fin);
    if (may_pass(cl, piece.len) && piece_write(wsi, &piece) < 0) {
        *ret = -1;
        return false;
    }
    if (!cl->bridge) /* it was cut at the question */
        return false;
    bridge_took(cl->bridge);
    return true;
}

int client_bridge_write(struct client *cl, struct lws *wsi)
{
    int ret = 0;

    if (!bridge_is_up(cl->bridge))
        return 0;
    for (int i = 0; i < PIECES_A_TURN; i++) {
        if (!piece_next(cl, wsi, &ret))
            return ret;
        if (bridge_has_much(cl->bridge) || lws_partial_buffered(wsi) || lws_send_pipe_choked(wsi))
            break;
    }
    lws_callback_on_writable(wsi);
    return 0;
}
