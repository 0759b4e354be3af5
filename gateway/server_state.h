/* The server's own state, for the files that share libuv and libwebsockets. */
#ifndef GATEWAY_SERVER_STATE_H
#define GATEWAY_SERVER_STATE_H

#include <limits.h>
#include <stdatomic.h>
#include <sys/un.h>
#include <uv.h>

#include "conn.h"
#include "peers.h"
#include "server.h"

struct lws_context;
struct lws_vhost;

#define SERVER_SIGNALS  4
#define SERVER_READ_MAX (64 * 1024)

struct listener {
    struct server *server;
    uv_poll_t *poll; /* frees itself when closed: another may take its place before */
    int fd;          /* -1: closed */
    bool paused;
    bool local, tls;
    struct lws_vhost *vhost;
    size_t conns, conns_max; /* each listener has its own: clients cannot keep doors out */
};

struct server {
    const struct config *cfg;
    struct log *log;
    struct server_handler handler;
    struct server_signals on;

    uv_loop_t loop;
    struct lws_context *lws; /* NULL without TLS */
    void *tls_ctx;           /* SSL_CTX of the TCP listener; its virtual host's */
    struct inbox *inbox;
    uv_async_t wake; /* something stands in the inbox */
    struct listener tcp, local;
    char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    uint64_t socket_dev, socket_ino; /* of the path when we bound it */
    atomic_bool socket_lost;         /* any thread: the path is not that any more */
    uv_signal_t signals[SERVER_SIGNALS];
    uv_timer_t sweep;
    uv_prepare_t turn;         /* before each wait for events */
    uint64_t turns;            /* begun */
    uint64_t turn_ns, idle_ns; /* then: the time, and what of it the loop has waited */
    uint64_t cpu_ns,
        cpu_at_ns; /* the thread's CPU clock when it was last read, and when that was */

    struct conn *conns;
    struct conn *ending;    /* are dead, and closed before the next wait */
    char *input;            /* SERVER_READ_MAX bytes: what a socket of ours has just read */
    struct peer *peers;     /* the addresses of those that came by TCP, if there is a cap */
    struct peer *processes; /* those on the control socket that are no doors, as far as we know */
    uint64_t refused_addresses; /* connections of addresses that had too many */
    uint64_t refused_processes; /* the same of processes */
    bool corking;               /* frames are gathered … */
    struct conn *corked;        /* … on these connections */
    uint64_t last_conn;
    size_t open_requests, websockets;
    bool draining; /* no new requests */
    int port;
    char url[300];
};

/* listener.c */
int listener_open_tcp(struct server *s, struct err *e) MUST_CHECK;
int listener_open_local(struct server *s, struct err *e) MUST_CHECK;
void listener_resume(struct listener *l); /* if it has paused, and there is room again */
void listener_close(struct listener *l);

/* Doors find the gateway by a path, and whoever cleans up may take it away: when it is gone it is
 * made again. What another has put there stays. Once a second. */
void listener_check_local(struct server *s);

/* Runs what stands in the inbox, for a bounded time (conn.c). */
void conn_serve_inbox(struct server *s);

#endif
