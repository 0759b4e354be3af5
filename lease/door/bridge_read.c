/* What comes from the agent over a bridge: raw bytes, or messages in frames, made sure of. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "bridge_state.h"
#include "leasehold/door_proto.h"

#define UP_SIZE         (64u * 1024u)
#define MUCH            16384u
#define READS_A_TURN    16 /* that bring nothing to pass on */
#define CLOSE_NORMAL    1000
#define CLOSE_OWN_FIRST 4000 /* codes from here on are for applications, and some are ours */

enum step { STEP_PIECE, STEP_END, STEP_MORE };

static unsigned char *up_front(struct bridge *b)
{
    return b->up_data + BRIDGE_ROOM + b->up_at;
}

void bridge_up_free(struct bridge *b)
{
    free(b->up_data);
    b->up_data = NULL;
    b->up_at = b->up_end = 0;
    b->up_busy = false;
}

/* Room to read into. What is not taken yet, a frame's head at most, moves to its front. */
static bool up_make_room(struct bridge *b)
{
    size_t kept = b->up_end - b->up_at;
    if (b->up_data && kept > 0 && b->up_at > 0)
        memmove(b->up_data + BRIDGE_ROOM, up_front(b), kept);
    b->up_at = 0;
    b->up_end = kept;
    if (!b->up_data)
        b->up_data = malloc(BRIDGE_ROOM + UP_SIZE);
    return b->up_data != NULL;
}

/* Reads once. False: nothing there. True: something came, or the end. After a read that did not fill
 * the room there is nothing, for now: to ask would cost as much as the read did. */
static bool up_fill(struct bridge *b)
{
    int fd = b->fd ? loop_fd_get(b->fd) : b->kept_fd;
    bool emptied = b->up_emptied && b->fd;
    ssize_t n = 0;

    if (b->eof)
        return true;
    b->up_emptied = false;
    if (emptied) {
        bridge_up_quiet(b);
        return false;
    }
    if (up_make_room(b))
        n = recv(fd, b->up_data + BRIDGE_ROOM + b->up_end, UP_SIZE - b->up_end, MSG_DONTWAIT);
    if (n > 0) {
        b->up_end += (size_t)n;
        b->up_emptied = b->up_end < UP_SIZE;
        b->up_busy |= b->up_end == UP_SIZE;
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && b->fd) {
        bridge_up_quiet(b);
        return false;
    }
    b->eof = true;
    if (b->fd)
        loop_fd_close(b->fd);
    return true;
}

bool bridge_drain(struct bridge *b)
{
    char piece[4096];
    ssize_t n = 1;

    for (int i = 0; i < READS_A_TURN && n > 0; i++)
        n = recv(loop_fd_get(b->fd), piece, sizeof(piece), MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* A piece of `len` bytes at the front. */
static enum step piece_set(struct bridge *b, size_t len, bool text, bool first, bool fin)
{
    b->has_piece = true;
    b->piece = (struct bridge_piece){
        .text = text, .first = first, .fin = fin, .data = up_front(b), .len = len};
    return STEP_PIECE;
}

static enum step raw_next(struct bridge *b)
{
    size_t len = b->up_end - b->up_at;

    return len > 0 ? piece_set(b, len, false, true, true) : STEP_MORE;
}

/* --- frames ---------------------------------------------------------------------------------- */

/* The agent's code, if it is none that only the door gives. */
static int code_for_client(unsigned code)
{
    if (code == WS_CODE_NONE)
        return CLOSE_NORMAL;
    return code >= CLOSE_OWN_FIRST && door_close_reason((int)code)[0] != '\0' ? CLOSE_AGENT_FAILED
                                                                              : (int)code;
}

static enum step fail(struct bridge *b, unsigned code, int *ret_code)
{
    bridge_close_put(b, code, NULL, 0);
    *ret_code = CLOSE_AGENT_FAILED;
    return STEP_END;
}

static enum step piece_take(struct bridge *b, const struct ws_event *e, int *ret_code)
{
    if (e->first)
        b->utf8 = (struct utf8_stream){0};
    if (e->text && !utf8_stream_take(&b->utf8, (const char *)e->data, e->len, e->fin))
        return fail(b, WS_CODE_INTERNAL, ret_code);
    return piece_set(b, e->len, e->text, e->first, e->fin);
}

/* The latest one is answered: enough, and bounded. */
static void ping_take(struct bridge *b, const struct ws_event *e)
{
    b->owes_pong = true;
    b->pong_len = e->len;
    if (e->len > 0)
        memcpy(b->pong, e->data, e->len);
    bridge_pong(b);
}

static enum step event_take(struct bridge *b, const struct ws_event *e, int *ret_code)
{
    switch (e->kind) {
    case WS_GOT_PIECE:
        return piece_take(b, e, ret_code);
    case WS_GOT_PING:
        ping_take(b, e);
        break;
    case WS_GOT_PONG:
        break;
    case WS_GOT_CLOSE:
        bridge_close_put(b, e->code, NULL, 0);
        *ret_code = code_for_client(e->code);
        return STEP_END;
    case WS_GOT_FAULT:
        return fail(b, e->code, ret_code);
    case WS_GOT_MORE:
        break;
    }
    return STEP_MORE;
}

static enum step framed_next(struct bridge *b, int *ret_code)
{
    struct ws_event e = {.kind = WS_GOT_PING};
    enum step step = STEP_MORE;

    while (step == STEP_MORE && e.kind != WS_GOT_MORE && b->up_end > b->up_at) {
        size_t used = ws_reader_next(&b->reader, up_front(b), b->up_end - b->up_at, UP_SIZE, &e);

        /* A piece is the last of what it used up. */
        b->up_at += e.kind == WS_GOT_PIECE ? used - e.len : used;
        step = event_take(b, &e, ret_code);
    }
    return step;
}

/* --- for the client's side ------------------------------------------------------------------- */

/* Nothing more comes. Is it this connection's end, or the agent's? That is heard over the link, a
 * moment later perhaps. */
static enum bridge_said over(struct bridge *b, int *ret_code)
{
    if (!b->done && !b->bs->events.ending(b->bs->events.ctx)) {
        if (!b->held) {
            bridge_hold_end(b);
            return BRIDGE_NOTHING;
        }
        *ret_code = b->bs->kind == BRIDGE_WS ? CLOSE_AGENT_FAILED : CLOSE_NORMAL;
        return BRIDGE_END;
    }
    b->done = true;
    bridges_end_check(b->bs);
    return BRIDGE_NOTHING;
}

enum bridge_said bridge_next(struct bridge *b, struct bridge_piece *ret, int *ret_code)
{
    for (int reads = 0; !b->has_piece; reads++) {
        enum step step = b->bs->kind == BRIDGE_WS ? framed_next(b, ret_code) : raw_next(b);

        if (step == STEP_END)
            return BRIDGE_END;
        if (step == STEP_PIECE)
            break;
        if (b->eof)
            return over(b, ret_code);
        if (!up_fill(b) || (reads == READS_A_TURN && b->fd)) {
            loop_fd_read(b->fd, true);
            return BRIDGE_NOTHING;
        }
    }
    *ret = b->piece;
    return BRIDGE_PIECE;
}

void bridge_took(struct bridge *b)
{
    b->has_piece = false;
    b->up_at += b->piece.len;
}

bool bridge_has_much(const struct bridge *b)
{
    return b->reader.frame_left >= MUCH || (b->bs->kind != BRIDGE_WS && b->up_busy);
}
