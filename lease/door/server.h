/* The clients of a door and the listener they come from. Loop thread only. */
#ifndef LEASEHOLD_DOOR_SERVER_H
#define LEASEHOLD_DOOR_SERVER_H

#include <stdbool.h>

#include "agent.h"
#include "core.h"
#include "leasehold/log.h"
#include "loop.h"
#include "spool.h"

struct client;
struct server;
struct ssl_ctx_st;

extern const struct bridge_ops client_bridge_ops; /* whose clients are those of a server */

struct server_config {
    struct loop *loop;
    struct log *log;
    int listen_fd; /* taken */
    struct id session_id;
    struct list origins;            /* char *; borrowed */
    const char *cert_pem, *key_pem; /* of TLS, for server_new alone; NULL: plain */
    struct spool *spool;            /* borrowed; NULL: nothing is recorded */
};

struct server *server_new(const struct server_config *config, struct err *e);

/* Both before loop_run; the core's peers are clients of this server. */
void server_bind(struct server *s, struct door_core *core, struct agent *agent);

/* What the core asks for (struct door_core_io). */
void server_admitted(void *ctx, struct door_peer *peer);
void server_challenge(void *ctx, struct door_peer *peer);
void server_close(void *ctx, struct door_peer *peer, int code);

/* A line of the agent's to all that may read it; the agent's queue got full or has room again. */
void server_line(struct server *s, const char *text, size_t len);
void server_flow(struct server *s);

/* After every round of the loop: closes what is to be closed. Returns when to come again. */
int64_t server_step(struct server *s, int64_t now_us);

size_t server_count(const struct server *s);

/* --- for client.c ---------------------------------------------------------------------------- */

struct door_core *server_core(const struct server *s);
struct agent *server_agent(const struct server *s);
struct spool *server_spool(const struct server *s);
struct loop *server_loop(const struct server *s);
struct ssl_ctx_st *server_tls(const struct server *s);
char *server_scratch(const struct server *s); /* CLIENT_RX_MAX bytes to read into */
const struct id *server_session(const struct server *s);
bool server_origin_allowed(const struct server *s, const char *origin);
void server_dirty(struct server *s,
                  struct client *cl); /* client_flush it at the end of this round */
void server_gone(struct server *s, struct client *cl);    /* frees it */
void server_drained(struct server *s, struct client *cl); /* its queue got shorter */

#endif
