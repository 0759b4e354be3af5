#include "init_sha1.h"

#include <string.h>

#define BLOCK 64u

static uint32_t rotate(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_u32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(x >> (24 - 8 * i));
}

static uint32_t mix(int round, uint32_t b, uint32_t c, uint32_t d)
{
    if (round < 20)
        return ((b & c) | (~b & d)) + 0x5a827999;
    if (round < 40)
        return (b ^ c ^ d) + 0x6ed9eba1;
    if (round < 60)
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void block_add(uint32_t state[5], const uint8_t *block)
{
    uint32_t w[80], s[5];
    for (int i = 0; i < 80; i++)
        w[i] = i < 16 ? get_u32(block + 4 * i)
                      : rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < 80; i++) {
        uint32_t next = rotate(s[0], 5) + mix(i, s[1], s[2], s[3]) + s[4] + w[i];
        s[4] = s[3];
        s[3] = s[2];
        s[2] = rotate(s[1], 30);
        s[1] = s[0];
        s[0] = next;
    }
    for (int i = 0; i < 5; i++)
        state[i] += s[i];
}

void sha1_short(const uint8_t *data, size_t len, uint8_t ret[static SHA1_SIZE])
{
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t padded[2 * BLOCK] = {0};
    size_t end = len + 9 <= BLOCK ? BLOCK : 2 * BLOCK;
    memcpy(padded, data, len);
    padded[len] = 0x80;
    put_u32(padded + end - 4, (uint32_t)len * 8);
    for (size_t at = 0; at < end; at += BLOCK)
        block_add(state, padded + at);
    for (int i = 0; i < 5; i++)
        put_u32(ret + 4 * i, state[i]);
}
