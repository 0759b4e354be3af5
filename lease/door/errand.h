/*
 * Errands: a process of the sandbox asks on a connection of its own that a file be stored as an
 * artifact (LINK_PUT), the gateway does it, and the answer goes back. The door knows no more of it than
 * a number. All that comes from the sandbox is hostile: few at a time, each bounded in bytes and time.
 * Loop thread only.
 */
#ifndef LEASEHOLD_DOOR_ERRAND_H
#define LEASEHOLD_DOOR_ERRAND_H

#include "loop.h"

struct errands;

/* `ask` takes it to the gateway; false: there is none. NULL without memory. */
struct errands *errands_new(struct loop *l,
                            bool (*ask)(void *ctx, int64_t n, const char *path, const char *name),
                            void *ctx);

void errands_take(struct errands *all, int fd); /* takes the connection */
void errands_done(struct errands *all, int64_t n, const char *artifact, const char *fault);
void errands_lost(
    struct errands *all); /* the gateway is gone: whether it has stored is not known */

#endif
