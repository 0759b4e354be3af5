/* The canonical parts of a request that SigV4 signs: sorted, encoded, folded. Any thread. */
#ifndef STORAGE_S3_CANONICAL_H
#define STORAGE_S3_CANONICAL_H

#include "leasehold/arena.h"
#include "s3_sign.h"

/* Parameters encoded, then sorted by name, then by value. */
int s3_canonical_query(const struct s3_pair *pairs, size_t n, struct arena *arena, struct buf *out,
                       struct err *e) MUST_CHECK;

/* Header lines by name ("host:…\n"), values of one name joined in their order; and the names alone,
 * joined with ";". */
int s3_canonical_headers(const struct s3_pair *pairs, size_t n, struct arena *arena,
                         struct buf *lines, struct buf *names, struct err *e) MUST_CHECK;

#endif
