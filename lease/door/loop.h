/*
 * The door's loop: descriptors and timers on poll, which is the cheapest way to wait for a few. All of
 * it belongs to the one thread that calls loop_run.
 */
#ifndef LEASEHOLD_DOOR_LOOP_H
#define LEASEHOLD_DOOR_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "leasehold/err.h"

#define LOOP_FD_MAX 1000 /* descriptors the loop can watch; the process may open a few more */

struct loop;

struct loop *loop_new(struct err *e);
void loop_free(struct loop *l); /* after everything on it was freed */

/* Runs until loop_stop. `after` is called after every round of events, outside of any callback. */
void loop_run(struct loop *l, void (*after)(void *ctx), void *ctx);
void loop_stop(struct loop *l);

int64_t loop_now_us(void); /* CLOCK_BOOTTIME */

/* --- descriptors ---------------------------------------------------------------------------- */

struct loop_fd_ops {
    void (*readable)(void *ctx);
    void (*writable)(void *ctx);
    void (*ended)(void *ctx); /* the descriptor is closed right after; no call follows */
};

struct loop_fd;

/* Watches `fd` for reading and has it never wait; takes it on success. NULL: no memory or too many. */
struct loop_fd *loop_fd_add(struct loop *l, int fd, const struct loop_fd_ops *ops, void *ctx);
void loop_fd_read(struct loop_fd *w, bool on);
void loop_fd_write(struct loop_fd *w); /* `writable` is called once, when it is */
void loop_fd_close(struct loop_fd *w); /* soon; `ended` follows */
int loop_fd_get(const struct loop_fd *w);

/* May accept be called again at once after this errno? Else descriptors or memory are short, and the
 * connection stays in the backlog: to read on would spin until there are some. */
#define LOOP_ACCEPT_PAUSE_US 100000
bool loop_accept_passes(int err);

/* --- timers --------------------------------------------------------------------------------- */

struct loop_timer;

struct loop_timer *loop_timer_new(struct loop *l, void (*fire)(void *ctx), void *ctx);
void loop_timer_free(struct loop_timer *t);
void loop_timer_set(struct loop_timer *t, int64_t delay_us); /* replaces an earlier setting */
void loop_timer_stop(struct loop_timer *t);
bool loop_timer_is_set(const struct loop_timer *t);

#endif
