#include "wsc_frame.h"

#include <string.h>

#define FIN        0x80u
#define RESERVED   0x70u
#define OPCODE     0x0fu
#define MASKED     0x80u
#define LEN_SHORT  125u
#define LEN_16     126u
#define LEN_64     127u
#define IS_CONTROL 0x08u

bool wsc_code_is_valid(unsigned code)
{
    return (code >= 1000 && code <= 1014 && (code < 1004 || code > 1006)) ||
           (code >= 3000 && code <= 4999);
}

static bool opcode_is_known(uint8_t opcode)
{
    return opcode <= WSC_BINARY || (opcode >= WSC_CLOSE && opcode <= WSC_PONG);
}

static uint64_t get_number(const uint8_t *in, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value = value << 8 | in[i];
    return value;
}

static void put_number(uint8_t *out, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(value >> (8 * (n - 1 - i)));
}

int wsc_header_parse(const uint8_t *in, size_t len, struct wsc_header *ret)
{
    if (len < 2)
        return 0;
    struct wsc_header h = {.fin = (in[0] & FIN) != 0, .opcode = in[0] & OPCODE, .len = in[1]};
    bool control = (h.opcode & IS_CONTROL) != 0;
    /* No extension was agreed on, and a server does not mask: its bit is the length's here. */
    if ((in[0] & RESERVED) != 0 || (in[1] & MASKED) != 0 || !opcode_is_known(h.opcode) ||
        (control && (!h.fin || h.len > WSC_CONTROL_MAX)))
        return -1;
    size_t more = h.len == LEN_16 ? 2 : h.len == LEN_64 ? 8 : 0;
    if (len < 2 + more)
        return 0;
    if (more > 0)
        h.len = get_number(in + 2, more);
    /* The shortest form is a must, and the highest bit of 64 stays clear. */
    if ((more == 2 && h.len <= LEN_SHORT) || (more == 8 && (h.len <= UINT16_MAX || h.len >> 63)))
        return -1;
    *ret = h;
    return (int)(2 + more);
}

size_t wsc_header_put(uint8_t out[static WSC_HEADER_MAX], const struct wsc_header *h,
                      const uint8_t mask[static 4])
{
    size_t more = h->len <= LEN_SHORT ? 0 : h->len <= UINT16_MAX ? 2 : 8;
    out[0] = (uint8_t)((h->fin ? FIN : 0) | h->opcode);
    out[1] = (uint8_t)(MASKED | (more == 0 ? h->len : more == 2 ? LEN_16 : LEN_64));
    put_number(out + 2, h->len, more);
    memcpy(out + 2 + more, mask, 4);
    return 2 + more + 4;
}

void wsc_mask(uint8_t *to, const uint8_t *from, size_t len, const uint8_t mask[static 4])
{
    uint8_t twice[8];
    uint64_t key, word;
    size_t i = 0;
    memcpy(twice, mask, 4);
    memcpy(twice + 4, mask, 4);
    memcpy(&key, twice, sizeof(key));
    for (; i + sizeof(word) <= len; i += sizeof(word)) {
        memcpy(&word, from + i, sizeof(word));
        word ^= key;
        memcpy(to + i, &word, sizeof(word));
    }
    for (; i < len; i++)
        to[i] = from[i] ^ mask[i % 4];
}

/* --- what the agent sends --------------------------------------------------------------------- */

static void fault(struct wsc_reader *r, unsigned code, struct wsc_event *ret)
{
    r->over = true;
    *ret = (struct wsc_event){.kind = WSC_GOT_FAULT, .code = code};
}

static bool is_control(const struct wsc_header *h)
{
    return (h->opcode & IS_CONTROL) != 0;
}

/* A header has come. False: it is a fault. */
static bool frame_begin(struct wsc_reader *r, struct wsc_event *ret)
{
    const struct wsc_header *h = &r->frame;
    r->in_frame = true;
    r->frame_left = h->len;
    r->control_len = 0;
    if (is_control(h))
        return true;
    if ((h->opcode == WSC_CONT) != (r->message != 0)) {
        fault(r, WSC_CODE_PROTOCOL, ret);
        return false;
    }
    if (r->message == 0) {
        r->message = h->opcode;
        r->begun = false;
        r->message_bytes = 0;
    }
    if (h->len > r->message_max - r->message_bytes) {
        fault(r, WSC_CODE_TOO_BIG, ret);
        return false;
    }
    r->message_bytes += h->len;
    return true;
}

static void close_take(struct wsc_reader *r, struct wsc_event *ret)
{
    unsigned code = WSC_CODE_NONE;
    r->over = true;
    if (r->control_len >= 2)
        code = (unsigned)get_number(r->control, 2);
    if (r->control_len == 1 || (r->control_len >= 2 && !wsc_code_is_valid(code))) {
        fault(r, WSC_CODE_PROTOCOL, ret);
        return;
    }
    *ret = (struct wsc_event){.kind = WSC_GOT_CLOSE, .code = code};
    if (r->control_len > 2) {
        ret->data = r->control + 2;
        ret->len = r->control_len - 2;
    }
}

static size_t control_next(struct wsc_reader *r, const uint8_t *in, size_t len,
                           struct wsc_event *ret)
{
    size_t n = len < r->frame_left ? len : (size_t)r->frame_left;
    if (n > 0)
        memcpy(r->control + r->control_len, in, n);
    r->control_len += n;
    r->frame_left -= n;
    if (r->frame_left > 0)
        return n;
    r->in_frame = false;
    if (r->frame.opcode == WSC_CLOSE)
        close_take(r, ret);
    else if (r->frame.opcode == WSC_PING)
        *ret = (struct wsc_event){.kind = WSC_GOT_PING, .data = r->control, .len = r->control_len};
    return n;
}

static size_t data_next(struct wsc_reader *r, const uint8_t *in, size_t len, size_t piece_max,
                        struct wsc_event *ret)
{
    size_t n = len < r->frame_left ? len : (size_t)r->frame_left;
    if (n > piece_max)
        n = piece_max;
    if (n == 0 && r->frame_left > 0)
        return 0;
    r->frame_left -= n;
    bool fin = r->frame.fin && r->frame_left == 0;
    /* An empty piece in the middle says nothing. */
    if (n > 0 || fin || !r->begun)
        *ret = (struct wsc_event){.kind = WSC_GOT_PIECE,
                                  .text = r->message == WSC_TEXT,
                                  .first = !r->begun,
                                  .fin = fin,
                                  .data = in,
                                  .len = n};
    r->begun = true;
    r->in_frame = r->frame_left > 0;
    if (fin)
        r->message = 0;
    return n;
}

size_t wsc_reader_next(struct wsc_reader *r, const uint8_t *in, size_t len, size_t piece_max,
                       struct wsc_event *ret)
{
    size_t used = 0;
    *ret = (struct wsc_event){.kind = WSC_GOT_MORE};
    while (!r->over && ret->kind == WSC_GOT_MORE) {
        if (!r->in_frame) {
            int n = wsc_header_parse(in + used, len - used, &r->frame);
            if (n < 0)
                fault(r, WSC_CODE_PROTOCOL, ret);
            if (n <= 0)
                break;
            used += (size_t)n;
            if (!frame_begin(r, ret))
                break;
        }
        if (is_control(&r->frame))
            used += control_next(r, in + used, len - used, ret);
        else
            used += data_next(r, in + used, len - used, piece_max, ret);
        if (r->in_frame)
            break;
    }
    return used;
}
