/* The door's loop: who is called, when, and for the last time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../lease/door/loop.h"

#define MANY 40

struct end {
    struct loop_fd *watch;
    int peer; /* the other end of its socket */
    int readable, writable, ended;
    bool close_on_read, write_again, drain;
};

struct fixture {
    struct loop *loop;
    struct end ends[MANY];
    int rounds, rounds_max;
    int fired[8], fired_n;
    struct loop_timer *timers[4];
};

static struct fixture *f;

static void on_readable(void *ctx)
{
    struct end *e = ctx;
    char byte;
    e->readable++;
    if (e->drain) {
        assert_int_equal(recv(loop_fd_get(e->watch), &byte, 1, 0), 1);
    }
    if (e->close_on_read) {
        loop_fd_close(e->watch);
    }
}

static void on_writable(void *ctx)
{
    struct end *e = ctx;
    e->writable++;
    if (e->write_again) {
        loop_fd_write(e->watch);
    }
}

static void on_ended(void *ctx)
{
    struct end *e = ctx;
    e->ended++;
    e->watch = NULL;
}

static void add(int i)
{
    static const struct loop_fd_ops ops = {on_readable, on_writable, on_ended};
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    f->ends[i].peer = pair[0];
    f->ends[i].watch = loop_fd_add(f->loop, pair[1], &ops, &f->ends[i]);
    assert_non_null(f->ends[i].watch);
}

static void after(void *ctx)
{
    (void)ctx;
    if (f->rounds++ == f->rounds_max) {
        loop_stop(f->loop);
    }
}

static void set_again(void *ctx)
{
    loop_timer_set(*(struct loop_timer **)ctx, 0);
}

/* So many waits, none of which lasts: a timer is always due. */
static void run(int rounds)
{
    struct loop_timer *t = NULL;
    t = loop_timer_new(f->loop, set_again, &t);
    f->rounds = 0;
    f->rounds_max = rounds;
    loop_timer_set(t, 0);
    loop_run(f->loop, after, NULL);
    loop_timer_free(t);
}

static int setup(void **state)
{
    struct err e;
    f = calloc(1, sizeof *f);
    f->loop = loop_new(&e);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++) {
        if (f->ends[i].watch) {
            loop_fd_close(f->ends[i].watch);
        }
        if (f->ends[i].peer > 0) {
            close(f->ends[i].peer);
        }
    }
    run(1);
    loop_free(f->loop);
    free(f);
    return 0;
}

static void writable_comes_once_for_each_wish(void **state)
{
    (void)state;
    add(0);
    add(1);
    loop_fd_write(f->ends[0].watch);
    f->ends[1].write_again = true;
    loop_fd_write(f->ends[1].watch);
    run(3);
    assert_int_equal(f->ends[0].writable, 1);
    assert_int_equal(f->ends[1].writable, 3); /* asked for from inside */
}

static void a_paused_descriptor_is_not_read(void **state)
{
    (void)state;
    add(0);
    f->ends[0].drain = true;
    assert_int_equal(write(f->ends[0].peer, "ab", 2), 2);
    loop_fd_read(f->ends[0].watch, false);
    run(1);
    assert_int_equal(f->ends[0].readable, 0);
    loop_fd_read(f->ends[0].watch, true);
    run(1);
    assert_int_equal(f->ends[0].readable, 1);
    run(1);
    assert_int_equal(f->ends[0].readable, 2);
}

static void closing_ends_once_and_nothing_is_called_any_more(void **state)
{
    (void)state;
    add(0);
    f->ends[0].close_on_read = true;
    assert_int_equal(write(f->ends[0].peer, "x", 1), 1);
    loop_fd_write(f->ends[0].watch);
    run(2);
    assert_int_equal(f->ends[0].readable, 1);
    assert_int_equal(f->ends[0].ended, 1);
    assert_true(recv(f->ends[0].peer, &(char){0}, 1, 0) <= 0); /* it is closed */
}

/* A peer that has gone makes poll return for ever: who does not read is told of it. */
static void the_end_of_one_that_is_not_read_is_seen(void **state)
{
    (void)state;
    add(0);
    loop_fd_read(f->ends[0].watch, false);
    close(f->ends[0].peer);
    f->ends[0].peer = 0;
    run(1);
    assert_int_equal(f->ends[0].ended, 1);
    assert_int_equal(f->ends[0].readable, 0);
}

static void others_are_served_when_some_end_in_the_middle(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++) {
        add(i);
        f->ends[i].close_on_read = i % 3 == 0;
        assert_int_equal(write(f->ends[i].peer, "x", 1), 1);
    }
    run(1);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(f->ends[i].readable, 1);
        assert_int_equal(f->ends[i].ended, i % 3 == 0);
    }
    run(1);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(f->ends[i].readable, i % 3 == 0 ? 1 : 2);
    }
}

static void what_may_wait_is_made_not_to(void **state)
{
    (void)state;
    char byte;
    add(0);
    assert_int_equal(recv(loop_fd_get(f->ends[0].watch), &byte, 1, 0), -1);
}

static void on_fire(void *ctx)
{
    f->fired[f->fired_n++] = (int)(intptr_t)ctx;
}

static void on_fire_again(void *ctx)
{
    on_fire(ctx);
    loop_timer_set(f->timers[(intptr_t)ctx], 0);
}

static void timers_fire_in_order_and_once(void **state)
{
    (void)state;
    for (intptr_t i = 0; i < 4; i++) {
        f->timers[i] = loop_timer_new(f->loop, on_fire, (void *)i);
    }
    loop_timer_set(f->timers[2], 2000);
    loop_timer_set(f->timers[1], 1000);
    loop_timer_set(f->timers[3], 3000);
    loop_timer_set(f->timers[0], 1);
    loop_timer_set(f->timers[0], INT64_MAX); /* replaces; and is far away */
    loop_timer_stop(f->timers[3]);
    assert_false(loop_timer_is_set(f->timers[3]));
    while (f->fired_n < 2) {
        run(1);
    }
    run(2);
    assert_int_equal(f->fired_n, 2);
    assert_int_equal(f->fired[0], 1);
    assert_int_equal(f->fired[1], 2);
    assert_true(loop_timer_is_set(f->timers[0]) && !loop_timer_is_set(f->timers[1]));
    for (int i = 0; i < 4; i++) {
        loop_timer_free(f->timers[i]);
    }
}

/* One that sets itself anew has its turn in the next round, and descriptors theirs in between. */
static void a_timer_that_is_always_due_starves_nobody(void **state)
{
    (void)state;
    f->timers[0] = loop_timer_new(f->loop, on_fire_again, NULL);
    loop_timer_set(f->timers[0], 0);
    add(0);
    assert_int_equal(write(f->ends[0].peer, "x", 1), 1);
    run(3);
    assert_in_range(f->fired_n, 1, 3);
    assert_int_equal(f->ends[0].readable, 3);
    loop_timer_free(f->timers[0]);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(writable_comes_once_for_each_wish),
        T(a_paused_descriptor_is_not_read),
        T(closing_ends_once_and_nothing_is_called_any_more),
        T(the_end_of_one_that_is_not_read_is_seen),
        T(others_are_served_when_some_end_in_the_middle),
        T(what_may_wait_is_made_not_to),
        T(timers_fire_in_order_and_once),
        T(a_timer_that_is_always_due_starves_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
