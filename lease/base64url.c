/* base64url without padding (RFC 4648 §5), canonical: one text for every byte string. */
#include "leasehold/token.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* The place in the alphabet plus one, so that the zero of an unnamed element means "not in it". */
static const uint8_t place[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
    ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['-'] = 63, ['_'] = 64,
};

size_t base64url_encode(const uint8_t *in, size_t len, char *out)
{
    size_t n = 0, i = 0;

    for (; len - i >= 3; i += 3) {
        uint32_t bits = (uint32_t)in[i] << 16 | (uint32_t)in[i + 1] << 8 | in[i + 2];

        out[n++] = alphabet[bits >> 18];
        out[n++] = alphabet[bits >> 12 & 63];
        out[n++] = alphabet[bits >> 6 & 63];
        out[n++] = alphabet[bits & 63];
    }
    if (i < len) {
        uint32_t bits = (uint32_t)in[i] << 16 | (i + 1 < len ? (uint32_t)in[i + 1] << 8 : 0);

        out[n++] = alphabet[bits >> 18];
        out[n++] = alphabet[bits >> 12 & 63];
        if (i + 1 < len)
            out[n++] = alphabet[bits >> 6 & 63];
    }
    out[n] = '\0';
    return n;
}

int base64url_decode(const char *in, size_t len, uint8_t *out, size_t size, size_t *ret_len)
{
    size_t n = 0;
    uint32_t bits = 0;
    unsigned held = 0;

    /* No byte string ends in a lone character: it would hold six bits. */
    if (len % 4 == 1 || len / 4 * 3 + len % 4 * 3 / 4 > size)
        return -1;
    for (size_t i = 0; i < len; i++) {
        uint32_t sextet = place[(uint8_t)in[i]];
        if (sextet == 0)
            return -1;
        bits = bits << 6 | (sextet - 1);
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[n++] = (uint8_t)(bits >> held);
        }
    }
    if ((bits & ((1u << held) - 1)) != 0)
        return -1;
    *ret_len = n;
    return 0;
}
