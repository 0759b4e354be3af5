#include "identity.h"

#include <stdlib.h>
#include <string.h>

#include "ops.h"
#include "pipeline.h"
#include "services.h"

/* --- recording ------------------------------------------------------------------------------- */

struct record_args {
    struct api_key key; /* as it is to be */
    struct call *held;
};

static int record_run(struct call *c, struct err *e)
{
    const struct record_args *a = c->args;
    struct api_key *k = c->result;
    struct err none;

    if (c->state)
        return key_end_more(c, e);
    if (store_api_key_get(c->tx, &a->key.key_id, c->arena, k, &none)) {
        *k = a->key;
        return none.code == ERR_NOT_FOUND ? key_record(c, k, true, e)
                                          : err_set(e, none.code, "%s", none.msg);
    }
    if (k->revoked_at)
        return err_set(e, ERR_UNAUTHENTICATED, "the identity was revoked here");
    k->role = a->key.role;
    k->limited = a->key.limited;
    k->allowed_users = a->key.allowed_users;
    k->default_user = a->key.default_user;
    k->as_of = a->key.as_of;
    return key_record(c, k, false, e);
}

static void record_reply(struct call *c)
{
    struct call *held = ((struct record_args *)c->args)->held;

    if (c->rc)
        call_fail(held, &c->e);
    else
        call_start(held);
}

static const struct op record_op = {
    .name = "identity.record",
    .role = ROLE_NONE,
    .lane = ON_WRITE,
    .status = 200,
    .in_size = sizeof(struct record_args),
    .out_size = sizeof(struct api_key),
    .run = record_run,
    .after = op_key_changed,
};

void identity_record(struct call *held)
{
    struct call *c =
        call_begin(held->s, held->conn, held->caller.address, held->request_id, record_reply);
    struct record_args *a = c ? call_alloc(c, sizeof *a) : NULL;
    struct err e;

    if (!a) {
        call_free(c);
        err_set(&e, ERR_INTERNAL, "no memory for the caller");
        call_fail(held, &e);
        return;
    }
    c->op = &record_op;
    c->args = a;
    c->caller.key_id = held->caller.key_id;
    a->held = held;
    if (auth_copy(held->s->auth, &held->caller.key_id, c->arena, &a->key, &e))
        call_fail(c, &e);
    else
        call_start(c);
}

/* --- use ------------------------------------------------------------------------------------- */

#define USES_MAX 256

struct used {
    struct store_job job;
    size_t n;
    struct auth_use uses[USES_MAX];
};

static int used_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct used *u = arg;

    for (size_t i = 0; i < u->n; i++)
        if (store_api_key_used(tx, &u->uses[i].key_id, u->uses[i].at_ms, e))
            return -1;
    return 0;
}

static void used_done(struct job *job)
{
    free((char *)job - offsetof(struct used, job.job));
}

/* What is lost here is only when a key was used. */
void identity_save_used(struct services *s)
{
    struct used *u = calloc(1, sizeof *u);
    struct err e;

    if (!u)
        return;
    u->n = auth_take_used(s->auth, u->uses, USES_MAX);
    u->job = (struct store_job){.job.done = used_done, .fn = used_row, .arg = u};
    if (!u->n || store_submit(s->store, &u->job, &e))
        free(u);
}
