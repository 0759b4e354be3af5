/* How many there are of what, kept as it changes: asking must not stop the loop for a walk over a
 * million leases. */
#include <utlist.h>

#include "broker_state.h"

enum lease_state broker_lease_state(const struct broker *b, const struct lease_node *n)
{
    if (!n->ending_seq)
        return n->session->acked >= n->active_seq ? LEASE_ACTIVE : LEASE_PENDING;
    if (n->session->acked < n->ending_seq &&
        clock_boot_us(b->clock) - n->ending_us > UNCONFIRMED_AFTER_US)
        return LEASE_UNCONFIRMED;
    return n->l.state;
}

void broker_count_lease(struct broker *b, struct lease_node *n)
{
    enum lease_state now = broker_lease_state(b, n);

    if (n->counted)
        b->state[n->counted_as]--;
    b->state[now]++;
    n->counted = true;
    n->counted_as = now;
}

void broker_count_connections(struct broker *b, struct lease_node *n, int64_t connections)
{
    if (connections < 0)
        connections = 0;
    if (connections && !n->l.connections)
        DL_APPEND2(n->session->connected, n, connected_prev, connected_next);
    else if (!connections && n->l.connections)
        DL_DELETE2(n->session->connected, n, connected_prev, connected_next);
    b->connections += (size_t)connections - (size_t)n->l.connections;
    n->l.connections = connections;
}

void broker_uncount(struct broker *b, struct lease_node *n)
{
    broker_count_connections(b, n, 0);
    if (n->counted)
        b->state[n->counted_as]--;
    n->counted = false;
}

/* --- questions ------------------------------------------------------------------------------- */

static void count_doors(const struct broker *b, struct broker_counts *ret)
{
    struct session *s, *next;

    *ret = (struct broker_counts){.sessions = HASH_COUNT(b->sessions),
                                  .leases = HASH_COUNT(b->leases),
                                  .doors_unknown = b->doors_unknown};
    HASH_ITER (hh, b->sessions, s, next)
        ret->doors_live += s->door != NULL;
}

void broker_counts(const struct broker *b, struct broker_counts *ret)
{
    count_doors(b, ret);
    ret->connections = b->connections;
    for (size_t i = 0; i < LEASE_STATES; i++)
        ret->state[i] = b->state[i];
}

void broker_recount(const struct broker *b, struct broker_counts *ret)
{
    struct lease_node *n, *next;

    count_doors(b, ret);
    HASH_ITER (hh, b->leases, n, next) {
        ret->connections += (size_t)n->l.connections;
        ret->state[broker_lease_state(b, n)]++;
    }
}
