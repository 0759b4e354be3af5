#include "leasehold/metrics.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct metric {
    struct metric_spec spec;
    struct metric *next;
    unsigned n_a, n_b; /* values of its labels; 1 where there is no label */
    size_t cells_each; /* of one series: a value; or buckets, the one above all bounds, the sum */
    atomic_llong cells[];
};

struct metrics {
    struct metric *first, **end;
};

const int64_t metric_durations[METRIC_DURATIONS_N] = {
    50,    100,   250,    500,    1000,    2500,    5000,     10000,
    25000, 50000, 100000, 250000, 1000000, 5000000, 15000000, 60000000,
};

/* --- registration ---------------------------------------------------------------------------- */

struct metrics *metrics_new(void)
{
    struct metrics *m = calloc(1, sizeof(*m));
    if (m != NULL) {
        m->end = &m->first;
    }
    return m;
}

void metrics_free(struct metrics *m)
{
    while (m != NULL && m->first != NULL) {
        struct metric *metric = m->first;
        m->first = metric->next;
        free(metric);
    }
    free(m);
}

static bool name_ok(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";
    return name[0] != '\0' && strchr(letters, name[0]) != NULL &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789")] == '\0';
}

static bool text_ok(const char *text)
{
    return strpbrk(text, "\"\\\n") == NULL;
}

static bool label_ok(const struct metric_label *label)
{
    if (label->name == NULL) {
        return true;
    }
    for (const char *const *v = label->values; *v != NULL; v++) {
        if (!text_ok(*v)) {
            return false;
        }
    }
    return name_ok(label->name) && label->values[0] != NULL;
}

static bool spec_ok(const struct metrics *m, const struct metric_spec *spec)
{
    for (const struct metric *other = m->first; other != NULL; other = other->next) {
        if (strcmp(other->spec.name, spec->name) == 0) {
            return false;
        }
    }
    for (size_t i = 1; i < spec->bounds_n; i++) {
        if (spec->bounds[i] <= spec->bounds[i - 1]) {
            return false;
        }
    }
    return name_ok(spec->name) && text_ok(spec->help) && label_ok(&spec->labels[0]) &&
           label_ok(&spec->labels[1]);
}

static unsigned values_count(const struct metric_label *label)
{
    unsigned n = 0;
    while (label->name != NULL && label->values[n] != NULL) {
        n++;
    }
    return n != 0 ? n : 1;
}

struct metric *metrics_register(struct metrics *m, const struct metric_spec *spec, struct err *e)
{
    if (!spec_ok(m, spec)) {
        err_set(e, ERR_INTERNAL, "metric %s is not well described", spec->name);
        return NULL;
    }
    unsigned n_a = values_count(&spec->labels[0]), n_b = values_count(&spec->labels[1]);
    size_t each = spec->kind == METRIC_HISTOGRAM ? spec->bounds_n + 2 : 1;
    struct metric *metric = calloc(1, sizeof(*metric) + n_a * n_b * each * sizeof(atomic_llong));
    if (metric == NULL) {
        err_set(e, ERR_INTERNAL, "no memory for metric %s", spec->name);
        return NULL;
    }
    metric->spec = *spec;
    metric->n_a = n_a;
    metric->n_b = n_b;
    metric->cells_each = each;
    *m->end = metric;
    m->end = &metric->next;
    return metric;
}

/* --- recording ------------------------------------------------------------------------------- */

/* The order between metrics means nothing: each is only ever read as a number of its own. */
static atomic_llong *series(struct metric *m, unsigned a, unsigned b)
{
    assert(a < m->n_a && b < m->n_b);
    return &m->cells[((size_t)a * m->n_b + b) * m->cells_each];
}

void metric_add(struct metric *m, unsigned a, unsigned b, int64_t n)
{
    if (m != NULL) {
        assert(m->spec.kind != METRIC_HISTOGRAM);
        atomic_fetch_add_explicit(series(m, a, b), n, memory_order_relaxed);
    }
}

void metric_set(struct metric *m, unsigned a, unsigned b, int64_t value)
{
    if (m != NULL) {
        assert(m->spec.kind != METRIC_HISTOGRAM);
        atomic_store_explicit(series(m, a, b), value, memory_order_relaxed);
    }
}

void metric_observe(struct metric *m, unsigned a, unsigned b, int64_t value)
{
    if (m == NULL) {
        return;
    }
    assert(m->spec.kind == METRIC_HISTOGRAM);
    atomic_llong *cells = series(m, a, b);
    size_t bucket = 0;
    while (bucket < m->spec.bounds_n && value > m->spec.bounds[bucket]) {
        bucket++;
    }
    atomic_fetch_add_explicit(&cells[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&cells[m->spec.bounds_n + 1], value, memory_order_relaxed);
}

unsigned metric_value_find(const struct metric_label *label, const char *text)
{
    unsigned i = 0;
    while (label->values[i + 1] != NULL && strcmp(label->values[i], text) != 0) {
        i++;
    }
    return i;
}

/* --- exposition ------------------------------------------------------------------------------ */

static void number_write(const struct metric_spec *spec, long long value, struct buf *out)
{
    if (spec->divisor == 0) {
        buf_printf(out, "%lld", value);
    } else {
        buf_printf(out, "%.15g", (double)value / (double)spec->divisor);
    }
}

/* One label of a list that is open already, or begins. */
static void label_write(const char *name, const char *value, bool *open, struct buf *out)
{
    if (name != NULL) {
        buf_printf(out, "%c%s=\"%s\"", *open ? ',' : '{', name, value);
        *open = true;
    }
}

/* `le`: a bound in text, NULL for what is no bucket. */
static void line_begin(const struct metric *m, const char *suffix, unsigned a, unsigned b,
                       const char *le, struct buf *out)
{
    const struct metric_label *labels = m->spec.labels;
    bool open = false;
    buf_printf(out, "%s%s", m->spec.name, suffix);
    label_write(labels[0].name, labels[0].name != NULL ? labels[0].values[a] : NULL, &open, out);
    label_write(labels[1].name, labels[1].name != NULL ? labels[1].values[b] : NULL, &open, out);
    label_write(le != NULL ? "le" : NULL, le, &open, out);
    buf_add_str(out, open ? "} " : " ");
}

static long long cell(const struct metric *m, unsigned a, unsigned b, size_t i)
{
    const atomic_llong *cells = &m->cells[((size_t)a * m->n_b + b) * m->cells_each];
    return atomic_load_explicit(&cells[i], memory_order_relaxed);
}

static void bound_text(const struct metric_spec *spec, size_t i, char *ret, size_t size)
{
    double divisor = spec->divisor != 0 ? (double)spec->divisor : 1;
    if (i == spec->bounds_n) {
        snprintf(ret, size, "+Inf");
    } else {
        snprintf(ret, size, "%.15g", (double)spec->bounds[i] / divisor);
    }
}

/* The count is that of the buckets as they were read, so that the series is consistent in itself
 * whatever is recorded meanwhile. */
static void histogram_write(const struct metric *m, unsigned a, unsigned b, struct buf *out)
{
    long long count = 0;
    char bound[32];
    for (size_t i = 0; i <= m->spec.bounds_n; i++) {
        count += cell(m, a, b, i);
        bound_text(&m->spec, i, bound, sizeof(bound));
        line_begin(m, "_bucket", a, b, bound, out);
        buf_printf(out, "%lld\n", count);
    }
    line_begin(m, "_sum", a, b, NULL, out);
    number_write(&m->spec, cell(m, a, b, m->spec.bounds_n + 1), out);
    buf_add_char(out, '\n');
    line_begin(m, "_count", a, b, NULL, out);
    buf_printf(out, "%lld\n", count);
}

static void series_write(const struct metric *m, unsigned a, unsigned b, struct buf *out)
{
    if (m->spec.kind == METRIC_HISTOGRAM) {
        histogram_write(m, a, b, out);
        return;
    }
    line_begin(m, "", a, b, NULL, out);
    number_write(&m->spec, cell(m, a, b, 0), out);
    buf_add_char(out, '\n');
}

void metrics_write(const struct metrics *registry, struct buf *out)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    for (const struct metric *m = registry->first; m != NULL; m = m->next) {
        buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", m->spec.name, m->spec.help, m->spec.name,
                   kinds[m->spec.kind]);
        for (unsigned a = 0; a < m->n_a; a++) {
            for (unsigned b = 0; b < m->n_b; b++) {
                series_write(m, a, b, out);
            }
        }
    }
}
