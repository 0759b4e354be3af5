/* Request ids and W3C trace context: an answer continues what the client began. */
#ifndef GATEWAY_TRACE_H
#define GATEWAY_TRACE_H

#include <stdbool.h>

/* The client's own id if it is 1–64 visible ASCII characters, else a new one. */
void request_id_choose(const char *sent, char ret[static 65]);

#define TRACE_TEXT      33 /* of a trace's id in hex, and NUL */
#define TRACE_SPAN_TEXT 17

/* A span of a trace, as those know it that it is the parent of. */
struct trace_context {
    char trace_id[TRACE_TEXT]; /* "": none */
    char span_id[TRACE_SPAN_TEXT];
    bool sampled; /* spans of this trace are recorded */
};

/* W3C Trace Context level 1, version 00: the sender's span. false: `sent` is none. */
bool traceparent_read(const char *sent, struct trace_context *ret);

/* A new span of the parent's trace, or of a new one (NULL). */
void trace_child(struct trace_context *ret, const struct trace_context *parent);

/* A span as the header says it. */
void traceparent_write(const struct trace_context *c, char ret[static 56]);

#endif
