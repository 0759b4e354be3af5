/* Revoking leases: one, or all that a selector names. */
#include <stdio.h>
#include <string.h>

#include "bulk_revoke.h"
#include "ops.h"

#define WAIT_MAX_MS 10000
#define COUNT_MAX   100000000

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
    FIELD_ID(struct revoke_selector, chat_id, .has = offsetof(struct revoke_selector, has_chat_id),
             .doc = "of this chat"),
    FIELD_ID(struct revoke_selector, user_id, .has = offsetof(struct revoke_selector, has_user_id),
             .doc = "of this user"),
    FIELD_ID(struct revoke_selector, api_key_id,
             .has = offsetof(struct revoke_selector, has_api_key_id),
             .doc = "issued by this API key; for admins"),
    FIELD_STR(struct revoke_selector, kid, .min = 1, .max = TOKEN_KID_TEXT - 1,
              .doc = "whose tokens this key signed; for admins"),
    FIELD_BOOL(struct revoke_selector, all, .doc = "true: every lease; for admins"),
    {0},
};

const struct field lease_revoke_by_in[] = {
    {.name = "selector",
     .kind = FIELD_KIND_OBJECT,
     .flags = FIELD_REQUIRED,
     .offset = offsetof(struct lease_revoke_by_args, selector),
     .fields = selector_in,
     .doc = "exactly one of its members"},
    FIELD_STR(struct lease_revoke_by_args, reason, .min = 1, .max = REASON_MAX - 1,
              .doc = "becomes the leases'"),
    FIELD_BOOL(struct lease_revoke_by_args, dry_run, .doc = "count only, change nothing"),
    FIELD_INT(struct lease_revoke_by_args, expected_count, .max = COUNT_MAX,
              .has = offsetof(struct lease_revoke_by_args, has_expected_count),
              .doc = "change nothing if another number matches"),
    FIELD_INT(struct lease_revoke_by_args, wait_ms, .max = WAIT_MAX_MS,
              .has = offsetof(struct lease_revoke_by_args, has_wait_ms),
              .doc = "wait so long for the doors to confirm"),
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

/* --- who may name what ----------------------------------------------------------------------- */

static int select_one(const struct revoke_selector *s, struct err *e)
{
    int given = s->has_lease_id + s->has_session_id + s->has_chat_id + s->has_user_id +
                s->has_api_key_id + (s->kid != NULL) + s->all;

    return given == 1 ? 0
                      : err_field(e, "/selector",
                                  "exactly one of lease_id, session_id, chat_id, user_id, "
                                  "api_key_id, kid and all: true must be given");
}

static struct store_match match_of(const struct revoke_selector *s)
{
    if (s->has_session_id)
        return (struct store_match){.by = MATCH_SESSION, .id = s->session_id};
    if (s->has_chat_id)
        return (struct store_match){.by = MATCH_CHAT, .id = s->chat_id};
    if (s->has_user_id)
        return (struct store_match){.by = MATCH_USER, .id = s->user_id};
    if (s->has_api_key_id)
        return (struct store_match){.by = MATCH_API_KEY, .id = s->api_key_id};
    if (s->kid)
        return (struct store_match){.by = MATCH_KID, .kid = s->kid};
    return (struct store_match){.by = MATCH_ALL};
}

/* What the caller may not see it may not name either; of a user there is nothing to be seen. */
static int selector_allowed(struct call *c, const struct store_match *m, struct err *e)
{
    struct sandbox session;
    struct chat chat;

    switch (m->by) {
    case MATCH_SESSION:
        if (store_sandbox_get(c->tx, &m->id, &session, e))
            return -1;
        return caller_may_see(&c->caller, &session.user_id)
                   ? 0
                   : err_set(e, ERR_NOT_FOUND, "no such sandbox");
    case MATCH_CHAT:
        return chat_visible(c->tx, &c->caller, &m->id, c->arena, &chat, e);
    case MATCH_USER:
        return 0;
    case MATCH_API_KEY:
    case MATCH_KID:
    case MATCH_ALL:
        break;
    }
    return c->caller.role == ROLE_ADMIN
               ? 0
               : err_set(e, ERR_FORBIDDEN, "api_key_id, kid and all need the role admin");
}

/* --- one ------------------------------------------------------------------------------------- */

static const char *reason_or_default(const char *reason)
{
    return reason ? reason : "revoked";
}

/* An ended one matches, too: to revoke it again is no error. */
static int collect_one(struct call *c, struct bulk *b, const struct id *lease_id, struct err *e)
{
    struct lease lease;

    return lease_visible(c->tx, &c->caller, lease_id, &lease, e) || bulk_add(b, &lease, e) ? -1 : 0;
}

int op_lease_revoke(struct call *c, struct err *e)
{
    const struct lease_revoke_args *a = c->args;
    struct bulk *b = bulk_new(c, reason_or_default(a->reason));
    struct lease lease;

    if (!b)
        return err_set(e, ERR_INTERNAL, "no memory for the answer");
    return lease_visible(c->tx, &c->caller, &a->lease_id, &lease, e) || bulk_write_one(b, &lease, e)
               ? -1
               : 0;
}

/* --- many ------------------------------------------------------------------------------------ */

/* Every lease has its own entry; this one says what they were ended by. */
static int audit(struct call *c, const struct store_match *m, const struct bulk *b, struct err *e)
{
    static const char *const names[] = {
        [MATCH_ALL] = "leases", [MATCH_SESSION] = "session", [MATCH_CHAT] = "chat",
        [MATCH_USER] = "user",  [MATCH_API_KEY] = "api_key", [MATCH_KID] = "kid"};
    char detail[16 + REASON_MAX + 32];

    snprintf(detail, sizeof detail, "n=%zu reason=%s", b->n, b->how.reason);
    return store_audit_deed(
        c->tx,
        &(struct audit_deed){.caller = &c->caller,
                             .action = "lease.revoke_by",
                             .kind = names[m->by],
                             .id = m->by == MATCH_ALL || m->by == MATCH_KID ? NULL : &m->id,
                             .name = m->by == MATCH_KID ? m->kid : "all",
                             .detail = detail},
        e);
}

static int collect_match(struct call *c, struct bulk *b, const struct revoke_selector *s,
                         struct err *e)
{
    const struct store_match m = match_of(s);
    const struct lease_revoke_by_args *a = c->args;

    if (selector_allowed(c, &m, e) || bulk_collect(b, &m, e))
        return -1;
    /* A limited caller's part of a session is all of it: a session has one user. */
    b->whole_sessions = m.by != MATCH_API_KEY && m.by != MATCH_KID;
    return a->dry_run || !b->n ? 0 : audit(c, &m, b, e);
}

static int revoke_begin(struct call *c, struct err *e)
{
    const struct lease_revoke_by_args *a = c->args;
    struct bulk *b;

    if (select_one(&a->selector, e))
        return -1;
    b = bulk_new(c, reason_or_default(a->reason));
    if (!b)
        return err_set(e, ERR_INTERNAL, "no memory for the answer");
    if (a->selector.has_lease_id ? collect_one(c, b, &a->selector.lease_id, e)
                                 : collect_match(c, b, &a->selector, e))
        return -1;
    if (a->has_expected_count && (int64_t)b->n != a->expected_count)
        return err_set(e, ERR_EXPECTED_COUNT_MISMATCH, "%zu leases match", b->n);
    return 0;
}

int op_lease_revoke_by(struct call *c, struct err *e)
{
    const struct lease_revoke_by_args *a = c->args;

    if (!c->state && revoke_begin(c, e))
        return -1;
    return a->dry_run ? 0 : bulk_write(c->state, e);
}

/* --- the answer ------------------------------------------------------------------------------ */

static bool revoked(struct call *c, bool wants_wait, int64_t wait_ms)
{
    struct bulk *b = c->state;

    if (!bulk_continue(b))
        return false;
    if (wants_wait)
        return bulk_wait(b, wait_ms);
    bulk_answer(b, c->result);
    return true;
}

bool op_lease_revoked(struct call *c)
{
    const struct lease_revoke_args *a = c->args;

    return revoked(c, a->has_wait_ms, a->wait_ms);
}

bool op_lease_revoked_by(struct call *c)
{
    const struct lease_revoke_by_args *a = c->args;
    struct bulk *b = c->state;
    struct lease_revoked *out = c->result;

    if (!a->dry_run)
        return revoked(c, a->has_wait_ms, a->wait_ms);
    out->matched = (int64_t)b->n;
    c->status = 200;
    return true;
}
