/*
 * The OpenAPI 3.1 document of the op table: paths, parameters, bodies, answers and schemas, all from
 * the rows and their field tables, so that it cannot drift from what the gateway does. The same table
 * and settings give the same bytes. Any thread.
 */
#ifndef GATEWAY_OPENAPI_H
#define GATEWAY_OPENAPI_H

#include "op.h"

struct openapi_info {
    const char *version;
    const char *token_header; /* security.token_header */
};

void openapi_write(const struct op *table, const struct openapi_info *info, struct buf *out);

#endif
