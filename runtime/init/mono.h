#ifndef INIT_MONO_H
#define INIT_MONO_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline int64_t mono_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

/* Goes on while the machine sleeps. */
static inline int64_t boot_ms(void)
{
    return clock_ms(CLOCK_BOOTTIME);
}

#endif
