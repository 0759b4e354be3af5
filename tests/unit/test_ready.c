/* Waiting for door and agent: it ends when they are there, when the time is over, and when there is
 * no use in it any more. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../gateway/ready.h"

#define LONG_MS 60000

struct waiting {
    struct ready *r;
    struct id id;
    pthread_t thread;
    int rc;
    enum err_code code;
};

static void *wait_main(void *arg)
{
    struct waiting *w = arg;
    struct err e = {0};

    w->rc = ready_wait(w->r, &w->id, LONG_MS, &e);
    w->code = w->rc ? e.code : ERR_NONE;
    return NULL;
}

static void begin(struct waiting *w)
{
    w->r = ready_new();
    assert_non_null(w->r);
    id_random(&w->id);
    assert_int_equal(ready_expect(w->r, &w->id), 0);
    assert_int_equal(pthread_create(&w->thread, NULL, wait_main, w), 0);
    usleep(20000);
}

static void a_wait_ends_when_the_agent_is_there(void **state)
{
    struct waiting w;

    (void)state;
    begin(&w);
    ready_set(w.r, &w.id, false);
    ready_set(w.r, &w.id, true);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.rc, 0);
    ready_free(w.r);
}

static void a_wait_ends_when_the_gateway_does(void **state)
{
    struct waiting w;
    struct err e;

    (void)state;
    begin(&w);
    ready_close(w.r);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.code, ERR_BUSY);
    assert_int_equal(ready_wait(w.r, &w.id, LONG_MS, &e), -1);
    assert_int_equal(e.code, ERR_BUSY);
    ready_free(w.r);
}

static void a_wait_ends_with_its_time(void **state)
{
    struct ready *r = ready_new();
    struct id id;
    struct err e;

    (void)state;
    id_random(&id);
    assert_int_equal(ready_expect(r, &id), 0);
    assert_int_equal(ready_wait(r, &id, 1, &e), -1);
    assert_int_equal(e.code, ERR_SANDBOX_START_FAILED);
    ready_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_ends_when_the_agent_is_there),
        cmocka_unit_test(a_wait_ends_when_the_gateway_does),
        cmocka_unit_test(a_wait_ends_with_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
