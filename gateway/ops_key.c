/* API keys. */
#include <stdio.h>
#include <stdlib.h>

#include "bot_ws.h"
#include "bulk_revoke.h"
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
    FIELD_STR(struct key_created, key, .flags = FIELD_NULL_ZERO,
              .doc = "shown this once; null in a repeated answer"),
    {0},
};

const struct field key_in[] = {
    FIELD_ID(struct key_args, key_id, .flags = FIELD_REQUIRED | FIELD_PATH, .doc = "the key"),
    {0},
};

const struct field key_list_in[] = {
    PAGE_IN(struct key_list_args),
    {0},
};

const struct field key_list_out[] = {
    PAGE_OUT(api_key_fields, struct api_key),
    {0},
};

/* Null cannot say it: that is what a member reads as which nobody has set. */
enum key_clear {
    CLEAR_ALLOWED_USERS = 1,
    CLEAR_DEFAULT_USER = 2,
    CLEAR_EXPIRES_AT = 4,
};
static const char *const key_clear_names[] = {"allowed_users", "default_user", "expires_at", NULL};

const struct field key_update_in[] = {
    FIELD_ID(struct key_update_args, key_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the key"),
    FIELD_STR(struct key_update_args, name, .min = 1, .max = 128, .doc = "for people"),
    FIELD_ENUM(struct key_update_args, role, .has = offsetof(struct key_update_args, has_role),
               .names = role_names + 1, .doc = "what it may"),
    FIELD_IDLIST(struct key_update_args, allowed_users,
                 .has = offsetof(struct key_update_args, has_allowed_users),
                 .doc = "these users and no other"),
    FIELD_ID(struct key_update_args, default_user,
             .has = offsetof(struct key_update_args, has_default_user),
             .doc = "whose workspace POST /create uses for unknown chats"),
    FIELD_TIME(struct key_update_args, expires_at,
               .has = offsetof(struct key_update_args, has_expires_at), .doc = "when the key ends"),
    FIELD_SET(struct key_update_args, clear, .flags = FIELD_EMPTY_OK, .names = key_clear_names,
              .doc = "members to unset: a key without allowed_users sees all users, one without "
                     "expires_at does not end"),
    {0},
};

static bool among(const struct list *users, const struct id *user_id)
{
    for (size_t i = 0; i < users->n; i++)
        if (id_equal((const struct id *)users->items + i, user_id))
            return true;
    return false;
}

static int check(const struct call *c, const struct api_key *k, bool new_expiry, struct err *e)
{
    if (new_expiry && k->expires_at && k->expires_at <= store_now_ms(c->tx))
        return err_field(e, "/expires_at", "expires_at is in the past");
    if (k->limited && !id_is_zero(&k->default_user) && !among(&k->allowed_users, &k->default_user))
        return err_field(e, "/default_user", "default_user is not among allowed_users");
    return 0;
}

static int audit(struct call *c, const struct api_key *k, struct err *e)
{
    return store_audit_deed(c->tx,
                            &(struct audit_deed){.caller = &c->caller,
                                                 .action = c->op->name,
                                                 .kind = "api_key",
                                                 .id = &k->key_id,
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
    snprintf(k->name, sizeof k->name, "%s", a->name);
    k->role = (enum role)(a->role + 1);
    k->limited = a->has_allowed_users;
    k->allowed_users = a->allowed_users;
    k->default_user = a->default_user;
    k->created_at = store_now_ms(c->tx);
    k->expires_at = a->expires_at;
    if (check(c, k, true, e) || auth_key_generate(k, text, e))
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

void op_key_secret(struct call *c, struct op_secret *ret)
{
    ret->text = &((struct key_created *)c->result)->key;
}

/* --- list ------------------------------------------------------------------------------------ */

static int list_each(void *ctx, const struct api_key *k, struct err *e)
{
    struct api_key *item = page_add(ctx, k->created_at, &k->key_id);

    (void)e;
    if (item)
        *item = *k;
    return 0;
}

int op_key_list(struct call *c, struct err *e)
{
    const struct key_list_args *a = c->args;
    struct page_build page;
    struct store_list list;

    if (page_begin(&page, c, &a->page, 'k', sizeof(struct api_key), &list, e) ||
        store_api_key_list(c->tx, &list, list_each, &page, e))
        return -1;
    for (size_t i = 0; i < page.n; i++) {
        struct api_key *k = (struct api_key *)(void *)page.items + i;

        if (k->limited && store_api_key_get(c->tx, &k->key_id, c->arena, k, e))
            return -1;
    }
    return page_end(&page, c->result, e);
}

/* What the store knows may be a minute behind. */
bool op_key_listed(struct call *c)
{
    const struct page *page = c->result;

    for (size_t i = 0; i < page->items.n; i++) {
        struct api_key *k = (struct api_key *)page->items.items + i;
        int64_t used_ms = auth_used_ms(c->s->auth, &k->key_id);

        if (used_ms > k->last_used_at)
            k->last_used_at = used_ms;
    }
    return true;
}

/* --- change, end ----------------------------------------------------------------------------- */

/* May the key have issued this, as it is now? */
static bool still_may(const struct api_key *k, const struct lease *l)
{
    return !k->revoked_at && k->role >= ROLE_BOT &&
           (!k->limited || among(&k->allowed_users, &l->user_id)) &&
           (!k->expires_at || l->max_expires_at <= k->expires_at);
}

struct narrowing {
    const struct api_key *key; /* as it is now */
    struct bulk *bulk;
};

static int narrow_each(void *ctx, const struct lease *l, struct err *e)
{
    const struct narrowing *n = ctx;

    return still_may(n->key, l) ? 0 : bulk_add(n->bulk, l, e);
}

/* Collects the leases that the key may not have issued any more, and ends the first of them. From
 * here on it issues no more of these: that goes by the row which is written with this. */
static int end_leases(struct call *c, const struct api_key *k, const char *reason, struct err *e)
{
    const struct store_match match = {.by = MATCH_API_KEY, .id = k->key_id};
    struct narrowing n = {.key = k, .bulk = bulk_new(c, reason)};

    if (!n.bulk)
        return err_set(e, ERR_INTERNAL, "no memory for the key");
    return store_lease_each_match(c->tx, &match, &(struct caller){0}, narrow_each, &n, e) ||
                   bulk_write(n.bulk, e)
               ? -1
               : 0;
}

static int check_clear(const struct key_update_args *a, struct err *e)
{
    const unsigned given = (a->has_allowed_users ? CLEAR_ALLOWED_USERS : 0) |
                           (a->has_default_user ? CLEAR_DEFAULT_USER : 0) |
                           (a->has_expires_at ? CLEAR_EXPIRES_AT : 0);

    return a->clear & given ? err_field(e, "/clear", "clear names a member that is given, too") : 0;
}

static void clear(struct api_key *k, unsigned members)
{
    if (members & CLEAR_ALLOWED_USERS) {
        k->limited = false;
        k->allowed_users = (struct list){0};
    }
    if (members & CLEAR_DEFAULT_USER)
        k->default_user = (struct id){{0}};
    if (members & CLEAR_EXPIRES_AT)
        k->expires_at = 0;
}

static void apply(struct api_key *k, const struct key_update_args *a)
{
    clear(k, a->clear);
    if (a->name)
        snprintf(k->name, sizeof k->name, "%s", a->name);
    if (a->has_role)
        k->role = (enum role)(a->role + 1);
    if (a->has_allowed_users) {
        k->limited = true;
        k->allowed_users = a->allowed_users;
    }
    if (a->has_default_user)
        k->default_user = a->default_user;
    if (a->has_expires_at)
        k->expires_at = a->expires_at;
}

int key_record(struct call *c, struct api_key *k, bool made, struct err *e)
{
    if (made)
        return store_api_key_insert(c->tx, k, e) || audit(c, k, e) ? -1 : 0;
    return store_api_key_update(c->tx, k, e) || end_leases(c, k, "rights_changed", e) ||
                   store_idempotency_forget(c->tx, &k->key_id, e) || audit(c, k, e)
               ? -1
               : 0;
}

int key_end_more(struct call *c, struct err *e)
{
    return bulk_write(c->state, e);
}

int op_key_update(struct call *c, struct err *e)
{
    const struct key_update_args *a = c->args;
    struct api_key *k = c->result;

    if (c->state)
        return bulk_write(c->state, e);
    if (check_clear(a, e) || store_api_key_get(c->tx, &a->key_id, c->arena, k, e))
        return -1;
    if (k->revoked_at)
        return err_set(e, ERR_CONFLICT, "the key is revoked");
    apply(k, a);
    /* What the key was answered before may be of users that it may not see any more. */
    return check(c, k, a->has_expires_at, e) || key_record(c, k, false, e) ? -1 : 0;
}

static int revoke_key(struct call *c, struct api_key *k, struct err *e)
{
    k->revoked_at = store_now_ms(c->tx);
    return store_api_key_update(c->tx, k, e) || end_leases(c, k, "key_revoked", e) ||
                   store_idempotency_forget(c->tx, &k->key_id, e) || audit(c, k, e)
               ? -1
               : 0;
}

int op_key_revoke(struct call *c, struct err *e)
{
    const struct key_args *a = c->args;
    struct api_key *k = c->result;

    if (c->state)
        return bulk_write(c->state, e);
    if (store_api_key_get(c->tx, &a->key_id, c->arena, k, e))
        return -1;
    return k->revoked_at ? 0 : revoke_key(c, k, e);
}

bool op_key_changed(struct call *c)
{
    const struct api_key *k = c->result;

    /* A key that went on working because there was no memory to end it would be a broken promise;
     * the next start reads all of them. Again after each write of a long end: it does no harm. */
    if (auth_put(c->s->auth, k, &c->e)) {
        log_event(c->s->log, LOG_ERROR, "changes_lost", LF_STR("detail", "no memory; restarting"));
        abort();
    }
    bot_ws_key_changed(c->s->bots, &k->key_id);
    return !c->state || bulk_continue(c->state);
}
