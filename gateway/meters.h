/*
 * What the gateway measures: the names of docs/operations.md, and who records them. The registry
 * behind it is leasehold/metrics.h. Recording: any thread, unless said otherwise.
 */
#ifndef GATEWAY_METERS_H
#define GATEWAY_METERS_H

#include "leasehold/broker.h"
#include "leasehold/lanes.h"
#include "leasehold/metrics.h"
#include "leasehold/store.h"

struct op;
struct server;
struct services;

/* In the order of the exposition; meters.c describes them. */
enum meter {
    METER_BUILD,
    METER_LOOP_LAG,
    METER_LOOP_TURNS,
    METER_LOOP_TURN,
    METER_LOOP_TURN_CPU,
    METER_CONNECTIONS,
    METER_CONNECTIONS_REFUSED,
    METER_REQUESTS,
    METER_REQUEST,
    METER_LANE_DEPTH,
    METER_LANE_THREADS,
    METER_LANE_REJECTED,
    METER_LANE_EXPIRED,
    METER_LANE_WAIT,
    METER_CHAT_KEYS,
    METER_STORE_COMMITS,
    METER_STORE_ERRORS,
    METER_STORE_GROUP,
    METER_STORE_COMMIT,
    METER_STORE_WAL,
    METER_STORE_RESERVE,
    METER_STORE_DAMAGE,
    METER_CLOCK_BEHIND,
    METER_SANDBOX_ACTIVE,
    METER_SANDBOX_CREATE,
    METER_SANDBOX_CLEANUP,
    METER_SANDBOX_CLEANUP_ERROR,
    METER_RUNTIME_CREATE,
    METER_RUNTIME_STOP,
    METER_RUNTIME_LIST,
    METER_RUNTIME_ERROR,
    METER_WATCHES,
    METER_LEASES,
    METER_LEASE_GRANTS,
    METER_LEASE_RENEWALS,
    METER_LEASE_ENDINGS,
    METER_LEASE_DENIALS,
    METER_LEASE_ADMISSIONS,
    METER_CUT_LATENCY,
    METER_DOOR_CUT,
    METER_DOORS_LIVE,
    METER_DOORS_UNKNOWN,
    METER_DOOR_CONNECTS,
    METER_DOOR_LOST,
    METER_CLIENTS,
    METER_AUDIT_FAILURES,
    METER_AUDIT_DROPPED,
    METER_SPANS_EXPORTED,
    METER_SPANS_DROPPED,
    METER_RETENTION_REMOVED,
    METER_RETENTION_BYTES,
    METER_RETENTION_ERRORS,
    METER_WORKSPACES,
    METER_WORKSPACES_OVER,
    METER_STORAGE_USED,
    METER_STORAGE_QUOTA,
    METER_TOOL_RUNS,
    METER_ARTIFACT_UPLOAD,
    METER_ARTIFACT_BYTES,
    METER_ARTIFACT_DELETIONS,
    METER_ARTIFACT_ORPHANS,
    METER_OBJECT_STORE_UP,
    METER_PROCESS_CPU,
    METER_PROCESS_RSS,
    METER_PROCESS_VIRTUAL,
    METER_PROCESS_FDS,
    METER_PROCESS_FDS_MAX,
    METER_PROCESS_START,
    METERS
};

/* Values of the labels. */
enum meter_lane { METER_READ, METER_WRITE, METER_FILE, METER_RUNTIME, METER_SLOW, METER_OBJECT };
enum meter_result { METER_SUCCESS, METER_ERROR };
enum meter_create { METER_CREATED, METER_REUSED, METER_REPLACED, METER_FAILED };
enum meter_operation { METER_CREATE_SANDBOX, METER_STOP_SANDBOX, METER_LIST_SANDBOXES };

struct meters;
struct meters *meters_new(struct err *e); /* NULL on failure */
void meters_free(struct meters *m);       /* after every thread that records */

/* METER_CREATE_SANDBOX and so on. NULL where m is. */
struct metric *meter(const struct meters *m, enum meter which);

void meters_lane(const struct meters *m, enum meter_lane lane, struct lane_meters *ret);
void meters_store(const struct meters *m, struct store_meters *ret);

/* A call was answered. op NULL: it belonged to none. */
void meters_request(const struct meters *m, const struct op *op, int status, int64_t us);

/* One operation on the machine, by its outcome: rc and *e as it answered them. */
void meters_runtime(const struct meters *m, enum meter_operation operation, int64_t us, int rc,
                    const struct err *e);

/* sandbox_cleanup_error_total. */
void meters_cleanup_failed(const struct meters *m, const struct err *e);

/* What the broker reports: hooks event and ending. */
void meters_event(const struct meters *m, const struct broker_event *ev);
void meters_ending(const struct meters *m, int code, size_t n);

/* Sets the gauges of what belongs to the loop; loop thread. */
void meters_collect(const struct services *s);

/* The whole text, with the figures of the process; it reads /proc, so not on the loop. */
void meters_write(const struct meters *m, struct buf *out);

#endif
