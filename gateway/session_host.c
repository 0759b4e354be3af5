/* The machine's side of sessions, measured and told. */
#include "meters.h"
#include "sessions_state.h"

int session_host_start(struct services *s, const struct sandbox_start *start, struct sandbox *ret,
                       struct err *e)
{
    int64_t from_us = clock_boot_us(s->clock);
    int rc = sandbox_host_start(&s->host, start, ret, e);

    meters_runtime(s->meters, METER_CREATE_SANDBOX, clock_boot_us(s->clock) - from_us, rc, e);
    return rc;
}

int session_host_stop(struct services *s, const struct sandbox *sandbox, int64_t grace_ms,
                      struct err *e)
{
    int64_t from_us = clock_boot_us(s->clock);
    int rc = sandbox_host_stop(&s->host, sandbox, grace_ms, e);

    if (rc)
        e->code = ERR_SANDBOX_STOP_FAILED;
    meters_runtime(s->meters, METER_STOP_SANDBOX, clock_boot_us(s->clock) - from_us, rc, e);
    return rc;
}

int session_host_list(struct services *s,
                      int (*each)(void *ctx, const struct engine_seen *seen, struct err *e),
                      void *ctx, struct err *e)
{
    int64_t from_us = clock_boot_us(s->clock);
    int rc = sandbox_host_list(&s->host, each, ctx, e);

    meters_runtime(s->meters, METER_LIST_SANDBOXES, clock_boot_us(s->clock) - from_us, rc, e);
    return rc;
}

void session_clean_failed(struct services *s, const struct id *session_id, const struct err *e)
{
    log_error(s->log, "sandbox_clean_failed", e, LF_ID("session_id", session_id));
    meters_cleanup_failed(s->meters, e);
}

void session_cleaned(struct services *s, const struct id *session_id, const char *reason,
                     size_t leases_n)
{
    log_event(s->log, LOG_INFO, "sandbox_cleaned", LF_ID("session_id", session_id),
              LF_STR("reason", reason), LF_INT("leases", leases_n));
    metric_add(meter(s->meters, METER_SANDBOX_CLEANUP), 0, 0, 1);
}
