/* What a scan of a user's directories and the sums that the writes keep have to agree on. */
#ifndef STORAGE_USAGE_H
#define STORAGE_USAGE_H

#include <pthread.h>
#include <stdint.h>

#include "leasehold/id.h"

#define USAGE_SLOTS 256

/* One for many users: whoever shares it is scanned a little later, never wrong. */
struct usage_slot {
    uint64_t changes; /* begun so far */
    unsigned held;    /* changes that are under way */
};

struct usage_gate {
    int64_t quota_bytes; /* constant */
    pthread_mutex_t lock;
    struct usage_slot slots[USAGE_SLOTS]; /* guarded by lock */
};

void usage_gate_init(struct usage_gate *g, int64_t quota_bytes);
void usage_gate_done(struct usage_gate *g);

#endif
