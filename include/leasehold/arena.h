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

struct arena *arena_new(size_t cap); /* NULL without memory */
void arena_free(struct arena *a);
void *arena_alloc(struct arena *a, size_t size);
char *arena_strndup(struct arena *a, const char *s, size_t len); /* NUL-terminated copy */

#endif
