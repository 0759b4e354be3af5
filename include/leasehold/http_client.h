/*
 * A blocking HTTP/1.1 client on libcurl: bounded answers, deadlines, kept-alive connections.
 * One client belongs to one thread at a time.
 */
#ifndef LEASEHOLD_HTTP_CLIENT_H
#define LEASEHOLD_HTTP_CLIENT_H

#include "leasehold/buf.h"
#include "leasehold/err.h"

struct http_client;

struct http_client_request {
    const char *method; /* "GET" … */
    const char *url;
    const char *const *headers; /* "Name: value", NULL-terminated; may be NULL */
    const char *body;           /* NULL: none */
    size_t body_len;
    const char *unix_socket; /* NULL: TCP */
    const char *ca_file;     /* NULL: the system's */
    long timeout_ms;         /* of the whole exchange; required, > 0 */
};

struct http_client_response {
    long status;
    struct buf body; /* buf_init'ed by the caller with the cap it wants; failed = too long */
    char request_id[65];
};

struct http_client *http_client_new(void); /* NULL without memory */
void http_client_free(struct http_client *c);

/* 0 for any HTTP status. -1: ERR_ENGINE_UNAVAILABLE when nobody answered (refused, timed out, not
 * HTTP), ERR_TOO_LARGE when the answer passed the cap. */
int http_client_run(struct http_client *c, const struct http_client_request *req,
                    struct http_client_response *ret, struct err *e) MUST_CHECK;

#endif
