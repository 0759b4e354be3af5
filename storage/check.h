/*
 * Is the file whole? Asked behind a stop that was not clean, which may have been the disk's fault. A
 * small file is read before the store opens, a large one (seconds) behind that, by a thread and a
 * connection of its own; should damage be found then, the store takes no further write.
 */
#ifndef STORAGE_CHECK_H
#define STORAGE_CHECK_H

#include <pthread.h>

#include "conn.h"
#include "leasehold/store.h"

struct store_check {
    pthread_t thread;
    bool started;
    struct conn conn;
    char *path;
    struct log *log;
    struct metric *damage;
    void (*damaged)(void *ctx, const char *found); /* on the thread */
    void *ctx;
    bool whole; /* the thread's, until it is joined */
};

/* At once, on this connection. ERR_INTERNAL: it is not. */
int store_check_now(struct conn *c, const struct store_options *o, struct err *e) MUST_CHECK;

/* Behind that. `damaged` and `ctx` are set. */
int store_check_begin(struct store_check *c, const struct store_options *o,
                      struct err *e) MUST_CHECK;

/* Breaks the check off if it still runs. Answers whether the file was found whole, or nobody asked. */
bool store_check_end(struct store_check *c);

#endif
