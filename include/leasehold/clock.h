/*
 * Time, injectable. Wall time (CLOCK_REALTIME) is for what people and other machines read; boot
 * time (CLOCK_BOOTTIME: never steps, counts suspend) is for deadlines.
 */
#ifndef LEASEHOLD_CLOCK_H
#define LEASEHOLD_CLOCK_H

#include <stddef.h>
#include <stdint.h>

struct clock {
    int64_t (*wall_ms)(void *ctx); /* since the Unix epoch */
    int64_t (*boot_us)(void *ctx);
    void *ctx;
};

extern const struct clock clock_system;

static inline int64_t clock_wall_ms(const struct clock *c)
{
    return c->wall_ms(c->ctx);
}

static inline int64_t clock_boot_us(const struct clock *c)
{
    return c->boot_us(c->ctx);
}

#define TIME_TEXT 25 /* "2026-11-29T17:04:10.123Z" and its NUL */

/* RFC 3339 UTC with milliseconds. Years 1970–9999; anything else is clamped. Returns out. */
char *time_format(int64_t ms, char out[static TIME_TEXT]);

/* Parses RFC 3339 (any offset, 0–9 fraction digits). Returns -1 if it is none. */
int time_parse(const char *s, size_t len, int64_t *ret_ms);

#endif
