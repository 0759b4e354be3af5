/* The libwebsockets side of the loop, for control.c only. */
#ifndef LEASEHOLD_DOOR_LOOP_LWS_H
#define LEASEHOLD_DOOR_LOOP_LWS_H

#include <libwebsockets.h>

#include "loop.h"

/* A virtual host of its own; none has a listener. `protocols` (zero-terminated) and `user` must outlive
 * the loop. */
struct loop_vhost {
    const char *name;
    const struct lws_protocols *protocols;
    void *user;
};
struct lws_vhost *loop_vhost_new(struct loop *l, const struct loop_vhost *v, struct err *e);
struct lws_context *loop_context(const struct loop *l);

#endif
