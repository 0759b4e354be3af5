/* Health, readiness, and the keys that verify tokens. */
#include <string.h>

#include "leasehold/json.h"
#include "ops.h"

const struct field health_out[] = {
    FIELD_STR(struct health, status),
    FIELD_STR(struct health, name),
    FIELD_STR(struct health, version),
    FIELD_STR(struct health, env),
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
    c->raw = "{\"status\":\"ok\"}";
    c->raw_type = "application/json";
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

static void check_write(struct buf *out, const char *name, bool ok, const char *detail)
{
    buf_printf(out, "{\"name\":\"%s\",\"ok\":%s,\"detail\":", name, ok ? "true" : "false");
    json_add_string(out, detail, strlen(detail));
    buf_add_char(out, '}');
}

int op_readyz(struct call *c, struct err *e)
{
    struct err why = {0};
    bool ok = !store_write(c->s->store, nothing, NULL, &why);
    struct buf b;

    buf_init(&b, 4096);
    buf_printf(&b, "{\"status\":\"%s\",\"checks\":[", ok ? "ready" : "not_ready");
    check_write(&b, "store", ok, ok ? "" : why.msg);
    buf_add_char(&b, ',');
    check_write(&b, "engine", true, c->s->host.engine->v->name);
    buf_add_str(&b, "]}");
    c->raw = buf_ok(&b) ? arena_strndup(c->arena, b.data, b.len) : NULL;
    c->raw_type = "application/json";
    c->status = ok ? 200 : 503;
    buf_done(&b);
    return c->raw ? 0 : err_set(e, ERR_INTERNAL, "no memory for the checks");
}

int op_jwks(struct call *c, struct err *e)
{
    struct buf b;

    buf_init(&b, 65536);
    keyset_jwks(c->s->keys, &b);
    c->raw = buf_ok(&b) ? arena_strndup(c->arena, b.data, b.len) : NULL;
    c->raw_type = "application/jwk-set+json";
    buf_done(&b);
    return c->raw ? 0 : err_set(e, ERR_INTERNAL, "no memory for the keys");
}
