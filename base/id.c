#include "leasehold/id.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#define URN      "urn:uuid:"
#define HEX_LEN  32
#define TEXT_LEN 36

void id_random(struct id *ret)
{
    /* Never short and never interrupted for so few bytes, once the kernel's pool is up. */
    if (getrandom(ret->b, sizeof(ret->b), 0) != (ssize_t)sizeof(ret->b)) {
        abort();
    }
    ret->b[6] = (uint8_t)((ret->b[6] & 0x0f) | 0x40); /* version 4 … */
    ret->b[8] = (uint8_t)((ret->b[8] & 0x3f) | 0x80); /* … of RFC 9562 */
}

void id_order(struct id *id, int64_t ms)
{
    for (int i = 0; i < 6; i++) {
        id->b[i] = (uint8_t)(ms >> (40 - 8 * i));
    }
}

/* Takes off one of the spellings around the digits. */
static void unwrap(const char **s, size_t *len)
{
    if (*len >= 2 && (*s)[0] == '{' && (*s)[*len - 1] == '}') {
        *s += 1;
        *len -= 2;
    } else if (*len >= strlen(URN) && strncasecmp(*s, URN, strlen(URN)) == 0) {
        *s += strlen(URN);
        *len -= strlen(URN);
    }
}

/* Is a hyphen written before byte i? */
static bool is_group_start(size_t i)
{
    return i == 4 || i == 6 || i == 8 || i == 10;
}

/* 0: none; else its value and one. */
static const uint8_t digits_of[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16};

/* Two digits a byte, with the hyphens of the canonical form or without any. */
static bool parse_digits(const char *s, bool hyphens, struct id *ret)
{
    for (size_t i = 0; i < sizeof(ret->b); i++) {
        if (hyphens && is_group_start(i) && *s++ != '-') {
            return false;
        }
        unsigned high = digits_of[(unsigned char)s[0]], low = digits_of[(unsigned char)s[1]];
        if (high == 0 || low == 0) {
            return false;
        }
        ret->b[i] = (uint8_t)((high - 1) << 4 | (low - 1));
        s += 2;
    }
    return true;
}

static bool parse_wrapped(const char *s, size_t len, struct id *ret)
{
    unwrap(&s, &len);
    return (len == HEX_LEN || len == TEXT_LEN) && parse_digits(s, len == TEXT_LEN, ret);
}

bool id_parse(const char *s, size_t len, struct id *ret)
{
    struct id id;
    if (!(len == TEXT_LEN && parse_digits(s, true, &id)) && !parse_wrapped(s, len, &id)) {
        return false;
    }
    *ret = id;
    return true;
}

#define EACH(byte) (0x0101010101010101u * (uint64_t)(byte))

/* The eight digits of four bytes at once: ids are written more often than anything else. */
static void put_digits(const uint8_t from[static 4], char to[static 8])
{
    uint32_t bytes;
    memcpy(&bytes, from, sizeof(bytes));
    uint64_t x = le32toh(bytes);
    x = (x | x << 16) & 0x0000ffff0000ffffu;
    x = (x | x << 8) & 0x00ff00ff00ff00ffu;
    x = (x >> 4 & EACH(0x0f)) | (x << 8 & 0x0f000f000f000f00u);
    uint64_t letters = (x + EACH(6)) >> 4 & EACH(1);
    x = htole64(x + EACH('0') + letters * ('a' - '0' - 10));
    memcpy(to, &x, sizeof(x));
}

char *id_format(const struct id *id, char out[static ID_TEXT])
{
    char digits[HEX_LEN];
    for (size_t i = 0; i < sizeof(id->b); i += 4) {
        put_digits(id->b + i, digits + 2 * i);
    }
    memcpy(out, digits, 8);
    memcpy(out + 9, digits + 8, 4);
    memcpy(out + 14, digits + 12, 4);
    memcpy(out + 19, digits + 16, 4);
    memcpy(out + 24, digits + 20, 12);
    out[8] = out[13] = out[18] = out[23] = '-';
    out[TEXT_LEN] = '\0';
    return out;
}

bool id_equal(const struct id *a, const struct id *b)
{
    return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

bool id_is_zero(const struct id *id)
{
    static const struct id zero;
    return id_equal(id, &zero);
}
