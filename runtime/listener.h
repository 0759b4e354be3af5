/* The door's listening socket, bound by us so that the port is known and cannot be raced. */
#ifndef RUNTIME_LISTENER_H
#define RUNTIME_LISTENER_H

#include <stdint.h>

#include "leasehold/err.h"

/* `range`: "0" (any), "N" or "N-M" (the first free one). Returns the descriptor, close-on-exec. */
int listener_bind(const char *host, const char *range, int64_t *ret_port, struct err *e) MUST_CHECK;

#endif
