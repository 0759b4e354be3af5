#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUT_MAX       (1024 * 1024) /* a reader further behind is closed */
#define OUT_CURRENT   (128 * 1024)  /* a reader at most so far behind may get any line */
#define OUT_ITEM_COST 64            /* what an empty line counts */
#define OUT_BATCH     (128 * 1024)  /* written at once; then others get their turn */
#define KILL_AFTER_US 100000        /* a peer gets so long to answer a Close */
#define FLUSH_US      2000000       /* and so long to take the agent's last words */
#define SLOW_FLUSH_US 5000000       /* or, too far behind, to answer the Close that says so */

_Static_assert(MSG_PRE >= WS_HEADER_OUT_MAX, "no room for a frame header");

#define CLIENT_WENT 1001 /* what an agent is told of a client that said no code */

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
        client_refuse(cl, CLOSE_SLOW_READER, "slow_reader");
        return;
    }
    item = malloc(sizeof(*item));
    if (!item) {
        client_refuse(cl, CLOSE_SLOW_READER, "no_memory");
        return;
    }
    *item = (struct out_item){.msg = msg_ref(m)};
    if (cl->out_tail)
        cl->out_tail->next = item;
    else
        cl->out_head = item;
    cl->out_tail = item;
    cl->out_bytes += item_cost(m);
    server_dirty(cl->server, cl);
}

/* Chunk i as a frame: its header, the same for every client, stands in the room before it. */
static struct iovec chunk_frame(struct msg *m, size_t i)
{
    struct ws_frame f = {.fin = i + 1 == msg_chunks(m),
                         .opcode = i == 0 ? WS_TEXT : WS_CONTINUATION};
    uint8_t head[WS_HEADER_OUT_MAX];
    size_t len, n;
    unsigned char *chunk = msg_chunk(m, i, &len);

    f.len = len;
    n = ws_frame_put(head, &f);
    memcpy(chunk - n, head, n);
    return (struct iovec){chunk - n, n + len};
}

static int frames_gather(const struct client *cl, struct iovec frames[static WIRE_FRAMES_MAX])
{
    size_t bytes = 0;
    int n = 0;

    for (const struct out_item *item = cl->out_head; item; item = item->next)
        for (size_t i = item->chunk; i < msg_chunks(item->msg); i++) {
            if (n == WIRE_FRAMES_MAX || bytes >= OUT_BATCH)
                return n;
            frames[n] = chunk_frame(item->msg, i);
            bytes += frames[n++].iov_len;
        }
    return n;
}

static void out_write(struct client *cl)
{
    struct iovec frames[WIRE_FRAMES_MAX];
    int taken = wire_send(&cl->wire, frames, frames_gather(cl, frames));

    for (int i = 0; i < taken; i++)
        if (++cl->out_head->chunk == msg_chunks(cl->out_head->msg))
            out_pop(cl);
    if (taken >= 0 && cl->out_head)
        wire_want(&cl->wire);
    if (taken > 0)
        server_drained(cl->server, cl);
}

static void pong_put(struct client *cl)
{
    struct ws_frame f = {.fin = true, .opcode = WS_PONG, .len = cl->pong_len};
    uint8_t head[WS_HEADER_OUT_MAX];

    if (!cl->owes_pong || cl->wire.blocked || cl->peer.revoked || cl->step >= CLOSE_STEP_ASKED)
        return;
    cl->owes_pong = false;
    wire_put(&cl->wire, head, ws_frame_put(head, &f));
    wire_put(&cl->wire, cl->pong, cl->pong_len);
}

static void last_is_out(struct client *cl);

void client_flush(struct client *cl)
{
    if (cl->step == CLOSE_STEP_KILLED)
        return;
    pong_put(cl);
    if (!cl->peer.revoked && cl->step <= CLOSE_STEP_FLUSH && cl->out_head)
        out_write(cl);
    if (!cl->peer.revoked && cl->step == CLOSE_STEP_NONE && cl->bridge && !cl->out_head)
        client_bridge_write(cl);
    /* Between a cut and its Close nothing more goes out. */
    if (cl->step != CLOSE_STEP_ASKED)
        (void)wire_flush(&cl->wire);
    if (wire_kept(&cl->wire) > 0)
        wire_want(&cl->wire);
    else if (cl->step == CLOSE_STEP_SENT)
        last_is_out(cl);
}

/* --- from the client ------------------------------------------------------------------------- */

static void rx_pause(struct client *cl, bool pause)
{
    if (pause == cl->rx_paused)
        return;
    cl->rx_paused = pause;
    wire_reading(&cl->wire, !pause);
    if (!pause && cl->stash.len > 0)
        server_dirty(cl->server, cl);
}

void client_flow(struct client *cl)
{
    bool pause = cl->peer.state == PEER_WAITING;

    if (cl->bridge)
        pause = !bridge_is_up(cl->bridge) || bridge_is_full(cl->bridge);
    else if (cl->peer.state == PEER_ADMITTED)
        pause = agent_is_full(server_agent(cl->server));
    if (cl->step == CLOSE_STEP_NONE)
        rx_pause(cl, pause);
}

/* --- the end --------------------------------------------------------------------------------- */

void client_close(struct client *cl, int code)
{
    /* Half a frame is with the kernel: what follows, a Close at best, is a byte after the cut. */
    bool cut_short = cl->peer.revoked && cl->wire.blocked;

    if (cl->step >= CLOSE_STEP_SENT) {
        /* Nor does one that reads late get what it was sent before. */
        cut_short |= cl->peer.revoked && cl->close_code == CLOSE_SLOW_READER;
        if (cut_short)
            client_kill(cl);
        return;
    }
    cl->close_code = code;
    client_bridge_leave(cl, false, 0, NULL, 0);
    client_buf_wipe(&cl->stash);
    rx_pause(cl, false); /* for its Close */
    /* A reader too far behind loses what waits, but not the reason: the kernel takes the rest of the
     * frame that is under way and the Close behind it, and they arrive whenever it reads. */
    if (cl->peer.revoked || code == CLOSE_SLOW_READER)
        out_drop(cl);
    if (cl->peer.revoked) {
        cl->step = CLOSE_STEP_ASKED;
        if (cut_short)
            client_kill(cl);
        return;
    }
    server_dirty(cl->server, cl);
    cl->step = CLOSE_STEP_FLUSH;
    cl->step_until_us = loop_now_us() + (code == CLOSE_SLOW_READER ? SLOW_FLUSH_US : FLUSH_US);
    if (code == CLOSE_SLOW_READER)
        wire_last(&cl->wire);
}

/* What the kernel still holds for a reader that does not read must not arrive after the cut. */
void client_kill(struct client *cl)
{
    if (cl->step == CLOSE_STEP_KILLED)
        return;
    cl->step = CLOSE_STEP_KILLED;
    wire_close(&cl->wire, cl->peer.revoked);
}

/* Closing over what the peer still sends would reset the connection under our last words: then it is
 * told that nothing more comes, and closes first. A request may have a body on its way. */
static void last_is_out(struct client *cl)
{
    int64_t until_us = loop_now_us() + KILL_AFTER_US;
    int fd = loop_fd_get(cl->wire.watch), unread = 0;

    /* Who reads late and says something would be answered by a reset, before it comes to the Close. */
    if (cl->step_until_us > until_us && cl->close_code != CLOSE_SLOW_READER)
        cl->step_until_us = until_us;
    if (!cl->peer_closed)
        return;
    if (!cl->upgraded || (ioctl(fd, FIONREAD, &unread) == 0 && unread > 0))
        wire_finish(&cl->wire);
    else
        client_kill(cl);
}

void client_over(struct client *cl)
{
    cl->peer_closed = true;
    out_drop(cl);
    if (cl->step < CLOSE_STEP_SENT) {
        cl->step = CLOSE_STEP_SENT;
        cl->step_until_us = loop_now_us() + KILL_AFTER_US;
    }
    client_flush(cl);
}

static void close_send(struct client *cl, int64_t now_us)
{
    const char *reason = cl->close_is_agents ? "" : door_close_reason(cl->close_code);
    size_t len = strlen(reason);
    const uint8_t code[] = {(uint8_t)(cl->close_code >> 8), (uint8_t)cl->close_code};
    struct ws_frame f = {.fin = true, .opcode = WS_CLOSE, .len = sizeof(code) + len};
    uint8_t head[WS_HEADER_OUT_MAX];

    if (cl->step != CLOSE_STEP_FLUSH)
        cl->step_until_us = now_us + KILL_AFTER_US;
    cl->step = CLOSE_STEP_SENT;
    wire_put(&cl->wire, head, ws_frame_put(head, &f));
    wire_put(&cl->wire, code, sizeof(code));
    wire_put(&cl->wire, reason, len);
    client_flush(cl);
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
    if (flushing && (cl->out_head || wire_kept(&cl->wire) > 0))
        return;
    if (cl->wire.blocked) /* still, and it has had its time */
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

/* --- life ------------------------------------------------------------------------------------ */

static void on_readable(void *ctx)
{
    client_readable(ctx);
}

static void on_writable(void *ctx)
{
    struct client *cl = ctx;

    server_dirty(cl->server, cl);
}

static void on_ended(void *ctx)
{
    struct client *cl = ctx;

    server_gone(cl->server, cl);
}

struct client *client_new(struct server *s, int fd)
{
    static const struct wire_ops ops = {on_readable, on_writable, on_ended};
    struct client *cl = calloc(1, sizeof(*cl));

    if (!cl || wire_open(&cl->wire, server_loop(s), fd, server_tls(s), &ops, cl)) {
        if (!cl)
            close(fd);
        free(cl);
        errno = ENOMEM;
        return NULL;
    }
    cl->server = s;
    buf_init(&cl->in, HTTP_HEAD_MAX);
    buf_init(&cl->stash, CLIENT_RX_MAX);
    return cl;
}

void client_free(struct client *cl)
{
    client_bridge_leave(cl, !cl->peer.code, CLIENT_WENT, NULL, 0);
    out_drop(cl);
    client_buf_wipe(&cl->in);
    client_buf_wipe(&cl->stash);
    spool_parts_done(&cl->said);
    spool_parts_done(&cl->heard);
    free(cl);
}
