#include "json_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/clock.h"
#include "leasehold/json.h"
#include "utf8.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define ESCAPE_SIZE 7              /* "\u001f" and NUL */

/* The escape of an ASCII character, or NULL if it stands for itself. */
static const char *escape_of(unsigned char c, char out[static ESCAPE_SIZE])
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        break;
    }
    if (c >= 0x20 && c != 0x7f) {
        return NULL;
    }
    snprintf(out, ESCAPE_SIZE, "\\u%04x", (unsigned)c);
    return out;
}

/* How many bytes from the start of s may be copied as they are. */
static size_t plain_run(const char *s, size_t len)
{
    char escape[ESCAPE_SIZE];
    size_t n = 0;
    while (n < len) {
        uint32_t point;
        size_t step = utf8_next(s + n, len - n, &point);
        if (step == 0 || (step == 1 && escape_of((unsigned char)s[n], escape) != NULL)) {
            break;
        }
        n += step;
    }
    return n;
}

bool json_add_string_max(struct buf *out, const char *s, size_t len, size_t max)
{
    bool whole = true;
    buf_add_char(out, '"');
    while (len > 0) {
        size_t run = plain_run(s, len);
        size_t fits = utf8_clip(s, run, max);
        buf_add(out, s, fits);
        max -= fits;
        s += fits;
        len -= fits;
        whole = fits == run;
        if (!whole || len == 0) {
            break;
        }
        char escape[ESCAPE_SIZE];
        const char *piece = (unsigned char)*s < 0x80 ? escape_of((unsigned char)*s, escape) : NULL;
        if (piece == NULL) {
            piece = REPLACEMENT;
        }
        size_t size = strlen(piece);
        whole = size <= max;
        if (!whole) {
            break;
        }
        buf_add(out, piece, size);
        max -= size;
        s++;
        len--;
    }
    buf_add_char(out, '"');
    return whole;
}

void json_add_string(struct buf *out, const char *s, size_t len)
{
    json_add_string_max(out, s, len, SIZE_MAX);
}

void json_add_real(struct buf *out, double v)
{
    char text[32] = "null";
    /* 17 digits always read back; most numbers need fewer, and 0.1 should not grow a tail. */
    for (int digits = 15; isfinite(v) && digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        if (memcmp(&(double){strtod(text, NULL)}, &v, sizeof(v)) == 0) {
            break;
        }
    }
    buf_add_str(out, text);
}
