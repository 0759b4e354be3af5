/* Transports `tcp:PORT` and `unix:PATH`: bytes both ways as they are. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "init_dial.h"

static void raw_up(struct conn *c)
{
    enum flow_result r = flow_recv(c->up, c->agent_fd);
    c->dry = r == FLOW_AGAIN;
    c->agent_ended = r == FLOW_ENDED;
}

static void raw_down(struct conn *c)
{
    c->door_ended = flow_recv(c->down, c->door_fd) == FLOW_ENDED;
}

static bool raw_bye(struct conn *c)
{
    (void)c;
    return true;
}

static const struct codec raw_codec = {
    .up = raw_up,
    .down = raw_down,
    .bye = raw_bye,
};

static struct transport *tcp_new(const char *word)
{
    struct conn_address a;
    if (dial_port(word + strlen("tcp:"), &a) != strlen(word) - strlen("tcp:")) {
        fprintf(stderr, "leaseinit: not a port: %s\n", word);
        return NULL;
    }
    return dial_new(&transport_tcp, &a, &raw_codec, NULL);
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
    return dial_new(&transport_unix, &a, &raw_codec, NULL);
}

const struct transport_vtable transport_tcp = DIAL_TRANSPORT("tcp", tcp_new);
const struct transport_vtable transport_unix = DIAL_TRANSPORT("unix", unix_new);
