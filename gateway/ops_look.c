/* Looking into a sandbox: what it uses, and what its agent says. */
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

const struct field sandbox_logs_in[] = {
    FIELD_ID(struct sandbox_logs_args, session_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the session"),
    FIELD_BOOL(struct sandbox_logs_args, follow, .flags = FIELD_QUERY, .def = "false",
               .doc = "goes on until the sandbox has ended"),
    FIELD_INT(struct sandbox_logs_args, tail, .flags = FIELD_QUERY, .min = -1, .max = 1000000,
              .def = "-1", .doc = "so many lines of what there is; -1: all"),
    FIELD_TIME(struct sandbox_logs_args, since, .flags = FIELD_QUERY,
               .doc = "what was said then or later"),
    {0},
};

struct look {
    struct call *c;
    const struct id *session_id;
    struct sandbox sandbox;
};

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;

    return sandbox_visible(tx, &l->c->caller, l->session_id, &l->sandbox, e);
}

static int look_running(struct look *l, struct err *e)
{
    if (store_read(l->c->s->store, look_row, l, e))
        return -1;
    return l->sandbox.status == SANDBOX_RUNNING
               ? 0
               : err_set(e, ERR_SESSION_NOT_RUNNING, "the session is %s",
                         sandbox_status_names[l->sandbox.status]);
}

int op_sandbox_stats(struct call *c, struct err *e)
{
    const struct sandbox_args *a = c->args;
    struct sandbox_stats_view *v = c->result;
    struct look look = {.c = c, .session_id = &a->session_id};
    struct engine_stats stats;

    if (look_running(&look, e) || sandbox_host_stats(&c->s->host, &look.sandbox, &stats, e))
        return -1;
    *v = (struct sandbox_stats_view){.cpu_usage_us = stats.cpu_usage_us,
                                     .memory_bytes = stats.memory_bytes,
                                     .memory_peak_bytes = stats.memory_peak_bytes,
                                     .pids = stats.pids,
                                     .at = clock_wall_ms(c->s->clock)};
    return 0;
}

/* --- its log ----------------------------------------------------------------------------------- */

#define LOG_AGAIN_MS 200

struct log_stream {
    struct engine_log *log;
    bool ended; /* the session; what is left of its log is read to the end */
};

/* What an ended session has said went with it, but for the ends that the gateway logs. */
int op_sandbox_logs(struct call *c, struct err *e)
{
    const struct sandbox_logs_args *a = c->args;
    struct engine_log_from from = {.since_ms = a->since, .tail = a->tail};
    struct look look = {.c = c, .session_id = &a->session_id};
    struct log_stream *s = call_alloc(c, sizeof *s);

    if (!s)
        return err_set(e, ERR_INTERNAL, "no memory for a log");
    if (look_running(&look, e) || sandbox_host_log(&c->s->host, &look.sandbox, &from, &s->log, e))
        return -1;
    c->state = s;
    c->streams = true;
    c->answer_len = -1;
    return 0;
}

static int ended_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    const struct sandbox_logs_args *a = c->args;
    struct log_stream *s = c->state;
    struct sandbox sandbox;

    if (store_sandbox_get(tx, &a->session_id, &sandbox, e)) {
        s->ended = e->code == ERR_NOT_FOUND; /* its chat was deleted */
        return s->ended ? 0 : -1;
    }
    s->ended = sandbox.status == SANDBOX_STOPPED || sandbox.status == SANDBOX_FAILED;
    return 0;
}

int op_sandbox_logs_give(struct call *c, struct op_piece *piece, struct err *e)
{
    const struct sandbox_logs_args *a = c->args;
    struct log_stream *s = c->state;
    char block[16384];
    size_t n = 0;

    while (piece->text.len + sizeof block <= piece->text.cap) {
        if (s->log->v->read(s->log, block, sizeof block, &n, e))
            return -1;
        if (!n)
            break;
        buf_add(&piece->text, block, n);
    }
    if (n || piece->text.len)
        return 0;
    piece->last = !a->follow || s->ended;
    piece->again_ms = LOG_AGAIN_MS;
    return piece->last ? 0 : store_read(c->s->store, ended_row, c, e);
}

void op_sandbox_logs_close(struct call *c)
{
    struct log_stream *s = c->state;

    s->log->v->free(s->log);
}
