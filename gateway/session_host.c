/* The machine's side of sessions, measured, traced and told. */
#include <stdio.h>

#include "meters.h"
#include "sessions_state.h"

static const struct trace_context no_trace;

/* One call to the engine. */
struct measured {
    struct services *s;
    enum meter_operation what;
    int64_t from_us;
    struct span span;
};

static void measure(struct measured *m, struct services *s, enum meter_operation what,
                    const struct trace_context *trace)
{
    static const char *const names[] = {[METER_CREATE_SANDBOX] = "create_sandbox",
                                        [METER_STOP_SANDBOX] = "stop_sandbox",
                                        [METER_LIST_SANDBOXES] = "list_active_sandboxes"};
    char name[sizeof m->span.name];

    m->s = s;
    m->what = what;
    snprintf(name, sizeof name, "adapter.%s.%s", s->host.engine->v->name, names[what]);
    span_begin(s->tracer, &m->span, name, trace);
    m->from_us = clock_boot_us(s->clock);
}

static void measured(struct measured *m, int rc, const struct err *e)
{
    meters_runtime(m->s->meters, m->what, clock_boot_us(m->s->clock) - m->from_us, rc, e);
    span_end(&m->span, rc, e);
}

void session_span_names(struct span *span, const struct sandbox *s)
{
    span_id(span, "chat.id", &s->chat_id);
    span_id(span, "session.id", &s->session_id);
    span_text(span, "container.id", s->container_id);
}

int session_host_start(struct services *s, const struct sandbox_start *start,
                       const struct trace_context *trace, struct sandbox *ret, struct err *e)
{
    struct measured m;
    int rc;

    measure(&m, s, METER_CREATE_SANDBOX, trace);
    rc = sandbox_host_start(&s->host, start, ret, e);
    session_span_names(&m.span, rc ? start->sandbox : ret);
    measured(&m, rc, e);
    return rc;
}

int session_host_stop(struct services *s, const struct sandbox *sandbox, int64_t grace_ms,
                      const struct sandbox_door_gone *gone, const struct trace_context *trace,
                      struct err *e)
{
    struct measured m;
    int rc;

    measure(&m, s, METER_STOP_SANDBOX, trace);
    session_span_names(&m.span, sandbox);
    rc = sandbox_host_stop(&s->host, sandbox, grace_ms, gone, e);
    if (rc)
        e->code = ERR_SANDBOX_STOP_FAILED;
    measured(&m, rc, e);
    return rc;
}

int session_host_list(struct services *s,
                      int (*each)(void *ctx, const struct engine_seen *seen, struct err *e),
                      void *ctx, const struct trace_context *trace, struct err *e)
{
    struct measured m;
    int rc;

    measure(&m, s, METER_LIST_SANDBOXES, trace);
    rc = sandbox_host_list(&s->host, each, ctx, e);
    measured(&m, rc, e);
    return rc;
}

void session_clean_failed(struct services *s, const struct id *session_id, const struct err *e,
                          const struct trace_context *trace)
{
    log_error(s->log, "sandbox_clean_failed", e, LF_ID("session_id", session_id),
              LF_TRACE(trace ? trace : &no_trace));
    meters_cleanup_failed(s->meters, e);
}

void session_cleaned(struct services *s, const struct id *session_id, const char *reason,
                     size_t leases_n, const struct trace_context *trace)
{
    log_event(s->log, LOG_INFO, "sandbox_cleaned", LF_ID("session_id", session_id),
              LF_STR("reason", reason), LF_INT("leases", leases_n),
              LF_TRACE(trace ? trace : &no_trace));
    metric_add(meter(s->meters, METER_SANDBOX_CLEANUP), 0, 0, 1);
}
