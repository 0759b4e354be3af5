#include "limits.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "peer_group.h"

#define BUCKETS_MAX LIMITS_COUNTED_MAX
#define EVICT_LOOKS 8 /* at the oldest ones, for one that nothing is lost with */

/* What was taken, as the time until which it is paid off. */
struct bucket {
    uint8_t name[16]; /* key id or group of addresses */
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

/* Takes out one that is paid off, else of the oldest ones that with the least to pay. True: that was
 * still owed. */
static bool evict(struct bucket **table, int64_t now_us)
{
    struct bucket *least = NULL;
    bool owed;

    for (int i = 0; i < EVICT_LOOKS && (!least || least->paid_us > now_us); i++) {
        struct bucket *b = *table;

        if (!least || b->paid_us < least->paid_us)
            least = b;
        HASH_DEL(*table, b); /* behind all others: who comes next is looked at next */
        HASH_ADD(hh, *table, name, sizeof b->name, b);
    }
    owed = least->paid_us > now_us;
    HASH_DEL(*table, least);
    free(least);
    return owed;
}

/* When so many owe something that one of them has to be forgotten, whoever is new has one call
 * instead of a burst: to come from ever other addresses gains nothing. */
static struct bucket *bucket_get(const struct limits *l, struct bucket **table,
                                 const uint8_t name[static 16], int64_t now_us)
{
    struct bucket *b;
    bool crowded;

    HASH_FIND(hh, *table, name, sizeof b->name, b);
    if (b)
        return b;
    b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    crowded = HASH_COUNT(*table) >= BUCKETS_MAX && evict(table, now_us);
    b->paid_us = crowded ? now_us + l->burst_us - l->each_us : 0;
    memcpy(b->name, name, sizeof b->name);
    HASH_ADD(hh, *table, name, sizeof b->name, b);
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
    return take(l, bucket_get(l, &l->keys, key_id->b, now_us), now_us, ret_retry_s, e);
}

int limits_refusal(struct limits *l, const char *address, int64_t now_us, int *ret_retry_s,
                   struct err *e)
{
    struct peer_group group;

    if (!l->each_us)
        return 0;
    peer_group_of_text(address, &group);
    return take(l, bucket_get(l, &l->addresses, group.b, now_us), now_us, ret_retry_s, e);
}
