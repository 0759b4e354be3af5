/*
 * A multipart/form-data body (RFC 7578) with one file, read as it comes: piece by piece, cut anywhere.
 * Hostile bytes: what it holds on to is bounded, the file's content is passed on and never kept.
 * Exactly one part, with a file name. Pure, any thread.
 */
#ifndef GATEWAY_MULTIPART_H
#define GATEWAY_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

#include "leasehold/err.h"

#define MULTIPART_HEAD_MAX     8192 /* header lines of the part */
#define MULTIPART_BOUNDARY_MAX 70   /* RFC 2046 */

struct multipart {
    char delimiter[MULTIPART_BOUNDARY_MAX + 5]; /* CR LF -- boundary */
    size_t delimiter_len;
    enum {
        MULTIPART_PREAMBLE,
        MULTIPART_LINE_END,
        MULTIPART_HEAD,
        MULTIPART_BODY,
        MULTIPART_OVER
    } at;
    char held[MULTIPART_HEAD_MAX]; /* what may yet be a delimiter; the head */
    size_t held_len;
    char file_name[1024];
    char content_type[128]; /* "": none was given */
    void *ctx;
    int (*file)(void *ctx, const struct multipart *m, struct err *e); /* its head is complete */
    int (*data)(void *ctx, const char *data, size_t len, struct err *e);
};

/* ERR_UNSUPPORTED_MEDIA_TYPE: another type; ERR_INVALID_REQUEST: without a boundary. */
int multipart_begin(struct multipart *m, const char *content_type, struct err *e) MUST_CHECK;
int multipart_feed(struct multipart *m, const char *data, size_t len, struct err *e) MUST_CHECK;
int multipart_end(const struct multipart *m, struct err *e) MUST_CHECK; /* was it all? */

#endif
