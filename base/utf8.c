#include "utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "leasehold/json.h"

#define ASCII_BLOCK 64 /* looked at in one go; compilers make vectors of it */

/* How many bytes a lead byte announces, the smallest code point that needs so many, and the bits
 * the lead byte itself carries. */
static size_t lead_decode(unsigned char c, uint32_t *ret_smallest, uint32_t *ret_bits)
{
    if (c >= 0xc2 && c <= 0xdf) {
        *ret_smallest = 0x80;
        *ret_bits = c & 0x1fu;
        return 2;
    }
    if (c >= 0xe0 && c <= 0xef) {
        *ret_smallest = 0x800;
        *ret_bits = c & 0x0fu;
        return 3;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        *ret_smallest = 0x10000;
        *ret_bits = c & 0x07u;
        return 4;
    }
    return 0;
}

size_t utf8_next(const char *s, size_t len, uint32_t *ret_point)
{
    unsigned char first = (unsigned char)s[0];
    if (first < 0x80) {
        *ret_point = first;
        return 1;
    }
    uint32_t smallest = 0, point = 0;
    size_t n = lead_decode(first, &smallest, &point);
    if (n == 0 || n > len) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (c & 0x3fu);
    }
    if (point < smallest || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) {
        return 0;
    }
    *ret_point = point;
    return n;
}

#define NOT_ASCII UINT64_C(0x8080808080808080)

/* Has this block no byte beyond ASCII? */
static bool block_is_ascii(const char *s)
{
    uint64_t words[ASCII_BLOCK / sizeof(uint64_t)];
    uint64_t all = 0;
    memcpy(words, s, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        all |= words[i];
    }
    return (all & NOT_ASCII) == 0;
}

/* How many bytes at the start are ASCII, counted by whole words. */
static size_t ascii_len(const char *s, size_t len)
{
    uint64_t word;
    size_t n = 0;
    while (n + ASCII_BLOCK <= len && block_is_ascii(s + n)) {
        n += ASCII_BLOCK;
    }
    for (; n + sizeof(word) <= len; n += sizeof(word)) {
        memcpy(&word, s + n, sizeof(word));
        if ((word & NOT_ASCII) != 0) {
            break;
        }
    }
    return n;
}

bool utf8_valid(const char *s, size_t len)
{
    while (len > 0) {
        uint32_t point;
        /* Most text is ASCII; doors look at every byte of it. */
        size_t n = ascii_len(s, len);
        if (n == 0) {
            n = utf8_next(s, len, &point);
        }
        if (n == 0) {
            return false;
        }
        s += n;
        len -= n;
    }
    return true;
}

size_t utf8_clip(const char *s, size_t len, size_t max)
{
    if (len <= max) {
        return len;
    }
    size_t n = max;
    /* A code point has three continuation bytes at most: more of them are not UTF-8 anyway. */
    while (n > 0 && max - n < 3 && ((unsigned char)s[n] & 0xc0) == 0x80) {
        n--;
    }
    return n;
}

/* Would showing it change how the text around it reads? */
static bool point_is_unsafe(uint32_t p)
{
    return p < 0x20 || p == '"' || p == '\\' || (p >= 0x7f && p <= 0x9f) || p == 0x61c ||
           (p >= 0x200b && p <= 0x200f) || (p >= 0x2028 && p <= 0x202e) ||
           (p >= 0x2060 && p <= 0x206f) || p == 0xfeff;
}

char *utf8_quote(const char *s, size_t len, char out[static UTF8_QUOTE_SIZE])
{
    size_t at = 0;
    while (len > 0) {
        uint32_t point = 0;
        size_t n = utf8_next(s, len, &point);
        char piece[12];
        int size;
        if (n == 0) {
            size = snprintf(piece, sizeof(piece), "\\x%02x", (unsigned)(unsigned char)*s);
            n = 1;
        } else if (point_is_unsafe(point)) {
            size = snprintf(piece, sizeof(piece), "\\u%04x", (unsigned)point);
        } else {
            size = snprintf(piece, sizeof(piece), "%.*s", (int)n, s);
        }
        if (at + (size_t)size + sizeof("...") > UTF8_QUOTE_SIZE) {
            memcpy(out + at, "...", 3);
            at += 3;
            break;
        }
        memcpy(out + at, piece, (size_t)size);
        at += (size_t)size;
        s += n;
        len -= n;
    }
    out[at] = '\0';
    return out;
}
