#include "peers.h"

#include <stdlib.h>

struct peer *peers_enter(struct peer **all, const struct peer_group *group)
{
    struct peer *p;

    HASH_FIND(hh, *all, group, sizeof *group, p);
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p)
            return NULL;
        p->group = *group;
        HASH_ADD(hh, *all, group, sizeof p->group, p);
    }
    p->conns++;
    return p;
}

void peers_leave(struct peer **all, struct peer *p)
{
    if (!p || --p->conns > 0)
        return;
    HASH_DEL(*all, p);
    free(p);
}

size_t peers_told_beyond(size_t cap)
{
    return cap / 8 + 8;
}
