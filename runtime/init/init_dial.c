#include "init_dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mono.h"

#define CONNS_MAX DIAL_CONNS_MAX
#define PROBE_MS  10

struct dial {
    struct transport base;
    struct conn_context context;
    struct conn_address agent;
    int probe_fd;
    bool accepts; /* the agent does */
    int64_t probe_at_ms;
    uint8_t number[4]; /* of a DIAL, as far as it has come */
    size_t number_len;
    size_t used; /* no connection above is in use */
    struct conn conns[CONNS_MAX];
};

size_t dial_port(const char *text, struct conn_address *ret)
{
    size_t digits = strspn(text, "0123456789");
    unsigned long port = digits > 0 && digits <= 5 ? strtoul(text, NULL, 10) : 0;
    if (port == 0 || port > UINT16_MAX)
        return 0;
    *ret = (struct conn_address){.len = sizeof(struct sockaddr_in)};
    struct sockaddr_in *in = (struct sockaddr_in *)&ret->addr;
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)port);
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return digits;
}

struct transport *dial_new(const struct transport_vtable *v, const struct conn_address *agent,
                           const struct handshake *handshake, const void *handshake_ctx)
{
    struct dial *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        perror("leaseinit");
        return NULL;
    }
    d->base.v = v;
    d->agent = *agent;
    d->context = (struct conn_context){
        .handshake = handshake, .handshake_ctx = handshake_ctx, .agent = &d->agent};
    d->probe_fd = -1;
    for (size_t i = 0; i < CONNS_MAX; i++)
        d->conns[i] = (struct conn){.agent_fd = -1, .door_fd = -1};
    return &d->base;
}

/* Its words are for people: both outputs go to the log. */
int dial_start(struct transport *t, struct agent *a, char **command)
{
    (void)t;
    return agent_start(a, command, &(struct agent_stdio){.in = STDIN_FILENO, .out = STDERR_FILENO});
}

/* ---- does the agent accept connections? ---- */

static void probe(struct dial *d, int64_t now_ms)
{
    if (now_ms < d->probe_at_ms)
        return;
    if (d->probe_fd < 0)
        d->probe_fd = conn_socket(&d->agent);
    int r = -1;
    if (d->probe_fd >= 0)
        r = connect(d->probe_fd, (const struct sockaddr *)&d->agent.addr, d->agent.len);
    d->accepts = r == 0 || (d->probe_fd >= 0 && errno == EISCONN);
    d->probe_at_ms = now_ms + PROBE_MS;
    if (!d->accepts && (errno == EINPROGRESS || errno == EALREADY))
        return;
    if (d->probe_fd >= 0)
        close(d->probe_fd);
    d->probe_fd = -1;
}

bool dial_ready(struct transport *t)
{
    struct dial *d = (struct dial *)t;
    if (!d->accepts)
        probe(d, mono_ms());
    return d->accepts;
}

/* ---- the link ---- */

static bool say_failed(struct link *l, uint32_t number)
{
    uint8_t payload[4];
    for (size_t i = 0; i < 4; i++)
        payload[i] = (uint8_t)(number >> (24 - 8 * i));
    if (LINK_OUT_SIZE - (l->out_end - l->out_start) < LINK_HEADER + sizeof(payload))
        return false;
    return link_frame_add(l, payload, sizeof(payload)) == sizeof(payload) &&
           link_frame_end(l, LINK_DIAL_FAILED);
}

static struct conn *conn_unused(struct dial *d)
{
    for (size_t i = 0; i < CONNS_MAX; i++)
        if (d->conns[i].state == CONN_FREE) {
            d->used = d->used > i ? d->used : i + 1;
            return &d->conns[i];
        }
    return NULL;
}

static void dial(struct dial *d, struct link *l, int64_t now_ms)
{
    uint32_t number = 0;
    for (size_t i = 0; i < sizeof(d->number); i++)
        number = number << 8 | d->number[i];
    d->number_len = 0;
    struct conn *c = conn_unused(d);
    if (c == NULL) /* where the link is full as well, the door's own patience ends it */
        say_failed(l, number);
    else
        conn_start(c, number, now_ms);
}

static int take_dials(struct dial *d, struct link *l, int64_t now_ms)
{
    struct link_piece piece;
    int r;
    while ((r = link_peek(l, &piece)) > 0) {
        if (piece.type != LINK_DIAL || piece.len > sizeof(d->number) - d->number_len)
            return -1;
        memcpy(d->number + d->number_len, piece.data, piece.len);
        d->number_len += piece.len;
        bool ends = piece.ends_frame;
        link_consume(l, piece.len);
        if (ends && d->number_len != sizeof(d->number))
            return -1;
        if (ends)
            dial(d, l, now_ms);
    }
    return r;
}

/* ---- turns of the loop ---- */

size_t dial_fds(struct transport *t, const struct link *l, struct pollfd *ret)
{
    struct dial *d = (struct dial *)t;
    (void)l;
    while (d->used > 0 && d->conns[d->used - 1].state == CONN_FREE)
        d->used--;
    for (size_t i = 0; i < d->used; i++)
        ret[i] = conn_poll(&d->conns[i], &d->context);
    return d->used;
}

int64_t dial_due_ms(const struct transport *t)
{
    const struct dial *d = (const struct dial *)t;
    int64_t first = d->accepts ? 0 : d->probe_at_ms;
    for (size_t i = 0; i < d->used; i++) {
        int64_t due = d->conns[i].due_ms;
        if (due != 0 && (first == 0 || due < first))
            first = due;
    }
    return first;
}

int dial_step(struct transport *t, struct link *l, const struct pollfd *fds)
{
    struct dial *d = (struct dial *)t;
    int64_t now_ms = mono_ms();
    /* `fds` tells of those that were in use before the new ones. */
    for (size_t i = 0; i < d->used; i++) {
        struct conn *c = &d->conns[i];
        if (c->state == CONN_FREE)
            continue;
        conn_step(c, &d->context, fds + i, now_ms);
        if (c->state == CONN_FAILED && say_failed(l, c->number))
            conn_free(c, &d->context);
    }
    return take_dials(d, l, now_ms);
}

/* What the agent has said is on its connections, which are with the door. */
bool dial_drained(struct transport *t, struct link *l)
{
    (void)t;
    (void)l;
    return true;
}
