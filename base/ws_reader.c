#include "leasehold/ws_reader.h"

#include <string.h>

#include "leasehold/json.h"

static size_t smaller(size_t a, uint64_t b)
{
    return a < b ? a : (size_t)b;
}

static void fault(struct ws_reader *r, unsigned code, const char *why, struct ws_event *ret)
{
    r->over = true;
    *ret = (struct ws_event){.kind = WS_GOT_FAULT, .code = code, .why = why};
}

/* --- headers --------------------------------------------------------------------------------- */

/* A header has come. Nothing of its payload was looked at, nor room made for it. */
static void frame_begin(struct ws_reader *r, struct ws_event *ret)
{
    const struct ws_frame *f = &r->frame;
    r->in_frame = true;
    r->frame_left = f->len;
    r->control_len = 0;
    if (ws_is_control(f->opcode)) {
        return;
    }
    if ((f->opcode == WS_CONTINUATION) != (r->message != WS_CONTINUATION)) {
        fault(r, WS_CODE_PROTOCOL, "fragments out of order", ret);
        return;
    }
    if (f->opcode != WS_CONTINUATION) {
        r->message = f->opcode;
        r->begun = false;
        r->message_bytes = 0;
    }
    if (f->len > r->message_max - r->message_bytes) {
        fault(r, WS_CODE_TOO_BIG, "message too long", ret);
        return;
    }
    r->message_bytes += f->len;
}

/* A header may come in pieces: what is there of it is kept. */
static size_t header_next(struct ws_reader *r, const uint8_t *in, size_t len, struct ws_event *ret)
{
    size_t kept = r->header_len;
    size_t take = smaller(len, sizeof r->header - kept);
    if (kept > 0) {
        memcpy(r->header + kept, in, take);
    }
    int n = ws_frame_parse(kept > 0 ? r->header : in, kept + take, r->sender, &r->frame);
    if (n < 0) {
        fault(r, WS_CODE_PROTOCOL, "bad frame", ret);
        return len;
    }
    if (n == 0) { /* less than the longest one is there, so that is all */
        memcpy(r->header + kept, in, take);
        r->header_len = kept + take;
        return take;
    }
    r->header_len = 0;
    frame_begin(r, ret);
    return (size_t)n - kept;
}

/* --- payload --------------------------------------------------------------------------------- */

static void close_take(struct ws_reader *r, struct ws_event *ret)
{
    const uint8_t *payload = r->control;
    unsigned code = WS_CODE_NONE;
    size_t reason_len = r->control_len > 2 ? r->control_len - 2 : 0;
    if (r->control_len >= 2) {
        code = (unsigned)(payload[0] << 8 | payload[1]);
    }
    r->over = true;
    if (r->control_len == 1 || (r->control_len >= 2 && !ws_close_code_valid(code))) {
        fault(r, WS_CODE_PROTOCOL, "bad close code", ret);
    } else if (reason_len > 0 && !utf8_valid((const char *)payload + 2, reason_len)) {
        fault(r, WS_CODE_NOT_UTF8, "reason is not UTF-8", ret);
    } else {
        *ret = (struct ws_event){
            .kind = WS_GOT_CLOSE, .code = code, .data = payload + 2, .len = reason_len};
    }
}

static size_t control_next(struct ws_reader *r, const uint8_t *in, size_t len, struct ws_event *ret)
{
    size_t n = smaller(len, r->frame_left);
    if (n > 0) {
        memcpy(r->control + r->control_len, in, n);
    }
    r->control_len += n;
    r->frame_left -= n;
    if (r->frame_left > 0) {
        return n;
    }
    r->in_frame = false;
    if (r->control_len > 0 && r->sender == WS_FROM_CLIENT) {
        ws_frame_mask(r->control, r->control_len, r->frame.mask, 0);
    }
    if (r->frame.opcode == WS_CLOSE) {
        close_take(r, ret);
    } else {
        *ret = (struct ws_event){.kind = r->frame.opcode == WS_PING ? WS_GOT_PING : WS_GOT_PONG,
                                 .data = r->control,
                                 .len = r->control_len};
    }
    return n;
}

static size_t data_next(struct ws_reader *r, uint8_t *in, size_t len, size_t piece_max,
                        struct ws_event *ret)
{
    size_t n = smaller(smaller(len, r->frame_left), piece_max);
    if (n == 0 && r->frame_left > 0) {
        return 0;
    }
    if (n > 0 && r->sender == WS_FROM_CLIENT) {
        ws_frame_mask(in, n, r->frame.mask, r->frame.len - r->frame_left);
    }
    r->frame_left -= n;
    bool fin = r->frame.fin && r->frame_left == 0;
    /* An empty piece in the middle says nothing. */
    if (n > 0 || fin || !r->begun) {
        *ret = (struct ws_event){.kind = WS_GOT_PIECE,
                                 .text = r->message == WS_TEXT,
                                 .first = !r->begun,
                                 .fin = fin,
                                 .data = in,
                                 .len = n};
    }
    r->begun = true;
    r->in_frame = r->frame_left > 0;
    if (fin) {
        r->message = WS_CONTINUATION;
    }
    return n;
}

size_t ws_reader_next(struct ws_reader *r, uint8_t *in, size_t len, size_t piece_max,
                      struct ws_event *ret)
{
    size_t used = 0;
    *ret = (struct ws_event){.kind = WS_GOT_MORE};
    while (!r->over && ret->kind == WS_GOT_MORE) {
        if (!r->in_frame && used == len) {
            return used;
        }
        if (!r->in_frame) {
            used += header_next(r, in + used, len - used, ret);
        } else if (ws_is_control(r->frame.opcode)) {
            used += control_next(r, in + used, len - used, ret);
        } else {
            used += data_next(r, in + used, len - used, piece_max, ret);
        }
        if (used == len && r->in_frame && r->frame_left > 0) {
            return used;
        }
    }
    return r->over && ret->kind == WS_GOT_MORE ? len : used;
}
