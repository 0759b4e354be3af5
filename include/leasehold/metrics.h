/*
 * Metrics: counters, gauges and histograms, told in the Prometheus text format 0.0.4.
 *
 * Every series exists from its registration on, with labels whose values are known then. So nothing
 * that a client sends can make a series, the memory is bounded, and one that has not happened yet
 * is shown as 0.
 *
 * Registering: one thread, before the others start. Recording: any thread, without a lock; a NULL
 * metric records nothing, so that a part can be used without metrics. Writing: any thread.
 */
#ifndef LEASEHOLD_METRICS_H
#define LEASEHOLD_METRICS_H

#include <stdint.h>

#include "leasehold/buf.h"
#include "leasehold/err.h"

#define METRIC_LABELS_MAX 2

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_label {
    const char *name;          /* NULL: no such label */
    const char *const *values; /* ends with NULL; plain text without quotes and backslashes */
};

/* Everything it points at is borrowed for the life of the registry. */
struct metric_spec {
    const char *name, *help;
    enum metric_kind kind;
    struct metric_label labels[METRIC_LABELS_MAX];
    const int64_t *bounds; /* METRIC_HISTOGRAM: upper ends of the buckets, ascending */
    size_t bounds_n;
    int64_t divisor; /* from what is recorded to what is shown: METRIC_MICROS; 0: none */
};

/* Recorded in microseconds, shown in seconds: what Prometheus wants. */
#define METRIC_MICROS 1000000

/* From 50 microseconds to a minute. */
#define METRIC_DURATIONS_N 16
extern const int64_t metric_durations[METRIC_DURATIONS_N];

#define METRIC_DURATION                                                                            \
    .kind = METRIC_HISTOGRAM, .bounds = metric_durations, .bounds_n = METRIC_DURATIONS_N,          \
    .divisor = METRIC_MICROS

struct metrics;
struct metric;

struct metrics *metrics_new(void); /* NULL without memory */
void metrics_free(struct metrics *m);

/* NULL with ERR_INTERNAL: a bad or second name, no memory. */
struct metric *metrics_register(struct metrics *m, const struct metric_spec *spec, struct err *e);

/* All of them in the order of registration. */
void metrics_write(const struct metrics *m, struct buf *out);

/* `a` and `b` are indices into the values of the first and second label; 0 where there is none. */
void metric_add(struct metric *m, unsigned a, unsigned b, int64_t n);
void metric_set(struct metric *m, unsigned a, unsigned b, int64_t value);     /* not a histogram */
void metric_observe(struct metric *m, unsigned a, unsigned b, int64_t value); /* a histogram */

/* The index of a text among the values of a label, the last one ("other") if it is none of them. */
unsigned metric_value_find(const struct metric_label *label, const char *text);

#endif
