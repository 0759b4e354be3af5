#include "crowd.h"

#include <assert.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

#define PREFIX_BYTES 8 /* of an IPv6 address: its /64 */

void crowd_key_of(const struct sockaddr *address, struct crowd_key *ret)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    *ret = (struct crowd_key){{0}};
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;

        memcpy(ret->bytes, mapped, sizeof(mapped));
        memcpy(ret->bytes + sizeof(mapped), &four->sin_addr, sizeof(four->sin_addr));
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)address;
        size_t n = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) ? sizeof(ret->bytes) : PREFIX_BYTES;

        memcpy(ret->bytes, &six->sin6_addr, n);
    }
}

static struct crowd_source *source_of(struct crowd *c, const struct crowd_key *key)
{
    struct crowd_source *empty = NULL;

    for (size_t i = 0; i < sizeof(c->sources) / sizeof(c->sources[0]); i++) {
        struct crowd_source *s = &c->sources[i];

        if (s->n > 0 && memcmp(&s->key, key, sizeof(*key)) == 0)
            return s;
        if (s->n == 0 && !empty)
            empty = s;
    }
    assert(empty); /* as many sources as entries */
    empty->key = *key;
    return empty;
}

void crowd_enter(struct crowd *c, struct crowd_entry *entry, const struct crowd_key *from)
{
    entry->source = source_of(c, from);
    entry->source->n++;
    DL_APPEND(c->entries, entry);
    c->n++;
}

void crowd_leave(struct crowd *c, struct crowd_entry *entry)
{
    if (!entry->source)
        return;
    entry->source->n--;
    entry->source = NULL;
    DL_DELETE(c->entries, entry);
    c->n--;
}

struct crowd_entry *crowd_excess(const struct crowd *c)
{
    struct crowd_entry *entry, *worst = NULL;

    if (c->n <= CROWD_MAX)
        return NULL;
    DL_FOREACH (c->entries, entry)
        if (!worst || entry->source->n > worst->source->n)
            worst = entry;
    return worst;
}
