/* Leases: grant, get, list, renew, revoke. */
#include <string.h>

#include "leasehold/door_proto.h"
#include "ops.h"

#define WAIT_MAX_MS 10000

/* A list by a state that only the broker knows looks at so many rows at once, and in all. */
#define SCAN_ROWS   1000
#define SCAN_ROUNDS 50

static const char *const scopes_offered[] = {"read", "write", NULL};

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
    FIELD_ENUM(struct lease_grant_args, use, .names = lease_use_offered,
               .doc = "how often it lets in"),
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

const struct field lease_revoke_in[] = {
    FIELD_ID(struct lease_revoke_args, lease_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the lease"),
    FIELD_STR(struct lease_revoke_args, reason, .flags = FIELD_QUERY, .min = 1,
              .max = REASON_MAX - 1, .doc = "becomes the lease's"),
    FIELD_INT(struct lease_revoke_args, wait_ms, .flags = FIELD_QUERY, .max = WAIT_MAX_MS,
              .has = offsetof(struct lease_revoke_args, has_wait_ms),
              .doc = "wait so long for the door to confirm"),
    {0},
};

static const struct field selector_in[] = {
    FIELD_ID(struct revoke_selector, lease_id,
             .has = offsetof(struct revoke_selector, has_lease_id), .doc = "this lease"),
    FIELD_ID(struct revoke_selector, session_id,
             .has = offsetof(struct revoke_selector, has_session_id),
             .doc = "all leases of this session"),
    {0},
};

const struct field lease_revoke_by_in[] = {
    {.name = "selector",
     .kind = FIELD_KIND_OBJECT,
     .flags = FIELD_REQUIRED,
     .offset = offsetof(struct lease_revoke_by_args, selector),
     .fields = selector_in,
     .doc = "exactly one of lease_id, session_id"},
    FIELD_STR(struct lease_revoke_by_args, reason, .min = 1, .max = REASON_MAX - 1,
              .doc = "becomes the leases'"),
    FIELD_INT(struct lease_revoke_by_args, wait_ms, .max = WAIT_MAX_MS,
              .has = offsetof(struct lease_revoke_by_args, has_wait_ms),
              .doc = "wait so long for the door to confirm"),
    {0},
};

static const struct field door_out[] = {
    FIELD_ID(struct revoke_door, session_id, .doc = "the door's session"),
    FIELD_BOOL(struct revoke_door, acked, .doc = "whether it has confirmed"),
    FIELD_INT(struct revoke_door, cut, .doc = "connections cut"),
    FIELD_INT(struct revoke_door, latency_us,
              .doc = "from the durable revocation to the door's confirmation of the cut"),
    {0},
};

const struct field lease_revoked_out[] = {
    FIELD_INT(struct lease_revoked, matched, .doc = "leases the selector names"),
    FIELD_INT(struct lease_revoked, revoked, .doc = "of them those that were open until now"),
    FIELD_OBJLIST(struct lease_revoked, doors, door_out, struct revoke_door,
                  .doc = "each door that had to cut"),
    FIELD_IDLIST(struct lease_revoked, unconfirmed, .doc = "leases whose door has not confirmed"),
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
                                    .max_connections = a->max_connections};
    struct sandbox session;
    struct lease lease;

    if (grant_session(c, a, &session, e) ||
        lease_issue(c->tx, &c->s->policy, keyset_signing_kid(c->s->keys), &c->caller, &session,
                    &request, &lease, e))
        return -1;
    return grant_fill(c, &lease, &session, c->result, e);
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

bool op_lease_renewed(struct call *c)
{
    struct grant *grant = c->result;

    broker_lease_view(c->s->broker, &grant->lease);
    return true;
}

int op_lease_renew(struct call *c, struct err *e)
{
    const struct lease_renew_args *a = c->args;
    struct sandbox session;
    struct lease lease;

    if (lease_renew(c->tx, &c->s->policy, &c->caller, &a->lease_id, a->ttl_s, &lease, e) ||
        store_sandbox_get(c->tx, &lease.session_id, &session, e))
        return -1;
    return grant_fill(c, &lease, &session, c->result, e);
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
    if (page_begin(&l->page, c, &a->page, 'l', sizeof(struct lease), &l->list, e))
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
        item = page_add(&l->page, row->issued_at, &row->lease_id);
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

        l->list.after = (struct store_place){last->issued_at, last->lease_id};
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

/* --- revoke ---------------------------------------------------------------------------------- */

/* What `after` needs to wait for the door. */
struct revoking {
    struct broker_wait wait;
    struct call *call;
    struct revoke_door door;
    struct id *revoked; /* the leases that this call ended */
    size_t revoked_n;
    bool wants_wait;
};

static struct revoking *revoking_new(struct call *c, bool wants_wait, int64_t wait_ms)
{
    struct revoking *r = call_alloc(c, sizeof *r);

    if (r) {
        r->call = c;
        r->wants_wait = wants_wait;
        r->wait.timeout_ms = wait_ms;
        c->state = r;
    }
    return r;
}

static int revoke_one(struct call *c, const struct id *lease_id, const char *reason,
                      struct revoking *r, struct err *e)
{
    struct lease_revoked *out = c->result;
    struct lease_ending how = {.code = CLOSE_REVOKED, .reason = reason, .caller = &c->caller};
    struct lease lease;
    bool changed;

    if (lease_visible(c->tx, &c->caller, lease_id, &lease, e) ||
        lease_end_one(c->tx, &lease, &how, &changed, e))
        return -1;
    r->revoked = call_alloc(c, sizeof *r->revoked);
    if (!r->revoked)
        return err_set(e, ERR_INTERNAL, "no memory for the answer");
    r->door.session_id = r->wait.session_id = lease.session_id;
    out->matched = 1;
    out->revoked = changed;
    if (changed)
        r->revoked[r->revoked_n++] = lease.lease_id;
    return 0;
}

struct collect {
    struct call *c;
    struct revoking *r;
    size_t max;
};

static int collect_open(void *ctx, const struct lease *l, struct err *e)
{
    struct collect *co = ctx;

    if (l->state != LEASE_PENDING && l->state != LEASE_ACTIVE)
        return 0;
    if (co->r->revoked_n == co->max) {
        size_t max = co->max ? co->max * 2 : 32;
        struct id *more = call_alloc(co->c, max * sizeof *more);

        if (!more)
            return err_set(e, ERR_INTERNAL, "no memory for the answer");
        if (co->max)
            memcpy(more, co->r->revoked, co->max * sizeof *more);
        co->r->revoked = more;
        co->max = max;
    }
    co->r->revoked[co->r->revoked_n++] = l->lease_id;
    return 0;
}

static int revoke_session(struct call *c, const struct id *session_id, const char *reason,
                          struct revoking *r, struct err *e)
{
    struct lease_revoked *out = c->result;
    struct lease_ending how = {.code = CLOSE_REVOKED, .reason = reason, .caller = &c->caller};
    struct collect collect = {.c = c, .r = r};
    struct sandbox session;
    size_t n;

    if (store_sandbox_get(c->tx, session_id, &session, e))
        return -1;
    if (!caller_may_see(&c->caller, &session.user_id))
        return err_set(e, ERR_NOT_FOUND, "no such sandbox");
    if (store_lease_each_open(c->tx, session_id, collect_open, &collect, e) ||
        lease_end_session(c->tx, &session, &how, &n, e))
        return -1;
    r->door.session_id = r->wait.session_id = *session_id;
    out->matched = out->revoked = (int64_t)n;
    return 0;
}

static const char *reason_or_default(const char *reason)
{
    return reason ? reason : "revoked";
}

int op_lease_revoke(struct call *c, struct err *e)
{
    const struct lease_revoke_args *a = c->args;
    struct revoking *r = revoking_new(c, a->has_wait_ms, a->wait_ms);

    if (!r)
        return err_set(e, ERR_INTERNAL, "no memory for the answer");
    return revoke_one(c, &a->lease_id, reason_or_default(a->reason), r, e);
}

int op_lease_revoke_by(struct call *c, struct err *e)
{
    const struct lease_revoke_by_args *a = c->args;
    struct revoking *r = revoking_new(c, a->has_wait_ms, a->wait_ms);

    if (!r)
        return err_set(e, ERR_INTERNAL, "no memory for the answer");
    if (a->selector.has_lease_id == a->selector.has_session_id)
        return err_field(e, "/selector", "exactly one of lease_id and session_id must be given");
    return a->selector.has_lease_id
               ? revoke_one(c, &a->selector.lease_id, reason_or_default(a->reason), r, e)
               : revoke_session(c, &a->selector.session_id, reason_or_default(a->reason), r, e);
}

static void answer(struct revoking *r)
{
    struct lease_revoked *out = r->call->result;

    r->door.acked = r->wait.acked;
    r->door.cut = r->wait.cut;
    r->door.latency_us = r->wait.latency_us;
    if (out->revoked)
        out->doors = (struct list){&r->door, 1};
    if (!r->wait.acked)
        out->unconfirmed = (struct list){r->revoked, r->revoked_n};
}

static void waited(struct broker_wait *w)
{
    struct revoking *r = (struct revoking *)((char *)w - offsetof(struct revoking, wait));

    answer(r);
    r->call->status = w->acked ? 200 : 202;
    call_finish(r->call);
}

bool op_lease_revoked(struct call *c)
{
    struct revoking *r = c->state;
    const struct lease_revoked *out = c->result;

    if (!out->revoked) {
        r->wait.acked = true;
        c->status = r->wants_wait ? 200 : 202;
        return true;
    }
    if (!r->wants_wait) {
        answer(r);
        return true;
    }
    r->wait.done = waited;
    broker_wait(c->s->broker, &r->wait);
    return false;
}
