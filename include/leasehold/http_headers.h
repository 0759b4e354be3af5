/*
 * The head of an HTTP/1.1 request: request line and header fields, read strictly (RFC 9112).
 *
 * Ours and not libwebsockets': its parser decodes the path before anyone sees it ("%2f" has become
 * "/", ".." is resolved), answers an unknown method itself, and drops what it does not like without
 * a word (docs/adr/0005-own-http-parser.md). Pure functions: no I/O, any thread.
 */
#ifndef LEASEHOLD_HTTP_HEADERS_H
#define LEASEHOLD_HTTP_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leasehold/err.h"

#define HTTP_HEAD_MAX (16u * 1024) /* request line and header fields, with the empty line */

enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_PUT,
    HTTP_PATCH,
    HTTP_DELETE,
    HTTP_OPTIONS,
    HTTP_OTHER
};

enum http_field {
    HDR_AUTHORIZATION,
    HDR_TOKEN, /* of the name the caller asks for */
    HDR_CONTENT_TYPE,
    HDR_IDEMPOTENCY_KEY,
    HDR_REQUEST_ID,
    HDR_TRACEPARENT,
    HDR_ACCEPT,
    HDR_HOST,
    HDR_CONTENT_LENGTH,
    HDR_EXPECT,
    HDR_UPGRADE,
    HDR_ORIGIN,
    HDR_WS_KEY,
    HDR_WS_VERSION,
    HDR_WS_PROTOCOL,
    HDR_RANGE,
    HDR_IF_RANGE,
    HDR_IF_MATCH,
    HDR_IF_NONE_MATCH,
    HDR_IF_MODIFIED_SINCE,
    HDR_IF_UNMODIFIED_SINCE,
    HDR_COUNT
};

struct http_head {
    enum http_method method;
    int minor;              /* HTTP/1.minor: 0 or 1 */
    char *path;             /* raw; "" until the request line was read */
    char *query;            /* raw, without '?' */
    char *field[HDR_COUNT]; /* values without white space around; absent: "" */
    bool transfer_encoding;
    bool connection_close, connection_upgrade;
    bool has_length;
    uint64_t body_len; /* UINT64_MAX: more than a number holds */
};

/*
 * Looks for the end of a head in the first `len` bytes of text, of which `seen` were looked at
 * before. Returns the length of the head with its empty line, 0 if the end has not come, -1 when
 * a byte is there that no head may hold.
 */
long http_head_end(const char *text, size_t len, size_t seen);

/*
 * Reads a whole head of which http_head_end has found the end. Cuts `text` into strings, to which
 * *head then points. On failure *head holds what was read before, so that a refusal can be told to
 * the right request. `token_header`: a further name to look for, "" for none.
 */
int http_head_parse(char *text, size_t len, const char *token_header, struct http_head *head,
                    struct err *e) MUST_CHECK;

/* Whether the comma list holds the token, in any case. */
bool http_list_has(const char *list, const char *token);

#endif
