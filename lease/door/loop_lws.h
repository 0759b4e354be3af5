/* The libwebsockets side of the loop, for client.c and control.c only. */
#ifndef LEASEHOLD_DOOR_LOOP_LWS_H
#define LEASEHOLD_DOOR_LOOP_LWS_H

#include <libwebsockets.h>

#include "loop.h"

struct loop_tls {
    const char *cert_pem, *key_pem; /* NULL: plain */
};

/* A virtual host of its own, so that nobody outside can ask for a protocol of another one: only the
 * one that `serves` may be chosen by a Host header, so there is one such at most.
 * `protocols` (zero-terminated) and `user` must outlive the loop; the PEM texts need not. */
struct loop_vhost {
    const char *name;
    bool serves;
    const struct lws_protocols *protocols;
    void *user;
    struct loop_tls tls;
};
struct lws_vhost *loop_vhost_new(struct loop *l, const struct loop_vhost *v, struct err *e);
struct lws_context *loop_context(const struct loop *l);

#endif
