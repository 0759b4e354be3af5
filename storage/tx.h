/* What a verb of the store works on: the inside of struct store_tx. */
#ifndef STORAGE_TX_H
#define STORAGE_TX_H

#include "audit.h"
#include "conn.h"
#include "events.h"
#include "high_water.h"
#include "lease_blocks.h"
#include "lease_counts.h"
#include "leasehold/store.h"
#include "session_cache.h"
#include "usage.h"

/* The changes of one group commit, in order. */
struct change_list {
    struct change *items;
    size_t n, size;
};

struct store_tx {
    struct conn *conn;
    int64_t now_ms;
    struct usage_gate *usage;
    /* NULL in a read */
    struct change_list *changes;
    struct audit_trail *audit;
    struct lease_counts *leases;
    struct lease_blocks *lease_blocks;
    struct session_cache *sessions;
    struct event_group *events;
    struct high_water *high_water;
    bool no_memory; /* an emitted change was lost: the write must fail */
};

#endif
