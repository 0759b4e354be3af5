/* What a sandbox uses. */
#include "ops.h"
#include "services.h"

const struct field sandbox_stats_out[] = {
    FIELD_INT(struct sandbox_stats_view, cpu_usage_us,
              .doc = "CPU time of all its processes since its start, microseconds"),
    FIELD_INT(struct sandbox_stats_view, memory_bytes, .doc = "memory in use"),
    FIELD_INT(struct sandbox_stats_view, memory_peak_bytes, .doc = "the most so far"),
    FIELD_INT(struct sandbox_stats_view, pids, .doc = "processes and threads"),
    FIELD_TIME(struct sandbox_stats_view, at, .doc = "when it was looked at"),
    {0},
};

struct look {
    struct call *c;
    struct sandbox sandbox;
};

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;
    const struct sandbox_args *a = l->c->args;

    return sandbox_visible(tx, &l->c->caller, &a->session_id, &l->sandbox, e);
}

int op_sandbox_stats(struct call *c, struct err *e)
{
    struct sandbox_stats_view *v = c->result;
    struct look look = {.c = c};
    struct engine_stats stats;

    if (store_read(c->s->store, look_row, &look, e))
        return -1;
    if (look.sandbox.status != SANDBOX_RUNNING)
        return err_set(e, ERR_SESSION_NOT_RUNNING, "the session is %s",
                       sandbox_status_names[look.sandbox.status]);
    if (sandbox_host_stats(&c->s->host, &look.sandbox, &stats, e))
        return -1;
    *v = (struct sandbox_stats_view){.cpu_usage_us = stats.cpu_usage_us,
                                     .memory_bytes = stats.memory_bytes,
                                     .memory_peak_bytes = stats.memory_peak_bytes,
                                     .pids = stats.pids,
                                     .at = clock_wall_ms(c->s->clock)};
    return 0;
}
