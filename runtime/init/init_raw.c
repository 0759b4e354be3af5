/* Transports `tcp:PORT` and `unix:PATH`: nothing is said before the connection is handed over. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "init_dial.h"

static struct transport *tcp_new(const char *word)
{
    struct conn_address a;
    if (dial_port(word + strlen("tcp:"), &a) != strlen(word) - strlen("tcp:")) {
        fprintf(stderr, "leaseinit: not a port: %s\n", word);
        return NULL;
    }
    return dial_new(&transport_tcp, &a, NULL, NULL);
}

static struct transport *unix_new(const char *word)
{
    struct conn_address a = {.len = sizeof(struct sockaddr_un)};
    struct sockaddr_un *un = (struct sockaddr_un *)&a.addr;
    const char *path = word + strlen("unix:");
    if (path[0] != '/' || strlen(path) >= sizeof(un->sun_path)) {
        fprintf(stderr, "leaseinit: not the path of a socket: %s\n", word);
        return NULL;
    }
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, strlen(path));
    return dial_new(&transport_unix, &a, NULL, NULL);
}

const struct transport_vtable transport_tcp = DIAL_TRANSPORT("tcp", tcp_new);
const struct transport_vtable transport_unix = DIAL_TRANSPORT("unix", unix_new);
