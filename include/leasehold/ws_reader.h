/*
 * Takes apart what one side of a WebSocket sends: pieces of messages, pings, the Close, and what is
 * against RFC 6455. One small state, no I/O, no memory of its own; the gateway reads bots by it, the
 * door its clients and its agents. What comes in is hostile.
 *
 * Payload is neither copied nor gathered: a piece lies in the input, where its mask was lifted.
 */
#ifndef LEASEHOLD_WS_READER_H
#define LEASEHOLD_WS_READER_H

#include "leasehold/ws_frame.h"

enum ws_event_kind {
    WS_GOT_MORE,  /* nothing: needs more bytes */
    WS_GOT_PIECE, /* part of a message: text, first, fin, data, len */
    WS_GOT_PING,  /* data, len */
    WS_GOT_PONG,
    WS_GOT_CLOSE, /* code (WS_CODE_NONE if it had none), data, len of the reason, which is UTF-8 */
    WS_GOT_FAULT, /* the protocol was broken: code to close with, why */
};

struct ws_event {
    enum ws_event_kind kind;
    bool text, first, fin;
    const uint8_t *data; /* in the input, or in the reader until its next call */
    size_t len;
    unsigned code;
    const char *why;
};

/* Zeroed, but for who sends and the most bytes of a message. */
struct ws_reader {
    enum ws_sender sender;
    uint64_t message_max;

    uint8_t header[WS_HEADER_MAX]; /* of the next frame, as far as it has come */
    size_t header_len;
    struct ws_frame frame;
    bool in_frame;
    uint64_t frame_left;
    enum ws_opcode message; /* WS_TEXT or WS_BINARY; WS_CONTINUATION between messages */
    bool begun;             /* a piece of it was handed on */
    uint64_t message_bytes;
    uint8_t control[WS_CONTROL_MAX];
    size_t control_len;
    bool over; /* after a Close or a fault: what follows is not looked at */
};

/* Takes the next event off the front of the input; a piece has at most `piece_max` bytes. Returns how
 * many bytes it used up: with WS_GOT_MORE all of them, with WS_GOT_PIECE those of the piece last. */
size_t ws_reader_next(struct ws_reader *r, uint8_t *in, size_t len, size_t piece_max,
                      struct ws_event *ret);

#endif
