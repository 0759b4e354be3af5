/* What a door says of itself, judged by what the gateway knows: a door runs beside untrusted code, and one
 * that has been subverted must not set a gauge, a sum or an answer to what it likes. That a number fits its
 * kind is seen to by the table of its message (door_proto.c). */
#include <string.h>

#include "broker_state.h"

static const char too_many[] = "more connections than the lease has";
static const char foreign[] = "a lease of another session";

static const char *conns_fault(const struct broker *b, const struct session *s,
                               const struct list *conns)
{
    const struct door_conn *c = conns->items;

    for (size_t i = 0; i < conns->n; i++) {
        const struct lease_node *n = broker_lease_find(b, &c[i].jti);

        if (n && n->session != s)
            return foreign;
        if (n && c[i].n > n->l.max_connections)
            return too_many;
    }
    return NULL;
}

/* A lease that is not known any more has just been closed. */
static const char *connection_fault(const struct broker *b, const struct session *s,
                                    const struct door_msg *m)
{
    const struct lease_node *n = broker_lease_find(b, &m->jti);

    if (n && n->session != s)
        return foreign;
    if (n && m->t == DOOR_ADMIT && n->l.connections >= n->l.max_connections)
        return too_many;
    return NULL;
}

/* It goes into the audit trail and the log as it is. */
static const char *verdict_fault(const char *verdict)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

    return verdict[strspn(verdict, letters)] ? "a verdict that is no word" : NULL;
}

const char *broker_claim_fault(const struct broker *b, const struct session *s,
                               const struct door_msg *m)
{
    switch ((enum door_msg_type)m->t) {
    case DOOR_HELLO:
    case DOOR_ACTIVITY:
        return conns_fault(b, s, &m->conns);
    case DOOR_ADMIT:
    case DOOR_CLOSE:
        return connection_fault(b, s, m);
    case DOOR_DENY:
        return verdict_fault(m->verdict);
    case DOOR_ACK:
    case DOOR_AGENT:
    case DOOR_PING:
    case DOOR_PUT:
        return NULL;
    case DOOR_SNAPSHOT:
    case DOOR_DELTA:
    case DOOR_OP:
    case DOOR_RETIRE:
    case DOOR_PUT_DONE:
        break;
    }
    return "not a door's message";
}
