#include <pthread.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/arena.h"

static void pieces_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    struct arena *a = arena_new(1 << 20);
    for (size_t size = 0; size < 500; size++) {
        unsigned char *p = arena_alloc(a, size);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignof(max_align_t), 0);
        for (size_t i = 0; i < size; i++) {
            assert_int_equal(p[i], 0);
        }
        memset(p, 0xff, size);
    }
    arena_free(a);
}

static void cap_bounds_the_sum(void **state)
{
    (void)state;
    struct arena *a = arena_new(100);
    assert_non_null(arena_alloc(a, 64));
    assert_null(arena_alloc(a, 64));
    assert_non_null(arena_alloc(a, 32));
    assert_null(arena_alloc(a, 5));
    arena_free(a);
}

static void many_empty_pieces_reach_the_cap(void **state)
{
    (void)state;
    struct arena *a = arena_new(1000);
    int n = 0;
    while (n < 1000 && arena_alloc(a, 1) != NULL) {
        n++;
    }
    assert_in_range(n, 1, 1000 / alignof(max_align_t) + 1);
    arena_free(a);
}

static void huge_sizes_are_refused(void **state)
{
    (void)state;
    struct arena *a = arena_new(SIZE_MAX);
    assert_null(arena_alloc(a, SIZE_MAX));
    assert_null(arena_alloc(a, SIZE_MAX - 8));
    assert_null(arena_strndup(a, "x", SIZE_MAX));
    arena_free(a);
}

static void a_piece_larger_than_a_block_fits(void **state)
{
    (void)state;
    struct arena *a = arena_new(1 << 20);
    char *big = arena_alloc(a, 500000);
    assert_non_null(big);
    big[499999] = 'x';
    assert_non_null(arena_alloc(a, 8));
    arena_free(a);
}

static void strndup_copies_exactly_len_bytes(void **state)
{
    (void)state;
    struct arena *a = arena_new(1000);
    char *s = arena_strndup(a, "a\0bc", 3);
    assert_memory_equal(s, "a\0b", 4);
    assert_string_equal(arena_strndup(a, NULL, 0), "");
    arena_free(a);
}

static void fill(struct arena *a, int pieces)
{
    for (int i = 0; i < pieces; i++) {
        unsigned char *p = arena_alloc(a, 96);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignof(max_align_t), 0);
        for (size_t at = 0; at < 96; at++) {
            assert_int_equal(p[at], 0);
        }
        memset(p, 0xff, 96);
    }
}

static void an_arena_of_a_pool_is_zeroed_whoever_had_its_memory(void **state)
{
    (void)state;
    struct arena_pool *pool = arena_pool_new(2);
    for (int round = 0; round < 4; round++) {
        struct arena *a[3];
        for (size_t i = 0; i < 3; i++) {
            a[i] = arena_new_of(pool, 1 << 20);
            fill(a[i], 10 + 100 * (int)i); /* within the first block, and beyond */
        }
        for (size_t i = 0; i < 3; i++) {
            arena_free(a[i]);
        }
    }
    arena_pool_free(pool);
}

static void an_arena_of_a_pool_is_the_one_that_went_last(void **state)
{
    (void)state;
    struct arena_pool *pool = arena_pool_new(1);
    struct arena *a = arena_new_of(pool, 100), *b = arena_new_of(pool, 100);
    assert_ptr_not_equal(a, b);
    arena_free(a);
    arena_free(b); /* one too many: to the allocator */
    struct arena *again = arena_new_of(pool, 64);
    assert_ptr_equal(again, a);
    assert_non_null(arena_alloc(again, 64));
    assert_null(arena_alloc(again, 1)); /* the cap is its own */
    arena_free(again);
    arena_pool_free(pool);
}

struct elsewhere {
    struct arena_pool *pool;
    struct arena *given, *made;
};

static void *elsewhere(void *arg)
{
    struct elsewhere *e = arg;
    e->made = arena_new_of(e->pool, 100);
    assert_non_null(arena_alloc(e->made, 64));
    arena_free(e->given);
    return NULL;
}

/* An answer before the end is made by the thread that goes on with the call. */
static void another_thread_neither_takes_from_a_pool_nor_gives_to_it(void **state)
{
    (void)state;
    struct arena_pool *pool = arena_pool_new(4);
    struct elsewhere e = {.pool = pool, .given = arena_new_of(pool, 100)};
    struct arena *spare = arena_new_of(pool, 100);
    pthread_t thread;
    arena_free(spare);
    assert_int_equal(pthread_create(&thread, NULL, elsewhere, &e), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ptr_not_equal(e.made, spare);
    arena_free(e.made); /* on the pool's thread, but none of its own */
    struct arena *next = arena_new_of(pool, 100);
    assert_ptr_equal(next, spare);
    arena_free(next);
    arena_pool_free(pool);
}

static void without_a_pool_an_arena_is_an_arena(void **state)
{
    (void)state;
    struct arena *a = arena_new_of(NULL, 100);
    assert_non_null(arena_alloc(a, 64));
    arena_free(a);
    arena_pool_free(NULL);
}

static void free_takes_null(void **state)
{
    (void)state;
    arena_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_aligned_and_apart),
        cmocka_unit_test(cap_bounds_the_sum),
        cmocka_unit_test(many_empty_pieces_reach_the_cap),
        cmocka_unit_test(huge_sizes_are_refused),
        cmocka_unit_test(a_piece_larger_than_a_block_fits),
        cmocka_unit_test(strndup_copies_exactly_len_bytes),
        cmocka_unit_test(an_arena_of_a_pool_is_zeroed_whoever_had_its_memory),
        cmocka_unit_test(an_arena_of_a_pool_is_the_one_that_went_last),
        cmocka_unit_test(another_thread_neither_takes_from_a_pool_nor_gives_to_it),
        cmocka_unit_test(without_a_pool_an_arena_is_an_arena),
        cmocka_unit_test(free_takes_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
