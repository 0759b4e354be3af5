/* What a client sends, taken apart and passed on piece by piece where it was read. */
#include <string.h>

#include "client.h"
#include "leasehold/agent_link.h"
#include "leasehold/json.h"

#define CLIENT_WENT 1001 /* what an agent is told of a client that said no code */

void client_refuse(struct client *cl, int code, const char *why)
{
    door_core_refuse(server_core(cl->server), &cl->peer, code, why, loop_now_us());
}

/* --- messages -------------------------------------------------------------------------------- */

/* Until it is admitted a client sends one short message at a time. */
static void auth_piece(struct client *cl, const struct ws_event *event)
{
    buf_add(&cl->in, event->data, event->len);
    if (!event->text || !buf_ok(&cl->in))
        client_refuse(cl, CLOSE_UNAUTHENTICATED, "auth_message");
    else if (event->fin)
        client_auth_take(cl);
}

static void line_take(struct client *cl, const char *line, size_t len)
{
    if (!utf8_valid(line, len)) {
        client_refuse(cl, WS_CODE_NOT_UTF8, "not_utf8");
        return;
    }
    spool_message(server_spool(cl->server), &cl->peer.claims.user_id, line, len);
    if (!agent_line(server_agent(cl->server), line, len))
        server_flow(cl->server);
}

static void line_gather(struct client *cl, const struct ws_event *event)
{
    buf_add(&cl->in, event->data, event->len);
    if (!buf_ok(&cl->in)) {
        client_refuse(cl, CLOSE_LIMIT, "line_too_long");
        return;
    }
    if (!event->fin)
        return;
    line_take(cl, cl->in.data, cl->in.len);
    if (cl->in.size > CLIENT_RX_MAX)
        buf_done(&cl->in);
    else
        buf_reset(&cl->in);
}

static void line_piece(struct client *cl, const struct ws_event *event)
{
    if (!door_core_pass_in(server_core(cl->server), &cl->peer, event->len, loop_now_us()))
        return;
    if (!event->text || (event->len > 0 && memchr(event->data, '\n', event->len)))
        client_refuse(cl, CLOSE_UNSUPPORTED, "not_a_line");
    else if (event->first && event->fin)
        line_take(cl, (const char *)event->data, event->len);
    else
        line_gather(cl, event);
}

static void piece_take(struct client *cl, const struct ws_event *event)
{
    if (cl->peer.revoked || cl->peer.code != 0)
        return;
    if (cl->peer.state == PEER_NEW || cl->peer.state == PEER_PROVING)
        auth_piece(cl, event);
    else if (cl->peer.state == PEER_ADMITTED && agent_bridges(server_agent(cl->server)))
        client_bridge_piece(cl, event);
    else if (cl->peer.state == PEER_ADMITTED)
        line_piece(cl, event);
    else /* it is not read while it waits */
        client_refuse(cl, CLOSE_LIMIT, "too_early");
}

/* --- frames ---------------------------------------------------------------------------------- */

/* The latest one is answered: enough, and bounded. */
static void ping_take(struct client *cl, const struct ws_event *event)
{
    cl->owes_pong = true;
    cl->pong_len = event->len;
    if (event->len > 0)
        memcpy(cl->pong, event->data, event->len);
    server_dirty(cl->server, cl);
}

static void peer_closes(struct client *cl, const struct ws_event *event)
{
    const uint8_t code[] = {(uint8_t)(event->code >> 8), (uint8_t)event->code};
    struct ws_frame f = {
        .fin = true, .opcode = WS_CLOSE, .len = event->code == WS_CODE_NONE ? 0 : sizeof(code)};
    uint8_t head[WS_HEADER_OUT_MAX];

    cl->peer_closed = true;
    if (cl->step == CLOSE_STEP_ASKED) /* ours follows, and is the answer */
        return;
    if (cl->step < CLOSE_STEP_ASKED) {
        cl->peer_code = (int)event->code;
        client_bridge_leave(cl, true, f.len > 0 ? (int)event->code : CLIENT_WENT, event->data,
                            event->len);
        wire_put(&cl->wire, head, ws_frame_put(head, &f));
        wire_put(&cl->wire, code, (size_t)f.len);
    }
    client_over(cl);
}

static void fault_take(struct client *cl, const struct ws_event *event)
{
    if (cl->step >= CLOSE_STEP_SENT)
        client_over(cl);
    else if (event->code == WS_CODE_TOO_BIG)
        client_refuse(cl, CLOSE_LIMIT, "message_too_long");
    else
        client_refuse(cl, (int)event->code, "bad_frame");
}

static size_t frames_take(struct client *cl, char *data, size_t len)
{
    struct ws_event event;
    size_t used = ws_reader_next(&cl->reader, (uint8_t *)data, len, SIZE_MAX, &event);

    switch (event.kind) {
    case WS_GOT_PIECE:
        piece_take(cl, &event);
        break;
    case WS_GOT_PING:
        ping_take(cl, &event);
        break;
    case WS_GOT_CLOSE:
        peer_closes(cl, &event);
        break;
    case WS_GOT_FAULT:
        fault_take(cl, &event);
        break;
    case WS_GOT_PONG:
    case WS_GOT_MORE:
        break;
    }
    return used;
}

/* --- bytes ----------------------------------------------------------------------------------- */

static void feed(struct client *cl, char *data, size_t len)
{
    while (len > 0 && !cl->peer_closed) {
        size_t used;

        if (cl->rx_paused) {
            buf_add(&cl->stash, data, len);
            if (!buf_ok(&cl->stash))
                client_refuse(cl, CLOSE_LIMIT, "no_memory");
            return;
        }
        used = cl->upgraded ? frames_take(cl, data, len) : client_head_take(cl, data, len);
        data += used;
        len -= used;
    }
}

/* Tokens come by here: no byte of a client that was not admitted stays in memory. */
static void feed_wiping(struct client *cl, char *data, size_t len)
{
    bool wipe = cl->peer.state != PEER_ADMITTED;

    feed(cl, data, len);
    if (wipe)
        explicit_bzero(data, len);
}

void client_stash_feed(struct client *cl)
{
    struct buf came = cl->stash;

    if (came.len == 0 || cl->rx_paused)
        return;
    buf_init(&cl->stash, CLIENT_RX_MAX);
    feed_wiping(cl, came.data, came.len);
    buf_done(&came);
}

void client_readable(struct client *cl)
{
    char *to = server_scratch(cl->server);
    ssize_t n;

    client_stash_feed(cl);
    if (cl->rx_paused || cl->step == CLOSE_STEP_KILLED)
        return;
    n = wire_read(&cl->wire, to, CLIENT_RX_MAX);
    if (n > 0)
        feed_wiping(cl, to, (size_t)n);
    else if (n == 0)
        client_kill(cl);
}
