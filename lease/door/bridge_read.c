/* What comes from the agent over a bridge: raw bytes, or pieces of messages, made sure of. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "bridge_state.h"
#include "leasehold/door_proto.h"

#define CLOSE_NORMAL      1000
#define CLOSE_WITHOUT     1005 /* a Close that had no code */
#define CLOSE_PAYLOAD_MAX 125u
#define CLOSE_OWN_FIRST   4000 /* codes from here on are for applications, and some are ours */

enum step { STEP_PIECE, STEP_END, STEP_MORE };

static unsigned char *up_front(struct bridge *b)
{
    return b->up_data + BRIDGE_ROOM + b->up_at;
}

/* Reads once. False: nothing there. True: something came, or the end. */
static bool up_fill(struct bridge *b)
{
    int fd = b->fd ? loop_fd_get(b->fd) : b->kept_fd;
    ssize_t n;

    if (b->eof)
        return true;
    if (b->up_at > 0)
        memmove(b->up_data + BRIDGE_ROOM, up_front(b), b->up_end - b->up_at);
    b->up_end -= b->up_at;
    b->up_at = 0;
    n = recv(fd, b->up_data + BRIDGE_ROOM + b->up_end, BRIDGE_UP_SIZE - b->up_end, MSG_DONTWAIT);
    if (n > 0) {
        b->up_end += (size_t)n;
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && b->fd)
        return false;
    b->eof = true;
    if (b->fd)
        loop_fd_close(b->fd);
    return true;
}

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

/* Asked before what follows is waited for. */
static bool head_is_good(uint8_t type, size_t len)
{
    if (type == LINK_CLOSE)
        return len >= 2 && len <= CLOSE_PAYLOAD_MAX;
    return (type == LINK_TEXT || type == LINK_BINARY) && len >= 1 && len <= LINK_PIECE_MAX + 1;
}

/* A message begins between messages and goes on in its own kind. */
static bool flags_are_good(const struct bridge *b, uint8_t type, uint8_t flags)
{
    if (flags & ~(LINK_FLAG_FIN | LINK_FLAG_FIRST))
        return false;
    return b->message_type == (flags & LINK_FLAG_FIRST ? 0 : type);
}

static enum step fail(int *ret_code)
{
    *ret_code = CLOSE_AGENT_FAILED;
    return STEP_END;
}

static void frame_begin(struct bridge *b, const unsigned char *head)
{
    b->frame_type = head[0];
    b->frame_left = link_header_len(head);
    b->up_at += LINK_HEADER;
    if (b->frame_type == LINK_CLOSE)
        return;
    b->frame_flags = head[LINK_HEADER];
    b->frame_left--;
    b->up_at++;
    if (!(b->frame_flags & LINK_FLAG_FIRST))
        return;
    b->message_type = b->frame_type;
    b->message_bytes = 0;
    b->utf8 = (struct utf8_stream){0};
}

static enum step head_take(struct bridge *b, int *ret_code)
{
    const unsigned char *head = up_front(b);
    size_t have = b->up_end - b->up_at;

    if (have >= LINK_HEADER && !head_is_good(head[0], link_header_len(head)))
        return fail(ret_code);
    if (have < LINK_HEADER + 1)
        return STEP_MORE;
    if (head[0] != LINK_CLOSE && !flags_are_good(b, head[0], head[LINK_HEADER]))
        return fail(ret_code);
    frame_begin(b, head);
    return STEP_PIECE;
}

/* The agent's code, if it may stand in a Close and is none that only the door gives. */
static int code_for_client(int code)
{
    bool valid = (code >= 1000 && code <= 1014 && (code < 1004 || code > 1006)) ||
                 (code >= 3000 && code <= 4999);

    if (code == CLOSE_WITHOUT)
        return CLOSE_NORMAL;
    if (!valid || (code >= CLOSE_OWN_FIRST && door_close_reason(code)[0] != '\0'))
        return CLOSE_AGENT_FAILED;
    return code;
}

static enum step close_take(struct bridge *b, int *ret_code)
{
    const unsigned char *payload = up_front(b);

    if (b->up_end - b->up_at < b->frame_left)
        return STEP_MORE;
    *ret_code = code_for_client(payload[0] << 8 | payload[1]);
    return STEP_END;
}

static enum step data_take(struct bridge *b, int *ret_code)
{
    size_t have = b->up_end - b->up_at;
    size_t len = have < b->frame_left ? have : b->frame_left;
    bool text = b->frame_type == LINK_TEXT, fin;

    if (len == 0 && b->frame_left > 0)
        return STEP_MORE;
    fin = (b->frame_flags & LINK_FLAG_FIN) && len == b->frame_left;
    b->message_bytes += len;
    if (b->message_bytes > LINK_MESSAGE_MAX ||
        (text && !utf8_stream_take(&b->utf8, (const char *)up_front(b), len, fin)))
        return fail(ret_code);
    return piece_set(b, len, text, b->frame_flags & LINK_FLAG_FIRST, fin);
}

static enum step framed_next(struct bridge *b, int *ret_code)
{
    enum step step;

    for (;;) {
        if (b->frame_type == 0) {
            step = head_take(b, ret_code);
            if (step != STEP_PIECE)
                return step;
        }
        step = b->frame_type == LINK_CLOSE ? close_take(b, ret_code) : data_take(b, ret_code);
        /* An empty piece in the middle says nothing. */
        if (step != STEP_PIECE || b->piece.len > 0 || b->piece.first || b->piece.fin)
            return step;
        bridge_took(b);
    }
}

/* --- for the client's side ------------------------------------------------------------------- */

/* Nothing more comes. Is it this connection's end, or the agent's? The agent's would be on the
 * link already. */
static enum bridge_said over(struct bridge *b, int *ret_code)
{
    if (!b->done && !b->bs->events.ending(b->bs->events.ctx)) {
        *ret_code = b->bs->framed ? CLOSE_AGENT_FAILED : CLOSE_NORMAL;
        return BRIDGE_END;
    }
    b->done = true;
    bridges_end_check(b->bs);
    return BRIDGE_NOTHING;
}

enum bridge_said bridge_next(struct bridge *b, struct bridge_piece *ret, int *ret_code)
{
    enum step step = STEP_PIECE;

    while (!b->has_piece) {
        step = b->bs->framed ? framed_next(b, ret_code) : raw_next(b);
        if (step == STEP_END)
            return BRIDGE_END;
        if (step == STEP_MORE && b->eof)
            return over(b, ret_code);
        if (step == STEP_MORE && !up_fill(b)) {
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
    if (!b->bs->framed)
        return;
    b->frame_flags &= (uint8_t)~LINK_FLAG_FIRST;
    b->frame_left -= b->piece.len;
    if (b->frame_left > 0)
        return;
    b->frame_type = 0;
    if (b->piece.fin)
        b->message_type = 0;
}
