/* The part of the JSON writer that the log shares. */
#ifndef LEASEHOLD_BASE_JSON_WRITE_H
#define LEASEHOLD_BASE_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "leasehold/buf.h"

/* As json_add_string, but no more than `max` bytes between the quotes. Returns false if s was cut.
 */
bool json_add_string_max(struct buf *out, const char *s, size_t len, size_t max);

/* The shortest decimal that reads back as v; null if v is not finite. */
void json_add_real(struct buf *out, double v);

#endif
