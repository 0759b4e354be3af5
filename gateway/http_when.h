/*
 * What a request says about the file it asks for: conditions (RFC 9110, 13), ranges (14), dates; and
 * the name under which a browser is to keep it (RFC 6266, 8187). Pure functions on hostile text; any
 * thread.
 */
#ifndef GATEWAY_HTTP_WHEN_H
#define GATEWAY_HTTP_WHEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leasehold/buf.h"
#include "op.h"

enum http_verdict {
    HTTP_GO_ON,
    HTTP_NOT_MODIFIED, /* 304; only where `reads` */
    HTTP_FAILED,       /* 412 */
};

/* `etag`: a strong one with its quotes; "": none is known of the file, so that it is none of those that
 * are named; NULL: there is no such file. `modified_s`: since the epoch. */
enum http_verdict http_when(const struct op_when *w, const char *etag, int64_t modified_s,
                            bool reads);

#define HTTP_RANGES_MAX 32

struct http_range {
    int64_t from, len;
};

/* The ranges of `text` ("bytes=0-9,-5") in `size` bytes, those that overlap or touch as one. 0: the
 * whole is to be sent, as none was asked for, or not rightly, or too many; -1: there is none of them
 * (416). */
int http_ranges(const char *text, int64_t size, struct http_range ret[static HTTP_RANGES_MAX]);

/* Do ranges of the file of now serve the client that has a part already? */
bool http_if_range(const char *if_range, const char *etag, int64_t modified_s);

#define HTTP_DATE_SIZE 32
void http_date_format(int64_t at_s, char ret[static HTTP_DATE_SIZE]);
bool http_date_parse(const char *text, int64_t *ret_s);

/* A whole header line, "Content-Disposition: attachment; …\r\n". */
void http_disposition(const char *name, struct buf *out);

#endif
