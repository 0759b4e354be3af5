/*
 * The writes that wait for the writer: those that go in the order of their arrival, and those that let
 * others pass (store_job.later) but not for ever. Any thread puts, the writer's takes.
 */
#ifndef STORAGE_WRITE_QUEUE_H
#define STORAGE_WRITE_QUEUE_H

#include <pthread.h>

#include "leasehold/store.h"

struct write_queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct job *head, **tail;        /* lock */
    struct job *later, **later_tail; /* lock */
    size_t waiting;                  /* lock: in both */
    unsigned passed; /* lock: groups in a row that went before those that let others pass */
    bool closing;    /* lock */
};

void write_queue_init(struct write_queue *q);
void write_queue_done(struct write_queue *q);

/* False: `most` wait already, or the queue is closing. */
bool write_queue_put(struct write_queue *q, struct store_job *j, size_t most);

/* Takes a waiting write that lets no others pass back. False: the writer has it already. */
bool write_queue_withdraw(struct write_queue *q, struct store_job *j);

/* At most `most` of those in order, and one that lets others pass when there are none of these or it
 * is its turn. NULL: nothing waits. */
struct store_job *write_queue_take(struct write_queue *q, size_t most);

/* The next that lets others pass, or NULL. */
struct store_job *write_queue_take_later(struct write_queue *q);

/* Waits until something does, or the queue closes; for idle_ms at most (0: for ever). False: the time
 * is over. */
bool write_queue_wait(struct write_queue *q, long idle_ms);

/* Nothing is put any more, and nobody waits. */
void write_queue_close(struct write_queue *q);

#endif
