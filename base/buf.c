#include "leasehold/buf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE 64

void buf_init(struct buf *b, size_t cap)
{
    /* No object is larger: so no sum of lengths below can overflow. */
    *b = (struct buf){.cap = cap < PTRDIFF_MAX ? cap : PTRDIFF_MAX - 1};
}

void buf_done(struct buf *b)
{
    free(b->data);
    *b = (struct buf){.cap = b->cap};
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
}

static bool resize(struct buf *b, size_t size)
{
    char *data = realloc(b->data, size);
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->size = size;
    return true;
}

/* Makes room for `more` bytes and the NUL behind them, where there is none. */
static bool grow(struct buf *b, size_t more)
{
    if (b->failed || more > b->cap - b->len) {
        b->failed = true;
        return false;
    }
    size_t need = b->len + more + 1;
    size_t size = b->size < FIRST_SIZE ? FIRST_SIZE : b->size * 2;
    if (size < need) {
        size = need;
    }
    if (size > b->cap + 1) {
        size = b->cap + 1; /* a buffer of 1 MiB does not hold two */
    }
    return resize(b, size);
}

void buf_reserve(struct buf *b, size_t more)
{
    size_t room = b->cap - b->len;
    size_t need = b->len + (more < room ? more : room) + 1;
    if (!b->failed && need > b->size) {
        (void)resize(b, need);
    }
}

/* Most pieces fit into what is there. */
static inline bool reserve(struct buf *b, size_t more)
{
    return (!b->failed && more < b->size - b->len) || grow(b, more);
}

void buf_add(struct buf *b, const void *data, size_t len)
{
    if (!reserve(b, len)) {
        return;
    }
    if (len > 0) {
        memcpy(b->data + b->len, data, len);
    }
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_add_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_add_char(struct buf *b, char c)
{
    if (reserve(b, 1)) {
        b->data[b->len++] = c;
        b->data[b->len] = '\0';
    }
}

const char *int_format(int64_t v, char room[static INT_TEXT])
{
    char *at = room + INT_TEXT - 1;
    uint64_t left = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    *at = '\0';
    do {
        *--at = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (v < 0) {
        *--at = '-';
    }
    return at;
}

void buf_add_int(struct buf *b, int64_t v)
{
    char room[INT_TEXT];
    const char *text = int_format(v, room);
    buf_add(b, text, (size_t)(room + INT_TEXT - 1 - text));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    if (!reserve(b, 0)) {
        return;
    }
    va_list again;
    va_copy(again, ap);
    size_t room = b->size - b->len;
    int n = vsnprintf(b->data + b->len, room, fmt, ap);
    if (n >= 0 && (size_t)n >= room) {
        b->data[b->len] = '\0'; /* a text that does not fit leaves nothing of itself */
        if (reserve(b, (size_t)n)) {
            n = vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        }
    }
    va_end(again);
    if (n < 0) {
        b->failed = true;
    } else if (!b->failed) {
        b->len += (size_t)n;
    }
}

void buf_consume(struct buf *b, size_t n)
{
    if (n == 0) {
        return;
    }
    b->len -= n;
    memmove(b->data, b->data + n, b->len + 1);
}

bool buf_ok(const struct buf *b)
{
    return !b->failed;
}
