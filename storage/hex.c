#include "hex.h"

#include <string.h>

static const char digits[] = "0123456789abcdef";

void hash_to_hex(const uint8_t hash[static 32], char out[static HASH_HEX])
{
    for (size_t i = 0; i < 32; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[64] = '\0';
}

static int digit_value(char c)
{
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

int hash_from_hex(const char *text, size_t len, uint8_t ret[static 32])
{
    if (len != HASH_HEX - 1) {
        return -1;
    }
    for (size_t i = 0; i < 32; i++) {
        int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return -1;
        }
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}
