/*
 * How many connections each address has (http.max_connections_per_address; of IPv6 each /64), and each
 * process on the control socket that has not proved to be a door. Who has none is not remembered. Loop
 * thread.
 */
#ifndef GATEWAY_PEERS_H
#define GATEWAY_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <uthash.h>

#include "peer_group.h"

struct peer {
    struct peer_group group;
    size_t conns;
    bool told; /* the log knows that it has too many */
    UT_hash_handle hh;
};

/* One connection more, one less, of the table *all. NULL: no memory, it is not counted. */
struct peer *peers_enter(struct peer **all, const struct peer_group *group);
void peers_leave(struct peer **all, struct peer *p); /* p may be NULL */

/* Of so many beyond the cap each is told 429 and closed; further ones are closed unheard. */
size_t peers_told_beyond(size_t cap);

#endif
