/*
 * Whom an address stands for when something is counted by address: an IPv4 address itself, of IPv6
 * the /64, which one customer or one machine has whole. Everything that is no address (the unix
 * socket) is one group.
 */
#ifndef GATEWAY_PEER_GROUP_H
#define GATEWAY_PEER_GROUP_H

#include <stdint.h>
#include <sys/socket.h>

struct peer_group {
    uint8_t b[16];
};

void peer_group_of(const struct sockaddr_storage *address, struct peer_group *ret);
/* A process as the kernel names it on a unix socket: it stays one however often it connects. */
void peer_group_of_process(const struct ucred *process, struct peer_group *ret);
void peer_group_of_text(const char *address, struct peer_group *ret); /* as in http_request.peer */

#endif
