#include "leasehold/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_FIRST 2048u
#define BLOCK_MAX   65536u

struct block {
    struct block *next;
    alignas(max_align_t) unsigned char bytes[];
};

struct arena {
    struct block *blocks; /* the newest first; pieces come from it alone */
    size_t used, size;    /* of the newest */
    size_t left;          /* of the cap */
    size_t block_size;    /* of the next */
};

struct arena *arena_new(size_t cap)
{
    struct arena *a = calloc(1, sizeof(*a));
    if (a != NULL) {
        a->left = cap;
        a->block_size = BLOCK_FIRST;
    }
    return a;
}

void arena_free(struct arena *a)
{
    if (a == NULL) {
        return;
    }
    while (a->blocks != NULL) {
        struct block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
    free(a);
}

static int block_add(struct arena *a, size_t need)
{
    size_t size = need > a->block_size ? need : a->block_size;
    struct block *block = calloc(1, sizeof(*block) + size);
    if (block == NULL) {
        return -1;
    }
    block->next = a->blocks;
    a->blocks = block;
    a->used = 0;
    a->size = size;
    if (a->block_size < BLOCK_MAX) {
        a->block_size *= 2;
    }
    return 0;
}

void *arena_alloc(struct arena *a, size_t size)
{
    const size_t align = alignof(max_align_t);
    if (size > a->left || size > SIZE_MAX / 2) {
        return NULL;
    }
    size_t rounded = size == 0 ? align : (size + align - 1) & ~(align - 1);
    if (rounded > a->size - a->used && block_add(a, rounded) != 0) {
        return NULL;
    }
    void *piece = a->blocks->bytes + a->used;
    a->used += rounded;
    /* Rounding counts: a million empty pieces are not free of charge. */
    a->left = a->left > rounded ? a->left - rounded : 0;
    return piece;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    if (len == SIZE_MAX) {
        return NULL;
    }
    char *copy = arena_alloc(a, len + 1);
    if (copy != NULL && len > 0) {
        memcpy(copy, s, len);
    }
    return copy;
}
