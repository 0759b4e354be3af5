/* What a session's door has yet to confirm. Each lease that waits for it stands in one list of its
 * session, by sequence number, so that an acknowledgement costs what it confirms and not a walk over
 * all leases of the session. */
#include <utlist.h>

#include "broker_state.h"

static void leave(struct lease_node *n)
{
    if (n->awaits)
        DL_DELETE2(*n->awaits, n, awaits_prev, awaits_next);
    n->awaits = NULL;
}

static void enter(struct lease_node **list, struct lease_node *n)
{
    leave(n);
    DL_APPEND2(*list, n, awaits_prev, awaits_next);
    n->awaits = list;
}

void broker_await(struct session *s, struct lease_node *n)
{
    if (n->ending_seq)
        enter(&s->await_end, n);
    else if (n->active_seq > s->acked)
        enter(&s->await_grant, n);
}

void broker_await_no_more(struct lease_node *n)
{
    leave(n);
}

/* --- a door that says what it has ------------------------------------------------------------- */

static int by_active_seq(const struct lease_node *a, const struct lease_node *b)
{
    return a->active_seq < b->active_seq ? -1 : a->active_seq > b->active_seq;
}

static int by_ending_seq(const struct lease_node *a, const struct lease_node *b)
{
    return a->ending_seq < b->ending_seq ? -1 : a->ending_seq > b->ending_seq;
}

/* A door may have less than was confirmed before: another one, or one that lost its memory. */
void broker_await_anew(struct broker *b, struct session *s)
{
    struct lease_node *n;

    DL_FOREACH (s->leases, n) {
        leave(n);
        broker_count_lease(b, n);
        if (n->ending_seq && n->ending_seq > s->acked && n->counted_as == LEASE_UNCONFIRMED)
            enter(&s->await_end_late, n);
        else if (!n->ending_seq || n->ending_seq > s->acked || !n->close_asked)
            broker_await(s, n);
    }
    DL_SORT2(s->await_grant, by_active_seq, awaits_prev, awaits_next);
    DL_SORT2(s->await_end, by_ending_seq, awaits_prev, awaits_next);
    DL_SORT2(s->await_end_late, by_ending_seq, awaits_prev, awaits_next);
}

/* --- an acknowledgement ----------------------------------------------------------------------- */

struct id_batch {
    void (*hook)(void *ctx, const struct id *ids, size_t n);
    struct id ids[BROKER_BATCH];
    size_t n;
};

static void batch_tell(struct broker *b, struct id_batch *batch)
{
    if (batch->n && batch->hook)
        batch->hook(b->hooks.ctx, batch->ids, batch->n);
    batch->n = 0;
}

static void batch_add(struct broker *b, struct id_batch *batch, const struct id *id)
{
    batch->ids[batch->n++] = *id;
    if (batch->n == BROKER_BATCH)
        batch_tell(b, batch);
}

static void confirm_ends(struct broker *b, struct session *s, struct lease_node **list,
                         struct id_batch *close)
{
    struct lease_node *n;

    while ((n = *list) && n->ending_seq <= s->acked) {
        leave(n);
        broker_count_lease(b, n);
        if (n->close_asked)
            continue;
        n->close_asked = true; /* lost with a full disk: closed by time then */
        batch_add(b, close, &n->l.lease_id);
    }
}

void broker_confirm(struct broker *b, struct session *s)
{
    struct id_batch close = {.hook = b->hooks.closed};
    struct lease_node *n;

    while ((n = s->await_grant) && n->active_seq <= s->acked) {
        leave(n);
        broker_count_lease(b, n);
    }
    confirm_ends(b, s, &s->await_end_late, &close);
    confirm_ends(b, s, &s->await_end, &close);
    batch_tell(b, &close);
}

/* --- none ------------------------------------------------------------------------------------- */

/* Only time makes a lease unconfirmed, in the order in which they were ended. */
static void late_session(struct broker *b, struct session *s, struct id_batch *late)
{
    struct lease_node *n, *next;

    DL_FOREACH_SAFE2(s->await_end, n, next, awaits_next)
    {
        if (n->ending_seq <= s->acked)
            continue; /* the next acknowledgement closes it */
        broker_count_lease(b, n);
        if (n->counted_as != LEASE_UNCONFIRMED)
            return;
        enter(&s->await_end_late, n);
        batch_add(b, late, &n->l.lease_id);
    }
}

void broker_late(struct broker *b)
{
    struct id_batch late = {.hook = b->hooks.unconfirmed};
    struct session *s, *next;

    HASH_ITER (hh, b->sessions, s, next)
        late_session(b, s, &late);
    batch_tell(b, &late);
}
