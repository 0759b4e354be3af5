/*
 * An indexed binary min-heap of pairs of int64 (key, tie): O(log n) insert, change and removal of a known node,
 * which libraries of Debian do not offer for C. Nodes are embedded; the heap owns its array alone.
 */
#ifndef LEASE_HEAP_H
#define LEASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_NONE ((size_t)-1)

struct heap_node {
    int64_t key;
    int64_t tie;  /* set before the first heap_put: of equal keys the lower one comes first */
    size_t index; /* HEAP_NONE: in no heap. Set so before first use. */
};

struct heap {
    struct heap_node **nodes;
    size_t n, size;
};

void heap_done(struct heap *h);
int heap_put(struct heap *h, struct heap_node *node, int64_t key); /* -1: no memory */
void heap_remove(struct heap *h, struct heap_node *node);          /* no-op if in none */
struct heap_node *heap_min(const struct heap *h);                  /* NULL: empty */

#endif
