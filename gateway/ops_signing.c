/* The keys that sign leases: list, rotate, kill. */
#include "leasehold/json.h"
#include "ops.h"
#include "signing_keys.h"

const struct field signing_none_in[] = {{0}};

const struct field signing_key_in[] = {
    FIELD_STR(struct signing_key_args, kid, .flags = FIELD_REQUIRED | FIELD_PATH, .min = 1,
              .max = TOKEN_KID_TEXT - 1, .doc = "the key's RFC 7638 thumbprint"),
    {0},
};

static const struct field key_fields[] = {
    FIELD_CHARS(struct signing_key, kid, .doc = "its RFC 7638 thumbprint"),
    FIELD_ENUM(struct signing_key, state, .names = signing_key_state_names,
               .doc = "where it is in its life"),
    FIELD_TIME(struct signing_key, created_at, .doc = "when it was made and published"),
    FIELD_TIME(struct signing_key, signing_at, .flags = FIELD_NULL_ZERO,
               .doc = "since when it signs, or signed"),
    FIELD_TIME(struct signing_key, retired_at, .flags = FIELD_NULL_ZERO,
               .doc = "until when it signed"),
    {0},
};

const struct field signing_keys_out[] = {
    FIELD_OBJLIST(struct signing_keys_view, keys, key_fields, struct signing_key,
                  .doc = "next, signing and retired ones"),
    {0},
};

const struct field signing_kill_out[] = {
    FIELD_INT(struct signing_keys_view, revoked, .doc = "leases that were ended"),
    FIELD_OBJLIST(struct signing_keys_view, keys, key_fields, struct signing_key,
                  .doc = "next, signing and retired ones"),
    {0},
};

/* --- what there is --------------------------------------------------------------------------- */

#define KEYS_SHOWN 64 /* as many as a set holds */

static int list_each(void *ctx, const struct signing_key *k, struct err *e)
{
    struct signing_keys_view *v = ctx;

    (void)e;
    if (k->state <= SIGNING_KEY_RETIRED && v->keys.n < KEYS_SHOWN)
        ((struct signing_key *)v->keys.items)[v->keys.n++] = *k;
    return 0;
}

static int list_run(struct store_tx *tx, void *arg, struct err *e)
{
    return store_signing_key_each(tx, list_each, arg, e);
}

static int list_begin(struct call *c, struct err *e)
{
    struct signing_keys_view *v = c->result;

    v->keys.items = call_alloc(c, KEYS_SHOWN * sizeof(struct signing_key));
    return v->keys.items ? 0 : err_set(e, ERR_INTERNAL, "no memory for the answer");
}

static int list_fill(struct call *c, struct err *e)
{
    return list_begin(c, e) || store_read(c->s->store, list_run, c->result, e) ? -1 : 0;
}

int op_signing_list(struct call *c, struct err *e)
{
    return list_begin(c, e) || list_run(c->tx, c->result, e) ? -1 : 0;
}

/* --- change ---------------------------------------------------------------------------------- */

int op_signing_rotate(struct call *c, struct err *e)
{
    return signing_keys_rotate(c->s->signing, c, e) || list_fill(c, e) ? -1 : 0;
}

int op_signing_kill(struct call *c, struct err *e)
{
    const struct signing_key_args *a = c->args;
    struct signing_keys_view *v = c->result;

    return signing_keys_kill(c->s->signing, c, a->kid, &v->revoked, e) || list_fill(c, e) ? -1 : 0;
}
