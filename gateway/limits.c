#include "limits.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#define NAME_SIZE   64
#define BUCKETS_MAX 100000 /* of those that are over; beyond it nobody new is counted */

/* What was taken, as the time until which it is paid off. */
struct bucket {
    char name[NAME_SIZE]; /* key id or address, zeros behind it */
    int64_t paid_us;
    UT_hash_handle hh;
};

struct limits {
    int64_t each_us; /* the price of a call; 0: there is no limit */
    int64_t burst_us;
    struct bucket *keys, *addresses;
};

struct limits *limits_new(const struct config_security *cfg)
{
    struct limits *l = calloc(1, sizeof *l);

    if (!l || cfg->requests_per_second <= 0)
        return l;
    l->each_us = (int64_t)(1e6 / cfg->requests_per_second);
    l->each_us += !l->each_us;
    l->burst_us = l->each_us * (cfg->burst > 0 ? cfg->burst : 1);
    return l;
}

static void clean(struct bucket **table, int64_t until_us)
{
    struct bucket *b, *next;

    HASH_ITER (hh, *table, b, next) {
        if (b->paid_us > until_us)
            continue;
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(*table, b);
        free(b);
    }
}

void limits_free(struct limits *l)
{
    if (!l)
        return;
    clean(&l->keys, INT64_MAX);
    clean(&l->addresses, INT64_MAX);
    free(l);
}

void limits_cleanup(struct limits *l, int64_t now_us)
{
    clean(&l->keys, now_us);
    clean(&l->addresses, now_us);
}

static struct bucket *bucket_get(struct bucket **table, const void *name, size_t len)
{
    char padded[NAME_SIZE] = {0};
    struct bucket *b;

    memcpy(padded, name, len < NAME_SIZE ? len : NAME_SIZE);
    HASH_FIND(hh, *table, padded, NAME_SIZE, b);
    if (b || HASH_COUNT(*table) >= BUCKETS_MAX)
        return b;
    b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    memcpy(b->name, padded, NAME_SIZE);
    HASH_ADD(hh, *table, name, NAME_SIZE, b);
    return b;
}

/* Without memory nobody is refused. */
static int take(const struct limits *l, struct bucket *b, int64_t now_us, int *ret_retry_s,
                struct err *e)
{
    int64_t over_us;

    if (!b)
        return 0;
    if (b->paid_us < now_us)
        b->paid_us = now_us;
    over_us = b->paid_us + l->each_us - now_us - l->burst_us;
    if (over_us <= 0) {
        b->paid_us += l->each_us;
        return 0;
    }
    *ret_retry_s = (int)(over_us / 1000000 + 1);
    return err_set(e, ERR_RATE_LIMITED, "too many requests: try again in %d s", *ret_retry_s);
}

int limits_call(struct limits *l, const struct id *key_id, int64_t now_us, int *ret_retry_s,
                struct err *e)
{
    if (!l->each_us)
        return 0;
    return take(l, bucket_get(&l->keys, key_id->b, sizeof key_id->b), now_us, ret_retry_s, e);
}

int limits_refusal(struct limits *l, const char *address, int64_t now_us, int *ret_retry_s,
                   struct err *e)
{
    if (!l->each_us)
        return 0;
    return take(l, bucket_get(&l->addresses, address, strlen(address)), now_us, ret_retry_s, e);
}
