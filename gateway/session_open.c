/* Opening a chat's sandbox: reuse it, or take the old one away and start a new one. */
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/chatdir.h"
#include "leasehold/door_proto.h"
#include "leasehold/tool_link.h"
#include "leasehold/usertools.h"
#include "meters.h"
#include "sessions_state.h"
#include "spools.h"
#include "tool_runs.h"

_Static_assert(USERTOOLS_NAME_MAX <= TOOL_NAME_MAX + 1, "what the store names the runtime can run");

struct opening {
    struct services *s;
    const struct session_open *o;
    const struct config_profile *profile;
    struct chat chat;
    struct arena *arena;
    struct session_opened *ret;
    struct sandbox sandbox; /* the one being opened */
    struct id new_id;       /* of a new one */
    bool replaces;
    struct session_pull *pull;
    char stopped[REASON_MAX]; /* by whom a start was given up that waited for its image */
    struct span span;
    struct sandbox_tool *tools; /* of the user */
    size_t tools_n;
    char secret[DOOR_SECRET_TEXT];
    struct buf cert_pem, key_pem; /* of the door's TLS; empty: plain */
};

static int issue_lease(struct store_tx *tx, struct opening *op, struct err *e)
{
    if (!op->o->lease)
        return 0;
    return lease_issue(tx, &op->s->policy, keyset_signing_kid(op->s->keys), op->o->caller,
                       &op->sandbox, op->o->lease, &op->ret->lease, e);
}

/* The last of the write that makes the session run: with the lease, what the caller records. */
static int running_row(struct store_tx *tx, struct opening *op, struct err *e)
{
    const struct session_hooks *hooks = op->o->hooks;

    if (issue_lease(tx, op, e))
        return -1;
    op->ret->sandbox = op->sandbox;
    return hooks && hooks->running ? hooks->running(tx, hooks->ctx, op->ret, e) : 0;
}

/* --- reuse ----------------------------------------------------------------------------------- */

static int reuse_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct opening *op = arg;
    struct sandbox *s = &op->sandbox;

    if (store_sandbox_get(tx, &s->session_id, s, e))
        return -1;
    if (s->status != SANDBOX_RUNNING)
        return err_set(e, ERR_SESSION_NOT_RUNNING, "the session ended just now");
    session_touch(s, store_now_ms(tx), op->o->idle_ttl_s);
    if (store_sandbox_update(tx, s, e) ||
        session_audit(tx, op->o->caller, "sandbox.reuse", s, "ok", e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_RUNNING, .sandbox = *s});
    return running_row(tx, op, e);
}

/* Why the active session cannot be reused; NULL: it can. Nothing is ever ended on the strength of an
 * error. */
static int unusable(struct opening *op, const struct sandbox *s, struct engine_status *status,
                    const char **ret, struct err *e)
{
    int64_t now = clock_wall_ms(op->s->clock);

    *ret = "replaced";
    if (s->status != SANDBOX_RUNNING)
        return 0;
    *ret = s->max_expires_at <= now ? "max_ttl" : "idle";
    if (s->expires_at <= now)
        return 0;
    if (sandbox_host_status(&op->s->host, s, status, e))
        return -1;
    *ret = status->alive ? NULL : status->reason;
    return 0;
}

static int reuse(struct opening *op, struct err *e)
{
    if (session_may_share(&op->sandbox, op->o, e))
        return -1;
    op->ret->reused = true;
    if (store_write(op->s->store, reuse_row, op, e))
        return -1;
    log_event(op->s->log, LOG_INFO, "sandbox_reused", LF_ID("session_id", &op->sandbox.session_id),
              LF_ID("chat_id", &op->sandbox.chat_id), LF_TRACE(&op->span.self));
    return 0;
}

/* --- start ----------------------------------------------------------------------------------- */

/* The control secret: only its hash is kept, the text goes to the door alone. */
static int make_secret(struct opening *op, struct err *e)
{
    uint8_t raw[32];

    if (RAND_bytes(raw, sizeof raw) != 1)
        return err_set(e, ERR_INTERNAL, "no random bytes");
    for (size_t i = 0; i < sizeof raw; i++)
        snprintf(op->secret + 2 * i, 3, "%02x", raw[i]);
    OPENSSL_cleanse(raw, sizeof raw);
    SHA256((const uint8_t *)op->secret, strlen(op->secret), op->sandbox.door_secret_hash);
    return 0;
}

static int make_certificate(struct opening *op, struct err *e)
{
    const struct config_door *door = &op->s->cfg->door;
    int64_t until = clock_wall_ms(op->s->clock) + op->s->cfg->sandbox.max_ttl_seconds * 1000;
    const struct tls_ca *tls = op->s->tls;

    if (!tls)
        return 0;
    return tls_ca_issue(tls, &op->sandbox.session_id,
                        door->public_host[0] ? door->public_host : door->host, until + 3600000,
                        &op->cert_pem, &op->key_pem, op->sandbox.door_cert_sha256, e);
}

static int begin_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct opening *op = arg;
    const struct config_sandbox *cfg = &op->s->cfg->sandbox;
    const struct session_hooks *hooks = op->o->hooks;
    struct sandbox *s = &op->sandbox;

    s->created_at = s->last_activity_at = store_now_ms(tx);
    s->max_expires_at = s->created_at + cfg->max_ttl_seconds * 1000;
    s->idle_ttl_s = op->o->idle_ttl_s ? op->o->idle_ttl_s : cfg->ttl_seconds;
    s->expires_at = session_expiry(s->max_expires_at, s->last_activity_at, s->idle_ttl_s);
    if (store_chat_bump_generation(tx, &s->chat_id, &s->generation, e) ||
        store_sandbox_insert(tx, s, e) ||
        session_audit(tx, op->o->caller, "sandbox.start", s, "ok", e) || session_event(tx, s, e))
        return -1;
    /* Nothing is started for the sake of a lease that would be refused. */
    if (op->o->lease && lease_may_issue(tx, &op->s->policy, op->o->caller, s, op->o->lease, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_STARTING, .sandbox = *s});
    op->ret->sandbox = *s;
    return hooks && hooks->begun ? hooks->begun(tx, hooks->ctx, op->ret, e) : 0;
}

/* What a waiting caller is told, and no more. */
static void detail_set(struct sandbox *s, const struct err *e)
{
    snprintf(s->detail, sizeof s->detail, "%s",
             e->code == ERR_INTERNAL ? "Something went wrong here; the log has it" : e->msg);
}

static int failed_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct opening *op = arg;
    struct sandbox *s = &op->sandbox;

    s->status = op->stopped[0] ? SANDBOX_STOPPED : SANDBOX_FAILED;
    snprintf(s->reason, sizeof s->reason, "%s", op->stopped[0] ? op->stopped : "start_failed");
    if (store_sandbox_update(tx, s, e) || lease_close_session(tx, &s->session_id, s->reason, e) ||
        session_audit(tx, op->o->caller, "sandbox.start", s, "failed", e) ||
        session_event(tx, s, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_ENDED, .sandbox = *s});
    return 0;
}

static int record_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct opening *op = arg;
    struct sandbox *s = &op->sandbox;

    s->status = SANDBOX_RUNNING;
    s->started_at = s->last_activity_at = store_now_ms(tx);
    s->expires_at = session_expiry(s->max_expires_at, s->last_activity_at, s->idle_ttl_s);
    if (store_sandbox_update(tx, s, e) || session_event(tx, s, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_RUNNING, .sandbox = *s});
    return running_row(tx, op, e);
}

/* Before it is on record that it starts no more: who passes would find nothing to join, again and again. */
static void starts_no_more(struct opening *op)
{
    lane_key_open(op->s->runtime, &op->chat.chat_id, false);
}

/* Keeps the first error: what went wrong, not what went wrong while cleaning up. */
static void record_failure(struct opening *op, const struct err *why)
{
    struct err e;

    starts_no_more(op);
    if (!op->stopped[0])
        detail_set(&op->sandbox, why);
    if (store_write_end(op->s->store, failed_row, op, &e)) /* the row stays `starting`: adoption
                                                              and the next open end it */
        log_error(op->s->log, "sandbox_record_failed", &e,
                  LF_ID("session_id", &op->sandbox.session_id));
}

/* Who does not wait is answered with this start, also who asked before it was on record. */
static void tell_starting(struct opening *op)
{
    const struct session_hooks *hooks = op->o->hooks;

    lane_key_open(op->s->runtime, &op->chat.chat_id, true);
    if (hooks && hooks->starting)
        hooks->starting(hooks->ctx, op->ret);
}

/* Only what is text is recorded. */
static bool is_recorded(const struct config_profile *p)
{
    return p->record_history &&
           (!strcmp(p->transport, "stdio") || !strncmp(p->transport, "ws:", 3));
}

static int start_recorded(struct opening *op, struct sandbox_start *start, struct err *e)
{
    const struct id *session_id = &op->sandbox.session_id;
    int rc;

    start->spool_fd =
        is_recorded(op->profile) ? spools_open(op->s, session_id, &start->spool_max) : -1;
    rc = session_host_start(op->s, start, &op->span.self, &op->sandbox, e);
    if (start->spool_fd >= 0)
        close(start->spool_fd);
    if (rc)
        spools_finish(op->s, session_id, &op->chat.chat_id);
    return rc;
}

static void tool_refused(void *ctx, const char *name, const char *why)
{
    struct opening *op = ctx;

    log_event(op->s->log, LOG_WARNING, "user_tool_refused", LF_ID("user_id", &op->chat.user_id),
              LF_STR("tool", name), LF_STR("reason", why));
}

static int tool_found(void *ctx, const char *name, bool brokered)
{
    struct opening *op = ctx;
    struct sandbox_tool *more = reallocarray(op->tools, op->tools_n + 1, sizeof *more);

    if (!more)
        return -1;
    op->tools = more;
    more[op->tools_n] = (struct sandbox_tool){strdup(name), brokered};
    return more[op->tools_n++].name ? 0 : -1;
}

static void forget_tools(struct opening *op)
{
    for (size_t i = 0; i < op->tools_n; i++)
        free(op->tools[i].name);
    free(op->tools);
}

/* Without a place to record their runs the brokered ones are not run; the session is no less one. */
static void name_tools(struct opening *op, struct sandbox_start *start, char runs[static PATH_MAX])
{
    size_t brokered_n = 0;
    struct err e;

    start->tools = op->tools;
    start->tools_n = op->tools_n;
    for (size_t i = 0; i < op->tools_n; i++)
        brokered_n += op->tools[i].brokered;
    if (!brokered_n)
        return;
    if (tool_runs_make(op->s, &op->sandbox.session_id, runs, PATH_MAX, &e))
        log_error(op->s->log, "user_tools_unavailable", &e,
                  LF_ID("session_id", &op->sandbox.session_id));
    else
        start->tool_runs_path = runs;
}

/* The image, which may have to come first. */
static int image_get(struct opening *op, struct engine_image *ret, struct err *e)
{
    struct sandbox_host *h = &op->s->host;
    const char *name;

    if (!sandbox_host_image(h, op->profile, op->arena, ret, &name, e))
        return 0;
    if (e->code == ERR_NOT_FOUND && !session_pull(op->s, op->pull, name, op->stopped, e) &&
        !sandbox_host_image(h, op->profile, op->arena, ret, &name, e))
        return 0;
    if (!op->stopped[0])
        log_error(op->s->log, "sandbox_start_failed", e,
                  LF_ID("session_id", &op->sandbox.session_id), LF_STR("step", "image"));
    e->code = ERR_SANDBOX_START_FAILED;
    return -1;
}

static int start_and_record(struct opening *op, struct err *e)
{
    struct engine_image image;
    char files[PATH_MAX], history[PATH_MAX], tools[PATH_MAX], runs[PATH_MAX];
    const struct config_sandbox *cfg = &op->s->cfg->sandbox;
    struct sandbox_start start = {.sandbox = &op->sandbox,
                                  .profile = op->profile,
                                  .image = &image,
                                  .files_path = files,
                                  .history_md_path = history,
                                  .tools_path = tools,
                                  .secret = op->secret,
                                  .cert_pem = op->cert_pem.data,
                                  .key_pem = op->key_pem.data};
    struct err why;

    if (session_env(op->arena, op->profile, op->o, &start.env, &start.env_n, e) ||
        image_get(op, &image, e) ||
        chatdir_files_path(cfg->chats_root, &op->chat.user_id, &op->chat.chat_id, files,
                           sizeof files, e) ||
        chatdir_history_md_path(cfg->chats_root, &op->chat.user_id, &op->chat.chat_id, history,
                                sizeof history, e) ||
        usertools_prepare(
            cfg->chats_root, &op->chat.user_id,
            &(struct usertools_report){op, tool_refused, tool_found, cfg->user_tools_gid}, tools,
            sizeof tools, e))
        return -1;
    name_tools(op, &start, runs);
    if (start_recorded(op, &start, e))
        return -1;
    starts_no_more(op);
    if (!store_write(op->s->store, record_row, op, e))
        return 0;
    if (session_host_stop(op->s, &op->sandbox, 0, NULL, &op->span.self, &why))
        session_clean_failed(op->s, &op->sandbox.session_id, &why, &op->span.self);
    else
        spools_finish(op->s, &op->sandbox.session_id, &op->chat.chat_id);
    return -1;
}

static void log_created(struct opening *op, const char *event)
{
    log_event(
        op->s->log, LOG_INFO, event, LF_ID("session_id", &op->sandbox.session_id),
        LF_ID("chat_id", &op->sandbox.chat_id), LF_STR("container_id", op->sandbox.container_id),
        LF_INT("generation", op->sandbox.generation),
        LF_INT("ms", op->sandbox.started_at - op->sandbox.created_at), LF_TRACE(&op->span.self));
}

static int start(struct opening *op, struct err *e)
{
    struct sessions *ss = op->s->sessions;
    struct sandbox *s = &op->sandbox;
    int rc;

    if (!sessions_listed(ss))
        return err_set(e, ERR_SANDBOX_LIST_FAILED,
                       "the engine has not told yet what it runs: nothing new is started");
    *s = (struct sandbox){.chat_id = op->chat.chat_id,
                          .user_id = op->chat.user_id,
                          .workspace_id = op->chat.workspace_id,
                          .status = SANDBOX_STARTING};
    s->session_id = op->new_id;
    snprintf(s->engine, sizeof s->engine, "%s", op->s->host.engine->v->name);
    snprintf(s->node, sizeof s->node, "%s", op->s->cfg->app.node);
    snprintf(s->profile, sizeof s->profile, "%s", op->profile->name);
    snprintf(s->network, sizeof s->network, "%s", config_network_names[op->profile->network]);
    if (make_secret(op, e) || make_certificate(op, e))
        return -1;
    op->pull = session_pull_expect(ss->pulls, s);
    if (!op->pull || ready_expect(ss->ready, &s->session_id)) {
        session_pull_forget(op->pull);
        return err_set(e, ERR_INTERNAL, "no memory for a session");
    }
    rc = store_write(op->s->store, begin_row, op, e);
    if (!rc) {
        tell_starting(op);
        rc = start_and_record(op, e);
        if (rc)
            record_failure(op, e);
    }
    ready_forget(ss->ready, &s->session_id);
    session_pull_forget(op->pull);
    if (!rc)
        log_created(op, "sandbox_created");
    return rc;
}

/* --- the whole ------------------------------------------------------------------------------- */

static int look(struct store_tx *tx, void *arg, struct err *e)
{
    struct opening *op = arg;

    if (store_chat_get(tx, &op->o->chat_id, op->arena, &op->chat, e))
        return -1;
    if (!store_sandbox_active(tx, &op->o->chat_id, &op->sandbox, e))
        return 0;
    op->sandbox = (struct sandbox){0};
    return e->code == ERR_NOT_FOUND ? 0 : -1;
}

static int take_away(struct opening *op, const char *reason, struct err *e)
{
    bool ended_itself =
        session_ended_itself(op->sandbox.status == SANDBOX_STOPPING ? op->sandbox.reason : reason);
    struct session_stop stop = {.session_id = op->sandbox.session_id,
                                .reason = reason,
                                .status = ended_itself ? SANDBOX_FAILED : SANDBOX_STOPPED,
                                .close_code = ended_itself ? CLOSE_AGENT_ENDED : CLOSE_REVOKED,
                                .grace_ms = 5000,
                                .replacing = true,
                                .trace = &op->span.self};
    struct sandbox old;

    span_id(&op->span, "sandbox.previous_session.id", &op->sandbox.session_id);
    span_text(&op->span, "sandbox.previous_container.id", op->sandbox.container_id);
    span_id(&op->span, "sandbox.new_session.id", &op->new_id);
    if (session_stop(op->s, &stop, &old, e))
        return -1;
    op->replaces = true;
    log_event(op->s->log, LOG_INFO, "sandbox_replaced", LF_ID("session_id", &op->new_id),
              LF_ID("chat_id", &old.chat_id), LF_ID("previous_session_id", &old.session_id),
              LF_STR("previous_container_id", old.container_id), LF_STR("reason", reason),
              LF_TRACE(&op->span.self));
    return 0;
}

static int open_chat(struct opening *op, struct err *e)
{
    struct engine_status status;
    const char *reason;

    if (store_read(op->s->store, look, op, e))
        return -1;
    id_random(&op->new_id);
    if (!id_is_zero(&op->sandbox.session_id)) {
        if (unusable(op, &op->sandbox, &status, &reason, e))
            return -1;
        if (!reason)
            return reuse(op, e);
        if (take_away(op, reason, e))
            return -1;
    }
    return start(op, e);
}

static enum meter_create result_of(int rc, const struct session_opened *o, bool replaced)
{
    if (rc)
        return METER_FAILED;
    if (o->reused)
        return METER_REUSED;
    return replaced ? METER_REPLACED : METER_CREATED;
}

/* What has become of it: a session that is named without a container never ran. */
static void span_opened(struct opening *op, enum meter_create result)
{
    static const char *const results[] = {[METER_CREATED] = "created",
                                          [METER_REUSED] = "reused",
                                          [METER_REPLACED] = "replaced",
                                          [METER_FAILED] = "error"};

    span_text(&op->span, "sandbox.result", results[result]);
    if (result == METER_FAILED)
        return;
    span_id(&op->span, "session.id", &op->sandbox.session_id);
    span_text(&op->span, "container.id", op->sandbox.container_id);
    if (result == METER_REPLACED)
        span_text(&op->span, "sandbox.new_container.id", op->sandbox.container_id);
}

static int open_or_fail(struct services *s, const struct session_open *o,
                        struct session_opened *ret, enum meter_create *ret_result, struct err *e)
{
    const char *name = o->profile ? o->profile : s->cfg->sandbox.default_profile;
    struct opening op = {.s = s, .o = o, .profile = config_profile_find(s->cfg, name)};
    struct session_opened opened = {.reused = false};
    int rc;

    if (!op.profile)
        return err_field(e, "/profile", "there is no profile %.64s", name);
    op.ret = &opened;
    op.arena = arena_new(65536);
    if (!op.arena)
        return err_set(e, ERR_INTERNAL, "no memory for a session");
    buf_init(&op.cert_pem, TLS_PEM_MAX);
    buf_init(&op.key_pem, TLS_PEM_MAX);
    span_begin_as(s->tracer, &op.span, "usecase.create_sandbox", o->trace, o->trace_parent);
    span_id(&op.span, "chat.id", &o->chat_id);
    rc = open_chat(&op, e);
    arena_free(op.arena);
    forget_tools(&op);
    OPENSSL_cleanse(op.secret, sizeof op.secret);
    if (op.key_pem.data)
        OPENSSL_cleanse(op.key_pem.data, op.key_pem.size);
    buf_done(&op.cert_pem);
    buf_done(&op.key_pem);
    *ret_result = result_of(rc, &opened, op.replaces);
    span_opened(&op, *ret_result);
    span_end(&op.span, rc, e);
    if (!rc)
        *ret = opened;
    return rc;
}

int session_open(struct services *s, const struct session_open *o, struct session_opened *ret,
                 struct err *e)
{
    enum meter_create result = METER_FAILED;
    int rc = open_or_fail(s, o, ret, &result, e);

    metric_add(meter(s->meters, METER_SANDBOX_CREATE), result, 0, 1);
    return rc;
}
