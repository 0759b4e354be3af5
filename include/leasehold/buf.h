/*
 * A growing byte buffer with a hard cap. The first append that would pass the cap, or for which
 * there is no memory, marks the buffer failed; later appends do nothing. So a writer appends
 * freely and asks once, at the end, with buf_ok().
 *
 * Always NUL-terminated behind `len` when data != NULL, for printing only: the bytes may hold NULs.
 * Not thread-safe; one owner.
 */
#ifndef LEASEHOLD_BUF_H
#define LEASEHOLD_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data;
    size_t len;
    size_t size; /* allocated */
    size_t cap;  /* most bytes it may ever hold */
    bool failed;
};

void buf_init(struct buf *b, size_t cap);
void buf_done(struct buf *b);  /* frees; the struct may be inited again */
void buf_reset(struct buf *b); /* len = 0, failed = false, memory kept */

/* Makes room for `more` bytes at once, up to the cap, instead of step by step. */
void buf_reserve(struct buf *b, size_t more);

void buf_add(struct buf *b, const void *data, size_t len);
void buf_add_str(struct buf *b, const char *s);
void buf_add_char(struct buf *b, char c);
void buf_add_int(struct buf *b, int64_t v); /* in decimal digits */
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void buf_consume(struct buf *b, size_t n); /* drops the first n bytes; n <= len */

bool buf_ok(const struct buf *b);

/* The decimal digits of v, somewhere in `room`. */
#define INT_TEXT 24
const char *int_format(int64_t v, char room[static INT_TEXT]);

#endif
