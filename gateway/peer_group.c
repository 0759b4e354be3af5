#include "peer_group.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#define PREFIX_BYTES 8 /* a /64 */

static void of_four(const struct in_addr *address, struct peer_group *ret)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    memcpy(ret->b, mapped, sizeof mapped);
    memcpy(ret->b + sizeof mapped, address, sizeof *address);
}

/* A listener of both kinds shows IPv4 as IPv6. */
static void of_six(const struct in6_addr *address, struct peer_group *ret)
{
    *ret = (struct peer_group){0};
    memcpy(ret->b, address, IN6_IS_ADDR_V4MAPPED(address) ? sizeof ret->b : PREFIX_BYTES);
}

void peer_group_of(const struct sockaddr_storage *address, struct peer_group *ret)
{
    if (address->ss_family == AF_INET)
        of_four(&((const struct sockaddr_in *)address)->sin_addr, ret);
    else if (address->ss_family == AF_INET6)
        of_six(&((const struct sockaddr_in6 *)address)->sin6_addr, ret);
    else
        *ret = (struct peer_group){0};
}

void peer_group_of_process(const struct ucred *process, struct peer_group *ret)
{
    *ret = (struct peer_group){0};
    memcpy(ret->b, &process->pid, sizeof process->pid);
    memcpy(ret->b + sizeof process->pid, &process->uid, sizeof process->uid);
}

void peer_group_of_text(const char *address, struct peer_group *ret)
{
    struct in6_addr six;
    struct in_addr four;

    if (inet_pton(AF_INET, address, &four) == 1)
        of_four(&four, ret);
    else if (inet_pton(AF_INET6, address, &six) == 1)
        of_six(&six, ret);
    else
        *ret = (struct peer_group){0};
}
