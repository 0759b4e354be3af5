/* Metrics: what is recorded is what is told, in the text format 0.0.4. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "leasehold/metrics.h"

static const char *const results[] = {"ok", "other", NULL};
static const char *const kinds[] = {"a", "b", NULL};

struct fixture {
    struct metrics *metrics;
    struct buf out;
};

static int setup(void **state)
{
    static struct fixture f;
    f.metrics = metrics_new();
    assert_non_null(f.metrics);
    buf_init(&f.out, 1 << 20);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    buf_done(&f->out);
    metrics_free(f->metrics);
    return 0;
}

static struct metric *add(struct fixture *f, const struct metric_spec *spec)
{
    struct err e;
    struct metric *m = metrics_register(f->metrics, spec, &e);
    assert_non_null(m);
    return m;
}

static const char *written(struct fixture *f)
{
    buf_reset(&f->out);
    metrics_write(f->metrics, &f->out);
    assert_true(buf_ok(&f->out));
    return f->out.len != 0 ? f->out.data : "";
}

static void test_counter_and_gauge_as_text(void **state)
{
    struct fixture *f = *state;
    struct metric *n = add(f, &(struct metric_spec){.name = "n_total", .help = "How many."});
    struct metric *g =
        add(f, &(struct metric_spec){.name = "level", .help = "So high.", .kind = METRIC_GAUGE});
    metric_add(n, 0, 0, 2);
    metric_add(n, 0, 0, 1);
    metric_set(g, 0, 0, 9);
    metric_set(g, 0, 0, -4);
    assert_string_equal(written(f), "# HELP n_total How many.\n# TYPE n_total counter\nn_total 3\n"
                                    "# HELP level So high.\n# TYPE level gauge\nlevel -4\n");
}

static void test_every_series_is_there_from_the_start(void **state)
{
    struct fixture *f = *state;
    struct metric *m =
        add(f, &(struct metric_spec){
                   .name = "x_total", .help = "X.", .labels = {{"result", results}, {"k", kinds}}});
    metric_add(m, 1, 0, 5);
    assert_string_equal(written(f), "# HELP x_total X.\n# TYPE x_total counter\n"
                                    "x_total{result=\"ok\",k=\"a\"} 0\n"
                                    "x_total{result=\"ok\",k=\"b\"} 0\n"
                                    "x_total{result=\"other\",k=\"a\"} 5\n"
                                    "x_total{result=\"other\",k=\"b\"} 0\n");
}

static void test_buckets_are_cumulative_and_their_ends_belong_to_them(void **state)
{
    struct fixture *f = *state;
    static const int64_t bounds[] = {1000, 2500000};
    struct metric *m = add(f, &(struct metric_spec){.name = "d_seconds",
                                                    .help = "D.",
                                                    .kind = METRIC_HISTOGRAM,
                                                    .labels = {{"result", results}},
                                                    .bounds = bounds,
                                                    .bounds_n = 2,
                                                    .divisor = METRIC_MICROS});
    metric_observe(m, 0, 0, 1000);
    metric_observe(m, 0, 0, 1001);
    metric_observe(m, 0, 0, 3000000);
    const char *text = written(f);
    assert_non_null(strstr(text, "# TYPE d_seconds histogram\n"
                                 "d_seconds_bucket{result=\"ok\",le=\"0.001\"} 1\n"
                                 "d_seconds_bucket{result=\"ok\",le=\"2.5\"} 2\n"
                                 "d_seconds_bucket{result=\"ok\",le=\"+Inf\"} 3\n"
                                 "d_seconds_sum{result=\"ok\"} 3.002001\n"
                                 "d_seconds_count{result=\"ok\"} 3\n"
                                 "d_seconds_bucket{result=\"other\",le=\"0.001\"} 0\n"));
}

static void test_a_histogram_without_labels(void **state)
{
    struct fixture *f = *state;
    static const int64_t bounds[] = {1};
    metric_observe(add(f, &(struct metric_spec){.name = "s",
                                                .help = "S.",
                                                .kind = METRIC_HISTOGRAM,
                                                .bounds = bounds,
                                                .bounds_n = 1}),
                   0, 0, 7);
    assert_non_null(strstr(written(f), "s_bucket{le=\"1\"} 0\ns_bucket{le=\"+Inf\"} 1\n"
                                       "s_sum 7\ns_count 1\n"));
}

static void refused(struct fixture *f, const struct metric_spec *spec)
{
    struct err e;
    assert_null(metrics_register(f->metrics, spec, &e));
    assert_int_equal(e.code, ERR_INTERNAL);
}

static void test_bad_descriptions_are_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const quoted[] = {"a\"b", NULL}, *const none[] = {NULL};
    static const int64_t descending[] = {2, 1};
    add(f, &(struct metric_spec){.name = "twice", .help = ""});
    refused(f, &(struct metric_spec){.name = "twice", .help = ""});
    refused(f, &(struct metric_spec){.name = "9", .help = ""});
    refused(f, &(struct metric_spec){.name = "", .help = ""});
    refused(f, &(struct metric_spec){.name = "a.b", .help = ""});
    refused(f, &(struct metric_spec){.name = "a", .help = "two\nlines"});
    refused(f, &(struct metric_spec){.name = "a", .help = "", .labels = {{"l", quoted}}});
    refused(f, &(struct metric_spec){.name = "a", .help = "", .labels = {{"l", none}}});
    refused(f, &(struct metric_spec){.name = "a", .help = "", .labels = {{"l-", results}}});
    refused(f, &(struct metric_spec){.name = "a",
                                     .help = "",
                                     .kind = METRIC_HISTOGRAM,
                                     .bounds = descending,
                                     .bounds_n = 2});
    assert_string_equal(written(f), "# HELP twice \n# TYPE twice counter\ntwice 0\n");
}

static void test_no_metric_records_nothing(void **state)
{
    (void)state;
    metric_add(NULL, 3, 3, 1);
    metric_set(NULL, 3, 3, 1);
    metric_observe(NULL, 3, 3, 1);
}

static void test_an_unknown_value_is_the_last_one(void **state)
{
    (void)state;
    const struct metric_label label = {"result", results};
    assert_int_equal(metric_value_find(&label, "ok"), 0);
    assert_int_equal(metric_value_find(&label, "other"), 1);
    assert_int_equal(metric_value_find(&label, "whatever a peer says"), 1);
}

#define THREADS 4
#define EACH    20000

static void *hammer(void *arg)
{
    struct metric **m = arg;
    for (int i = 0; i < EACH; i++) {
        metric_add(m[0], 0, 0, 1);
        metric_observe(m[1], 0, 0, i % 2);
    }
    return NULL;
}

static void test_nothing_is_lost_between_threads(void **state)
{
    struct fixture *f = *state;
    static const int64_t bounds[] = {0};
    struct metric *m[] = {add(f, &(struct metric_spec){.name = "c", .help = ""}),
                          add(f, &(struct metric_spec){.name = "h",
                                                       .help = "",
                                                       .kind = METRIC_HISTOGRAM,
                                                       .bounds = bounds,
                                                       .bounds_n = 1})};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, m), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    const char *text = written(f);
    assert_non_null(strstr(text, "c 80000\n"));
    assert_non_null(strstr(text, "h_bucket{le=\"0\"} 40000\nh_bucket{le=\"+Inf\"} 80000\n"
                                 "h_sum 40000\nh_count 80000\n"));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_counter_and_gauge_as_text),
        TEST(test_every_series_is_there_from_the_start),
        TEST(test_buckets_are_cumulative_and_their_ends_belong_to_them),
        TEST(test_a_histogram_without_labels),
        TEST(test_bad_descriptions_are_refused),
        TEST(test_no_metric_records_nothing),
        TEST(test_an_unknown_value_is_the_last_one),
        TEST(test_nothing_is_lost_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
