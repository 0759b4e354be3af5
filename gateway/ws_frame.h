/*
 * WebSocket frames (RFC 6455) of the server's side. Pure functions: no I/O, any thread.
 *
 * Ours because libwebsockets 4.1.6 takes unmasked frames and lengths of 2^62, and loses the Close
 * frame it was asked to send.
 */
#ifndef GATEWAY_WS_FRAME_H
#define GATEWAY_WS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WS_HEADER_IN_MAX  14
#define WS_HEADER_OUT_MAX 10
#define WS_CONTROL_MAX    125

enum ws_opcode {
    WS_CONTINUATION = 0,
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
    WS_PING = 9,
    WS_PONG = 10,
};

struct ws_frame {
    bool fin;
    enum ws_opcode opcode;
    uint64_t len;
    uint8_t mask[4];
};

/* Reads a client's frame header. Returns its length, 0 if `in` holds only a part of it, -1 if it is
 * against the protocol: not masked, reserved bits, unknown opcode, a control frame that is long or
 * in pieces, a length not in its shortest form. */
int ws_frame_parse(const uint8_t *in, size_t len, struct ws_frame *ret);

/* Lifts the mask of a piece of payload that began `at` bytes into its frame. */
void ws_frame_unmask(char *data, size_t len, const uint8_t mask[static 4], uint64_t at);

/* Writes the header of an unfragmented frame. Returns its length. */
size_t ws_frame_header(uint8_t out[static WS_HEADER_OUT_MAX], enum ws_opcode opcode, uint64_t len);

/* Whether a peer may send this close code (RFC 6455, 7.4). */
bool ws_close_code_valid(int code);

#endif
