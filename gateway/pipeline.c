#include "pipeline.h"

#include <string.h>
#include <strings.h>

#include "limits.h"
#include "services.h"
#include "trace.h"

struct call *call_begin(struct services *s, uint64_t conn, const char *peer, const char *request_id,
                        void (*reply)(struct call *c))
{
    struct call *c = call_new(s);

    if (!c)
        return NULL;
    c->conn = conn;
    c->reply = reply;
    request_id_choose(request_id, c->request_id);
    c->caller.request_id = c->request_id;
    c->caller.told = &c->told;
    c->caller.address = arena_strndup(c->arena, peer, strlen(peer));
    return c;
}

int call_authenticate(struct call *c, const struct auth_proof *proof, struct err *e)
{
    struct services *s = c->s;
    int64_t now_us = clock_boot_us(s->clock);
    struct err over;

    if (!auth_check(s->auth, proof, clock_wall_ms(s->clock), c->arena, &c->caller, e))
        return limits_call(s->limits, &c->caller.key_id, now_us, &c->retry_s, e);
    if (e->code == ERR_UNAUTHENTICATED &&
        limits_refusal(s->limits, c->caller.address, now_us, &c->retry_s, &over))
        *e = over;
    return -1;
}

const char *request_credential(const struct http_request *r)
{
    const char *a = r->authorization;

    if (!strncasecmp(a, "Bearer ", 7)) {
        a += 7;
        return a + strspn(a, " ");
    }
    return r->token_header;
}

int call_admit(const struct call *c, struct err *e)
{
    if (c->caller.role < c->op->role)
        return err_set(e, ERR_FORBIDDEN, "%s needs the role %s", c->op->name,
                       role_names[c->op->role]);
    if (c->s->draining)
        return err_set(e, ERR_BUSY, "the gateway is stopping");
    return 0;
}

int call_args_new(struct call *c, struct err *e)
{
    if (!c->op->in)
        return 0;
    c->args = call_alloc(c, c->op->in_size);
    if (!c->args)
        return err_set(e, ERR_INTERNAL, "no memory for the request");
    return field_set_defaults(c->op->in, c->args, c->arena, e);
}
