/*
 * UTF-8 inside base/: one decoder for checking, for clipping and for showing foreign bytes.
 * Any thread; nothing is allocated.
 */
#ifndef LEASEHOLD_BASE_UTF8_H
#define LEASEHOLD_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_QUOTE_SIZE 49 /* holds a quoted name for a message, and NUL */

/* Decodes one code point of s (len > 0). Returns its bytes, or 0 if s starts with none. */
size_t utf8_next(const char *s, size_t len, uint32_t *ret_point);

/* The most bytes, `max` at most, of s that end between two code points. */
size_t utf8_clip(const char *s, size_t len, size_t max);

/* Writes s so that it can stand in a message: control, bidi and invalid bytes escaped, clipped with
 * "...". Returns out. */
char *utf8_quote(const char *s, size_t len, char out[static UTF8_QUOTE_SIZE]);

#endif
