/* RFC 9457 problem bodies. Any thread. */
#ifndef GATEWAY_PROBLEM_H
#define GATEWAY_PROBLEM_H

#include <stdbool.h>

#include "leasehold/buf.h"
#include "leasehold/err.h"

#define PROBLEM_TYPE "application/problem+json"

/* Appends the body. What only the log may see (ERR_INTERNAL) is left out of detail. `plain`: detail
 * equals the code. */
void problem_write(const struct err *e, const char *request_id, bool plain, struct buf *out);

#endif
