#include "leasehold/ws_frame.h"

#include <string.h>

#define FIN       0x80u
#define RESERVED  0x70u
#define OPCODE    0x0fu
#define MASKED    0x80u
#define LEN_SHORT 125u
#define LEN_16    126u
#define LEN_64    127u

static uint64_t number_get(const uint8_t *in, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        value = value << 8 | in[i];
    }
    return value;
}

static void number_put(uint8_t *out, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)(value >> (8 * (n - 1 - i)));
    }
}

static bool opcode_known(unsigned opcode)
{
    return opcode <= WS_BINARY || (opcode >= WS_CLOSE && opcode <= WS_PONG);
}

/* What the first two bytes say alone, so that a bad frame is refused before the rest of it comes. */
static bool start_allowed(const uint8_t *in, enum ws_sender sender)
{
    unsigned opcode = in[0] & OPCODE;
    bool masked = (in[1] & MASKED) != 0;
    if ((in[0] & RESERVED) != 0 || !opcode_known(opcode) || masked != (sender == WS_FROM_CLIENT)) {
        return false;
    }
    return opcode < WS_CLOSE || ((in[0] & FIN) != 0 && (in[1] & ~MASKED) <= WS_CONTROL_MAX);
}

int ws_frame_parse(const uint8_t *in, size_t len, enum ws_sender sender, struct ws_frame *ret)
{
    if (len < 2) {
        return 0;
    }
    if (!start_allowed(in, sender)) {
        return -1;
    }
    uint64_t payload = in[1] & ~MASKED;
    size_t more = payload == LEN_16 ? 2 : payload == LEN_64 ? 8 : 0;
    size_t header = 2 + more + (sender == WS_FROM_CLIENT ? 4 : 0);
    if (len < header) {
        return 0;
    }
    if (more > 0) {
        payload = number_get(in + 2, more);
    }
    /* The shortest form is a must, and the highest bit of 64 stays clear. */
    if ((more == 2 && payload <= LEN_SHORT) ||
        (more == 8 && (payload <= UINT16_MAX || payload > INT64_MAX))) {
        return -1;
    }
    *ret = (struct ws_frame){
        .fin = (in[0] & FIN) != 0, .opcode = (enum ws_opcode)(in[0] & OPCODE), .len = payload};
    if (sender == WS_FROM_CLIENT) {
        memcpy(ret->mask, in + 2 + more, 4);
    }
    return (int)header;
}

/* Eight bytes at a time by way of memcpy, which needs no alignment and which the compiler makes wider
 * still where the machine can. */
void ws_frame_mask(void *data, size_t len, const uint8_t mask[static 4], uint64_t at)
{
    uint8_t *to = data, turned[8];
    uint64_t key, word;
    size_t i = 0;
    for (size_t k = 0; k < sizeof turned; k++) {
        turned[k] = mask[(at + k) & 3];
    }
    memcpy(&key, turned, sizeof key);
    for (; i + sizeof word <= len; i += sizeof word) {
        memcpy(&word, to + i, sizeof word);
        word ^= key;
        memcpy(to + i, &word, sizeof word);
    }
    for (; i < len; i++) {
        to[i] ^= turned[i & 7];
    }
}

static size_t start_put(uint8_t *out, const struct ws_frame *f)
{
    size_t more = f->len <= LEN_SHORT ? 0 : f->len <= UINT16_MAX ? 2 : 8;
    out[0] = (uint8_t)((f->fin ? FIN : 0) | f->opcode);
    out[1] = (uint8_t)(more == 0 ? f->len : more == 2 ? LEN_16 : LEN_64);
    number_put(out + 2, f->len, more);
    return 2 + more;
}

size_t ws_frame_put(uint8_t out[static WS_HEADER_OUT_MAX], const struct ws_frame *f)
{
    return start_put(out, f);
}

size_t ws_frame_put_masked(uint8_t out[static WS_HEADER_MAX], const struct ws_frame *f)
{
    size_t n = start_put(out, f);
    out[1] |= MASKED;
    memcpy(out + n, f->mask, 4);
    return n + 4;
}

bool ws_key_valid(const char *key)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return strlen(key) == WS_KEY_TEXT && strspn(key, digits) == WS_KEY_TEXT - 2 &&
           strcmp(key + WS_KEY_TEXT - 2, "==") == 0;
}

bool ws_close_code_valid(unsigned code)
{
    return (code >= 1000 && code <= 1014 && (code < 1004 || code > 1006)) ||
           (code >= 3000 && code <= 4999);
}
