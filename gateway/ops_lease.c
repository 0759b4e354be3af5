/* Leases: grant, get, list, renew. */
#include "ops.h"

/* A list by a state that only the broker knows looks at so many rows at once, and in all. */
#define SCAN_ROWS   1000
#define SCAN_ROUNDS 50

static const char *const scopes_offered[] = {"read", "write", NULL};

const struct field cnf_in[] = {
    FIELD_STR(struct cnf_args, jkt, .flags = FIELD_REQUIRED, .min = 1, .max = TOKEN_KID_TEXT - 1,
              .doc = "the RFC 7638 thumbprint of a P-256 key whose holder alone is let in"),
    {0},
};

const struct field lease_grant_in[] = {
    FIELD_ID(struct lease_grant_args, session_id,
             .has = offsetof(struct lease_grant_args, has_session_id),
             .doc = "the session, or chat_id"),
    FIELD_ID(struct lease_grant_args, chat_id,
             .has = offsetof(struct lease_grant_args, has_chat_id),
             .doc = "instead of session_id: the chat's running session"),
    FIELD_ID(struct lease_grant_args, user_id, .doc = "defaults to the chat's owner"),
    FIELD_SET(struct lease_grant_args, scope, .names = scopes_offered, .doc = "defaults to both"),
    FIELD_INT(struct lease_grant_args, ttl_s, .min = 1, .max = 86400,
              .doc = "at most lease.ttl_max_seconds"),
    FIELD_INT(struct lease_grant_args, max_connections, .min = 1, .max = 64, .doc = "live at once"),
    FIELD_ENUM(struct lease_grant_args, use, .names = lease_use_names,
               .doc = "how often it lets in"),
    FIELD_OBJPTR(struct lease_grant_args, cnf, cnf_in, struct cnf_args,
                 .doc = "binds it to a client's key (RFC 7800)"),
    {0},
};

const struct field lease_id_in[] = {
    FIELD_ID(struct lease_id_args, lease_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the lease"),
    {0},
};

const struct field lease_list_in[] = {
    PAGE_IN(struct lease_list_args),
    FIELD_ID(struct lease_list_args, session_id, .flags = FIELD_QUERY, .doc = "of this session"),
    FIELD_ID(struct lease_list_args, chat_id, .flags = FIELD_QUERY, .doc = "of this chat"),
    FIELD_ID(struct lease_list_args, user_id, .flags = FIELD_QUERY, .doc = "of this user"),
    FIELD_ENUM(struct lease_list_args, state, .flags = FIELD_QUERY,
               .has = offsetof(struct lease_list_args, has_state), .names = lease_state_names,
               .doc = "as it is answered: with what the doors have confirmed"),
    {0},
};

const struct field lease_list_out[] = {
    PAGE_OUT(lease_fields, struct lease),
    {0},
};

const struct field lease_renew_in[] = {
    FIELD_ID(struct lease_renew_args, lease_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the lease"),
    FIELD_INT(struct lease_renew_args, ttl_s, .min = 1, .max = 86400,
              .doc = "from now; at most lease.ttl_max_seconds"),
    {0},
};

/* --- grant, get, renew ----------------------------------------------------------------------- */

static int grant_session(struct call *c, const struct lease_grant_args *a, struct sandbox *ret,
                         struct err *e)
{
    struct chat chat;

    if (a->has_session_id == a->has_chat_id)
        return err_field(e, "", "exactly one of session_id and chat_id must be given");
    if (a->has_session_id) {
        if (store_sandbox_get(c->tx, &a->session_id, ret, e))
            return -1;
        return caller_may_see(&c->caller, &ret->user_id)
                   ? 0
                   : err_set(e, ERR_NOT_FOUND, "no such sandbox");
    }
    if (chat_visible(c->tx, &c->caller, &a->chat_id, c->arena, &chat, e))
        return -1;
    if (!store_sandbox_active(c->tx, &a->chat_id, ret, e))
        return 0;
    return e->code == ERR_NOT_FOUND
               ? err_set(e, ERR_SESSION_NOT_RUNNING, "the chat has no running session")
               : -1;
}

int op_lease_grant(struct call *c, struct err *e)
{
    const struct lease_grant_args *a = c->args;
    struct lease_request request = {.user_id = a->user_id,
                                    .scope = a->scope,
                                    .ttl_s = a->ttl_s,
                                    .max_connections = a->max_connections,
                                    .use = (enum lease_use)a->use,
                                    .cnf_jkt = a->cnf ? a->cnf->jkt : NULL};
    struct sandbox session;
    struct lease lease;

    if (grant_session(c, a, &session, e) ||
        lease_issue(c->tx, &c->s->policy, keyset_signing_kid(c->s->keys), &c->caller, &session,
                    &request, &lease, e))
        return -1;
    return grant_describe(c, &lease, &session, c->result, e);
}

int op_lease_get(struct call *c, struct err *e)
{
    const struct lease_id_args *a = c->args;

    return lease_visible(c->tx, &c->caller, &a->lease_id, c->result, e);
}

bool op_lease_got(struct call *c)
{
    broker_lease_view(c->s->broker, c->result);
    return true;
}

void op_lease_renew_prepare(struct call *c)
{
    struct lease_renew_args *a = c->args;
    struct lease l = {.lease_id = a->lease_id};

    broker_lease_view(c->s->broker, &l);
    a->confirmed = l.state == LEASE_ACTIVE;
}

int op_lease_renew(struct call *c, struct err *e)
{
    const struct lease_renew_args *a = c->args;
    struct sandbox session;
    struct lease lease;

    if (lease_renew(c->tx, &c->s->policy, keyset_signing_kid(c->s->keys), &c->caller, &a->lease_id,
                    a->ttl_s, &lease, e) ||
        store_sandbox_get(c->tx, &lease.session_id, &session, e))
        return -1;
    if (a->confirmed) /* a renewal takes nothing back that the door has said */
        lease.state = LEASE_ACTIVE;
    return grant_describe(c, &lease, &session, c->result, e);
}

void op_grant_sign(struct call **calls, size_t n)
{
    grant_sign_all(calls, n);
}

void op_grant_secret(struct call *c, struct op_secret *ret)
{
    struct grant *grant = c->result;

    *ret = (struct op_secret){&grant->token, &grant->lease, grant->iat};
}

/* --- list ------------------------------------------------------------------------------------
 * The store knows a lease as open (pending), ending (revoking, expiring) or closed; what its door
 * has confirmed only the broker knows, on the loop. So `run` reads rows that may match, `after` lays
 * the broker's state over them and keeps those that do, and both take turns until the page is full,
 * the rows are at their end, or enough were looked at: then the page is short, and its cursor goes
 * on from there. */

struct listing {
    struct page_build page;
    struct store_list list;
    struct lease *rows;
    size_t n, size;
    int rounds;
};

/* Names in the store of the rows that the broker may know by `state`. */
static const char *const *stored_states(enum lease_state state)
{
    static const char *const open[] = {"pending", "active", NULL};
    static const char *const ending[] = {"revoking", "expiring", NULL};
    static const char *const revoking[] = {"revoking", NULL};
    static const char *const expiring[] = {"expiring", NULL};
    static const char *const closed[] = {"closed", NULL};

    switch (state) {
    case LEASE_PENDING:
    case LEASE_ACTIVE:
        return open;
    case LEASE_REVOKING:
        return revoking;
    case LEASE_EXPIRING:
        return expiring;
    case LEASE_UNCONFIRMED:
        return ending;
    case LEASE_CLOSED:
        return closed;
    }
    return NULL;
}

static int listing_begin(struct call *c, const struct lease_list_args *a, struct err *e)
{
    struct listing *l = call_alloc(c, sizeof *l);

    if (!l)
        return err_set(e, ERR_INTERNAL, "no memory for a list");
    if (page_begin(&l->page, c, &a->page, 'L', sizeof(struct lease), &l->list, e))
        return -1;
    l->size = a->has_state && a->state != LEASE_CLOSED ? SCAN_ROWS : (size_t)l->list.limit;
    l->rows = call_alloc(c, l->size * sizeof *l->rows);
    if (!l->rows)
        return err_set(e, ERR_INTERNAL, "no memory for a list");
    c->state = l;
    return 0;
}

static int list_each(void *ctx, const struct lease *lease, struct err *e)
{
    struct listing *l = ctx;

    (void)e;
    l->rows[l->n++] = *lease;
    return 0;
}

int op_lease_list(struct call *c, struct err *e)
{
    const struct lease_list_args *a = c->args;
    struct store_filter filter = {.session_id = a->session_id,
                                  .chat_id = a->chat_id,
                                  .user_id = a->user_id,
                                  .names = a->has_state ? stored_states(a->state) : NULL};
    struct listing *l;

    if (!c->state && listing_begin(c, a, e))
        return -1;
    l = c->state;
    l->n = 0;
    l->rounds++;
    return store_lease_list(c->tx, &l->list, &filter, list_each, l, e);
}

/* Keeps the rows that match; true: the page is full. */
static bool take_rows(struct listing *l, const struct lease_list_args *a, const struct broker *b)
{
    for (size_t i = 0; i < l->n; i++) {
        struct lease *row = &l->rows[i], *item;

        broker_lease_view(b, row);
        if (a->has_state && row->state != (enum lease_state)a->state)
            continue;
        item = page_add(&l->page, row->n, &row->lease_id);
        if (!item)
            return true;
        *item = *row;
    }
    return false;
}

bool op_lease_listed(struct call *c)
{
    struct listing *l = c->state;

    if (!take_rows(l, c->args, c->s->broker) && l->n == (size_t)l->list.limit) {
        const struct lease *last = &l->rows[l->n - 1];

        l->list.after = (struct store_place){last->n, last->lease_id};
        l->list.limit = (int64_t)l->size;
        if (l->rounds < SCAN_ROUNDS) {
            call_again(c);
            return false;
        }
        l->page.last = l->list.after;
        l->page.more = true;
    }
    c->rc = page_end(&l->page, c->result, &c->e);
    return true;
}
