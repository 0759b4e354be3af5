#include "leasehold/arena.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

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
    struct arena_pool *pool;
};

/* An arena of a pool and its first block are one. */
#define POOLED_BYTES (4096u - sizeof(struct arena) - 2 * alignof(max_align_t))
struct pooled {
    struct arena arena; /* first: found again from it */
    struct pooled *next;
    alignas(max_align_t) unsigned char bytes[POOLED_BYTES];
};

struct arena_pool {
    pthread_t own; /* of all that follows */
    struct pooled *spare;
    size_t n, max;
};

/* --- pools ------------------------------------------------------------------------------------ */

struct arena_pool *arena_pool_new(size_t spare_max)
{
    struct arena_pool *p = calloc(1, sizeof(*p));
    if (p != NULL) {
        p->own = pthread_self();
        p->max = spare_max;
    }
    return p;
}

void arena_pool_free(struct arena_pool *p)
{
    while (p != NULL && p->spare != NULL) {
        struct pooled *next = p->spare->next;
        ASAN_UNPOISON_MEMORY_REGION(p->spare->bytes, POOLED_BYTES);
        free(p->spare);
        p->spare = next;
    }
    free(p);
}

static bool is_here(const struct arena_pool *p)
{
    return pthread_equal(p->own, pthread_self()) != 0;
}

static struct pooled *pooled_take(struct arena_pool *p)
{
    struct pooled *taken = p->spare;
    if (taken == NULL) {
        return malloc(sizeof(*taken));
    }
    p->spare = taken->next;
    p->n--;
    return taken;
}

static void pooled_give(struct arena_pool *p, struct pooled *back)
{
    if (!is_here(p) || p->n >= p->max) {
        ASAN_UNPOISON_MEMORY_REGION(back->bytes, POOLED_BYTES);
        free(back);
        return;
    }
    ASAN_POISON_MEMORY_REGION(back->bytes, POOLED_BYTES);
    back->next = p->spare;
    p->spare = back;
    p->n++;
}

struct arena *arena_new_of(struct arena_pool *p, size_t cap)
{
    if (p == NULL || !is_here(p)) {
        return arena_new(cap);
    }
    struct pooled *made = pooled_take(p);
    if (made == NULL) {
        return NULL;
    }
    ASAN_POISON_MEMORY_REGION(made->bytes, POOLED_BYTES);
    made->arena =
        (struct arena){.size = POOLED_BYTES, .left = cap, .block_size = 2 * BLOCK_FIRST, .pool = p};
    return &made->arena;
}

/* --- arenas ----------------------------------------------------------------------------------- */

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
    if (a->pool != NULL) {
        pooled_give(a->pool, (struct pooled *)a);
    } else {
        free(a);
    }
}

static int block_add(struct arena *a, size_t need)
{
    size_t size = need > a->block_size ? need : a->block_size;
    struct block *block = malloc(sizeof(*block) + size);
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

/* Of the newest block, or of what a pool gives with the arena. */
static unsigned char *newest(struct arena *a)
{
    return a->blocks != NULL ? a->blocks->bytes : ((struct pooled *)a)->bytes;
}

static void *piece_of(struct arena *a, size_t size)
{
    const size_t align = alignof(max_align_t);
    if (size > a->left || size > SIZE_MAX / 2) {
        return NULL;
    }
    size_t rounded = size == 0 ? align : (size + align - 1) & ~(align - 1);
    if (rounded > a->size - a->used && block_add(a, rounded) != 0) {
        return NULL;
    }
    void *piece = newest(a) + a->used;
    a->used += rounded;
    ASAN_UNPOISON_MEMORY_REGION(piece, rounded);
    /* Rounding counts: a million empty pieces are not free of charge. */
    a->left = a->left > rounded ? a->left - rounded : 0;
    return piece;
}

void *arena_alloc(struct arena *a, size_t size)
{
    void *piece = piece_of(a, size);
    return piece != NULL ? memset(piece, 0, size) : NULL;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    if (len == SIZE_MAX) {
        return NULL;
    }
    char *copy = piece_of(a, len + 1);
    if (copy != NULL) {
        copy[len] = '\0';
    }
    if (copy != NULL && len > 0) {
        memcpy(copy, s, len);
    }
    return copy;
}
