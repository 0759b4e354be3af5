/*
 * The socket of a connection. One without TLS is read, written and watched here, on libuv (docs/adr/0014-plain-sockets-of-the-gateway.md);
 * one with TLS is libwebsockets', in its raw role. Loop thread only.
 *
 * Input that is not to be read now is left in the kernel. Nothing is changed in the epoll set for that
 * before some comes: a request that is answered before the next one costs no system call but its own.
 */
#ifndef GATEWAY_SOCK_H
#define GATEWAY_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct conn;
struct server;
struct lws_protocols;
struct listener;

struct sock {
    struct lws *wsi;     /* with TLS */
    struct plain *plain; /* without */
};

/* Takes fd. -1: it is closed, and so is the connection to be. */
int sock_open(struct conn *c, int fd);

/* conn_bytes(), conn_writable() are called from the loop, conn_closed() at last. */

bool sock_is_open(const struct conn *c);
int sock_fd(const struct conn *c);
void *sock_ssl(const struct conn *c);      /* SSL; NULL: no TLS */
bool sock_has_input(const struct conn *c); /* in the kernel, unread */

/* How many bytes were taken; less than len: the socket is full. -1: it is broken. */
ssize_t sock_write(struct conn *c, void *data, size_t len);
bool sock_is_full(const struct conn *c); /* what is written now waits, or is not taken */

void sock_ask_writable(struct conn *c);    /* conn_writable() once there is room */
void sock_read(struct conn *c, bool want); /* or not, until it is asked for again */
void sock_shutdown(struct conn *c);        /* nothing more will be written */
void sock_handshaken(struct conn *c);      /* bytes have come: no more deadline of TLS */

/* Of a connection that is dead, outside its own callbacks: closes it from the loop. */
void sock_close_soon(struct conn *c);

void sock_close_dead(struct server *s); /* before each wait: those */
void sock_close_all(struct server *s);  /* at the end: those without TLS */

/* What libwebsockets calls for the sockets of the listener. */
const struct lws_protocols *sock_protocols(void);

#endif
