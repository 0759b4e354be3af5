/*
 * The gateway's server: sockets on an own libuv loop, in thin layers.
 *
 *   server.c        loop, signals, inbox wake-up; libwebsockets' context, if there is TLS
 *   server_listen.c the listening sockets; rests when descriptors run out
 *   server_timer.c  timers and descriptors on the loop
 *   sock.c          a connection's socket: libuv's and ours, or libwebsockets' with TLS
 *   conn.c          the connection table, outbound queues, deadlines: everything above names a
 *                   connection by its number, never by a struct lws *
 *   http_callback.c one HTTP request: head, body up to the cap, the answer
 *   http_stream.c   bodies that come and go in pieces
 *   ws_callback.c   one WebSocket: upgrade, bounded message assembler, bounded outbound queue
 *
 * What the bytes mean is read by base's http_headers.c and ws_reader.c, because libwebsockets' own
 * parser cannot keep the API's promises (docs/adr/0005-own-http-parser.md).
 *
 * Nothing of libwebsockets or libuv is visible here. All functions are for the loop thread, unless
 * said otherwise. A number is never used again, so a reply to a connection that has gone is a
 * harmless no-op.
 */
#ifndef GATEWAY_SERVER_H
#define GATEWAY_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "leasehold/buf.h"
#include "leasehold/config.h"
#include "leasehold/err.h"
#include "leasehold/http_headers.h"
#include "leasehold/lanes.h"
#include "leasehold/log.h"

/* A complete request, made by the server only. The handler takes it and frees it with
 * http_request_free. Strings are NUL-terminated, checked to hold no NUL themselves; an absent header
 * is "". Path and query hold visible ASCII and whole escapes, none of a NUL. */
struct http_request {
    uint64_t conn;
    enum http_method method;
    char *path;  /* raw, as sent: percent escapes not decoded; without the query */
    char *query; /* raw, without '?'; "" if none */
    char *authorization;
    char *token_header; /* of the configured name (security.token_header) */
    char *content_type;
    char *idempotency_key;
    char *request_id;  /* X-Request-Id as sent, not checked */
    char *traceparent; /* as sent, not checked */
    char *accept;
    char *range, *if_range, *if_match, *if_none_match, *if_modified_since, *if_unmodified_since;
    char *certificate; /* names in the client's verified certificate, a line each */
    char peer[64];     /* "127.0.0.1", "unix" */
    bool local;        /* came over the node's unix socket */
    char *body;        /* body_len bytes, and a NUL behind */
    size_t body_len;
    bool streams;          /* no body here: its pieces come by server_body_want */
    bool has_length;       /* there was a Content-Length */
    uint64_t declared_len; /* it, or 0 */
    int64_t at_us;         /* boot clock when it was complete */
};

void http_request_free(struct http_request *r);

/* An answer. Everything is copied or taken as said. */
struct http_reply {
    int status;
    const char *content_type; /* NULL: no body */
    const char *request_id;
    const char *extra; /* further header lines, "Name: value\r\n"…, each checked; may be NULL */
    struct buf body;   /* taken: freed by the server */
    bool close;        /* close the connection behind this answer */
    bool streams;      /* the body comes by server_send; the head waits for its first piece */
    int64_t len;       /* then: of the whole body; -1: not known */
};

#define SERVER_TURN_LONG_US 1000

/* A request that is refused before it is complete reaches the handler as an error, so that there is
 * one place that makes problem bodies. `request` may lack everything but conn and peer. */
struct server_handler {
    void *ctx;
    void (*http)(void *ctx, struct http_request *request);                              /* takes */
    void (*http_refused)(void *ctx, struct http_request *request, const struct err *e); /* takes */

    /* Bodies in pieces; all NULL: there are none. `streams` is asked when the head is there whether
     * the body is to come by pieces. `body` is a piece that was wanted; it is taken. `sent`: a piece
     * given to server_send has been written, in their order; also from within server_send. `gone`:
     * the peer of a streamed request or answer, once, before its end. */
    bool (*streams)(void *ctx, const struct http_request *request);
    void (*body)(void *ctx, uint64_t conn, struct buf *piece, bool last);
    void (*sent)(void *ctx, uint64_t conn);
    void (*gone)(void *ctx, uint64_t conn);

    /* WebSockets by subprotocol. open: may refuse before the upgrade, which http_refused then gets.
     * Each one that was opened is closed exactly once, at the latest by server_free. */
    int (*ws_open)(void *ctx, uint64_t conn, const char *protocol, const struct http_request *r,
                   struct err *e);
    void (*ws_message)(void *ctx, uint64_t conn, const char *data, size_t len); /* borrowed */
    void (*ws_closed)(void *ctx, uint64_t conn);

    /* A turn of the loop has ended: so long was it busy between two waits, and so much CPU time it had
     * in a turn of more than SERVER_TURN_LONG_US, to a quarter of a millisecond (-1 in others). May be
     * NULL. */
    void (*turn)(void *ctx, int64_t busy_us, int64_t cpu_us);

    /* WebSockets of bots are pinged so often, to the second; one that answers none of two pings is
     * closed with 4408 when the third is due. 0: never (doors ping by themselves). */
    unsigned ws_ping_ms;

    /* What may wait for a bot that does not read. 0: 4 MiB. */
    size_t ws_queue_max;
};

struct server;

/* Listens on http.host:http.port (port 0: any) and on `<run_dir>/control.sock` (0660, owned by the
 * gateway's uid and door.gid; removed first). TLS when http.tls.cert_file is set. */
int server_new(const struct config *cfg, struct log *log, const struct server_handler *handler,
               struct server **ret, struct err *e) MUST_CHECK;

/* After every timer and watch was freed, with an empty inbox. Requests not answered are forgotten. */
void server_free(struct server *s);

int server_port(const struct server *s);
const char *server_url(const struct server *s); /* "http://127.0.0.1:8123" */
struct inbox *server_inbox(struct server *s);   /* drained by the loop; posting: any thread */

/* Certificate, key and client_ca_file of http.tls are read anew; connections go on. */
int server_reload_tls(struct server *s, struct err *e) MUST_CHECK;

/* Runs until server_stop. SIGTERM and SIGINT call on_term, SIGHUP calls on_hup, on the loop. */
struct server_signals {
    void *ctx;
    /* They are watched from now on: the time to say so. -1: it does not run. NULL: not asked. */
    int (*on_watched)(void *ctx, struct err *e);
    void (*on_term)(void *ctx);
    void (*on_hup)(void *ctx);
    void (*on_child)(void *ctx); /* SIGCHLD */
};
int server_run(struct server *s, const struct server_signals *signals, struct err *e) MUST_CHECK;
/* No new clients. The unix socket stays open: the start of a sandbox that still runs waits for its
 * door to connect. */
void server_stop_accepting(struct server *s);
void server_stop(struct server *s);

struct server_counts {
    size_t connections, websockets; /* the latter among the former */
    uint64_t refused_addresses;     /* so far, because their address had too many */
    uint64_t refused_processes;     /* the same of processes, on the control socket */
};
void server_counts(const struct server *s, struct server_counts *ret);
size_t server_connections_max(const struct server *s); /* of clients */
size_t server_open_requests(const struct server *s);   /* requests not answered yet */
/* Connections that are answered, and would lose the answer if the server ended now: a few seconds. */
size_t server_lingering(const struct server *s);

/* Whether doors find the unix socket by its path. When it is gone it is made again within seconds.
 * Any thread. */
bool server_control_socket_ok(const struct server *s);

/* Answers the one pending request of conn; no-op when it is gone. Takes reply->body. */
void server_reply(struct server *s, uint64_t conn, struct http_reply *reply);

/* --- bodies in pieces ------------------------------------------------------------------------
 * Neither side holds more of a body than two pieces: what is not wanted is not read, and who sends
 * waits for `sent`. A peer that gives or takes less than a piece in CONN_PIECE_MS is cut. */

#define SERVER_PIECE (256u * 1024)

/* Has the next piece of the request's body come to handler.body, at once if it is there: whole
 * pieces, but for the last one, which may be empty. The first call tells a client to go on that asked
 * (Expect: 100-continue). `spare`: an earlier piece, to be filled again; taken, may be NULL. -1: the
 * connection is gone. */
int server_body_want(struct server *s, uint64_t conn, struct buf *spare);

/* The next piece of an answer that streams. Takes *piece, also when the connection is gone. */
void server_send(struct server *s, uint64_t conn, struct buf *piece, bool last);

/* The same of `len` bytes that wait in a pipe, which is borrowed until they are `sent`; only of an
 * answer of known length, where server_takes_pipes. They go to the socket without being copied. */
void server_send_pipe(struct server *s, uint64_t conn, int pipe_fd, size_t len, bool last);
bool server_takes_pipes(struct server *s, uint64_t conn);

bool server_alive(struct server *s, uint64_t conn);
void server_cut(struct server *s, uint64_t conn); /* closes at once: what was sent is not all */

/* Sends a text message. -1: the connection is gone, or messages wait already and this one would
 * pass the cap of the queue (then it is closed with 1013). */
int server_ws_send(struct server *s, uint64_t conn, const char *data, size_t len);
void server_ws_close(struct server *s, uint64_t conn, int code, const char *reason);

/* What came by the control socket is a door: it is no more one of the few connections of its process. */
void server_ws_proved(struct server *s, uint64_t conn);
size_t server_ws_waiting(struct server *s, uint64_t conn); /* bytes queued; SIZE_MAX: it has gone */

/* --- timers and descriptors on the loop ------------------------------------------------------ */

struct server_timer;
struct server_timer *server_timer_new(struct server *s, void (*fire)(void *ctx), void *ctx);
/* One shot; replaces. It fires once in a turn of the loop: armed anew with no delay it lets all else have
 * its turn before. */
void server_timer_arm(struct server_timer *t, int64_t delay_ms);
void server_timer_stop(struct server_timer *t);
void server_timer_free(struct server_timer *t);

/* Calls fn once when fd becomes readable (a pidfd: the process has ended); fd is borrowed. */
struct server_watch;
struct server_watch *server_watch_new(struct server *s, int fd, void (*fn)(void *ctx), void *ctx);
void server_watch_free(struct server_watch *w);

#endif
