/*
 * AWS Signature Version 4 as S3 wants it: a path is encoded once and never normalised, and what is
 * signed is, byte for byte, what goes on the wire. docs/artifacts.md says why not curl's own.
 *
 * Any thread: a signer keeps the key of the day behind a lock.
 */
#ifndef STORAGE_S3_SIGN_H
#define STORAGE_S3_SIGN_H

#include <stdbool.h>
#include <stdint.h>

#include "leasehold/buf.h"
#include "leasehold/err.h"

#define S3_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"
#define S3_EXPIRES_MAX_S    604800

struct s3_credentials {
    const char *key_id, *secret;
    const char *token; /* of temporary ones; NULL: none */
};

struct s3_signer;

/* Copies all. NULL without memory. */
struct s3_signer *s3_signer_new(const struct s3_credentials *c, const char *region,
                                const char *service);
/* Signs with another pair of credentials from now on; one thread at a time. */
int s3_signer_renew(struct s3_signer *s, const char *key_id, const char *secret,
                    struct err *e) MUST_CHECK;
void s3_signer_free(struct s3_signer *s); /* wipes the secret and the key of the day */

/* A query parameter before it is encoded (value NULL: empty), or a header. */
struct s3_pair {
    const char *name, *value;
};

/* What is signed; all borrowed. */
struct s3_to_sign {
    const char *method;
    const char *path; /* before it is encoded, from "/" on */
    const struct s3_pair *query;
    size_t query_n;
    const struct s3_pair *headers; /* host among them; x-amz-date and the token are the signer's */
    size_t headers_n;
    const char *payload_hash; /* hex SHA-256 of the body, or S3_UNSIGNED_PAYLOAD */
    int64_t at_s;             /* since the epoch */
};

/* What goes on the wire, and how it came about. */
struct s3_signed {
    struct buf path, query;   /* encoded; the query of a presigned URL has its signature */
    struct buf authorization; /* value of the header; a presigned URL has none */
    char date[17];            /* value of x-amz-date */
    char signature[65];
    struct buf canonical, to_sign; /* for tests */
};
void s3_signed_init(struct s3_signed *s);
void s3_signed_done(struct s3_signed *s);

/* Signs by header: the caller sends authorization, x-amz-date, x-amz-security-token if its
 * credentials have a token, and all that it gave. */
int s3_sign(struct s3_signer *s, const struct s3_to_sign *r, struct s3_signed *ret,
            struct err *e) MUST_CHECK;

/* Signs by query, good for `expires_s` (1 to S3_EXPIRES_MAX_S) seconds. */
int s3_presign(struct s3_signer *s, const struct s3_to_sign *r, int64_t expires_s,
               struct s3_signed *ret, struct err *e) MUST_CHECK;

char s3_lower(char c); /* of ASCII: what is signed must not hang on a locale */

/* Appends all but A-Z a-z 0-9 - . _ ~ as %XX; of a path "/" is kept, too. */
void s3_encode(struct buf *out, const char *bytes, size_t len, bool is_path);

#endif
