/* Just enough WebSocket for a load client and an echo agent whose own cost must not count. */
#ifndef BENCH_WS_FRAME_H
#define BENCH_WS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FRAME_HEAD_MAX 14u
#define FRAME_FIN      0x80u
#define FRAME_MASK     0x80u
#define OPCODE_TEXT    1u
#define OPCODE_BINARY  2u
#define OPCODE_CLOSE   8u

struct frame_head {
    uint8_t first; /* FIN and opcode */
    bool masked;
    uint8_t mask[4];
    uint64_t len;
    size_t size; /* of the head itself */
};

/* The size of the head, with `mask` (4 bytes) or without (NULL). */
static inline size_t frame_head_put(uint8_t out[static FRAME_HEAD_MAX], uint8_t first, uint64_t len,
                                    const uint8_t *mask)
{
    size_t n = 2, extra = len < 126 ? 0 : len < 65536 ? 2 : 8;

    out[0] = first;
    out[1] = (uint8_t)((mask ? FRAME_MASK : 0) | (extra == 0   ? (unsigned)len
                                                  : extra == 2 ? 126u
                                                               : 127u));
    for (size_t i = extra; i-- > 0;)
        out[n++] = (uint8_t)(len >> (8 * i));
    if (mask) {
        memcpy(out + n, mask, 4);
        n += 4;
    }
    return n;
}

/* False: more bytes are needed. */
static inline bool frame_head_get(const uint8_t *in, size_t n, struct frame_head *ret)
{
    size_t extra, size;

    if (n < 2)
        return false;
    extra = (in[1] & 0x7f) < 126 ? 0 : (in[1] & 0x7f) == 126 ? 2 : 8;
    ret->first = in[0];
    ret->masked = (in[1] & FRAME_MASK) != 0;
    size = 2 + extra + (ret->masked ? 4 : 0);
    if (n < size)
        return false;
    ret->len = extra ? 0 : in[1] & 0x7f;
    for (size_t i = 0; i < extra; i++)
        ret->len = ret->len << 8 | in[2 + i];
    if (ret->masked)
        memcpy(ret->mask, in + 2 + extra, 4);
    ret->size = size;
    return true;
}

/* `at`: how many bytes of the payload came before. */
static inline void frame_unmask(uint8_t *data, size_t n, const uint8_t mask[4], uint64_t at)
{
    uint8_t turned[4];
    uint32_t m;
    size_t i = 0;

    for (size_t k = 0; k < 4; k++)
        turned[k] = mask[(at + k) & 3];
    memcpy(&m, turned, 4);
    for (; i + 4 <= n; i += 4) {
        uint32_t w;

        memcpy(&w, data + i, 4);
        w ^= m;
        memcpy(data + i, &w, 4);
    }
    for (; i < n; i++)
        data[i] ^= turned[i & 3];
}

#endif
