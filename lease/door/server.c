#include "server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "client.h"
#include "leasehold/tcp_reserve.h"

#define AUTH_US         2000000
#define ACCEPT_PER_TURN 16
#define DEAD_PEER_S     20           /* until a peer that acknowledges nothing is given up */
#define PACE_HIGH       (256 * 1024) /* all readers are so far behind: the agent has to wait */
#define PACE_LOW        (64 * 1024)  /* the first one is nearly up to date: it goes on */
#define PACE_US         1000000      /* the longest that readers may hold the agent up */

struct server {
    struct loop *loop;
    struct log *log;
    struct id session_id;
    struct list origins;
    struct door_core *core;
    struct agent *agent;
    struct spool *spool;
    struct ssl_ctx_st *tls; /* NULL: plain */
    char *scratch;          /* what is read, for as long as it is looked at */

    struct loop_fd *listener;
    struct loop_timer *accept_timer; /* set: accepting is paused */
    struct client *clients;
    size_t count;
    struct client *dirty; /* have something to write, or to look at */
    struct crowd crowd;   /* those that are not admitted */

    struct loop_timer *pace_timer; /* set: the agent is paused */
    bool pace_overrun;             /* it was paused long enough and nobody read anything since */
};

/* --- the listener ---------------------------------------------------------------------------- */

static bool room_for_client(const struct server *s)
{
    return s->count < DOOR_CLIENTS_MAX;
}

static void accepting_update(struct server *s)
{
    if (s->listener)
        loop_fd_read(s->listener, room_for_client(s) && !loop_timer_is_set(s->accept_timer));
}

static void accept_resume(void *ctx)
{
    accepting_update(ctx);
}

/* On the listener: the kernel hands them on to each connection. Best effort: a socket that is no TCP
 * has none of them. */
static void socket_tune(int fd)
{
    int on = 1, idle_s = DEAD_PEER_S, every_s = 5, ms = DEAD_PEER_S * 1000;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    tcp_reserve_keep(fd);
}

static void admission_counted(struct server *s, struct client *cl)
{
    cl->counted = false;
    crowd_leave(&s->crowd, &cl->crowd);
}

/* Makes room for the one that has just come; it may be this one that goes. */
static void crowd_thin(struct server *s)
{
    struct crowd_entry *worst = crowd_excess(&s->crowd);
    struct client *cl;

    if (!worst)
        return;
    cl = (struct client *)((char *)worst - offsetof(struct client, crowd));
    admission_counted(s, cl);
    door_core_refuse(s->core, &cl->peer, CLOSE_NOT_LIVE, "crowded_out", loop_now_us());
}

static int client_accept(struct server *s)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(address);
    int fd = accept4(loop_fd_get(s->listener), (struct sockaddr *)&address, &len,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct crowd_key from;
    struct client *cl;

    if (fd < 0)
        return -1;
    cl = client_new(s, fd);
    if (!cl)
        return -1;
    cl->counted = true;
    cl->auth_until_us = loop_now_us() + AUTH_US;
    DL_APPEND(s->clients, cl);
    s->count++;
    crowd_key_of((struct sockaddr *)&address, &from);
    crowd_enter(&s->crowd, &cl->crowd, &from);
    crowd_thin(s);
    return 0;
}

static void listener_readable(void *ctx)
{
    struct server *s = ctx;

    for (int i = 0; i < ACCEPT_PER_TURN && room_for_client(s); i++) {
        if (client_accept(s) == 0)
            continue;
        if (!loop_accept_passes(errno)) {
            log_event(s->log, LOG_WARNING, "accept_failed", LF_INT("errno", errno));
            loop_timer_set(s->accept_timer, LOOP_ACCEPT_PAUSE_US);
        }
        break;
    }
    accepting_update(s);
}

static void listener_writable(void *ctx)
{
    (void)ctx;
}

static void listener_ended(void *ctx)
{
    struct server *s = ctx;

    s->listener = NULL;
}

/* --- life ------------------------------------------------------------------------------------ */

static void pace_resume(void *ctx);

static void server_free(struct server *s)
{
    if (!s)
        return;
    loop_timer_free(s->accept_timer);
    loop_timer_free(s->pace_timer);
    free(s->scratch);
    free(s);
}

struct server *server_new(const struct server_config *config, struct err *e)
{
    static const struct loop_fd_ops ops = {listener_readable, listener_writable, listener_ended};
    struct server *s = calloc(1, sizeof(*s));

    if (!s) {
        err_set(e, ERR_INTERNAL, "no memory for the server");
        return NULL;
    }
    s->loop = config->loop;
    s->log = config->log;
    s->session_id = config->session_id;
    s->spool = config->spool;
    s->origins = config->origins;
    s->scratch = malloc(CLIENT_RX_MAX);
    s->accept_timer = loop_timer_new(s->loop, accept_resume, s);
    s->pace_timer = loop_timer_new(s->loop, pace_resume, s);
    if (config->cert_pem)
        s->tls = wire_tls_new(config->cert_pem, config->key_pem, e);
    if (config->cert_pem && !s->tls) {
        server_free(s);
        return NULL;
    }
    socket_tune(config->listen_fd);
    if (s->accept_timer && s->pace_timer && s->scratch)
        s->listener = loop_fd_add(s->loop, config->listen_fd, &ops, s);
    if (s->listener)
        return s;
    err_set(e, ERR_INTERNAL, "cannot watch the listener");
    server_free(s);
    return NULL;
}

void server_bind(struct server *s, struct door_core *core, struct agent *agent)
{
    s->core = core;
    s->agent = agent;
}

static struct client *client_of(struct door_peer *peer)
{
    return (struct client *)((char *)peer - offsetof(struct client, peer));
}

void server_admitted(void *ctx, struct door_peer *peer)
{
    admission_counted(ctx, client_of(peer));
    client_admitted(client_of(peer));
}

void server_challenge(void *ctx, struct door_peer *peer)
{
    (void)ctx;
    client_challenge(client_of(peer));
}

void server_close(void *ctx, struct door_peer *peer, int code)
{
    (void)ctx;
    client_close(client_of(peer), code);
}

void server_gone(struct server *s, struct client *cl)
{
    door_core_gone(s->core, &cl->peer, cl->peer_code ? cl->peer_code : CLIENT_VANISHED);
    admission_counted(s, cl);
    if (cl->dirty)
        DL_DELETE2(s->dirty, cl, dirty_prev, dirty_next);
    DL_DELETE(s->clients, cl);
    s->count--;
    client_free(cl);
    accepting_update(s);
}

void server_dirty(struct server *s, struct client *cl)
{
    if (cl->dirty)
        return;
    cl->dirty = true;
    DL_APPEND2(s->dirty, cl, dirty_prev, dirty_next);
}

static void dirty_flush(struct server *s)
{
    while (s->dirty) {
        struct client *cl = s->dirty;

        DL_DELETE2(s->dirty, cl, dirty_prev, dirty_next);
        cl->dirty = false;
        client_stash_feed(cl);
        client_flush(cl);
    }
}

int64_t server_step(struct server *s, int64_t now_us)
{
    struct client *cl, *next;
    int64_t at, first = INT64_MAX;

    dirty_flush(s);
    DL_FOREACH_SAFE (s->clients, cl, next) {
        if (cl->step == CLOSE_STEP_NONE && client_deadline_us(cl) <= now_us)
            door_core_refuse(s->core, &cl->peer, CLOSE_UNAUTHENTICATED, "no_token", now_us);
        at = client_deadline_us(cl);
        if (at <= now_us || cl->step == CLOSE_STEP_FLUSH)
            client_step(cl, now_us);
        at = client_deadline_us(cl);
        first = at < first ? at : first;
    }
    dirty_flush(s);
    return first;
}

size_t server_count(const struct server *s)
{
    return s->count;
}

/* --- lines of the agent ---------------------------------------------------------------------- */

/* How far the most eager reader is behind; 0 without readers. */
static size_t least_behind(const struct server *s)
{
    const struct client *cl;
    size_t least = SIZE_MAX;

    DL_FOREACH (s->clients, cl)
        if (cl->peer.state == PEER_ADMITTED && cl->peer.code == 0 && (cl->peer.scope & SCOPE_READ))
            least = cl->out_bytes < least ? cl->out_bytes : least;
    return least == SIZE_MAX ? 0 : least;
}

/* The agent goes at the pace of its fastest reader; slower ones fall behind and are closed. But
 * readers that take nothing at all hold it up for PACE_US only. */
static void pace_update(struct server *s)
{
    size_t behind = least_behind(s);

    if (!loop_timer_is_set(s->pace_timer) && !s->pace_overrun && behind >= PACE_HIGH) {
        loop_timer_set(s->pace_timer, PACE_US);
        agent_read(s->agent, false);
    }
    if (loop_timer_is_set(s->pace_timer) && behind <= PACE_LOW) {
        loop_timer_stop(s->pace_timer);
        agent_read(s->agent, true);
    }
}

static void pace_resume(void *ctx)
{
    struct server *s = ctx;

    s->pace_overrun = true;
    agent_read(s->agent, true);
}

void server_drained(struct server *s, struct client *cl)
{
    if (cl->out_bytes <= PACE_LOW) {
        s->pace_overrun = false;
        pace_update(s);
    }
}

void server_line(struct server *s, const char *text, size_t len)
{
    struct msg *m = msg_new_text(text, len);
    int64_t now_us = loop_now_us();
    struct client *cl;

    if (!m) {
        log_event(s->log, LOG_ERROR, "line_lost", LF_STR("why", "no_memory"));
        return;
    }
    DL_FOREACH (s->clients, cl)
        if (door_core_pass_out(s->core, &cl->peer, msg_len(m), now_us))
            client_send(cl, m);
    msg_unref(m);
    pace_update(s);
}

void server_flow(struct server *s)
{
    struct client *cl;

    DL_FOREACH (s->clients, cl)
        client_flow(cl);
}

/* --- for client.c ---------------------------------------------------------------------------- */

struct door_core *server_core(const struct server *s)
{
    return s->core;
}

struct agent *server_agent(const struct server *s)
{
    return s->agent;
}

struct spool *server_spool(const struct server *s)
{
    return s->spool;
}

struct loop *server_loop(const struct server *s)
{
    return s->loop;
}

struct ssl_ctx_st *server_tls(const struct server *s)
{
    return s->tls;
}

char *server_scratch(const struct server *s)
{
    return s->scratch;
}

const struct id *server_session(const struct server *s)
{
    return &s->session_id;
}

bool server_origin_allowed(const struct server *s, const char *origin)
{
    char *const *allowed = s->origins.items;

    for (size_t i = 0; i < s->origins.n; i++)
        if (strcmp(allowed[i], origin) == 0)
            return true;
    return false;
}
