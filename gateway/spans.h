/*
 * Spans of traces: what an operation did and how long it took, sent to a collector (OTLP over HTTP,
 * JSON). A span lives where its operation does and is queued when it ends; a thread of its own sends
 * what is queued. Nothing waits for it: a full queue, or a collector that does not take them, costs
 * spans, which are counted.
 *
 * Without a tracer, or in a trace whose sender records none, a span still has its ids, for log lines.
 */
#ifndef GATEWAY_SPANS_H
#define GATEWAY_SPANS_H

#include "leasehold/clock.h"
#include "leasehold/log.h"
#include "leasehold/metrics.h"
#include "trace.h"

struct tracer;

struct tracer_options {
    const char *endpoint; /* the URL that is posted to; these are borrowed */
    const char *service_name, *service_version, *node;
    const struct clock *clock;
    struct log *log;
    struct metric *exported, *dropped;
    size_t queue_max; /* 0: as usual */
};

struct services;

/* s->tracer, if the configuration wants one. */
int tracer_open(struct services *s, size_t queue_max, struct err *e) MUST_CHECK;

/* NULL with *e. */
struct tracer *tracer_new(const struct tracer_options *o, struct err *e);
void tracer_free(struct tracer *t); /* sends what is queued, for two seconds at most */

#define SPAN_ATTRS_MAX 10
#define SPAN_TEXT_MAX  80

struct span_attr {
    const char *key; /* constant */
    bool is_number;
    int64_t number;
    char text[SPAN_TEXT_MAX];
};

struct span {
    struct tracer *tracer; /* NULL: it is not recorded */
    struct trace_context self;
    char parent_id[TRACE_SPAN_TEXT]; /* "": none */
    char name[48];
    int64_t start_ms, from_us, took_us;
    struct span_attr attrs[SPAN_ATTRS_MAX];
    size_t attrs_n;
    bool failed;
    char why[96]; /* of a failure: the code's name */
};

/* A child of `parent`, or the first of a trace of its own (NULL, or none). `t` may be NULL. */
void span_begin(struct tracer *t, struct span *s, const char *name,
                const struct trace_context *parent);

/* The span that an answer's traceparent names. `self` none: as above. */
void span_begin_as(struct tracer *t, struct span *s, const char *name,
                   const struct trace_context *self, const struct trace_context *parent);

/* Text that is too long is cut; NULL and "" are left out. */
void span_text(struct span *s, const char *key, const char *value);
void span_id(struct span *s, const char *key, const struct id *value);
void span_number(struct span *s, const char *key, int64_t value);

/* Ends and queues it. `rc` not 0: it failed with *e. */
void span_end(struct span *s, int rc, const struct err *e);

/* The last fields of a log line: the trace it belongs to, if any. */
#define LF_TRACE(c) LF_TRACE_ID("trace_id", (c)->trace_id), LF_TRACE_ID("span_id", (c)->span_id)
#define LF_TRACE_ID(k, v)                                                                          \
    ((struct log_field){.key = (v)[0] ? (k) : NULL, .kind = LF_KIND_STR, .str = (v)})

/* --- between spans.c and otlp.c ---------------------------------------------------------------- */

struct buf;

/* The body of an export request (ExportTraceServiceRequest of OTLP 1.x as JSON). */
void otlp_write(const struct tracer_options *o, const struct span *spans, size_t n,
                struct buf *out);

#endif
