/* Sandboxes: open, create (the compatible form), get, list, renew, stop. */
#include <stdio.h>
#include <string.h>

#include "idempotency.h"
#include "leasehold/door_proto.h"
#include "leasehold/json.h"
#include "ops.h"
#include "sessions.h"

#define IDLE_TTL_MAX_S 604800
#define GRACE_MAX_S    60
#define ENV_MAX        64
#define ENV_BYTES_MAX  32768

static const struct field lease_args_in[] = {
    FIELD_ID(struct lease_args, user_id, .doc = "defaults to the chat's owner"),
    FIELD_SET(struct lease_args, scope, .names = (const char *const[]){"read", "write", NULL},
              .doc = "defaults to both"),
    FIELD_INT(struct lease_args, ttl_s, .min = 1, .max = 86400,
              .doc = "at most lease.ttl_max_seconds"),
    FIELD_INT(struct lease_args, max_connections, .min = 1, .max = 64, .doc = "live at once"),
    FIELD_ENUM(struct lease_args, use, .names = lease_use_names, .doc = "how often it lets in"),
    FIELD_OBJPTR(struct lease_args, cnf, cnf_in, struct cnf_args,
                 .doc = "binds it to a client's key (RFC 7800)"),
    {0},
};

const struct field sandbox_create_in[] = {
    FIELD_ID(struct chat_args, chat_id, .flags = FIELD_REQUIRED,
             .doc = "the chat; an unknown one is made for the key's default_user"),
    {0},
};

const struct field sandbox_create_out[] = {
    FIELD_ID(struct sandbox, session_id, .doc = "the session"),
    FIELD_ID(struct sandbox, chat_id, .doc = "the chat it works for"),
    FIELD_CHARS(struct sandbox, container_id, .doc = "the engine's name of it"),
    FIELD_ENUM(struct sandbox, status, .names = sandbox_status_names,
               .doc = "where it is in its life"),
    FIELD_TIME(struct sandbox, expires_at,
               .doc = "when it is stopped unless it is used or renewed"),
    {0},
};

const struct field sandbox_open_in[] = {
    FIELD_ID(struct sandbox_open_args, chat_id, .flags = FIELD_REQUIRED, .doc = "the chat"),
    FIELD_STR(struct sandbox_open_args, profile, .min = 1, .max = 64,
              .doc = "of the configuration; the running session's must be the same"),
    FIELD_INT(struct sandbox_open_args, idle_ttl_s, .min = 1, .max = IDLE_TTL_MAX_S,
              .doc = "stopped after so long without a client"),
    FIELD_RAW(
        struct sandbox_open_args, env, .max = ENV_BYTES_MAX,
        .doc =
            "names and strings for the environment of the agent that is started; 409 if one runs"),
    FIELD_BOOL(struct sandbox_open_args, wait, .def = "true",
               .doc = "false: answer 202 as soon as the start is on record"),
    FIELD_OBJPTR(struct sandbox_open_args, lease, lease_args_in, struct lease_args,
                 .doc = "asks for a lease in the same call"),
    {0},
};

const struct field sandbox_open_out[] = {
    FIELD_OBJECT(struct sandbox_open_result, sandbox, sandbox_fields),
    FIELD_OBJPTR(struct sandbox_open_result, grant, grant_fields, struct grant),
    {0},
};

const struct field sandbox_in[] = {
    FIELD_ID(struct sandbox_args, session_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the session"),
    {0},
};

const struct field sandbox_stop_in[] = {
    FIELD_ID(struct sandbox_stop_args, session_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the session"),
    FIELD_STR(struct sandbox_stop_args, reason, .min = 1, .max = REASON_MAX - 1,
              .doc = "becomes the session's and its leases' reason; default stopped"),
    FIELD_INT(struct sandbox_stop_args, grace_s, .max = GRACE_MAX_S, .def = "10",
              .doc = "between SIGTERM and SIGKILL"),
    {0},
};

const struct field sandbox_renew_in[] = {
    FIELD_ID(struct sandbox_renew_args, session_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the session"),
    FIELD_INT(struct sandbox_renew_args, idle_ttl_s, .min = 1, .max = IDLE_TTL_MAX_S,
              .doc = "from now on; as it was if absent"),
    {0},
};

const struct field sandbox_list_in[] = {
    PAGE_IN(struct sandbox_list_args),
    FIELD_ID(struct sandbox_list_args, chat_id, .flags = FIELD_QUERY, .doc = "of this chat"),
    FIELD_ID(struct sandbox_list_args, user_id, .flags = FIELD_QUERY,
             .doc = "of this user's chats"),
    FIELD_ENUM(struct sandbox_list_args, status, .flags = FIELD_QUERY,
               .has = offsetof(struct sandbox_list_args, has_status), .names = sandbox_status_names,
               .doc = "where they are in their life"),
    {0},
};

const struct field sandbox_list_out[] = {
    PAGE_OUT(sandbox_fields, struct sandbox_view),
    {0},
};

/* --- open ------------------------------------------------------------------------------------ */

void op_sandbox_open_prepare(struct call *c)
{
    c->job.passes = !((const struct sandbox_open_args *)c->args)->wait;
}

/* Behind the start that it asks for nobody has to stand: that opens the key (session_open.c). */
void op_sandbox_open_key(struct call *c, struct id *ret)
{
    *ret = ((const struct sandbox_open_args *)c->args)->chat_id;
}

void op_sandbox_create_key(struct call *c, struct id *ret)
{
    *ret = ((const struct chat_args *)c->args)->chat_id;
}

struct authorise {
    struct call *c;
    const struct id *chat_id;
    struct chat chat;
};

static int authorise_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct authorise *a = arg;

    return chat_visible(tx, &a->c->caller, a->chat_id, a->c->arena, &a->chat, e);
}

static int authorise(struct call *c, const struct id *chat_id, struct err *e)
{
    struct authorise a = {.c = c, .chat_id = chat_id};

    return store_read(c->s->store, authorise_row, &a, e);
}

static struct lease_request request_of(const struct lease_args *a)
{
    return (struct lease_request){.user_id = a->user_id,
                                  .scope = a->scope,
                                  .ttl_s = a->ttl_s,
                                  .max_connections = a->max_connections,
                                  .use = (enum lease_use)a->use,
                                  .cnf_jkt = a->cnf ? a->cnf->jkt : NULL};
}

/* What it says is the caller's secret: no message of ours holds a value. */
static int env_decode(struct call *c, const char *text, struct session_open *open, struct err *e)
{
    struct engine_env *env;
    struct list pairs;

    if (!text)
        return 0;
    if (json_object_strings(text, strlen(text), "/env", c->arena, &pairs, e))
        return -1;
    if (pairs.n > ENV_MAX)
        return err_field(e, "/env", "env must hold at most %d names", ENV_MAX);
    env = call_alloc(c, (pairs.n + 1) * sizeof *env);
    if (!env)
        return err_set(e, ERR_INTERNAL, "no memory for the environment");
    for (size_t i = 0; i < pairs.n; i++) {
        const struct json_pair *pair = (const struct json_pair *)pairs.items + i;

        if (!config_env_name_valid(pair->name, strlen(pair->name)))
            return err_field(e, "/env", "a name must be letters, digits and _, no digit first");
        env[i] = (struct engine_env){pair->name, pair->value};
    }
    open->env = env;
    open->env_n = pairs.n;
    return 0;
}

/* A lease needs a session that runs, which without waiting it does not yet. */
static int lease_decode(struct call *c, const struct sandbox_open_args *a,
                        struct lease_request *request, struct session_open *open, struct err *e)
{
    if (!a->lease)
        return 0;
    if (!a->wait)
        return err_field(e, "/lease", "a lease can be had in the same call with wait: true only");
    *request = request_of(a->lease);
    open->lease = request;
    return lease_request_check(&c->s->policy, request, "/lease", e);
}

/* In the write that begins the session: without waiting this is the answer. */
static int open_begun(struct store_tx *tx, void *ctx, const struct session_opened *o, struct err *e)
{
    struct call *c = ctx;
    struct sandbox_open_result *r = c->result;

    sandbox_view_fill(&r->sandbox, &o->sandbox);
    c->status = 202;
    return idempotency_record(c, tx, e);
}

static void open_starting(void *ctx, const struct session_opened *o)
{
    (void)o;
    call_answer_early(ctx);
}

/* In the write that makes the session run. */
static int open_running(struct store_tx *tx, void *ctx, const struct session_opened *o,
                        struct err *e)
{
    struct call *c = ctx;
    const struct sandbox_open_args *a = c->args;
    struct sandbox_open_result *r = c->result;

    if (!a->wait && !o->reused)
        return 0; /* answered and recorded when it began */
    sandbox_view_fill(&r->sandbox, &o->sandbox);
    c->status = o->reused ? 200 : 201;
    if (a->lease) {
        r->grant = call_alloc(c, sizeof *r->grant);
        if (!r->grant)
            return err_set(e, ERR_INTERNAL, "no memory for the grant");
        if (grant_describe(c, &o->lease, &o->sandbox, r->grant, e) || grant_sign(c, r->grant, e))
            return -1;
    }
    return idempotency_record(c, tx, e);
}

static int open_join(struct call *c, const struct session_open *open, struct err *e)
{
    struct sandbox_open_args *a = c->args;
    enum session_joined joined;
    struct session_opened opened;

    if (session_join(c->s, open, &opened, &joined, e))
        return -1;
    a->late = joined != SESSION_JOINED;
    c->job.passes = joined != SESSION_JOIN_LATER;
    return 0;
}

int op_sandbox_open(struct call *c, struct err *e)
{
    const struct sandbox_open_args *a = c->args;
    struct session_hooks hooks = {.ctx = c, .running = open_running};
    struct session_open open = {.chat_id = a->chat_id,
                                .profile = a->profile,
                                .idle_ttl_s = a->idle_ttl_s,
                                .hooks = &hooks,
                                .caller = &c->caller,
                                .trace = &c->trace,
                                .trace_parent = &c->trace_parent};
    struct lease_request request = {0};
    struct session_opened opened;

    if (!a->wait) {
        hooks.begun = open_begun;
        hooks.starting = open_starting;
    }
    if (env_decode(c, a->env, &open, e) || lease_decode(c, a, &request, &open, e) ||
        authorise(c, &a->chat_id, e))
        return -1;
    return c->job.passed ? open_join(c, &open, e) : session_open(c->s, &open, &opened, e);
}

/* With nothing to join, as that start has ended, it is an open like others. */
bool op_sandbox_open_after(struct call *c)
{
    struct sandbox_open_args *a = c->args;

    if (!a->late)
        return true;
    a->late = false;
    call_again(c);
    return false;
}

void op_sandbox_open_secret(struct call *c, struct op_secret *ret)
{
    struct grant *grant = ((struct sandbox_open_result *)c->result)->grant;

    if (grant)
        *ret = (struct op_secret){&grant->token, &grant->lease, grant->iat};
}

/* An unknown chat is made in the workspace of the key's default user. */
static int ensure_chat(struct call *c, const struct id *chat_id, struct err *e)
{
    struct chat_create_args make = {
        .user_id = c->caller.default_user, .chat_id = *chat_id, .has_chat_id = true};

    if (!authorise(c, chat_id, e))
        return 0;
    if (e->code != ERR_CHAT_NOT_FOUND)
        return -1;
    if (id_is_zero(&make.user_id))
        return err_set(e, ERR_DEFAULT_USER_MISSING,
                       "the chat is unknown and the API key has no default_user");
    return chat_ensure(c, &make, e);
}

static int create_running(struct store_tx *tx, void *ctx, const struct session_opened *o,
                          struct err *e)
{
    struct call *c = ctx;

    *(struct sandbox *)c->result = o->sandbox;
    return idempotency_record(c, tx, e);
}

int op_sandbox_create(struct call *c, struct err *e)
{
    const struct chat_args *a = c->args;
    struct session_hooks hooks = {.ctx = c, .running = create_running};
    struct session_open open = {.chat_id = a->chat_id,
                                .hooks = &hooks,
                                .caller = &c->caller,
                                .trace = &c->trace,
                                .trace_parent = &c->trace_parent};
    struct session_opened opened;

    return ensure_chat(c, &a->chat_id, e) || session_open(c->s, &open, &opened, e) ? -1 : 0;
}

/* --- get, list, renew, stop ------------------------------------------------------------------------------- */

int sandbox_visible(struct store_tx *tx, const struct caller *caller, const struct id *session_id,
                    struct sandbox *ret, struct err *e)
{
    struct sandbox s;

    if (store_sandbox_get(tx, session_id, &s, e))
        return -1;
    if (!caller_may_see(caller, &s.user_id))
        return err_set(e, ERR_NOT_FOUND, "no such sandbox");
    *ret = s;
    return 0;
}

/* Of one that waits for its image; without memory it is not shown. */
static void progress_fill(struct call *c, struct sandbox_view *v)
{
    struct pull_progress now;

    if (v->s.status != SANDBOX_STARTING ||
        !sessions_pull_progress(c->s->sessions, &v->s.session_id, &now))
        return;
    v->progress = call_alloc(c, sizeof *v->progress);
    if (v->progress)
        *v->progress = now;
}

int op_sandbox_get(struct call *c, struct err *e)
{
    const struct sandbox_args *a = c->args;
    struct sandbox s;

    if (sandbox_visible(c->tx, &c->caller, &a->session_id, &s, e))
        return -1;
    sandbox_view_fill(c->result, &s);
    progress_fill(c, c->result);
    return 0;
}

static int list_each(void *ctx, const struct sandbox *s, struct err *e)
{
    struct page_build *page = ctx;
    struct sandbox_view *item = page_add(page, s->created_at, &s->session_id);

    (void)e;
    if (item) {
        sandbox_view_fill(item, s);
        progress_fill(page->c, item);
    }
    return 0;
}

int op_sandbox_list(struct call *c, struct err *e)
{
    const struct sandbox_list_args *a = c->args;
    const char *const status[] = {a->has_status ? sandbox_status_names[a->status] : NULL, NULL};
    struct store_filter filter = {
        .user_id = a->user_id, .chat_id = a->chat_id, .names = a->has_status ? status : NULL};
    struct page_build page;
    struct store_list list;

    if (page_begin(&page, c, &a->page, 's', sizeof(struct sandbox_view), &list, e) ||
        store_sandbox_list(c->tx, &list, &filter, list_each, &page, e))
        return -1;
    return page_end(&page, c->result, e);
}

int op_sandbox_renew(struct call *c, struct err *e)
{
    const struct sandbox_renew_args *a = c->args;
    struct sandbox s;

    if (sandbox_visible(c->tx, &c->caller, &a->session_id, &s, e))
        return -1;
    if (s.status != SANDBOX_RUNNING)
        return err_set(e, ERR_SESSION_NOT_RUNNING, "the session is %s",
                       sandbox_status_names[s.status]);
    session_touch(&s, store_now_ms(c->tx), a->idle_ttl_s);
    if (store_sandbox_update(c->tx, &s, e) ||
        session_audit(c->tx, &c->caller, "sandbox.renew", &s, "ok", e))
        return -1;
    store_emit(c->tx, &(struct change){.kind = CHANGE_SESSION_RUNNING, .sandbox = s});
    sandbox_view_fill(c->result, &s);
    return 0;
}

/* A live session's chat is known to the broker; an ended one needs no order among its calls. */
void op_sandbox_stop_key(struct call *c, struct id *ret)
{
    const struct sandbox_stop_args *a = c->args;

    if (!broker_session_chat(c->s->broker, &a->session_id, ret))
        *ret = a->session_id;
}

void op_sandbox_stop_prepare(struct call *c)
{
    const struct sandbox_stop_args *a = c->args;

    sessions_interrupt(c->s->sessions, &c->caller, &a->session_id,
                       a->reason ? a->reason : "stopped");
}

struct look {
    struct call *c;
    struct sandbox sandbox;
};

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;
    const struct sandbox_stop_args *a = l->c->args;

    return sandbox_visible(tx, &l->c->caller, &a->session_id, &l->sandbox, e);
}

int op_sandbox_stop(struct call *c, struct err *e)
{
    const struct sandbox_stop_args *a = c->args;
    struct look look = {.c = c};
    struct session_stop stop = {.session_id = a->session_id,
                                .reason = a->reason ? a->reason : "stopped",
                                .status = SANDBOX_STOPPED,
                                .close_code = CLOSE_REVOKED,
                                .grace_ms = a->grace_s * 1000,
                                .caller = &c->caller,
                                .trace = &c->trace_parent};
    struct sandbox ended;

    if (store_read(c->s->store, look_row, &look, e) || session_stop(c->s, &stop, &ended, e))
        return -1;
    sandbox_view_fill(c->result, &ended);
    return 0;
}
