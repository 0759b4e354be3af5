#include "app.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activity.h"
#include "artifacts.h"
#include "backup.h"
#include "bot_ws.h"
#include "changes.h"
#include "chats.h"
#include "config_files.h"
#include "descriptors.h"
#include "event_feed.h"
#include "files.h"
#include "leasehold/arena.h"
#include "leasehold/backup.h"
#include "leasehold/owned_file.h"
#include "openapi.h"
#include "history_queue.h"
#include "idempotency.h"
#include "identity.h"
#include "limits.h"
#include "meters.h"
#include "rest.h"
#include "retention.h"
#include "run_dir.h"
#include "sessions.h"
#include "signing_keys.h"
#include "spans.h"
#include "spools.h"
#include "stream.h"
#include "threads.h"
#include "trail.h"

#define STREAMS_MAX   512 /* bodies under way; each may hold two pieces */
#define ARENAS_KEPT   128 /* of calls that are over, 4 KiB each */
#define LAG_EVERY_MS  250
#define DRAIN_POLL_MS 20
#define DRAIN_MAX_MS  30000
#define OPENAPI_CAP   (4u * 1024 * 1024)

struct app {
    const struct app_options *o;
    struct config cfg;
    struct services s;
    struct tls_ca *tls;
    struct server_timer *drain_timer, *lag_timer;
    int64_t lag_due_us; /* when lag_timer should run */
    struct buf openapi;
    int64_t drain_until_us;
    int lock_fd, log_fd;
};

/* What the configuration asks for and this build does not do yet. */
static void profiles_warn(const struct app *a)
{
    const struct config_profile *p = a->cfg.profiles.items;

    for (size_t i = 0; i < a->cfg.profiles.n; i++)
        if (p[i].services.n || p[i].bundles.n)
            log_event(a->s.log, LOG_WARNING, "profile_incomplete", LF_STR("profile", p[i].name),
                      LF_STR("detail", "services and bundles are not supported yet: ignored"));
}

/* Tests fill queues and wait for ends, so they make them short (docs/operations.md). */
static size_t test_limit(const char *variable, size_t otherwise)
{
    const char *text = getenv(variable);

    return text ? strtoul(text, NULL, 10) : otherwise;
}

/* --- signals --------------------------------------------------------------------------------- */

static size_t work_left(const struct services *s)
{
    return server_open_requests(s->server) + server_lingering(s->server) +
           bot_ws_open_calls(s->bots) + lane_depth(s->runtime) + lane_depth(s->file) +
           lane_depth(s->slow) + lane_depth(s->object) + lane_depth(s->read);
}

static void drain_look(void *ctx)
{
    struct app *a = ctx;

    if (work_left(&a->s) && clock_boot_us(a->s.clock) < a->drain_until_us) {
        server_timer_arm(a->drain_timer, DRAIN_POLL_MS);
        return;
    }
    server_stop(a->s.server);
}

/* Sandboxes and doors stay: the next gateway adopts them. */
static void on_term(void *ctx)
{
    struct app *a = ctx;

    if (a->s.draining)
        return;
    a->s.draining = true;
    a->drain_until_us = clock_boot_us(a->s.clock) +
                        (int64_t)test_limit("LEASEHOLD_TEST_DRAIN_MS", DRAIN_MAX_MS) * 1000;
    log_event(a->s.log, LOG_INFO, "stopping", LF_INT("work", work_left(&a->s)));
    server_stop_accepting(a->s.server);
    artifacts_drain(a->s.artifacts);
    spools_drain(a->s.spools);
    bot_ws_drain(a->s.bots);
    streams_drain(a->s.streams);
    sessions_draining(a->s.sessions);
    drain_look(a);
}

/* Each by itself: what cannot be read stays what it was, and holds up nothing else. */
static bool keys_renew(struct app *a)
{
    struct err of[3];
    const int failed[] = {server_reload_tls(a->s.server, &of[0]),
                          tls_ca_renew(&a->cfg, &a->tls, &of[1]), auth_renew(a->s.auth, &of[2])};
    bool all = true;

    a->s.tls = a->tls;
    for (size_t i = 0; i < sizeof failed / sizeof failed[0]; i++) {
        if (failed[i])
            log_error(a->s.log, "reload_failed", &of[i]);
        all = all && !failed[i];
    }
    return all;
}

/* What the configuration itself says. Without one that can be read the credentials of the store stay,
 * too: a secret of now may not be that of the access key of before. */
static bool config_renew(struct app *a)
{
    struct config fresh;
    struct err e;
    bool all;

    if (config_load(a->o->config_file, environ, &fresh, &e)) {
        log_error(a->s.log, "reload_failed", &e);
        return false;
    }
    log_set_level(a->s.log, (enum log_level)fresh.logging.level);
    all = !a->o->objects_renew(&fresh, artifacts_store(a->s.artifacts), &e);
    if (!all)
        log_error(a->s.log, "reload_failed", &e);
    config_files_warn(&fresh, a->s.log);
    config_done(&fresh);
    return all;
}

static void on_hup(void *ctx)
{
    struct app *a = ctx;
    bool config = config_renew(a);

    if (keys_renew(a) && config)
        log_event(a->s.log, LOG_INFO, "reloaded");
}

/* --- WebSockets: doors on the unix socket, bots on TCP --------------------------------------- */

static int ws_open(void *ctx, uint64_t conn, const char *protocol, const struct http_request *r,
                   struct err *e)
{
    struct services *s = ctx;

    if (strcmp(protocol, BOT_WS_PROTOCOL) == 0 && strcmp(r->path, BOT_WS_PATH) == 0)
        return bot_ws_open(s->bots, conn, r, e);
    if (!r->local || strcmp(protocol, DOOR_CONTROL_PROTOCOL) != 0 ||
        strcmp(r->path, DOOR_CONTROL_PATH) != 0)
        return err_set(e, ERR_NOT_FOUND, "there is no WebSocket of this subprotocol here");
    broker_door_open(s->broker, conn);
    return 0;
}

static void ws_message(void *ctx, uint64_t conn, const char *data, size_t len)
{
    struct services *s = ctx;

    if (!bot_ws_message(s->bots, conn, data, len))
        broker_door_message(s->broker, conn, data, len);
}

static void ws_closed(void *ctx, uint64_t conn)
{
    struct services *s = ctx;

    /* The server closes what is still open at the very end, when both are gone. */
    if (s->bots && !bot_ws_closed(s->bots, conn))
        broker_door_closed(s->broker, conn);
}

/* --- timers ---------------------------------------------------------------------------------- */

static void broker_due(void *ctx)
{
    struct services *s = ctx;

    broker_tick(s->broker);
}

static void cleanup_due(void *ctx)
{
    struct services *s = ctx;

    sessions_cleanup(s->sessions);
    spools_cleanup(s->spools);
    idempotency_cleanup(s);
    event_feed_cleanup(s);
    identity_save_used(s);
    limits_cleanup(s->limits, clock_boot_us(s->clock));
    signing_keys_cleanup(s->signing);
    retention_count_active(s->retention);
    server_timer_arm(s->cleanup_timer, s->cfg->sandbox.cleanup_interval_seconds * 1000);
}

static void lag_arm(struct app *a)
{
    a->lag_due_us = clock_boot_us(a->s.clock) + LAG_EVERY_MS * 1000;
    server_timer_arm(a->lag_timer, LAG_EVERY_MS);
}

/* libuv counts whole milliseconds, and may be up to one early. */
static void lag_due(void *ctx)
{
    struct app *a = ctx;
    int64_t lag_us = clock_boot_us(a->s.clock) - a->lag_due_us;

    metric_observe(meter(a->s.meters, METER_LOOP_LAG), 0, 0, lag_us > 0 ? lag_us : 0);
    lag_arm(a);
}

static void on_turn(void *ctx, int64_t busy_us, int64_t cpu_us)
{
    const struct services *s = ctx;

    metric_add(meter(s->meters, METER_LOOP_TURNS), 0, 0, 1);
    metric_observe(meter(s->meters, METER_LOOP_TURN), 0, 0, busy_us);
    if (cpu_us >= 0)
        metric_observe(meter(s->meters, METER_LOOP_TURN_CPU), 0, 0, cpu_us);
}

/* --- together -------------------------------------------------------------------------------- */

static int log_make(struct app *a, struct err *e)
{
    const struct config_logging *l = &a->cfg.logging;

    a->log_fd = STDOUT_FILENO;
    if (l->output == LOG_TO_FILE) {
        bool made;

        a->log_fd = owned_open(l->file_path, O_WRONLY | O_APPEND | O_CLOEXEC, &made);
        if (a->log_fd < 0 || (made && fchmod(a->log_fd, 0640)))
            return err_sys(e, ERR_INTERNAL, errno, "open logging.file_path %s", l->file_path);
    }
    a->s.log = log_new(a->log_fd, (enum log_level)l->level, (enum log_format)l->format);
    return a->s.log ? 0 : err_set(e, ERR_INTERNAL, "no memory for the log");
}

static int keys_load(struct app *a, struct err *e)
{
    if (tls_ca_new(&a->cfg, &a->tls, e))
        return -1;
    a->s.tls = a->tls;
    config_files_warn(&a->cfg, a->s.log);
    return 0;
}

static int meters_make(struct app *a, struct err *e)
{
    a->s.meters = meters_new(e);
    return a->s.meters ? 0 : -1;
}

static int store_make(struct app *a, struct err *e)
{
    char path[4096];
    struct store_options o = {.path = path,
                              .log = a->s.log,
                              .inbox = server_inbox(a->s.server),
                              .readers = THREADS_OF_STORE + 4,
                              .quota_bytes = a->cfg.storage.quota_bytes,
                              .changed = changes_post,
                              .changed_ctx = &a->s,
                              .logged = event_feed_post,
                              .logged_ctx = &a->s,
                              .queue_max = test_limit("LEASEHOLD_TEST_WRITES_MAX", 0)};

    meters_store(a->s.meters, &o.meters);
    if ((size_t)snprintf(path, sizeof path, "%s/" STORE_FILE, a->cfg.storage.data_dir) >=
        sizeof path)
        return err_set(e, ERR_INTERNAL, "storage.data_dir is too long a path");
    /* Never silently a new one: a disk that is not mounted would look like a first start. */
    if (access(path, F_OK))
        return err_sys(e, ERR_INTERNAL, errno,
                       "no metadata at %s: mount its disk, restore a backup, or make it with "
                       "leasehold admin-key",
                       path);
    if (store_open(&o, &a->s.store, e))
        return -1;
    return event_feed_new(&a->s, &a->s.events, e); /* before the first write */
}

static int host_make(struct app *a, struct err *e)
{
    a->s.host = (struct sandbox_host){.cfg = &a->cfg,
                                      .log = a->s.log,
                                      .bin_dir = a->o->bin_dir,
                                      .wait_ready = sessions_wait_ready};
    if (a->o->engine_new(&a->cfg, a->o->bin_dir, &a->s.host.engine, e))
        return -1;
    if (a->s.host.engine->weakness[0])
        log_event(a->s.log, LOG_WARNING, "limits_by_rlimit",
                  LF_STR("detail", a->s.host.engine->weakness));
    return 0;
}

static int server_make(struct app *a, struct err *e)
{
    struct server_handler handler = {.ctx = &a->s,
                                     .http = rest_request,
                                     .http_refused = rest_refused,
                                     .streams = streams_wanted,
                                     .body = streams_body,
                                     .sent = streams_sent,
                                     .gone = streams_gone,
                                     .ws_open = ws_open,
                                     .ws_message = ws_message,
                                     .ws_closed = ws_closed,
                                     .turn = on_turn,
                                     .ws_ping_ms = BOT_WS_PING_MS,
                                     .ws_queue_max = test_limit("LEASEHOLD_TEST_WS_QUEUE_MAX", 0)};

    if (server_new(&a->cfg, a->s.log, &handler, &a->s.server, e))
        return -1;
    a->s.broker_timer = server_timer_new(a->s.server, broker_due, &a->s);
    a->s.cleanup_timer = server_timer_new(a->s.server, cleanup_due, &a->s);
    a->drain_timer = server_timer_new(a->s.server, drain_look, a);
    a->lag_timer = server_timer_new(a->s.server, lag_due, a);
    return a->s.broker_timer && a->s.cleanup_timer && a->drain_timer && a->lag_timer
               ? 0
               : err_set(e, ERR_INTERNAL, "no memory for the timers");
}

static int brokers_make(struct app *a, struct err *e)
{
    struct services *s = &a->s;
    struct broker_hooks hooks;

    changes_broker_hooks(s, &hooks);
    lease_policy_from_config(&a->cfg, &s->policy);
    s->signing = signing_keys_new(s);
    if (!s->signing)
        return err_set(e, ERR_INTERNAL, "no memory for the keys");
    if (signing_keys_load(s->signing, e))
        return -1;
    s->arenas = arena_pool_new(ARENAS_KEPT);
    if (!s->arenas)
        return err_set(e, ERR_INTERNAL, "no memory for calls");
    if (auth_new(&a->cfg, &s->auth, e))
        return -1;
    s->limits = limits_new(&a->cfg.security);
    s->broker = broker_new(&hooks, s->clock, &s->policy, &a->cfg.lease, s->keys);
    s->sessions = sessions_new(s);
    s->spools = spools_new(s);
    s->history = history_queues_new(s);
    s->trail = trail_new(s);
    s->retention = retention_new(s);
    s->activity = activity_new(s);
    s->files = files_new(s);
    s->streams = streams_new(s, test_limit("LEASEHOLD_TEST_STREAMS_MAX", STREAMS_MAX));
    s->bots = bot_ws_new(s);
    s->host.wait_ctx = s->sessions;
    if (!s->limits || !s->broker || !s->sessions || !s->spools || !s->history || !s->trail ||
        !s->retention || !s->bots || !s->streams || !s->files || !s->activity)
        return err_set(e, ERR_INTERNAL, "no memory");
    return auth_load(s->auth, s->store, e);
}

static int openapi_make(struct app *a, struct err *e)
{
    const struct openapi_info info = {LEASEHOLD_VERSION, a->cfg.security.token_header};

    buf_init(&a->openapi, OPENAPI_CAP);
    openapi_write(ops_table, &info, &a->openapi);
    if (!buf_ok(&a->openapi))
        return err_set(e, ERR_INTERNAL, "no memory for openapi.json");
    a->s.openapi = a->openapi.data;
    return 0;
}

/* The metadata may be a backup that was put there. */
static int histories_restore(struct app *a, struct err *e)
{
    const struct config_sandbox *cfg = &a->cfg.sandbox;
    const struct history_place place = {.root = cfg->chats_root, .uid = cfg->uid, .gid = cfg->gid};
    int64_t n;

    if (backup_restore(a->s.store, &place, &n, e))
        return -1;
    if (n)
        log_event(a->s.log, LOG_WARNING, "histories_restored", LF_INT("chats", n));
    return 0;
}

static int app_make(struct app *a, struct err *e)
{
    return log_make(a, e) || meters_make(a, e) ||
                   tracer_open(&a->s, test_limit("LEASEHOLD_TEST_SPANS_MAX", 0), e) ||
                   run_dir_take(&a->cfg, a->s.log, &a->lock_fd, e) || keys_load(a, e) ||
                   host_make(a, e) || server_make(a, e) || store_make(a, e) ||
                   threads_make(&a->s, test_limit("LEASEHOLD_TEST_QUEUE_MAX", 0), e) ||
                   artifacts_open(&a->s, a->o->objects_new, e) || brokers_make(a, e) ||
                   openapi_make(a, e) || local_key_make(&a->s, e) || histories_restore(a, e) ||
                   chats_recover(&a->s, e) || sessions_adopt(a->s.sessions, e)
               ? -1
               : 0;
}

static void app_done(struct app *a)
{
    struct services *s = &a->s;

    s->stopping = true;
    artifacts_stop(s->artifacts);
    if (s->sessions)
        sessions_stopping(s->sessions);
    lane_free(s->scrape);
    lane_free(s->slow); /* it waits for the next two */
    s->slow = NULL;
    lane_free(s->runtime);
    s->runtime = NULL; /* what the inbox still tells of sessions submits no more looks */
    lane_free(s->file);
    s->file = NULL; /* the same of spools */
    lane_free(s->read);
    lane_free(s->body);
    s->body = NULL;
    lane_free(s->object);
    s->object = NULL;
    streams_stop(s->streams);
    files_close(s->files);
    activity_close(s->activity);
    trail_close(s->trail);
    store_close(s->store);
    lane_free(s->sign);
    if (s->host.engine) /* no callback of its comes any more */
        s->host.engine->v->free(s->host.engine);
    s->host.engine = NULL;
    if (s->server)
        while (inbox_drain(server_inbox(s->server), 1000))
            ;
    sessions_free(s->sessions);
    spools_free(s->spools);
    history_queues_free(s->history);
    artifacts_free(s->artifacts);
    trail_free(s->trail);
    retention_free(s->retention);
    files_free(s->files);
    activity_free(s->activity);
    streams_free(s->streams);
    s->streams = NULL;
    bot_ws_free(s->bots);
    event_feed_free(s->events);
    s->bots = NULL;
    broker_free(s->broker);
    auth_free(s->auth);
    limits_free(s->limits);
    server_timer_free(s->broker_timer);
    server_timer_free(s->cleanup_timer);
    server_timer_free(a->drain_timer);
    server_timer_free(a->lag_timer);
    server_free(s->server);
    arena_pool_free(s->arenas);
    tracer_free(s->tracer);
    meters_free(s->meters);
    signing_keys_free(s->signing);
    tls_ca_free(a->tls);
    buf_done(&a->openapi);
    if (a->lock_fd >= 0)
        close(a->lock_fd);
    log_free(s->log);
    if (a->log_fd > STDERR_FILENO)
        close(a->log_fd);
    config_done(&a->cfg);
}

/* Whoever reads the ready file may send SIGTERM at once. */
static int on_watched(void *ctx, struct err *e)
{
    struct app *a = ctx;

    if (run_dir_ready(&a->cfg, server_url(a->s.server), e))
        return -1;
    log_event(a->s.log, LOG_INFO, "ready", LF_STR("url", server_url(a->s.server)),
              LF_STR("version", LEASEHOLD_VERSION), LF_INT("pid", getpid()));
    return 0;
}

static int app_serve(struct app *a, struct err *e)
{
    struct server_signals signals = {
        .ctx = a, .on_watched = on_watched, .on_term = on_term, .on_hup = on_hup};

    server_timer_arm(a->s.broker_timer, 0);
    spools_cleanup(a->s.spools); /* what an earlier life has left */
    retention_start(a->s.retention);
    artifacts_start(a->s.artifacts);
    lag_arm(a);
    server_timer_arm(a->s.cleanup_timer, a->cfg.sandbox.cleanup_interval_seconds * 1000);
    profiles_warn(a);
    return server_run(a->s.server, &signals, e);
}

int app_run(const struct app_options *o, struct err *e)
{
    struct app a = {.o = o, .lock_fd = -1, .log_fd = -1};
    struct rlimit no_core = {0, 0};
    int rc;

    (void)setrlimit(RLIMIT_CORE, &no_core); /* memory holds tokens and keys */
    if (descriptors_take(e) || config_load(o->config_file, environ, &a.cfg, e))
        return -1;
    a.s.cfg = &a.cfg;
    a.s.clock = &clock_system;
    rc = app_make(&a, e) || app_serve(&a, e) ? -1 : 0;
    if (a.lock_fd >= 0) {
        local_key_remove(&a.s);
        run_dir_unready(&a.cfg);
    }
    if (a.s.log && rc)
        log_error(a.s.log, "failed", e);
    else if (a.s.log)
        log_event(a.s.log, LOG_INFO, "stopped");
    app_done(&a);
    return rc;
}
