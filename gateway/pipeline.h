/*
 * What the REST and the WebSocket face do alike between reading a request and its lane:
 *
 *   call_begin → the face finds the row and the caller → call_admit → call_args_new → the face
 *   decodes → call_start or call_fail (op.h)
 *
 * Loop thread.
 */
#ifndef GATEWAY_PIPELINE_H
#define GATEWAY_PIPELINE_H

#include "auth.h"
#include "op.h"

/* A fresh call of this connection. `request_id`: what the client sent, "" if nothing. NULL without
 * memory. */
struct call *call_begin(struct services *s, uint64_t conn, const char *peer, const char *request_id,
                        void (*reply)(struct call *c));

/* Fills c->caller by what was proved, and counts the call against its rate; a refusal counts against
 * the address. */
int call_authenticate(struct call *c, const struct auth_proof *proof, struct err *e) MUST_CHECK;

/* The key in the request's head, "" if there is none. */
const char *request_credential(const struct http_request *r);

/* Whether c->caller may have c->op run now: by role, and as long as the gateway is not stopping. */
int call_admit(const struct call *c, struct err *e) MUST_CHECK;

/* Makes c->args with the defaults of its table; NULL stays NULL where the op takes none. */
int call_args_new(struct call *c, struct err *e) MUST_CHECK;

#endif
