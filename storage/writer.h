/*
 * The writer: a queue, and a thread that runs whatever stands in it as one transaction.
 *
 * One group: BEGIN, each write under its savepoint, COMMIT; then the changes go to the hook, then
 * every write is answered. Only what is durable is ever seen by anybody.
 */
#ifndef STORAGE_WRITER_H
#define STORAGE_WRITER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "checkpoint.h"
#include "reserve.h"
#include "tx.h"
#include "write_queue.h"

struct writer {
    struct store_options options;
    struct usage_gate *usage; /* of the store */
    pthread_t thread;
    bool started;

    struct write_queue queue;
    atomic_bool refusing; /* the file is damaged: no write is run any more */
    atomic_size_t depth;  /* waiting or running; read by any thread */

    /* of the writer thread while it runs, of who opens and closes the store otherwise */
    struct conn conn;
    struct checkpoint checkpoint;
    struct reserve reserve;
    struct change_list changes;
    struct audit_trail audit;
    struct lease_counts leases;
    struct lease_blocks lease_blocks;
    struct session_cache sessions;
    struct event_group events;
    struct high_water high_water; /* at_ms: any thread */
};

/* Opens the connection; the thread starts later, when the schema stands, audit, counts and the last event are loaded. */
int writer_open(struct writer *w, const struct store_options *o, struct err *e) MUST_CHECK;
int writer_start(struct writer *w, struct err *e) MUST_CHECK;

/* From now on; any thread. */
void writer_refuse_all(struct writer *w);

/* Lets the queue run empty and joins the thread. */
void writer_stop(struct writer *w);
void writer_close(struct writer *w);

#endif
