#include "heap.h"

#include <stdlib.h>

static bool before(const struct heap_node *a, const struct heap_node *b)
{
    return a->key < b->key || (a->key == b->key && a->tie < b->tie);
}

static void place(struct heap *h, size_t i, struct heap_node *node)
{
    h->nodes[i] = node;
    node->index = i;
}

static void sift_up(struct heap *h, struct heap_node *node)
{
    size_t i = node->index;

    while (i > 0 && before(node, h->nodes[(i - 1) / 2])) {
        place(h, i, h->nodes[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    place(h, i, node);
}

static void sift_down(struct heap *h, struct heap_node *node)
{
    size_t i = node->index;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= h->n)
            break;
        if (child + 1 < h->n && before(h->nodes[child + 1], h->nodes[child]))
            child++;
        if (!before(h->nodes[child], node))
            break;
        place(h, i, h->nodes[child]);
        i = child;
    }
    place(h, i, node);
}

static int grow(struct heap *h)
{
    size_t size = h->size ? h->size * 2 : 64;
    struct heap_node **nodes = reallocarray(h->nodes, size, sizeof(struct heap_node *));

    if (!nodes)
        return -1;
    h->nodes = nodes;
    h->size = size;
    return 0;
}

void heap_done(struct heap *h)
{
    free(h->nodes);
    *h = (struct heap){0};
}

int heap_put(struct heap *h, struct heap_node *node, int64_t key)
{
    if (node->index == HEAP_NONE) {
        if (h->n == h->size && grow(h))
            return -1;
        place(h, h->n++, node);
    }
    node->key = key;
    sift_up(h, node);
    sift_down(h, node);
    return 0;
}

void heap_remove(struct heap *h, struct heap_node *node)
{
    size_t i = node->index;

    if (i == HEAP_NONE)
        return;
    node->index = HEAP_NONE;
    struct heap_node *last = h->nodes[--h->n];
    if (last == node)
        return;
    place(h, i, last);
    sift_up(h, last);
    sift_down(h, last);
}

struct heap_node *heap_min(const struct heap *h)
{
    return h->n ? h->nodes[0] : NULL;
}
