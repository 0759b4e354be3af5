#include "client.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "leasehold/json.h"

#define BEARER        "Bearer "
#define OUT_MAX       (1024 * 1024) /* a reader further behind is closed */
#define OUT_CURRENT   (128 * 1024)  /* a reader at most so far behind may get any line */
#define OUT_ITEM_COST 64            /* what an empty line counts */
#define KILL_AFTER_US 100000        /* a peer gets so long to answer a Close */
#define FLUSH_US      2000000       /* and so long to take the agent's last words */
#define SLOW_FLUSH_US 5000000       /* or, too far behind, to come to the Close that says so */

_Static_assert(MSG_PRE >= LWS_PRE, "no room for a frame header");

#define CLIENT_WENT 1001 /* what an agent is told of a client that said no code */

enum client_protocol { PROTOCOL_DOOR, PROTOCOL_DECLINED };

/* --- the upgrade ----------------------------------------------------------------------------- */

static void refuse_later(struct client *cl, const char *why)
{
    if (cl->refuse_code)
        return;
    cl->refuse_code = CLOSE_UNAUTHENTICATED;
    cl->refuse_why = why;
}

static bool protocol_offered(const char *offer)
{
    size_t len = strlen(CLIENT_PROTOCOL);

    for (const char *at = offer; *at != '\0'; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        if (strncmp(at, CLIENT_PROTOCOL, len) == 0 && strchr(", \t", at[len]))
            return true;
    }
    return false;
}

/*
 * libwebsockets drops an upgrade that offers only subprotocols it does not know; a browser would
 * see 1006 then and not our code. So the first one offered lends its name to the second protocol,
 * on which the connection is closed once it is complete.
 * HTTP_CONFIRM_UPGRADE must not return more than 0 (CVE-2025-11677): go on or hang up.
 */
static int upgrade_confirm(struct client *cl, struct lws *wsi, const char *upgrade)
{
    char *declined = server_declined(cl->server);
    char offer[128];
    const char *first;
    size_t len;
    int n;

    declined[0] = '\0';
    if (strcasecmp(upgrade, "websocket") != 0)
        return -1;
    n = lws_hdr_copy(wsi, offer, sizeof(offer), WSI_TOKEN_PROTOCOL);
    if (n <= 0 || protocol_offered(offer))
        return 0;
    first = offer + strspn(offer, ", \t");
    len = strcspn(first, ", \t");
    if (len > 0 && len < CLIENT_NAME_MAX) {
        memcpy(declined, first, len);
        declined[len] = '\0';
    }
    return 0;
}

static bool path_is_root(struct lws *wsi)
{
    char path[4];

    return lws_hdr_copy(wsi, path, sizeof(path), WSI_TOKEN_GET_URI) == 1 && path[0] == '/';
}

static void origin_check(struct client *cl, struct lws *wsi)
{
    char origin[256];

    if (lws_hdr_total_length(wsi, WSI_TOKEN_ORIGIN) <= 0)
        return;
    if (lws_hdr_copy(wsi, origin, sizeof(origin), WSI_TOKEN_ORIGIN) <= 0 ||
        !server_origin_allowed(cl->server, origin))
        refuse_later(cl, "origin");
}

static void bearer_take(struct client *cl, struct lws *wsi)
{
    char value[sizeof(BEARER) + TOKEN_MAX];
    size_t skip = strlen(BEARER);
    int n;

    if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_AUTHORIZATION) <= 0)
        return;
    n = lws_hdr_copy(wsi, value, sizeof(value), WSI_TOKEN_HTTP_AUTHORIZATION);
    if (n <= (int)skip || strncasecmp(value, BEARER, skip) != 0)
        refuse_later(cl, "authorization");
    else
        buf_add(&cl->token, value + skip, (size_t)n - skip);
    explicit_bzero(value, sizeof(value));
}

/* The headers are gone once the upgrade is answered, so what counts is looked at here. */
static int upgrade_read(struct client *cl, struct lws *wsi)
{
    if (lws_get_protocol(wsi)->id == PROTOCOL_DECLINED)
        refuse_later(cl, "subprotocol");
    if (!path_is_root(wsi))
        refuse_later(cl, "path");
    origin_check(cl, wsi);
    bearer_take(cl, wsi);
    return 0;
}

static int upgrade_done(struct client *cl, struct lws *wsi)
{
    cl->wsi = wsi;
    cl->upgraded = true;
    if (cl->refuse_code)
        door_core_refuse(server_core(cl->server), &cl->peer, cl->refuse_code, cl->refuse_why,
                         loop_now_us());
    else if (cl->token.len > 0)
        client_token_present(cl, cl->token.data, cl->token.len);
    client_buf_wipe(&cl->token);
    return 0;
}

/* Whoever comes without an upgrade is told what this is, and goes. */
static int http_answer(struct lws *wsi)
{
    static const char need_upgrade[] = "HTTP/1.1 426 Upgrade Required\r\n"
                                       "Upgrade: websocket\r\nConnection: Upgrade, close\r\n"
                                       "Content-Length: 0\r\n\r\n";
    static const char not_found[] = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n"
                                    "Content-Length: 0\r\n\r\n";
    unsigned char buf[LWS_PRE + sizeof(need_upgrade)];
    const char *text = path_is_root(wsi) ? need_upgrade : not_found;
    size_t len = strlen(text);

    if (lws_hdr_total_length(wsi, WSI_TOKEN_GET_URI) > 0) {
        memcpy(buf + LWS_PRE, text, len);
        lws_write(wsi, buf + LWS_PRE, len, LWS_WRITE_HTTP_HEADERS);
    }
    return -1;
}

/* --- from the client ------------------------------------------------------------------------- */

static void refuse(struct client *cl, int code, const char *why)
{
    door_core_refuse(server_core(cl->server), &cl->peer, code, why, loop_now_us());
}

/* Until it is admitted a client sends one short message at a time. */
static void auth_piece(struct client *cl, struct lws *wsi, const char *in, size_t len)
{
    buf_add(&cl->in, in, len);
    if (lws_frame_is_binary(wsi) || !buf_ok(&cl->in))
        refuse(cl, CLOSE_UNAUTHENTICATED, "auth_message");
    else if (lws_is_final_fragment(wsi))
        client_auth_take(cl);
}

static void line_pass(struct client *cl)
{
    spool_message(server_spool(cl->server), &cl->peer.claims.user_id, cl->in.data, cl->in.len);
    if (!agent_line(server_agent(cl->server), cl->in.data, cl->in.len))
        server_flow(cl->server);
}

static void line_take(struct client *cl)
{
    if (!utf8_valid(cl->in.data, cl->in.len))
        refuse(cl, CLOSE_BAD_TEXT, "not_utf8");
    else
        line_pass(cl);
    if (cl->in.size > CLIENT_RX_MAX)
        buf_done(&cl->in);
    else
        buf_reset(&cl->in);
}

static void line_piece(struct client *cl, struct lws *wsi, const char *in, size_t len)
{
    if (!door_core_pass_in(server_core(cl->server), &cl->peer, len, loop_now_us()))
        return;
    if (lws_frame_is_binary(wsi) || (len > 0 && memchr(in, '\n', len))) {
        refuse(cl, CLOSE_UNSUPPORTED, "not_a_line");
        return;
    }
    buf_add(&cl->in, in, len);
    if (!buf_ok(&cl->in))
        refuse(cl, CLOSE_LIMIT, "line_too_long");
    else if (lws_is_final_fragment(wsi))
        line_take(cl);
}

static int received(struct client *cl, struct lws *wsi, char *in, size_t len)
{
    if (cl->peer.revoked || cl->peer.code != 0)
        return 0;
    if (cl->peer.state == PEER_NEW || cl->peer.state == PEER_PROVING)
        auth_piece(cl, wsi, in, len);
    else if (cl->peer.state == PEER_ADMITTED && agent_bridges(server_agent(cl->server)))
        client_bridge_piece(cl, wsi, in, len);
    else if (cl->peer.state == PEER_ADMITTED)
        line_piece(cl, wsi, in, len);
    else /* it is not read while it waits; what comes all the same cannot be kept */
        refuse(cl, CLOSE_LIMIT, "too_early");
    return 0;
}

void client_flow(struct client *cl)
{
    bool pause = cl->peer.state == PEER_WAITING;

    if (cl->bridge)
        pause = !bridge_is_up(cl->bridge) || bridge_is_full(cl->bridge);
    else if (cl->peer.state == PEER_ADMITTED)
        pause = agent_is_full(server_agent(cl->server));

    if (!cl->upgraded || cl->step != CLOSE_STEP_NONE || pause == cl->rx_paused)
        return;
    cl->rx_paused = pause;
    lws_rx_flow_control(cl->wsi, !pause);
}

/* --- to the client --------------------------------------------------------------------------- */

static size_t item_cost(const struct msg *m)
{
    return msg_len(m) + OUT_ITEM_COST;
}

static void out_pop(struct client *cl)
{
    struct out_item *item = cl->out_head;

    cl->out_head = item->next;
    if (!cl->out_head)
        cl->out_tail = NULL;
    cl->out_bytes -= item_cost(item->msg);
    msg_unref(item->msg);
    free(item);
}

static void out_drop(struct client *cl)
{
    while (cl->out_head)
        out_pop(cl);
}

void client_send(struct client *cl, struct msg *m)
{
    struct out_item *item;

    if (cl->out_bytes > OUT_CURRENT && cl->out_bytes + item_cost(m) > OUT_MAX) {
        refuse(cl, CLOSE_SLOW_READER, "slow_reader");
        return;
    }
    item = malloc(sizeof(*item));
    if (!item) {
        refuse(cl, CLOSE_SLOW_READER, "no_memory");
        return;
    }
    *item = (struct out_item){.msg = msg_ref(m)};
    if (cl->out_tail)
        cl->out_tail->next = item;
    else
        cl->out_head = item;
    cl->out_tail = item;
    cl->out_bytes += item_cost(m);
    lws_callback_on_writable(cl->wsi);
}

static int writable(struct client *cl, struct lws *wsi)
{
    struct out_item *item = cl->out_head;
    unsigned char *chunk;
    size_t len;
    int how;

    if (cl->peer.revoked || cl->step > CLOSE_STEP_FLUSH)
        return 0;
    if (!item)
        return cl->bridge ? client_bridge_write(cl, wsi) : 0;
    chunk = msg_chunk(item->msg, item->chunk, &len);
    how = item->chunk == 0 ? LWS_WRITE_TEXT : LWS_WRITE_CONTINUATION;
    item->chunk++;
    if (item->chunk < msg_chunks(item->msg))
        how |= LWS_WRITE_NO_FIN;
    if (lws_write(wsi, chunk, len, (enum lws_write_protocol)how) < 0)
        return -1;
    if (item->chunk == msg_chunks(item->msg))
        out_pop(cl);
    if (cl->out_head || cl->bridge)
        lws_callback_on_writable(wsi);
    server_drained(cl->server, cl);
    return 0;
}

/* --- the end --------------------------------------------------------------------------------- */

void client_close(struct client *cl, int code)
{
    if (cl->step >= CLOSE_STEP_SENT)
        return;
    cl->close_code = code;
    client_bridge_leave(cl, false, 0, NULL, 0);
    /* A reader too far behind loses what waits, but not the reason: it gets time to read what is
     * in libwebsockets' and the kernel's hands, so that the Close can follow. */
    if (cl->peer.revoked || code == CLOSE_SLOW_READER)
        out_drop(cl);
    if (cl->peer.revoked) {
        cl->step = CLOSE_STEP_ASKED;
        return;
    }
    cl->step = CLOSE_STEP_FLUSH;
    cl->step_until_us = loop_now_us() + (code == CLOSE_SLOW_READER ? SLOW_FLUSH_US : FLUSH_US);
}

static void client_kill(struct client *cl)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    int fd = lws_get_socket_fd(cl->wsi), queued = 0;

    /* What the kernel still holds for a reader that does not read must not arrive after the cut. */
    if (cl->peer.revoked && ioctl(fd, TIOCOUTQ, &queued) == 0 && queued > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    cl->step = CLOSE_STEP_KILLED;
    lws_set_timeout(cl->wsi, 1, LWS_TO_KILL_ASYNC);
}

/* Hands the Close to libwebsockets. May free the client, when its socket is broken already. */
static void close_send(struct client *cl, int64_t now_us)
{
    const char *reason = cl->close_is_agents ? "" : door_close_reason(cl->close_code);
    unsigned char text[64];
    size_t len = strlen(reason);

    memcpy(text, reason, len);
    cl->step = CLOSE_STEP_SENT;
    cl->step_until_us = now_us + KILL_AFTER_US;
    lws_close_reason(cl->wsi, (enum lws_close_status)cl->close_code, text, len);
    lws_set_timeout(cl->wsi, 1, LWS_TO_KILL_SYNC);
}

void client_step(struct client *cl, int64_t now_us)
{
    bool flushing = cl->step == CLOSE_STEP_FLUSH && now_us < cl->step_until_us;

    if (cl->step == CLOSE_STEP_NONE || cl->step == CLOSE_STEP_KILLED)
        return;
    if (cl->step == CLOSE_STEP_SENT) {
        if (now_us >= cl->step_until_us)
            client_kill(cl);
        return;
    }
    if (!cl->upgraded) {
        client_kill(cl);
        return;
    }
    if (flushing && (cl->out_head || lws_partial_buffered(cl->wsi)))
        return;
    if (flushing && lws_send_pipe_choked(cl->wsi)) { /* a Close written now would be lost */
        lws_callback_on_writable(cl->wsi);
        return;
    }
    /* Half a frame is in libwebsockets' hands: a Close could only follow the other half, and that
     * is a byte after the cut. */
    if (lws_partial_buffered(cl->wsi))
        client_kill(cl);
    else
        close_send(cl, now_us);
}

int64_t client_deadline_us(const struct client *cl)
{
    if (cl->step == CLOSE_STEP_FLUSH || cl->step == CLOSE_STEP_SENT)
        return cl->step_until_us;
    if (cl->step == CLOSE_STEP_ASKED)
        return 0;
    return cl->counted && cl->peer.state == PEER_NEW ? cl->auth_until_us : INT64_MAX;
}

void client_free(struct client *cl)
{
    client_bridge_leave(cl, !cl->peer.code, CLIENT_WENT, NULL, 0);
    out_drop(cl);
    client_buf_wipe(&cl->token);
    client_buf_wipe(&cl->in);
    spool_parts_done(&cl->said);
    spool_parts_done(&cl->heard);
    free(cl);
}

/* --- libwebsockets --------------------------------------------------------------------------- */

/* libwebsockets echoes what stands at `in`, and lets codes over 4999 and any bytes of a reason pass. */
static void echo_mend(unsigned char *in, size_t len)
{
    int code = in[0] << 8 | in[1];
    bool text = utf8_valid((const char *)in + 2, len - 2);

    if (code <= CLOSE_CODE_MAX && text)
        return;
    code = text ? CLOSE_BAD_FRAME : CLOSE_BAD_TEXT;
    in[0] = (unsigned char)(code >> 8);
    in[1] = (unsigned char)code;
    memset(in + 2, ' ', len - 2);
}

static int peer_closes(struct client *cl, unsigned char *in, size_t len)
{
    if (len >= 2)
        echo_mend(in, len);
    if (len >= 2)
        cl->peer_code = in[0] << 8 | in[1];
    if (len >= 2)
        client_bridge_leave(cl, true, cl->peer_code, in + 2, len - 2);
    return 0;
}

static int client_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                           size_t len)
{
    struct client *cl;

    (void)user;
    switch ((int)reason) {
    case LWS_CALLBACK_HTTP:
        return http_answer(wsi);
    case LWS_CALLBACK_HTTP_BODY:
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
    case LWS_CALLBACK_HTTP_WRITEABLE:
        return -1;
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
    case LWS_CALLBACK_ESTABLISHED:
    case LWS_CALLBACK_RECEIVE:
    case LWS_CALLBACK_SERVER_WRITEABLE:
    case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
    case LWS_CALLBACK_WSI_DESTROY:
        cl = lws_get_opaque_user_data(wsi);
        break;
    default:
        return 0;
    }
    if (!cl)
        return 0;
    switch ((int)reason) {
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
        return upgrade_confirm(cl, wsi, in);
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
        return upgrade_read(cl, wsi);
    case LWS_CALLBACK_ESTABLISHED:
        return upgrade_done(cl, wsi);
    case LWS_CALLBACK_RECEIVE:
        return received(cl, wsi, in, len);
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return writable(cl, wsi);
    case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
        return peer_closes(cl, in, len);
    default:
        lws_set_opaque_user_data(wsi, NULL);
        server_gone(cl->server, cl);
        return 0;
    }
}

void client_protocols_fill(struct lws_protocols protocols[static 3], const char *declined)
{
    protocols[0] = (struct lws_protocols){.name = CLIENT_PROTOCOL,
                                          .callback = client_callback,
                                          .rx_buffer_size = CLIENT_RX_MAX,
                                          .tx_packet_size = MSG_CHUNK,
                                          .id = PROTOCOL_DOOR};
    protocols[1] = protocols[0];
    protocols[1].name = declined;
    protocols[1].id = PROTOCOL_DECLINED;
    protocols[2] = (struct lws_protocols){0};
}
