/*
 * WebSocket frames (RFC 6455), read strictly and written in their shortest form. Pure functions: no
 * I/O, any thread. What comes in is hostile.
 *
 * Ours because libwebsockets 4.1.6 takes unmasked frames and lengths of 2^62, and loses the Close
 * frame it was asked to send (docs/adr/0005-own-http-parser.md).
 */
#ifndef LEASEHOLD_WS_FRAME_H
#define LEASEHOLD_WS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WS_HEADER_MAX     14u /* with a mask */
#define WS_HEADER_OUT_MAX 10u /* of a server: without */
#define WS_CONTROL_MAX    125u
#define WS_KEY_TEXT       24u /* of Sec-WebSocket-Key: 16 bytes in base64 */

enum ws_opcode {
    WS_CONTINUATION = 0,
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
    WS_PING = 9,
    WS_PONG = 10,
};

enum ws_code {
    WS_CODE_NORMAL = 1000,
    WS_CODE_AWAY = 1001,
    WS_CODE_PROTOCOL = 1002,
    WS_CODE_TYPE = 1003,
    WS_CODE_NONE = 1005, /* never on the wire: a Close without a code */
    WS_CODE_NOT_UTF8 = 1007,
    WS_CODE_TOO_BIG = 1009,
    WS_CODE_INTERNAL = 1011,
};

/* Who has sent a frame. A client masks each of its own, a server none. */
enum ws_sender { WS_FROM_SERVER, WS_FROM_CLIENT };

struct ws_frame {
    bool fin;
    enum ws_opcode opcode;
    uint64_t len;
    uint8_t mask[4]; /* all zero without one */
};

static inline bool ws_is_control(enum ws_opcode opcode)
{
    return opcode >= WS_CLOSE;
}

/* Reads a frame header. Returns its length, 0 if `in` holds only a part of it, -1 if it is against
 * the protocol: masked or not as its sender must not, reserved bits, unknown opcode, a control frame
 * that is long or in pieces, a length not in its shortest form. */
int ws_frame_parse(const uint8_t *in, size_t len, enum ws_sender sender, struct ws_frame *ret);

/* Puts on or lifts the mask of a piece of payload that begins `at` bytes into its frame. */
void ws_frame_mask(void *data, size_t len, const uint8_t mask[static 4], uint64_t at);

/* Writes a header as a server sends it: without the mask. Returns its length. */
size_t ws_frame_put(uint8_t out[static WS_HEADER_OUT_MAX], const struct ws_frame *f);

/* The same as a client sends it. */
size_t ws_frame_put_masked(uint8_t out[static WS_HEADER_MAX], const struct ws_frame *f);

/* Is it a Sec-WebSocket-Key (RFC 6455, 4.2.1): 16 bytes in base64? Of the last digit only what belongs
 * to a byte counts. */
bool ws_key_valid(const char *key);

/* May this code stand in a Close frame (RFC 6455, 7.4)? */
bool ws_close_code_valid(unsigned code);

#endif
