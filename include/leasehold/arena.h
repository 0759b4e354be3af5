/*
 * Memory of one request: allocated piece by piece, freed at once. Everything an operation decodes
 * or answers lives in the request's arena, so no member has an owner of its own.
 *
 * Capped: past `cap` bytes (and without memory) allocations return NULL. Pieces are zeroed and
 * aligned for any type. Not thread-safe: moves with its request from thread to thread.
 */
#ifndef LEASEHOLD_ARENA_H
#define LEASEHOLD_ARENA_H

#include <stddef.h>

struct arena;
struct arena_pool;

struct arena *arena_new(size_t cap); /* NULL without memory */
void arena_free(struct arena *a);
void *arena_alloc(struct arena *a, size_t size);
char *arena_strndup(struct arena *a, const char *s, size_t len); /* NUL-terminated copy */

/* Keeps the first blocks of arenas that are gone for those to come, `spare_max` at most: requests come by
 * the dozen, and the allocator is slow at handing out kilobytes and joining them again. The pool
 * is its maker's thread's: what another one makes of it is an arena without, what it frees is not kept. */
struct arena_pool *arena_pool_new(size_t spare_max); /* NULL without memory */
void arena_pool_free(struct arena_pool *p);
struct arena *arena_new_of(struct arena_pool *p, size_t cap); /* p NULL: as arena_new */

#endif
