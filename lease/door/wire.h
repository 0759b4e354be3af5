/*
 * The bytes of one client's connection: its socket on the loop, plain or within TLS. What was taken
 * to be written goes out whole and in order: what the socket does not take at once is kept. Plain
 * bytes go from where they lie to the kernel without being copied.
 * Loop thread only.
 */
#ifndef LEASEHOLD_DOOR_WIRE_H
#define LEASEHOLD_DOOR_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "leasehold/buf.h"
#include "leasehold/err.h"
#include "loop.h"

#define WIRE_FRAMES_MAX 32 /* of one wire_send */

struct ssl_st;
struct ssl_ctx_st;

struct wire_ops {
    void (*readable)(void *ctx); /* wire_read has something to say */
    void (*writable)(void *ctx); /* as wire_want asked; nothing is kept any more */
    void (*ended)(void *ctx);    /* it is closed; no call follows */
};

struct wire {
    struct loop_fd *watch;
    struct ssl_st *ssl; /* NULL: plain */
    const struct wire_ops *ops;
    void *ctx;
    struct buf kept; /* taken, and not yet the kernel's */
    size_t kept_at;
    bool blocked; /* the socket took less than it was given */
    bool reading, wants_write, broken;
};

/* Certificate (with its chain) and key in PEM. For the process' life. NULL: they cannot be used. */
struct ssl_ctx_st *wire_tls_new(const char *cert_pem, const char *key_pem, struct err *e);

/* Takes fd, also when it fails. `tls` NULL: plain. */
int wire_open(struct wire *w, struct loop *l, int fd, struct ssl_ctx_st *tls,
              const struct wire_ops *ops, void *ctx) MUST_CHECK;

/* Bytes read; 0: the end; -1: nothing there now. A read that fills `size` is followed by another
 * `readable`. */
ssize_t wire_read(struct wire *w, void *to, size_t size);
void wire_reading(struct wire *w, bool on);

/* Keeps a few bytes, which go out with what follows or by wire_flush. */
void wire_put(struct wire *w, const void *data, size_t len);

/* Writes what is kept, then the frames. Returns how many of those were taken, the rest of one that
 * went out in part being kept: at least one when nothing was kept before, none while it is blocked.
 * -1: the connection is broken, which `ended` will say. */
int wire_send(struct wire *w, const struct iovec *frames, int n);
int wire_flush(struct wire *w);
size_t wire_kept(const struct wire *w);

/* The last frames come: what the socket has not taken yet it takes now, if it is not many bytes. */
void wire_last(struct wire *w);

void wire_want(struct wire *w); /* `writable` is called once, when it is */

void wire_finish(
    struct wire *w); /* the peer is told that nothing more comes; nothing may be kept */

/* Soon, with what is kept lost; `ended` follows. `reset`: what the kernel still holds for the peer
 * is lost, too. */
void wire_close(struct wire *w, bool reset);

#endif
