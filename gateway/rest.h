/* The REST face of the op table: request → call, result → answer. Loop thread. */
#ifndef GATEWAY_REST_H
#define GATEWAY_REST_H

#include "services.h"

/* Both take the request. Handlers of server.h; ctx is struct services *. */
void rest_request(void *ctx, struct http_request *r);
void rest_refused(void *ctx, struct http_request *r, const struct err *e);

#endif
