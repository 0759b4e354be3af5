/* API keys. */
#include <stdio.h>
#include <string.h>

#include "ops.h"

const struct field key_create_in[] = {
    FIELD_STR(struct key_create_args, name, .flags = FIELD_REQUIRED, .min = 1, .max = 128,
              .doc = "for people"),
    FIELD_ENUM(struct key_create_args, role, .flags = FIELD_REQUIRED, .names = role_names + 1,
               .doc = "admin: everything; bot: users' chats, sandboxes, leases; viewer: reads"),
    FIELD_IDLIST(struct key_create_args, allowed_users,
                 .has = offsetof(struct key_create_args, has_allowed_users),
                 .doc = "only these users are visible to the key"),
    FIELD_ID(struct key_create_args, default_user,
             .has = offsetof(struct key_create_args, has_default_user),
             .doc = "whose workspace POST /create uses for unknown chats"),
    FIELD_TIME(struct key_create_args, expires_at, .doc = "when the key ends; never if absent"),
    {0},
};

const struct field key_create_out[] = {
    FIELD_OBJECT(struct key_created, api_key, api_key_fields),
    FIELD_STR(struct key_created, key, .doc = "its text, shown this once"),
    {0},
};

static int check(const struct call *c, const struct key_create_args *a, struct err *e)
{
    const struct id *users = a->allowed_users.items;
    bool listed = !a->has_allowed_users;

    if (a->expires_at && a->expires_at <= clock_wall_ms(c->s->clock))
        return err_field(e, "/expires_at", "expires_at is in the past");
    for (size_t i = 0; a->has_default_user && i < a->allowed_users.n; i++)
        listed |= id_equal(&users[i], &a->default_user);
    if (a->has_default_user && !listed)
        return err_field(e, "/default_user", "default_user is not among allowed_users");
    return 0;
}

static int audit(struct call *c, const struct api_key *k, struct err *e)
{
    char object[sizeof "api_key:" + ID_TEXT];

    snprintf(object, sizeof object, "api_key:%s", ID_STR(&k->key_id));
    return store_audit(c->tx,
                       &(struct audit_entry){.at = store_now_ms(c->tx),
                                             .actor = ID_STR(&c->caller.key_id),
                                             .action = c->op->name,
                                             .object = object,
                                             .outcome = "ok",
                                             .address = c->caller.address,
                                             .request_id = c->request_id,
                                             .detail = role_names[k->role]},
                       e);
}

int op_key_create(struct call *c, struct err *e)
{
    const struct key_create_args *a = c->args;
    struct key_created *r = c->result;
    struct api_key *k = &r->api_key;
    char *text = call_alloc(c, API_KEY_TEXT);

    if (!text)
        return err_set(e, ERR_INTERNAL, "no memory for the key");
    if (check(c, a, e))
        return -1;
    snprintf(k->name, sizeof k->name, "%s", a->name);
    k->role = (enum role)(a->role + 1);
    k->limited = a->has_allowed_users;
    k->allowed_users = a->allowed_users;
    k->default_user = a->default_user;
    k->created_at = store_now_ms(c->tx);
    k->expires_at = a->expires_at;
    if (auth_key_generate(k, text, e))
        return -1;
    r->key = text;
    return store_api_key_insert(c->tx, k, e) || audit(c, k, e) ? -1 : 0;
}

bool op_key_created(struct call *c)
{
    const struct key_created *r = c->result;

    /* Before the answer, so that the key works when its owner has read it. Without memory it
     * works after the next start: say so instead of handing out a dead key. */
    if (auth_put(c->s->auth, &r->api_key, &c->e))
        c->rc = -1;
    return true;
}
