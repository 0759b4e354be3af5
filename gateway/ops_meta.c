/* Health, readiness, and the keys that verify tokens. */
#include <stdio.h>
#include <string.h>

#include "artifacts.h"
#include "meters.h"
#include "ops.h"
#include "sessions.h"

const struct field health_out[] = {
    FIELD_STR(struct health, status, .doc = "ok"),
    FIELD_STR(struct health, name, .doc = "app.name of the configuration"),
    FIELD_STR(struct health, version, .doc = "of leasehold"),
    FIELD_STR(struct health, env, .doc = "app.env of the configuration"),
    {0},
};

const struct field healthz_out[] = {
    FIELD_STR(struct healthz, status, .doc = "ok"),
    {0},
};

static const struct field check_out[] = {
    FIELD_STR(struct ready_check, name, .doc = "what was looked at"),
    FIELD_BOOL(struct ready_check, ok, .doc = "whether it serves"),
    FIELD_STR(struct ready_check, detail, .doc = "what is wrong, or what it is"),
    {0},
};

const struct field readyz_out[] = {
    FIELD_STR(struct readyz, status, .doc = "ready or not_ready"),
    FIELD_OBJLIST(struct readyz, checks, check_out, struct ready_check, .doc = "each one made"),
    {0},
};

int op_health(struct call *c, struct err *e)
{
    const struct config_app *app = &c->s->cfg->app;

    (void)e;
    *(struct health *)c->result = (struct health){.status = (char *)"ok",
                                                  .name = app->name,
                                                  .version = (char *)LEASEHOLD_VERSION,
                                                  .env = app->env};
    return 0;
}

int op_healthz(struct call *c, struct err *e)
{
    (void)e;
    ((struct healthz *)c->result)->status = (char *)"ok";
    return 0;
}

/* That this runs at all proves the read connection; the writer is proved by an empty write. */
static int nothing(struct store_tx *tx, void *arg, struct err *e)
{
    (void)tx;
    (void)arg;
    (void)e;
    return 0;
}

/* Its name, or why nothing new can be started; what an operator should change stands behind it. */
static bool check_engine(struct call *c, struct ready_check *ret)
{
    struct engine *g = c->s->host.engine;
    struct engine_info info = {.warnings_n = 0};
    struct err why = {0};
    bool is_there = !g->v->info(g, &info, &why);
    bool listed = sessions_listed(c->s->sessions);
    char text[1400];
    int n = snprintf(text, sizeof text, "%s%s%s", g->v->name, is_there && listed ? "" : ": ",
                     !is_there ? why.msg
                     : listed  ? ""
                               : "it has not told yet what it runs");

    for (size_t i = 0; i < info.warnings_n && (size_t)n < sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "; %s", info.warnings[i]);
    *ret = (struct ready_check){.name = (char *)"engine",
                                .ok = is_there && listed,
                                .detail = arena_strndup(c->arena, text, strlen(text))};
    return ret->ok;
}

static bool check_objects(struct call *c, struct ready_check *ret)
{
    char text[256];
    bool ok = artifacts_ready(c->s->artifacts, text, sizeof text);

    *ret = (struct ready_check){
        .name = (char *)"objects", .ok = ok, .detail = arena_strndup(c->arena, text, strlen(text))};
    return ok;
}

/* As lease/rules.c refuses to issue. */
static bool check_clock(struct call *c, struct ready_check *ret)
{
    int64_t behind_ms = store_clock_behind_ms(c->s->store);
    bool ok = behind_ms <= c->s->policy.skew_s * 1000;
    char text[160] = "";

    if (!ok)
        snprintf(text, sizeof text,
                 "%lld s behind the last one seen: no lease is issued or renewed until then",
                 (long long)(behind_ms / 1000));
    *ret = (struct ready_check){
        .name = (char *)"clock", .ok = ok, .detail = arena_strndup(c->arena, text, strlen(text))};
    return ok;
}

#define CHECKS 5

int op_readyz(struct call *c, struct err *e)
{
    struct readyz *r = c->result;
    struct ready_check *checks = call_alloc(c, CHECKS * sizeof *checks);
    struct err why = {0};
    bool store = !store_write(c->s->store, nothing, NULL, &why);
    bool socket = server_control_socket_ok(c->s->server);
    bool engine = checks && check_engine(c, &checks[1]);
    bool objects = checks && check_objects(c, &checks[3]);
    bool clock = checks && check_clock(c, &checks[4]);
    bool all = store && socket && engine && objects && clock;
    char *detail = arena_strndup(c->arena, why.msg, strlen(why.msg));

    if (!checks || !detail || !checks[1].detail || !checks[3].detail || !checks[4].detail)
        return err_set(e, ERR_INTERNAL, "no memory for the checks");
    checks[0] = (struct ready_check){.name = (char *)"store", .ok = store, .detail = detail};
    checks[2] = (struct ready_check){
        .name = (char *)"control_socket",
        .ok = socket,
        .detail = (char *)(socket ? "" : "doors do not find the gateway: the log says why")};
    r->status = (char *)(all ? "ready" : "not_ready");
    r->checks = (struct list){checks, CHECKS};
    c->status = all ? 200 : 503;
    return 0;
}

int op_jwks(struct call *c, struct err *e)
{
    struct buf b;

    buf_init(&b, 65536);
    keyset_jwks(c->s->keys, &b);
    c->raw = buf_ok(&b) ? arena_strndup(c->arena, b.data, b.len) : NULL;
    buf_done(&b);
    return c->raw ? 0 : err_set(e, ERR_INTERNAL, "no memory for the keys");
}

int op_openapi(struct call *c, struct err *e)
{
    (void)e;
    c->raw = c->s->openapi;
    return 0;
}

#define METRICS_CAP (2u * 1024 * 1024)

int op_metrics(struct call *c, struct err *e)
{
    struct buf b;

    if (!c->s->cfg->metrics_enabled)
        return err_set(e, ERR_NOT_FOUND, "metrics are off");
    buf_init(&b, METRICS_CAP);
    meters_write(c->s->meters, &b);
    c->raw = buf_ok(&b) ? arena_strndup(c->arena, b.data, b.len) : NULL;
    buf_done(&b);
    return c->raw ? 0 : err_set(e, ERR_INTERNAL, "no memory for the metrics");
}
