/* The libwebsockets side of the loop, for client.c and control.c only. */
#ifndef LEASEHOLD_DOOR_LOOP_LWS_H
#define LEASEHOLD_DOOR_LOOP_LWS_H

#include <libwebsockets.h>

#include "loop.h"

/* A virtual host of its own, so that nobody outside can ask for a protocol of another one: only the
 * one that `serves` may be chosen by a Host header, so there is one such at most.
 * `protocols` (zero-terminated) and `user` must outlive the loop. */
struct lws_vhost *loop_vhost_new(struct loop *l, const char *name, bool serves,
                                 const struct lws_protocols *protocols, void *user, struct err *e);
struct lws_context *loop_context(const struct loop *l);

#endif
