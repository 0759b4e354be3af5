#include "leasehold/id.h"

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

/* -1: none. */
static int digit_of(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Two digits a byte, with the hyphens of the canonical form or without any. */
static bool parse_digits(const char *s, bool hyphens, struct id *ret)
{
    for (size_t i = 0; i < sizeof(ret->b); i++) {
        if (hyphens && is_group_start(i) && *s++ != '-') {
            return false;
        }
        int high = digit_of(s[0]);
        int low = high >= 0 ? digit_of(s[1]) : -1;
        if (low < 0) {
            return false;
        }
        ret->b[i] = (uint8_t)(high << 4 | low);
        s += 2;
    }
    return true;
}

bool id_parse(const char *s, size_t len, struct id *ret)
{
    struct id id;
    unwrap(&s, &len);
    if ((len != HEX_LEN && len != TEXT_LEN) || !parse_digits(s, len == TEXT_LEN, &id)) {
        return false;
    }
    *ret = id;
    return true;
}

char *id_format(const struct id *id, char out[static ID_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    static const uint8_t at[] = {0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34};
    for (size_t i = 0; i < sizeof(id->b); i++) {
        out[at[i]] = digits[id->b[i] >> 4];
        out[at[i] + 1] = digits[id->b[i] & 0x0f];
    }
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
