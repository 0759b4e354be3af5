/* How leases end whose time is over: many at once, by few statements and few entries of logs. */
#include <stdio.h>
#include <string.h>

#include "leasehold/door_proto.h"
#include "rules.h"

#define REASON "expired"

/* --- rows ------------------------------------------------------------------------------------ */

static struct store_lease_expiry row_of(const struct lease_due *d)
{
    return (struct store_lease_expiry){.n = d->n,
                                       .expires_at = d->expires_at,
                                       .session_id = d->session_id,
                                       .user_id = d->user_id,
                                       .state = d->unused ? LEASE_CLOSED : LEASE_EXPIRING,
                                       .reason = REASON};
}

/* Leaves those in `due` that have ended by it. */
static int rows_end(struct store_tx *tx, struct lease_due *due, size_t *n, struct err *e)
{
    struct store_lease_expiry rows[LEASES_DUE_MAX];
    bool found[LEASES_DUE_MAX];
    size_t ended = 0;

    for (size_t i = 0; i < *n; i++)
        rows[i] = row_of(&due[i]);
    if (store_lease_expire(tx, rows, *n, found, e))
        return -1;
    for (size_t i = 0; i < *n; i++)
        if (found[i])
            due[ended++] = due[i];
    *n = ended;
    return 0;
}

/* --- what is told of them -------------------------------------------------------------------- */

static struct lease lease_of(const struct lease_due *d)
{
    return (struct lease){.lease_id = d->lease_id,
                          .session_id = d->session_id,
                          .chat_id = d->chat_id,
                          .user_id = d->user_id,
                          .expires_at = d->expires_at};
}

static int tell_one(struct store_tx *tx, const struct lease_due *d, int64_t seq, struct err *e)
{
    struct lease l = lease_of(d);

    snprintf(l.revoked_reason, sizeof l.revoked_reason, REASON);
    return lease_audit(tx, NULL, "lease.expire", &l, NULL, seq, e) ||
                   lease_event(tx, "lease.expired", &l, e)
               ? -1
               : 0;
}

static int tell_add(struct store_tx *tx, struct change *c, const struct lease_due *d, struct err *e)
{
    struct change_expired *to = &c->expired;

    to->closed |= (uint32_t)d->unused << to->n;
    to->ids[to->n++] = d->lease_id;
    return tell_one(tx, d, c->seq, e);
}

/* Those of the session of due[0], as many as one entry of its log takes; the others move up. *n: how
 * many. */
static int tell_session(struct store_tx *tx, struct lease_due *due, size_t *n, struct err *e)
{
    struct change c = {.kind = CHANGE_EXPIRE, .code = CLOSE_UNAUTHENTICATED};
    struct id session_id = due[0].session_id;
    size_t left = 0;

    if (store_session_next_seq(tx, &session_id, &c.seq, e))
        return -1;
    c.expired = (struct change_expired){.session_id = session_id};
    for (size_t i = 0; i < *n; i++) {
        if (c.expired.n == CHANGE_LEASES || !id_equal(&due[i].session_id, &session_id))
            due[left++] = due[i];
        else if (tell_add(tx, &c, &due[i], e))
            return -1;
    }
    *n = left;
    store_emit(tx, &c);
    return 0;
}

int lease_expire(struct store_tx *tx, const struct lease_due *due, size_t n, struct err *e)
{
    struct lease_due left[LEASES_DUE_MAX];

    if (!n)
        return 0;
    if (n > LEASES_DUE_MAX)
        return err_set(e, ERR_INTERNAL, "%zu leases expire in one write", n);
    memcpy(left, due, n * sizeof *due);
    if (rows_end(tx, left, &n, e))
        return -1;
    while (n)
        if (tell_session(tx, left, &n, e))
            return -1;
    return 0;
}

/* --- before ---------------------------------------------------------------------------------- */

/* Renewed meanwhile, it has a whole term again. */
int lease_tell_expiring(struct store_tx *tx, const struct lease_due *due, size_t n, struct err *e)
{
    struct store_lease_expiry rows[LEASES_DUE_MAX];
    bool open[LEASES_DUE_MAX];
    int64_t now = store_now_ms(tx);

    if (!n)
        return 0;
    if (n > LEASES_DUE_MAX)
        return err_set(e, ERR_INTERNAL, "%zu leases are told of in one write", n);
    for (size_t i = 0; i < n; i++)
        rows[i] = row_of(&due[i]);
    if (store_lease_open_until(tx, rows, n, open, e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct lease l = lease_of(&due[i]);

        if (open[i] && l.expires_at > now && lease_event(tx, "lease.expiring", &l, e))
            return -1;
    }
    return 0;
}
