/*
 * The frames of RFC 6455 as the door needs them towards an agent: it is the client, the agent is the server. Pure
 * functions and one small state, no I/O. What comes in is hostile.
 */
#ifndef LEASEHOLD_DOOR_WSC_FRAME_H
#define LEASEHOLD_DOOR_WSC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WSC_CONTROL_MAX 125u
#define WSC_HEADER_MAX  14u /* with the mask */

enum wsc_opcode {
    WSC_CONT = 0,
    WSC_TEXT = 1,
    WSC_BINARY = 2,
    WSC_CLOSE = 8,
    WSC_PING = 9,
    WSC_PONG = 10,
};

enum wsc_code {
    WSC_CODE_NORMAL = 1000,
    WSC_CODE_AWAY = 1001,
    WSC_CODE_PROTOCOL = 1002,
    WSC_CODE_NONE = 1005, /* never sent: a Close without a code */
    WSC_CODE_TOO_BIG = 1009,
    WSC_CODE_INTERNAL = 1011,
};

/* May this code stand in a Close frame? */
bool wsc_code_is_valid(unsigned code);

struct wsc_header {
    bool fin;
    uint8_t opcode;
    uint64_t len;
};

/* A header as a server may send it. Returns its length; 0: more bytes are needed; -1: forbidden. */
int wsc_header_parse(const uint8_t *in, size_t len, struct wsc_header *ret);

/* A header as a client sends it. Returns its length. */
size_t wsc_header_put(uint8_t out[static WSC_HEADER_MAX], const struct wsc_header *h,
                      const uint8_t mask[static 4]);

/* `to` and `from` may be the same, else must not overlap. */
void wsc_mask(uint8_t *to, const uint8_t *from, size_t len, const uint8_t mask[static 4]);

/* --- what the agent sends --------------------------------------------------------------------- */

enum wsc_kind {
    WSC_GOT_MORE,  /* nothing: needs more bytes */
    WSC_GOT_PIECE, /* part of a message: text, first, fin, data, len */
    WSC_GOT_PING,  /* data, len */
    WSC_GOT_CLOSE, /* code (WSC_CODE_NONE if it had none), data, len of the reason */
    WSC_GOT_FAULT, /* the agent broke the protocol: code to close with */
};

struct wsc_event {
    enum wsc_kind kind;
    bool text, first, fin;
    const uint8_t *data; /* in the input, or in the reader until its next call */
    size_t len;
    unsigned code;
};

struct wsc_reader {
    struct wsc_header frame;
    bool in_frame;
    uint64_t frame_left;
    uint8_t message; /* WSC_TEXT or WSC_BINARY, 0 between messages */
    bool begun;      /* a piece of it was handed on */
    uint64_t message_bytes, message_max;
    uint8_t control[WSC_CONTROL_MAX];
    size_t control_len;
    bool over; /* after a Close or a fault */
};

/* Takes the next event off the front of the input; a piece has at most `piece_max` bytes. Returns
 * how many bytes of input it used up, which may be some with WSC_GOT_MORE, too. */
size_t wsc_reader_next(struct wsc_reader *r, const uint8_t *in, size_t len, size_t piece_max,
                       struct wsc_event *ret);

#endif
