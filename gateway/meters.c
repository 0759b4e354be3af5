#include "meters.h"

#include <stdlib.h>
#include <string.h>

#include "leasehold/door_proto.h"
#include "meters_process.h"
#include "op.h"
#include "services.h"
#include "sessions.h"

/* --- labels ---------------------------------------------------------------------------------- */

static const char *const version_values[] = {LEASEHOLD_VERSION, NULL};
static const char *const connection_values[] = {"http", "websocket", NULL};
static const char *const class_values[] = {"2xx", "3xx", "4xx", "5xx", NULL};
static const char *const lane_values[] = {"read", "write",  "file", "runtime",
                                          "slow", "object", NULL};
static const char *const result_values[] = {"success", "error", NULL};
static const char *const create_values[] = {"created", "reused", "replaced", "error", NULL};
static const char *const create_only[] = {"create_sandbox", NULL};
static const char *const stop_only[] = {"stop_sandbox", NULL};
static const char *const list_only[] = {"list_active_sandboxes", NULL};
static const char *const operation_values[] = {"create_sandbox", "stop_sandbox",
                                               "list_active_sandboxes", NULL};
/* In the order of enum tool_how. */
static const char *const tool_values[] = {"ok",   "failed", "signaled", "timed_out",
                                          "left", "cut",    NULL};
static const char *const error_values[] = {"sandbox_start_failed",
                                           "sandbox_stop_failed",
                                           "sandbox_list_failed",
                                           "engine_unavailable",
                                           "busy",
                                           "storage_full",
                                           "internal",
                                           "other",
                                           NULL};
static const char *const state_values[] = {"pending",  "active",      "revoking",
                                           "expiring", "unconfirmed", NULL};
static const char *const cause_values[] = {"revoked",     "expired", "idle",
                                           "agent_ended", "other",   NULL};
static const char *const verdict_values[] = {"malformed",     "bad_header",  "unknown_key",
                                             "bad_signature", "bad_claims",  "wrong_audience",
                                             "not_yet",       "expired",     "not_listed",
                                             "used_up",       "empty_scope", "proof_missing",
                                             "bad_proof",     "agent_ended", "old_generation",
                                             "door_not_live", "behind",      "too_many_connections",
                                             "no_token",      "other",       NULL};
static const char *const retention_values[] = {"file", "workspace", "artifact", NULL};
static const char *const orphan_values[] = {"marked", "removed", "error", NULL};
static const char *const connect_values[] = {"first", "again", NULL};

#define LABEL(name, values) .labels = {{(name), (values)}}

static const struct metric_label error_label = {"error_type", error_values};
static const struct metric_label verdict_label = {"verdict", verdict_values};

static const int64_t group_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
#define GROUP_BOUNDS_N (sizeof group_bounds / sizeof *group_bounds)

/* The values of `op` are those of the table of operations: filled in when the registry is made. */
static const struct metric_spec specs[METERS] = {
    [METER_BUILD] = {.name = "leasehold_build_info",
                     .help = "Always 1; the version.",
                     .kind = METRIC_GAUGE,
                     LABEL("version", version_values)},
    [METER_LOOP_LAG] = {.name = "leasehold_loop_lag_seconds",
                        .help = "How late a timer of the loop runs.",
                        METRIC_DURATION},
    [METER_LOOP_TURNS] = {.name = "leasehold_loop_turns_total",
                          .help = "Turns of the loop.",
                          .kind = METRIC_COUNTER},
    [METER_LOOP_TURN] = {.name = "leasehold_loop_turn_duration_seconds",
                         .help = "How long the loop is busy between two waits.",
                         METRIC_DURATION},
    [METER_LOOP_TURN_CPU] = {.name = "leasehold_loop_long_turn_cpu_seconds",
                             .help = "CPU time of the turns that were busy for over 1 ms.",
                             METRIC_DURATION},
    [METER_CONNECTIONS] = {.name = "leasehold_connections",
                           .help = "Open connections to the gateway.",
                           .kind = METRIC_GAUGE,
                           LABEL("kind", connection_values)},
    [METER_CONNECTIONS_REFUSED] = {.name = "leasehold_connections_refused_total",
                                   .help = "Connections of addresses that had too many.",
                                   .kind = METRIC_COUNTER},
    [METER_REQUESTS] = {.name = "leasehold_requests_total",
                        .help = "Calls answered, by operation and status.",
                        .kind = METRIC_COUNTER,
                        .labels = {{"op", NULL}, {"class", class_values}}},
    [METER_REQUEST] = {.name = "leasehold_request_duration_seconds",
                       .help = "From the complete request to its answer.",
                       METRIC_DURATION,
                       LABEL("op", NULL)},
    [METER_LANE_DEPTH] = {.name = "leasehold_lane_depth",
                          .help = "Jobs that wait or run.",
                          .kind = METRIC_GAUGE,
                          LABEL("lane", lane_values)},
    [METER_LANE_THREADS] = {.name = "leasehold_lane_threads",
                            .help = "Threads of a lane.",
                            .kind = METRIC_GAUGE,
                            LABEL("lane", lane_values)},
    [METER_LANE_REJECTED] = {.name = "leasehold_lane_rejected_total",
                             .help = "Jobs refused because the lane was full.",
                             .kind = METRIC_COUNTER,
                             LABEL("lane", lane_values)},
    [METER_LANE_EXPIRED] = {.name = "leasehold_lane_expired_total",
                            .help =
                                "Calls not run because their time was over when their turn came.",
                            .kind = METRIC_COUNTER,
                            LABEL("lane", lane_values)},
    [METER_LANE_WAIT] = {.name = "leasehold_lane_wait_seconds",
                         .help = "From the queue to a thread.",
                         METRIC_DURATION,
                         LABEL("lane", lane_values)},
    [METER_CHAT_KEYS] = {.name = "leasehold_chat_locks",
                         .help = "Chats with an operation that runs or waits.",
                         .kind = METRIC_GAUGE},
    [METER_STORE_COMMITS] = {.name = "leasehold_store_commits_total",
                             .help = "Group commits.",
                             .kind = METRIC_COUNTER},
    [METER_STORE_ERRORS] = {.name = "leasehold_store_commit_errors_total",
                            .help = "Group commits that failed as a whole.",
                            .kind = METRIC_COUNTER},
    [METER_STORE_GROUP] = {.name = "leasehold_store_group_writes",
                           .help = "Writes in one group commit.",
                           .kind = METRIC_HISTOGRAM,
                           .bounds = group_bounds,
                           .bounds_n = GROUP_BOUNDS_N},
    [METER_STORE_COMMIT] = {.name = "leasehold_store_commit_duration_seconds",
                            .help = "One group, from its begin to the durable end.",
                            METRIC_DURATION},
    [METER_STORE_WAL] = {.name = "leasehold_store_wal_pages",
                         .help = "Pages in the write-ahead log after the last commit.",
                         .kind = METRIC_GAUGE},
    [METER_STORE_RESERVE] = {.name = "leasehold_store_reserve_bytes",
                             .help = "Bytes on the disk held for writes that end something.",
                             .kind = METRIC_GAUGE},
    [METER_STORE_DAMAGE] = {.name = "leasehold_store_damaged",
                            .help = "1: the metadata file is damaged, no write is taken.",
                            .kind = METRIC_GAUGE},
    [METER_CLOCK_BEHIND] = {.name = "leasehold_clock_behind_seconds",
                            .help = "The wall clock, behind the highest that the store has seen.",
                            .kind = METRIC_GAUGE},
    [METER_SANDBOX_ACTIVE] = {.name = "sandbox_active_count",
                              .help = "Running sandboxes.",
                              .kind = METRIC_GAUGE},
    [METER_SANDBOX_CREATE] = {.name = "sandbox_create_total",
                              .help = "Sandboxes asked for, by outcome.",
                              .kind = METRIC_COUNTER,
                              LABEL("result", create_values)},
    [METER_SANDBOX_CLEANUP] =
        {.name = "sandbox_cleanup_total",
         .help = "Sandboxes ended with all that belonged to them, but replaced ones.",
         .kind = METRIC_COUNTER},
    [METER_SANDBOX_CLEANUP_ERROR] = {.name = "sandbox_cleanup_error_total",
                                     .help = "Sandboxes that could not be ended; tried again.",
                                     .kind = METRIC_COUNTER,
                                     LABEL("error_type", error_values)},
    [METER_RUNTIME_CREATE] = {.name = "sandbox_runtime_create_duration_seconds",
                              .help = "Starting a sandbox until its agent is ready.",
                              METRIC_DURATION,
                              .labels = {{"operation", create_only}, {"result", result_values}}},
    [METER_RUNTIME_STOP] = {.name = "sandbox_runtime_stop_duration_seconds",
                            .help = "Ending a sandbox's processes.",
                            METRIC_DURATION,
                            .labels = {{"operation", stop_only}, {"result", result_values}}},
    [METER_RUNTIME_LIST] = {.name = "sandbox_runtime_list_active_duration_seconds",
                            .help = "Finding what runs, at start.",
                            METRIC_DURATION,
                            .labels = {{"operation", list_only}, {"result", result_values}}},
    [METER_RUNTIME_ERROR] = {.name = "sandbox_runtime_error_total",
                             .help = "Operations on sandboxes that failed.",
                             .kind = METRIC_COUNTER,
                             .labels = {{"operation", operation_values},
                                        {"error_type", error_values}}},
    [METER_WATCHES] = {.name = "leasehold_process_watches",
                       .help = "Processes of sandboxes that are watched.",
                       .kind = METRIC_GAUGE},
    [METER_LEASES] = {.name = "leasehold_leases",
                      .help = "Leases that are not closed.",
                      .kind = METRIC_GAUGE,
                      LABEL("state", state_values)},
    [METER_LEASE_GRANTS] = {.name = "leasehold_lease_grants_total",
                            .help = "Leases granted.",
                            .kind = METRIC_COUNTER},
    [METER_LEASE_RENEWALS] = {.name = "leasehold_lease_renewals_total",
                              .help = "Leases extended.",
                              .kind = METRIC_COUNTER},
    [METER_LEASE_ENDINGS] = {.name = "leasehold_lease_revocations_total",
                             .help = "Leases taken back before their sandbox was gone.",
                             .kind = METRIC_COUNTER,
                             LABEL("cause", cause_values)},
    [METER_LEASE_DENIALS] = {.name = "leasehold_lease_denials_total",
                             .help = "Clients turned away, as far as the doors report each.",
                             .kind = METRIC_COUNTER,
                             LABEL("verdict", verdict_values)},
    [METER_LEASE_ADMISSIONS] = {.name = "leasehold_lease_admissions_total",
                                .help = "Clients let in by doors.",
                                .kind = METRIC_COUNTER},
    [METER_CUT_LATENCY] = {.name = "leasehold_lease_cut_latency_seconds",
                           .help = "From the durable revocation to the door's confirmation.",
                           METRIC_DURATION},
    [METER_DOOR_CUT] = {.name = "leasehold_door_cut_latency_seconds",
                        .help = "From the message to the cut, by the door's own clock.",
                        METRIC_DURATION},
    [METER_DOORS_LIVE] = {.name = "leasehold_doors_live",
                          .help = "Doors that are connected.",
                          .kind = METRIC_GAUGE},
    [METER_DOORS_UNKNOWN] = {.name = "leasehold_doors_unknown",
                             .help = "Control connections that have not said who they are.",
                             .kind = METRIC_GAUGE},
    [METER_DOOR_CONNECTS] = {.name = "leasehold_door_connects_total",
                             .help =
                                 "Doors that connected, for the first time in this life or again.",
                             .kind = METRIC_COUNTER,
                             LABEL("kind", connect_values)},
    [METER_DOOR_LOST] = {.name = "leasehold_door_lost_total",
                         .help = "Control connections of doors that ended.",
                         .kind = METRIC_COUNTER},
    [METER_CLIENTS] = {.name = "leasehold_door_connections",
                       .help = "Clients connected to doors.",
                       .kind = METRIC_GAUGE},
    [METER_AUDIT_FAILURES] = {.name = "leasehold_audit_failures_total",
                              .help = "Entries of the audit trail that could not be written.",
                              .kind = METRIC_COUNTER},
    [METER_AUDIT_DROPPED] = {.name = "leasehold_audit_dropped_total",
                             .help =
                                 "Entries not written because a door or strangers made too many.",
                             .kind = METRIC_COUNTER},
    [METER_SPANS_EXPORTED] = {.name = "leasehold_trace_spans_exported_total",
                              .help = "Spans that the collector took.",
                              .kind = METRIC_COUNTER},
    [METER_SPANS_DROPPED] = {.name = "leasehold_trace_spans_dropped_total",
                             .help = "Spans lost: the queue was full, or nobody took them.",
                             .kind = METRIC_COUNTER},
    [METER_RETENTION_REMOVED] = {.name = "leasehold_retention_removed_total",
                                 .help = "Things that retention has removed.",
                                 .kind = METRIC_COUNTER,
                                 LABEL("kind", retention_values)},
    [METER_RETENTION_BYTES] = {.name = "leasehold_retention_removed_bytes_total",
                               .help = "What came free by that.",
                               .kind = METRIC_COUNTER,
                               LABEL("kind", retention_values)},
    [METER_RETENTION_ERRORS] = {.name = "leasehold_retention_errors_total",
                                .help = "Things that retention could not look at or remove.",
                                .kind = METRIC_COUNTER,
                                LABEL("kind", retention_values)},
    [METER_WORKSPACES] = {.name = "leasehold_workspaces",
                          .help = "Workspaces at the last round of retention.",
                          .kind = METRIC_GAUGE},
    [METER_WORKSPACES_OVER] = {.name = "leasehold_workspaces_over_quota",
                               .help = "Of them those that hold more than they may.",
                               .kind = METRIC_GAUGE},
    [METER_STORAGE_USED] = {.name = "leasehold_storage_used_bytes",
                            .help = "What all of them held then.",
                            .kind = METRIC_GAUGE},
    [METER_STORAGE_QUOTA] = {.name = "leasehold_storage_quota_bytes",
                             .help = "What each of them may hold.",
                             .kind = METRIC_GAUGE},
    [METER_TOOL_RUNS] = {.name = "leasehold_tool_runs_total",
                         .help = "Runs of users' scripts and dynamic tools, by how they ended.",
                         .kind = METRIC_COUNTER,
                         LABEL("result", tool_values)},
    [METER_ARTIFACT_UPLOAD] = {.name = "leasehold_artifact_upload_duration_seconds",
                               .help = "From the row of an artifact to its proven object.",
                               METRIC_DURATION,
                               LABEL("result", result_values)},
    [METER_ARTIFACT_BYTES] = {.name = "leasehold_artifact_stored_bytes_total",
                              .help = "Bytes of artifacts that were stored.",
                              .kind = METRIC_COUNTER},
    [METER_ARTIFACT_DELETIONS] = {.name = "leasehold_artifact_deletions_total",
                                  .help = "Objects of artifacts deleted, and not.",
                                  .kind = METRIC_COUNTER,
                                  LABEL("result", result_values)},
    [METER_ARTIFACT_ORPHANS] = {.name = "leasehold_artifact_orphans_total",
                                .help = "Objects that no row knows: marked, removed, not removed.",
                                .kind = METRIC_COUNTER,
                                LABEL("result", orphan_values)},
    [METER_OBJECT_STORE_UP] = {.name = "leasehold_object_store_up",
                               .help =
                                   "Whether the store of objects served when it was asked last.",
                               .kind = METRIC_GAUGE},
    [METER_PROCESS_CPU] = {.name = "process_cpu_seconds_total",
                           .help = "User and system time.",
                           .kind = METRIC_COUNTER,
                           .divisor = METRIC_MICROS},
    [METER_PROCESS_RSS] = {.name = "process_resident_memory_bytes",
                           .help = "Memory in use.",
                           .kind = METRIC_GAUGE},
    [METER_PROCESS_VIRTUAL] = {.name = "process_virtual_memory_bytes",
                               .help = "Address space.",
                               .kind = METRIC_GAUGE},
    [METER_PROCESS_FDS] = {.name = "process_open_fds",
                           .help = "Open descriptors.",
                           .kind = METRIC_GAUGE},
    [METER_PROCESS_FDS_MAX] = {.name = "process_max_fds",
                               .help = "Descriptors at most.",
                               .kind = METRIC_GAUGE},
    [METER_PROCESS_START] = {.name = "process_start_time_seconds",
                             .help = "When it started.",
                             .kind = METRIC_GAUGE,
                             .divisor = 1000},
};

/* --- the registry ---------------------------------------------------------------------------- */

struct meters {
    struct metrics *registry;
    struct metric *metric[METERS];
    const char **ops; /* names of operations, then "none" */
    unsigned ops_n;
};

static unsigned op_find(const struct meters *m, const char *name)
{
    for (unsigned i = 0; i < m->ops_n; i++)
        if (!strcmp(m->ops[i], name))
            return i;
    return m->ops_n;
}

/* An operation with two rows is one to who reads the figures. */
static int ops_take(struct meters *m, struct err *e)
{
    size_t rows = 0;

    while (ops_table[rows].name)
        rows++;
    m->ops = calloc(rows + 2, sizeof *m->ops);
    if (!m->ops)
        return err_set(e, ERR_INTERNAL, "no memory for the metrics");
    for (size_t i = 0; i < rows; i++)
        if (op_find(m, ops_table[i].name) == m->ops_n)
            m->ops[m->ops_n++] = ops_table[i].name;
    m->ops[m->ops_n] = "none";
    return 0;
}

static int register_all(struct meters *m, struct err *e)
{
    for (size_t i = 0; i < METERS; i++) {
        struct metric_spec spec = specs[i];

        if (spec.labels[0].name && !spec.labels[0].values)
            spec.labels[0].values = m->ops;
        m->metric[i] = metrics_register(m->registry, &spec, e);
        if (!m->metric[i])
            return -1;
    }
    return 0;
}

struct meters *meters_new(struct err *e)
{
    struct meters *m = calloc(1, sizeof *m);

    if (m)
        m->registry = metrics_new();
    if (!m || !m->registry)
        err_set(e, ERR_INTERNAL, "no memory for the metrics");
    else if (!ops_take(m, e) && !register_all(m, e)) {
        metric_set(m->metric[METER_BUILD], 0, 0, 1);
        metric_set(m->metric[METER_PROCESS_START], 0, 0, clock_wall_ms(&clock_system));
        return m;
    }
    meters_free(m);
    return NULL;
}

void meters_free(struct meters *m)
{
    if (!m)
        return;
    metrics_free(m->registry);
    free(m->ops);
    free(m);
}

struct metric *meter(const struct meters *m, enum meter which)
{
    return m ? m->metric[which] : NULL;
}

/* --- recording ------------------------------------------------------------------------------- */

void meters_lane(const struct meters *m, enum meter_lane lane, struct lane_meters *ret)
{
    *ret = (struct lane_meters){
        .lane = lane, .wait = meter(m, METER_LANE_WAIT), .rejected = meter(m, METER_LANE_REJECTED)};
}

void meters_store(const struct meters *m, struct store_meters *ret)
{
    *ret = (struct store_meters){.commits = meter(m, METER_STORE_COMMITS),
                                 .errors = meter(m, METER_STORE_ERRORS),
                                 .group = meter(m, METER_STORE_GROUP),
                                 .duration = meter(m, METER_STORE_COMMIT),
                                 .wal_pages = meter(m, METER_STORE_WAL),
                                 .reserve = meter(m, METER_STORE_RESERVE),
                                 .damage = meter(m, METER_STORE_DAMAGE)};
    meters_lane(m, METER_WRITE, &ret->lane);
}

static unsigned class_of(int status)
{
    return status < 300 ? 0 : status < 400 ? 1 : status < 500 ? 2 : 3;
}

void meters_request(const struct meters *m, const struct op *op, int status, int64_t us)
{
    unsigned at = op ? op_find(m, op->name) : m->ops_n;

    metric_add(m->metric[METER_REQUESTS], at, class_of(status), 1);
    metric_observe(m->metric[METER_REQUEST], at, 0, us);
}

static unsigned error_type(const struct err *e)
{
    return metric_value_find(&error_label, err_code_name(e->code));
}

void meters_runtime(const struct meters *m, enum meter_operation operation, int64_t us, int rc,
                    const struct err *e)
{
    static const enum meter durations[] = {
        [METER_CREATE_SANDBOX] = METER_RUNTIME_CREATE,
        [METER_STOP_SANDBOX] = METER_RUNTIME_STOP,
        [METER_LIST_SANDBOXES] = METER_RUNTIME_LIST,
    };

    metric_observe(m->metric[durations[operation]], 0, rc ? METER_ERROR : METER_SUCCESS, us);
    if (rc)
        metric_add(m->metric[METER_RUNTIME_ERROR], operation, error_type(e), 1);
}

void meters_cleanup_failed(const struct meters *m, const struct err *e)
{
    metric_add(m->metric[METER_SANDBOX_CLEANUP_ERROR], error_type(e), 0, 1);
}

void meters_event(const struct meters *m, const struct broker_event *ev)
{
    switch (ev->kind) {
    case BROKER_ADMIT:
        metric_add(m->metric[METER_LEASE_ADMISSIONS], 0, 0, 1);
        break;
    case BROKER_CUT:
    case BROKER_UNRECORDED:
    case BROKER_DOOR_FAULT:
        break;
    case BROKER_DENY:
        metric_add(m->metric[METER_LEASE_DENIALS],
                   metric_value_find(&verdict_label, ev->verdict ? ev->verdict : ""), 0, 1);
        break;
    case BROKER_ACK:
        metric_observe(m->metric[METER_CUT_LATENCY], 0, 0, ev->latency_us);
        metric_observe(m->metric[METER_DOOR_CUT], 0, 0, ev->door_latency_us);
        break;
    case BROKER_DOOR_LIVE:
        metric_add(m->metric[METER_DOOR_CONNECTS], ev->again, 0, 1);
        break;
    case BROKER_DOOR_LOST:
        metric_add(m->metric[METER_DOOR_LOST], 0, 0, 1);
        break;
    }
    if (ev->over_rate)
        metric_add(m->metric[METER_AUDIT_DROPPED], 0, 0, 1);
}

void meters_ending(const struct meters *m, int code, size_t n)
{
    static const struct {
        int code;
        unsigned cause;
    } causes[] = {
        {CLOSE_REVOKED, 0}, {CLOSE_UNAUTHENTICATED, 1}, {CLOSE_IDLE, 2}, {CLOSE_AGENT_ENDED, 3}};
    unsigned cause = 4;

    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        if (causes[i].code == code)
            cause = causes[i].cause;
    metric_add(m->metric[METER_LEASE_ENDINGS], cause, 0, (int64_t)n);
}

/* --- gauges ---------------------------------------------------------------------------------- */

static void collect_lane(const struct meters *m, enum meter_lane at, const struct lane *l)
{
    metric_set(m->metric[METER_LANE_DEPTH], at, 0, (int64_t)lane_depth(l));
    metric_set(m->metric[METER_LANE_THREADS], at, 0, lane_threads(l));
}

static void collect_broker(const struct meters *m, const struct broker *b)
{
    struct broker_counts c;

    broker_counts(b, &c);
    for (unsigned i = LEASE_PENDING; i <= LEASE_UNCONFIRMED; i++)
        metric_set(m->metric[METER_LEASES], i, 0, (int64_t)c.state[i]);
    metric_set(m->metric[METER_DOORS_LIVE], 0, 0, (int64_t)c.doors_live);
    metric_set(m->metric[METER_DOORS_UNKNOWN], 0, 0, (int64_t)c.doors_unknown);
    metric_set(m->metric[METER_CLIENTS], 0, 0, (int64_t)c.connections);
}

void meters_collect(const struct services *s)
{
    const struct meters *m = s->meters;
    struct server_counts connections;
    struct sessions_counts sessions;

    collect_lane(m, METER_READ, s->read);
    collect_lane(m, METER_FILE, s->file);
    collect_lane(m, METER_RUNTIME, s->runtime);
    collect_lane(m, METER_SLOW, s->slow);
    collect_lane(m, METER_OBJECT, s->object);
    metric_set(m->metric[METER_LANE_DEPTH], METER_WRITE, 0, (int64_t)store_depth(s->store));
    metric_set(m->metric[METER_LANE_THREADS], METER_WRITE, 0, 1);
    metric_set(m->metric[METER_CHAT_KEYS], 0, 0, (int64_t)lane_keys(s->runtime));
    metric_set(m->metric[METER_CLOCK_BEHIND], 0, 0, store_clock_behind_ms(s->store) / 1000);
    collect_broker(m, s->broker);
    server_counts(s->server, &connections);
    metric_set(m->metric[METER_CONNECTIONS], 0, 0,
               (int64_t)(connections.connections - connections.websockets));
    metric_set(m->metric[METER_CONNECTIONS], 1, 0, (int64_t)connections.websockets);
    metric_set(m->metric[METER_CONNECTIONS_REFUSED], 0, 0,
               (int64_t)(connections.refused_addresses + connections.refused_processes));
    sessions_counts(s->sessions, &sessions);
    metric_set(m->metric[METER_SANDBOX_ACTIVE], 0, 0, (int64_t)sessions.running);
    metric_set(m->metric[METER_WATCHES], 0, 0, (int64_t)sessions.watches);
}

void meters_write(const struct meters *m, struct buf *out)
{
    struct process_figures p;

    process_figures(&p);
    metric_set(m->metric[METER_PROCESS_CPU], 0, 0, p.cpu_us);
    metric_set(m->metric[METER_PROCESS_RSS], 0, 0, p.resident_bytes);
    metric_set(m->metric[METER_PROCESS_VIRTUAL], 0, 0, p.virtual_bytes);
    metric_set(m->metric[METER_PROCESS_FDS], 0, 0, p.fds);
    metric_set(m->metric[METER_PROCESS_FDS_MAX], 0, 0, p.fds_max);
    metrics_write(m->registry, out);
}
