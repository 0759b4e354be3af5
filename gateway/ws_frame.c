#include "ws_frame.h"

#include <string.h>

#define FIN      0x80u
#define RESERVED 0x70u
#define MASKED   0x80u

static uint64_t big_endian(const uint8_t *in, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v = v << 8 | in[i];
    }
    return v;
}

static bool opcode_known(unsigned opcode)
{
    return opcode <= WS_BINARY || (opcode >= WS_CLOSE && opcode <= WS_PONG);
}

int ws_frame_parse(const uint8_t *in, size_t len, struct ws_frame *ret)
{
    if (len < 2) {
        return 0;
    }
    unsigned opcode = in[0] & 0x0fu;
    bool fin = (in[0] & FIN) != 0;
    unsigned short_len = in[1] & 0x7fu;
    if ((in[0] & RESERVED) != 0 || (in[1] & MASKED) == 0 || !opcode_known(opcode)) {
        return -1;
    }
    if (opcode >= WS_CLOSE && (!fin || short_len > WS_CONTROL_MAX)) {
        return -1;
    }
    size_t extra = short_len == 126 ? 2 : short_len == 127 ? 8 : 0;
    size_t header = 2 + extra + 4;
    if (len < header) {
        return 0;
    }
    uint64_t payload = extra == 0 ? short_len : big_endian(in + 2, extra);
    if ((extra == 2 && payload < 126) || (extra == 8 && payload <= UINT16_MAX) ||
        payload > INT64_MAX) {
        return -1;
    }
    *ret = (struct ws_frame){.fin = fin, .opcode = (enum ws_opcode)opcode, .len = payload};
    memcpy(ret->mask, in + 2 + extra, 4);
    return (int)header;
}

void ws_frame_unmask(char *data, size_t len, const uint8_t mask[static 4], uint64_t at)
{
    for (size_t i = 0; i < len; i++) {
        data[i] = (char)(data[i] ^ mask[(at + i) & 3]);
    }
}

size_t ws_frame_header(uint8_t out[static WS_HEADER_OUT_MAX], enum ws_opcode opcode, uint64_t len)
{
    out[0] = (uint8_t)(FIN | opcode);
    if (len < 126) {
        out[1] = (uint8_t)len;
        return 2;
    }
    size_t bytes = len <= UINT16_MAX ? 2 : 8;
    out[1] = bytes == 2 ? 126 : 127;
    for (size_t i = 0; i < bytes; i++) {
        out[2 + i] = (uint8_t)(len >> (8 * (bytes - 1 - i)));
    }
    return 2 + bytes;
}

bool ws_close_code_valid(int code)
{
    if (code >= 3000 && code <= 4999) {
        return true;
    }
    return code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
}
