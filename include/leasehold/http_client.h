/*
 * A blocking HTTP/1.1 client on libcurl: bounded or streamed bodies both ways, deadlines, kept-alive
 * connections. One client belongs to one thread at a time; only http_client_wake may be called
 * beside it.
 */
#ifndef LEASEHOLD_HTTP_CLIENT_H
#define LEASEHOLD_HTTP_CLIENT_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "leasehold/buf.h"
#include "leasehold/err.h"

struct http_client;

#define HTTP_CLIENT_NO_DEADLINE (-1L)

/* A request's body that is made while it is sent. */
struct http_client_source {
    void *ctx;
    /* Up to `size` bytes, 0 at the end, -1: the exchange has to fail. */
    ssize_t (*read)(void *ctx, char *ret, size_t size);
    /* Back to the first byte, for a kept connection that turns out to be closed: 0, or -1. NULL: it
     * cannot, and such a request fails. */
    int (*rewind)(void *ctx);
    int64_t len; /* -1: not known, sent in chunks */
};

enum http_client_body {
    HTTP_CLIENT_COLLECT, /* into the response's buffer, as without a sink (an error's text) */
    HTTP_CLIENT_STREAM,  /* to data() */
    HTTP_CLIENT_STOP,    /* not wanted: the exchange ends here */
};

/* An answer that is taken while it comes. */
struct http_client_sink {
    void *ctx;
    /* When all headers are there, however long the body is in coming. */
    enum http_client_body (*head)(void *ctx, long status);
    bool (*data)(void *ctx, const char *data, size_t len); /* false: stop */
};

struct http_client_request {
    const char *method; /* "GET" … */
    const char *url;
    const char *const *headers; /* "Name: value", NULL-terminated; may be NULL */
    const char *body;           /* NULL: none */
    size_t body_len;
    const struct http_client_source *source; /* instead of body; NULL: none */
    const struct http_client_sink *sink;     /* NULL: the whole answer is collected */
    const char *unix_socket;                 /* NULL: TCP */
    const char *ca_file;                     /* NULL: the system's */
    const char *cert_file, *key_file;        /* of the client, PEM; NULL: none */
    long timeout_ms;         /* of the whole exchange; required: > 0, or HTTP_CLIENT_NO_DEADLINE */
    long connect_timeout_ms; /* 0: 10 s, at most timeout_ms */
    long stall_timeout_ms;   /* without a byte in either direction; 0: no limit (logs, events) */
    bool fresh_connection;   /* not a kept one, of which nobody knows whether it still lives */
    bool expect_continue;    /* the body waits for the server's word, a second at most */
    const atomic_bool
        *cancel; /* once true, the exchange fails: at http_client_wake, or in a second */
};

struct http_client_response {
    long status;
    struct buf body; /* buf_init'ed by the caller with the cap it wants; failed = too long */
    char request_id[65];
    bool stopped; /* by the sink: the answer is not complete */
};

struct http_client *http_client_new(void); /* NULL without memory */
void http_client_free(struct http_client *c);

/* 0 for any HTTP status, and when the sink stopped it. -1: ERR_ENGINE_UNAVAILABLE when nobody
 * answered (refused, not HTTP; e->sys is ETIMEDOUT when time ran out), ERR_TOO_LARGE when the answer
 * passed the cap, ERR_BUSY when it was cancelled, ERR_INTERNAL when the source failed. */
int http_client_run(struct http_client *c, const struct http_client_request *req,
                    struct http_client_response *ret, struct err *e) MUST_CHECK;

/* The value of a header of the last answer (of the first of that name), in a sink's calls of the
 * present one. NULL: there is none. Valid until the next run. */
const char *http_client_header(const struct http_client *c, const char *name);

/* Any thread: the exchange that runs, if any, looks at its `cancel` now. */
void http_client_wake(struct http_client *c);

#endif
