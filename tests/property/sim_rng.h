/* The one source of chance: everything that happens in a simulation follows from its seed. */
#ifndef PROPERTY_SIM_RNG_H
#define PROPERTY_SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct sim_rng {
    uint64_t state;
};

/* splitmix64 */
static inline uint64_t rng_next(struct sim_rng *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* In [low, high]. */
static inline int64_t rng_range(struct sim_rng *r, int64_t low, int64_t high)
{
    return low + (int64_t)(rng_next(r) % (uint64_t)(high - low + 1));
}

static inline int rng_index(struct sim_rng *r, int n)
{
    return (int)(rng_next(r) % (uint64_t)n);
}

static inline bool rng_one_in(struct sim_rng *r, int n)
{
    return rng_next(r) % (uint64_t)n == 0;
}

#endif
