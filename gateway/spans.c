#include "spans.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "leasehold/http_client.h"
#include "leasehold/json.h"
#include "meters.h"
#include "services.h"

#define QUEUE_MAX    1024
#define BATCH_MAX    128
#define BATCH_MS     500 /* so long a span waits for others */
#define BODY_CAP     (4u * 1024 * 1024)
#define ANSWER_CAP   65536
#define SEND_MS      10000
#define TRIES        4
#define RETRY_MS     500 /* doubled with each */
#define LAST_MS      2000
#define TELL_US      60000000 /* a collector that is away is told of so often */
#define NICE         10
#define STATUS_OK(s) ((s) >= 200 && (s) < 300)

struct tracer {
    struct tracer_options o;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* waits by the monotonic clock */
    bool closing, ended;    /* lock */
    size_t first, n;        /* lock: of the ring */
    size_t max;
    struct span *ring; /* lock */
    atomic_bool cancel;
    /* The thread's own. */
    struct http_client *http;
    struct span batch[BATCH_MAX];
    int64_t told_us; /* 0: never */
};

/* --- a span ---------------------------------------------------------------------------------- */

void span_begin_as(struct tracer *t, struct span *s, const char *name,
                   const struct trace_context *self, const struct trace_context *parent)
{
    bool has_parent = parent && parent->trace_id[0];

    *s = (struct span){.tracer = t};
    if (self && self->trace_id[0])
        s->self = *self;
    else if (t || has_parent)
        trace_child(&s->self, has_parent ? parent : NULL);
    if (has_parent)
        memcpy(s->parent_id, parent->span_id, sizeof s->parent_id);
    if (!t || !s->self.sampled) {
        s->tracer = NULL;
        return;
    }
    snprintf(s->name, sizeof s->name, "%s", name);
    s->start_ms = clock_wall_ms(t->o.clock);
    s->from_us = clock_boot_us(t->o.clock);
}

void span_begin(struct tracer *t, struct span *s, const char *name,
                const struct trace_context *parent)
{
    span_begin_as(t, s, name, NULL, parent);
}

static struct span_attr *attr_add(struct span *s, const char *key)
{
    if (!s->tracer || s->attrs_n == SPAN_ATTRS_MAX)
        return NULL;
    s->attrs[s->attrs_n] = (struct span_attr){.key = key};
    return &s->attrs[s->attrs_n++];
}

void span_text(struct span *s, const char *key, const char *value)
{
    struct span_attr *a = value && *value ? attr_add(s, key) : NULL;
    size_t len;

    if (!a)
        return;
    snprintf(a->text, sizeof a->text, "%s", value);
    len = strlen(a->text);
    while (!utf8_valid(a->text, len)) /* cut inside of a character */
        len--;
    a->text[len] = '\0';
}

void span_id(struct span *s, const char *key, const struct id *value)
{
    struct span_attr *a = id_is_zero(value) ? NULL : attr_add(s, key);

    if (a)
        id_format(value, a->text);
}

void span_number(struct span *s, const char *key, int64_t value)
{
    struct span_attr *a = attr_add(s, key);

    if (a) {
        a->is_number = true;
        a->number = value;
    }
}

static bool queue_put(struct tracer *t, const struct span *s)
{
    bool fits;

    pthread_mutex_lock(&t->lock);
    fits = t->n < t->max && !t->closing;
    if (fits)
        t->ring[(t->first + t->n++) % t->max] = *s;
    if (t->n == 1 || t->n == BATCH_MAX)
        pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return fits;
}

void span_end(struct span *s, int rc, const struct err *e)
{
    struct tracer *t = s->tracer;

    if (!t)
        return;
    s->tracer = NULL;
    s->took_us = clock_boot_us(t->o.clock) - s->from_us;
    s->failed = rc != 0;
    if (rc)
        snprintf(s->why, sizeof s->why, "%s", err_code_name(e->code));
    if (!queue_put(t, s))
        metric_add(t->o.dropped, 0, 0, 1);
}

/* --- the thread ------------------------------------------------------------------------------ */

static struct timespec in_ms(int64_t ms)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

/* Waits for spans, then a moment for more of them. 0: the end. */
static size_t batch_take(struct tracer *t)
{
    struct timespec until;
    size_t n;
    int rc = 0;

    pthread_mutex_lock(&t->lock);
    while (t->n == 0 && !t->closing)
        pthread_cond_wait(&t->changed, &t->lock);
    until = in_ms(BATCH_MS);
    while (t->n < BATCH_MAX && !t->closing && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&t->changed, &t->lock, &until);
    n = t->n < BATCH_MAX ? t->n : BATCH_MAX;
    for (size_t i = 0; i < n; i++)
        t->batch[i] = t->ring[(t->first + i) % t->max];
    t->first = (t->first + n) % t->max;
    t->n -= n;
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* False: it is the end, and there is no time to try again. */
static bool pause_ms(struct tracer *t, int64_t ms)
{
    struct timespec until = in_ms(ms);
    bool closing;
    int rc = 0;

    pthread_mutex_lock(&t->lock);
    while (!t->closing && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&t->changed, &t->lock, &until);
    closing = t->closing;
    pthread_mutex_unlock(&t->lock);
    return !closing;
}

/* 1: taken, 0: not now, -1: not these. */
static int batch_post(struct tracer *t, const struct buf *body, long *ret_status, struct err *e)
{
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    struct http_client_request r = {.method = "POST",
                                    .url = t->o.endpoint,
                                    .headers = headers,
                                    .body = body->data,
                                    .body_len = body->len,
                                    .timeout_ms = SEND_MS,
                                    .cancel = &t->cancel};
    struct http_client_response answer = {.status = 0};
    int rc;

    buf_init(&answer.body, ANSWER_CAP);
    rc = http_client_run(t->http, &r, &answer, e);
    buf_done(&answer.body);
    *ret_status = rc ? 0 : answer.status;
    if (rc || *ret_status == 429 || *ret_status >= 500)
        return 0;
    return STATUS_OK(*ret_status) ? 1 : -1;
}

static void tell_failure(struct tracer *t, size_t spans, long status, const struct err *e)
{
    int64_t now_us = clock_boot_us(t->o.clock);

    if (t->told_us && now_us - t->told_us < TELL_US)
        return;
    t->told_us = now_us;
    log_event(t->o.log, LOG_WARNING, "traces_export_failed", LF_INT("spans", spans),
              LF_INT("status", status), LF_STR("detail", status ? NULL : e->msg));
}

static void batch_send(struct tracer *t, size_t n)
{
    struct err e = {.msg = "no memory"};
    struct buf body;
    long status = 0;
    int sent = -1;

    buf_init(&body, BODY_CAP);
    otlp_write(&t->o, t->batch, n, &body);
    if (buf_ok(&body))
        sent = batch_post(t, &body, &status, &e);
    for (int i = 1; i < TRIES && sent == 0 && pause_ms(t, (int64_t)RETRY_MS << i); i++)
        sent = batch_post(t, &body, &status, &e);
    buf_done(&body);
    metric_add(sent > 0 ? t->o.exported : t->o.dropped, 0, 0, (int64_t)n);
    if (sent <= 0)
        tell_failure(t, n, status, &e);
}

static void *tracer_main(void *arg)
{
    struct tracer *t = arg;
    size_t n;

    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    while ((n = batch_take(t)) > 0)
        batch_send(t, n);
    pthread_mutex_lock(&t->lock);
    t->ended = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* --- life ------------------------------------------------------------------------------------ */

static int thread_start(struct tracer *t)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&t->thread, NULL, tracer_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!rc)
        pthread_setname_np(t->thread, "traces");
    return rc;
}

static void tracer_release(struct tracer *t)
{
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    http_client_free(t->http);
    free(t->ring);
    free(t);
}

struct tracer *tracer_new(const struct tracer_options *o, struct err *e)
{
    struct tracer *t = calloc(1, sizeof *t);
    pthread_condattr_t attr;
    int rc;

    if (!t) {
        err_set(e, ERR_INTERNAL, "no memory for traces");
        return NULL;
    }
    t->o = *o;
    t->max = o->queue_max ? o->queue_max : QUEUE_MAX;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &attr);
    pthread_condattr_destroy(&attr);
    t->ring = calloc(t->max, sizeof *t->ring);
    t->http = http_client_new();
    rc = t->ring && t->http ? thread_start(t) : ENOMEM;
    if (!rc)
        return t;
    err_sys(e, ERR_INTERNAL, rc, "start the thread of traces");
    tracer_release(t);
    return NULL;
}

void tracer_free(struct tracer *t)
{
    struct timespec until;
    int rc = 0;

    if (!t)
        return;
    until = in_ms(LAST_MS);
    pthread_mutex_lock(&t->lock);
    t->closing = true;
    pthread_cond_signal(&t->changed);
    while (!t->ended && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&t->changed, &t->lock, &until);
    pthread_mutex_unlock(&t->lock);
    t->cancel = true;
    http_client_wake(t->http);
    pthread_join(t->thread, NULL);
    tracer_release(t);
}

int tracer_open(struct services *s, size_t queue_max, struct err *e)
{
    const struct tracer_options o = {
        .endpoint = s->cfg->otel.traces_endpoint,
        .service_name = s->cfg->otel.service_name,
        .service_version = LEASEHOLD_VERSION,
        .node = s->cfg->app.node,
        .clock = s->clock,
        .log = s->log,
        .exported = meter(s->meters, METER_SPANS_EXPORTED),
        .dropped = meter(s->meters, METER_SPANS_DROPPED),
        .queue_max = queue_max,
    };

    if (!s->cfg->tracing_enabled || !*o.endpoint)
        return 0;
    s->tracer = tracer_new(&o, e);
    return s->tracer ? 0 : -1;
}
