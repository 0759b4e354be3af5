#include "msg.h"

#include <stdint.h>
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/json.h"

#define STRIDE (MSG_PRE + MSG_CHUNK)

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

struct msg {
    size_t refs;
    size_t len;
    unsigned char data[];
};

/* Length of the well-formed sequence at s, 0 if there is none (RFC 3629). */
static size_t sequence_len(const char *s, size_t left)
{
    unsigned char c = (unsigned char)s[0];
    size_t n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;

    return n <= left && utf8_valid(s, n) ? n : 0;
}

/* Copies well-formed text; `out` NULL only measures. */
static size_t text_repair(const char *in, size_t len, char *out)
{
    size_t to = 0;

    for (size_t at = 0; at < len;) {
        size_t n = sequence_len(in + at, len - at);
        const char *from = n ? in + at : replacement;
        size_t add = n ? n : sizeof(replacement) - 1;

        if (out)
            memcpy(out + to, from, add);
        to += add;
        at += n ? n : 1;
    }
    return to;
}

static struct msg *msg_of_valid(const char *text, size_t len)
{
    size_t chunks = len == 0 ? 1 : (len + MSG_CHUNK - 1) / MSG_CHUNK;
    struct msg *m = malloc(sizeof(*m) + len + chunks * MSG_PRE);
    size_t n;

    if (!m)
        return NULL;
    *m = (struct msg){.refs = 1, .len = len};
    for (size_t i = 0; i < chunks; i++) {
        unsigned char *to = msg_chunk(m, i, &n);

        memcpy(to, text + i * MSG_CHUNK, n);
    }
    return m;
}

struct msg *msg_new_text(const char *text, size_t len)
{
    struct msg *m;
    char *fixed;
    size_t n;

    if (utf8_valid(text, len))
        return msg_of_valid(text, len);
    n = text_repair(text, len, NULL);
    assert(n > 0); /* what is empty is valid */
    fixed = malloc(n);
    if (!fixed)
        return NULL;
    text_repair(text, len, fixed);
    m = msg_of_valid(fixed, n);
    free(fixed);
    return m;
}

struct msg *msg_ref(struct msg *m)
{
    m->refs++;
    return m;
}

void msg_unref(struct msg *m)
{
    if (m && --m->refs == 0)
        free(m);
}

size_t msg_len(const struct msg *m)
{
    return m->len;
}

size_t msg_chunks(const struct msg *m)
{
    return m->len == 0 ? 1 : (m->len + MSG_CHUNK - 1) / MSG_CHUNK;
}

unsigned char *msg_chunk(struct msg *m, size_t i, size_t *ret_len)
{
    size_t left = m->len - i * MSG_CHUNK;

    *ret_len = left < MSG_CHUNK ? left : MSG_CHUNK;
    return m->data + i * STRIDE + MSG_PRE;
}
