#include "utf8_stream.h"

#include <string.h>

#include "leasehold/json.h"

/* What the first byte of a character says of its length; 1 for those that can start none. */
static size_t char_len(unsigned char first)
{
    return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* The length of a character at the end of the text that lacks bytes; 0: there is none. */
static size_t tail_len(const char *text, size_t len)
{
    size_t back = 1;

    while (back < 4 && back < len && ((unsigned char)text[len - back] & 0xC0) == 0x80)
        back++;
    return back <= len && char_len((unsigned char)text[len - back]) > back ? back : 0;
}

/* Adds to the character begun as much as it lacks. Returns how much that was. */
static size_t begun_fill(struct utf8_stream *u, const char *text, size_t len)
{
    size_t lacks = char_len((unsigned char)u->begun[0]) - u->begun_len;
    size_t n = lacks < len ? lacks : len;

    memcpy(u->begun + u->begun_len, text, n);
    u->begun_len += n;
    return n;
}

bool utf8_stream_take(struct utf8_stream *u, const char *text, size_t len, bool fin)
{
    size_t tail;

    if (u->begun_len > 0 && len > 0) {
        size_t n = begun_fill(u, text, len);

        text += n;
        len -= n;
        if (u->begun_len == char_len((unsigned char)u->begun[0])) {
            if (!utf8_valid(u->begun, u->begun_len))
                return false;
            u->begun_len = 0;
        }
    }
    if (len > 0) {
        tail = tail_len(text, len);
        if (!utf8_valid(text, len - tail))
            return false;
        memcpy(u->begun, text + len - tail, tail);
        u->begun_len = tail;
    }
    return !fin || u->begun_len == 0;
}
