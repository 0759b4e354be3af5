/* The reading connections: a few, each lent to one thread for one short transaction. */
#ifndef STORAGE_READERS_H
#define STORAGE_READERS_H

#include <pthread.h>

#include "conn.h"

struct reader {
    struct conn conn;
    struct reader *next; /* of the free ones; guarded by readers.lock */
};

struct readers {
    pthread_mutex_t lock;
    pthread_cond_t returned;
    struct reader *free; /* guarded by lock */
    struct reader *all;
    unsigned n;
};

int readers_open(struct readers *r, const char *path, unsigned n, struct err *e) MUST_CHECK;
void readers_close(struct readers *r); /* none may be lent */

/* Waits for a free one, 5 s at most: then ERR_BUSY. */
int readers_take(struct readers *r, struct reader **ret, struct err *e) MUST_CHECK;
void readers_give(struct readers *r, struct reader *reader);

#endif
