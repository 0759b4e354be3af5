/* One exchange of the S3 store, signed and sent once; and what there is to know of its answer. */
#ifndef STORAGE_OBJECTS_S3_WIRE_H
#define STORAGE_OBJECTS_S3_WIRE_H

#include "objects_s3.h"

/* Where a request goes; a redirect changes it. */
struct s3_target {
    struct s3_endpoint endpoint;
    struct buf path; /* before it is encoded */
};

/* What a try has told beside the answer. */
struct s3_reply {
    int64_t date_s, retry_after_s; /* 0: not told */
    char location[2048];           /* of a redirect, "" */
};

int s3_exchange(struct objects_s3 *s, struct s3_call *c, const struct s3_target *t, bool fresh,
                struct s3_answer *ret, struct s3_reply *ret_reply, struct err *e) MUST_CHECK;

/* "https://host[:port]" and nothing behind it but "/". `bucket` goes before the host; NULL: none. */
int s3_endpoint_parse(const char *url, const char *bucket, struct s3_endpoint *ret,
                      struct err *e) MUST_CHECK;

/* Seconds of an HTTP date; -1: it is none. */
int64_t s3_http_date(const char *text);

#endif
