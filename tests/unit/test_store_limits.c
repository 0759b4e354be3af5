/* The queue of writes is bounded in length and in time, and what it records is what happened. */
#include <pthread.h>
#include <semaphore.h>

#include "../support/store_fixture.h"

/* Holds the writer inside a write until it is let go. */
struct gate {
    struct fixture *f;
    sem_t entered, go;
    pthread_t thread;
    int rc;
};

static int gate_write(struct store_tx *tx, void *arg, struct err *e)
{
    struct gate *g = arg;
    (void)tx;
    (void)e;
    sem_post(&g->entered);
    sem_wait(&g->go);
    return 0;
}

static void *gate_main(void *arg)
{
    struct gate *g = arg;
    struct err e;
    g->rc = store_write(g->f->store, gate_write, g, &e);
    return NULL;
}

static void gate_close(struct gate *g, struct fixture *f)
{
    g->f = f;
    sem_init(&g->entered, 0, 0);
    sem_init(&g->go, 0, 0);
    assert_int_equal(pthread_create(&g->thread, NULL, gate_main, g), 0);
    sem_wait(&g->entered);
}

static void gate_open(struct gate *g)
{
    sem_post(&g->go);
    pthread_join(g->thread, NULL);
    assert_int_equal(g->rc, 0);
    sem_destroy(&g->entered);
    sem_destroy(&g->go);
}

static int count_run(struct store_tx *tx, void *arg, struct err *e)
{
    (void)tx;
    (void)e;
    ++*(int *)arg;
    return 0;
}

struct writing {
    struct fixture *f;
    pthread_t thread;
    int ran, rc;
    enum err_code code;
};

static void *write_main(void *arg)
{
    struct writing *w = arg;
    struct err e = {0};
    w->rc = store_write(w->f->store, count_run, &w->ran, &e);
    w->code = w->rc != 0 ? e.code : ERR_NONE;
    return NULL;
}

static void open_with(struct fixture *f, const struct store_options *o)
{
    f->options.queue_max = o->queue_max;
    f->options.wait_ms = o->wait_ms;
    f->options.meters = o->meters;
    fixture_open(f);
}

/* Whichever of them is first, in the middle or last in the queue. */
static void a_write_whose_time_is_over_is_not_run_and_the_queue_goes_on(void **state)
{
    struct fixture *f = *state;
    struct gate g;
    struct writing w[5] = {{0}};
    struct err e;
    int ran = 0;

    open_with(f, &(struct store_options){.wait_ms = 30});
    gate_close(&g, f);
    for (size_t i = 0; i < 5; i++) {
        w[i].f = f;
        assert_int_equal(pthread_create(&w[i].thread, NULL, write_main, &w[i]), 0);
    }
    for (size_t i = 0; i < 5; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].code, ERR_BUSY);
    }
    assert_int_equal(store_depth(f->store), 1);
    gate_open(&g); /* far over its own time: what runs is waited for */
    assert_int_equal(store_write(f->store, count_run, &ran, &e), 0);
    assert_int_equal(ran, 1);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(w[i].ran, 0);
    }
    assert_int_equal(store_depth(f->store), 0);
}

static void a_full_queue_refuses_at_once(void **state)
{
    struct fixture *f = *state;
    struct gate g;
    struct writing w = {.f = f};
    struct err e;
    int ran = 0;

    open_with(f, &(struct store_options){.queue_max = 1});
    gate_close(&g, f);
    assert_int_equal(pthread_create(&w.thread, NULL, write_main, &w), 0);
    while (store_depth(f->store) != 2) {
        usleep(1000);
    }
    assert_int_equal(store_write(f->store, count_run, &ran, &e), -1);
    assert_int_equal(e.code, ERR_BUSY);
    gate_open(&g);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.rc, 0);
    assert_int_equal(w.ran, 1);
    assert_int_equal(ran, 0);
}

/* --- what is recorded --------------------------------------------------------------------------- */

static const int64_t sizes[] = {1, 4};

static struct metric *meter(struct metrics *m, const char *name, enum metric_kind kind)
{
    struct err e;
    bool histogram = kind == METRIC_HISTOGRAM;
    return metrics_register(m,
                            &(struct metric_spec){.name = name,
                                                  .help = "",
                                                  .kind = kind,
                                                  .bounds = histogram ? sizes : NULL,
                                                  .bounds_n = histogram ? 2 : 0},
                            &e);
}

static void has(const struct metrics *m, const char *line)
{
    struct buf b;
    buf_init(&b, 65536);
    metrics_write(m, &b);
    if (strstr(b.data, line) == NULL) {
        fail_msg("%s is not in\n%s", line, b.data);
    }
    buf_done(&b);
}

static void the_meters_tell_what_happened(void **state)
{
    struct fixture *f = *state;
    struct metrics *m = metrics_new();
    struct gate g;
    struct writing w[4] = {{0}};
    struct err e;
    int ran = 0;

    open_with(f, &(struct store_options){
                     .queue_max = 4,
                     .meters = {.lane = {.wait = meter(m, "wait", METRIC_HISTOGRAM),
                                         .rejected = meter(m, "rejected", METRIC_COUNTER)},
                                .commits = meter(m, "commits", METRIC_COUNTER),
                                .errors = meter(m, "errors", METRIC_COUNTER),
                                .group = meter(m, "group", METRIC_HISTOGRAM),
                                .duration = meter(m, "duration", METRIC_HISTOGRAM)}});
    gate_close(&g, f);
    for (size_t i = 0; i < 4; i++) {
        w[i].f = f;
        assert_int_equal(pthread_create(&w[i].thread, NULL, write_main, &w[i]), 0);
    }
    while (store_depth(f->store) != 5) {
        usleep(1000);
    }
    assert_int_equal(store_write(f->store, count_run, &ran, &e), -1);
    gate_open(&g);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(w[i].thread, NULL);
    }
    has(m, "\ncommits 2\n");
    has(m, "\nerrors 0\n");
    has(m, "\nrejected 1\n");
    has(m, "\ngroup_bucket{le=\"1\"} 1\ngroup_bucket{le=\"4\"} 2\n");
    has(m, "\ngroup_sum 5\n");
    has(m, "\nwait_count 5\n");
    has(m, "\nduration_count 2\n");
    store_close(f->store);
    f->store = NULL;
    metrics_free(m);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup_closed, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_write_whose_time_is_over_is_not_run_and_the_queue_goes_on),
        TEST(a_full_queue_refuses_at_once),
        TEST(the_meters_tell_what_happened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
