/* Request ids and W3C trace context: an answer continues what the client began. */
#ifndef GATEWAY_TRACE_H
#define GATEWAY_TRACE_H

#include <stdbool.h>

/* The client's own id if it is 1–64 visible ASCII characters, else a new one. */
void request_id_choose(const char *sent, char ret[static 65]);

/* W3C Trace Context level 1, version 00: the same trace with a new span id. false: `sent` is none. */
bool traceparent_continue(const char *sent, char ret[static 56]);

#endif
