/* How leases end: revoked, expired, closed. One path whatever the cause. */
#include <stdio.h>
#include <string.h>

#include "leasehold/door_proto.h"
#include "rules.h"

bool lease_is_open(const struct lease *l)
{
    return l->state == LEASE_PENDING || l->state == LEASE_ACTIVE;
}

static int mark_ending(struct store_tx *tx, struct lease *l, enum lease_state state,
                       const char *reason, struct err *e)
{
    l->state = state;
    if (state == LEASE_REVOKING)
        l->revoked_at = store_now_ms(tx);
    snprintf(l->revoked_reason, sizeof l->revoked_reason, "%s", reason);
    return store_lease_update(tx, l, e);
}

int lease_end_one(struct store_tx *tx, const struct lease *lease, const struct lease_ending *how,
                  bool *ret_changed, struct err *e)
{
    struct lease l = *lease;
    int64_t seq;

    if (!lease_is_open(&l)) {
        *ret_changed = false;
        return 0;
    }
    if (store_session_next_seq(tx, &l.session_id, &seq, e) ||
        mark_ending(tx, &l, LEASE_REVOKING, how->reason, e) ||
        lease_audit(tx, how->caller, "lease.revoke", &l, how->reason, seq, e) ||
        lease_event(tx, "lease.revoked", &l, e))
        return -1;
    store_emit(tx,
               &(struct change){.kind = CHANGE_REVOKE, .seq = seq, .code = how->code, .lease = l});
    *ret_changed = true;
    return 0;
}

/* --- a whole session ------------------------------------------------------------------------- */

struct session_end {
    struct store_tx *tx;
    const struct lease_ending *how;
    int64_t seq; /* of the one log entry that ends them all; 0: none was open yet */
    size_t n;
};

static int end_each(void *ctx, const struct lease *lease, struct err *e)
{
    struct session_end *s = ctx;
    struct lease l = *lease;

    if (!lease_is_open(&l))
        return 0;
    if (!s->seq && store_session_next_seq(s->tx, &l.session_id, &s->seq, e))
        return -1;
    s->n++;
    return mark_ending(s->tx, &l, LEASE_REVOKING, s->how->reason, e) ||
                   lease_audit(s->tx, s->how->caller, "lease.revoke", &l, s->how->reason, s->seq,
                               e) ||
                   lease_event(s->tx, "lease.revoked", &l, e)
               ? -1
               : 0;
}

int lease_end_session(struct store_tx *tx, const struct sandbox *session,
                      const struct lease_ending *how, size_t *ret_n, struct err *e)
{
    struct session_end s = {.tx = tx, .how = how};

    if (store_lease_each_open_of(tx, &session->session_id, end_each, &s, e))
        return -1;
    if (s.n) {
        struct change c = {
            .kind = CHANGE_REVOKE_ALL, .seq = s.seq, .code = how->code, .sandbox = *session};
        snprintf(c.sandbox.reason, sizeof c.sandbox.reason, "%s", how->reason);
        store_emit(tx, &c);
    }
    *ret_n = s.n;
    return 0;
}

/* --- time ------------------------------------------------------------------------------------ */

int lease_get_if_there(struct store_tx *tx, const struct id *id, struct lease *ret, bool *ret_there,
                       struct err *e)
{
    struct err why;

    *ret_there = !store_lease_get(tx, id, ret, &why);
    if (*ret_there || why.code == ERR_NOT_FOUND)
        return 0;
    *e = why;
    return -1;
}

static int consume_one(struct store_tx *tx, const struct id *lease_id, struct err *e)
{
    struct lease l;
    bool there;

    if (lease_get_if_there(tx, lease_id, &l, &there, e))
        return -1;
    if (!there || l.consumed_at || l.use != USE_ONCE)
        return 0;
    l.consumed_at = store_now_ms(tx);
    return store_lease_update(tx, &l, e) || lease_audit(tx, NULL, "lease.consume", &l, NULL, 0, e)
               ? -1
               : 0;
}

int lease_consume(struct store_tx *tx, const struct id *ids, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (consume_one(tx, &ids[i], e))
            return -1;
    return 0;
}

/* --- terminal -------------------------------------------------------------------------------- */

static int close_lease(struct store_tx *tx, struct lease *l, struct err *e)
{
    l->state = LEASE_CLOSED;
    if (store_lease_update(tx, l, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_LEASE_CLOSED, .lease = *l});
    return 0;
}

int lease_close(struct store_tx *tx, const struct id *ids, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        struct lease l;
        bool there;

        if (lease_get_if_there(tx, &ids[i], &l, &there, e))
            return -1;
        if (there && l.state != LEASE_CLOSED && close_lease(tx, &l, e))
            return -1;
    }
    return 0;
}

struct session_close {
    struct store_tx *tx;
    const char *reason;
};

static int close_each(void *ctx, const struct lease *lease, struct err *e)
{
    struct session_close *s = ctx;
    struct lease l = *lease;

    if (lease_is_open(&l)) {
        l.revoked_at = store_now_ms(s->tx);
        snprintf(l.revoked_reason, sizeof l.revoked_reason, "%s", s->reason);
        if (lease_event(s->tx, "lease.revoked", &l, e))
            return -1;
    }
    return close_lease(s->tx, &l, e);
}

int lease_close_session(struct store_tx *tx, const struct id *session_id, const char *reason,
                        struct err *e)
{
    struct session_close s = {.tx = tx, .reason = reason};

    return store_lease_each_open_of(tx, session_id, close_each, &s, e);
}
