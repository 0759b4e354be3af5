/*
 * Lanes: threads that run jobs which may block, and the inbox by which results come back to the
 * loop. A job has one owner at a time: the caller, then the lane's queue, then the lane's thread,
 * then the inbox, then (in done) the loop again.
 */
#ifndef LEASEHOLD_LANES_H
#define LEASEHOLD_LANES_H

#include <stdbool.h>
#include <stddef.h>

#include "leasehold/err.h"
#include "leasehold/id.h"
#include "leasehold/metrics.h"

struct job {
    struct job *next;           /* of the queue it stands in */
    void (*run)(struct job *);  /* on a lane thread; has a deadline of its own */
    void (*done)(struct job *); /* on the thread that drains the inbox; owns the job again */
    struct id key;              /* set by lane_submit_keyed */
    struct id owner;            /* who asks, set by the caller; zero: the gateway itself */
    int64_t queued_us;          /* boot clock, set by the queue it stands in */
    bool passes; /* set by the caller: may go past a key that is open (lane_key_open) */
    bool passed; /* set by the lane: it has, and runs under no key */
};

/* --- inbox: many posters, one drainer ------------------------------------------------------ */

struct inbox;

/* `wake(ctx)` is called after a post, from the posting thread, when the inbox was empty: it makes
 * the drainer's loop call inbox_drain (the gateway: uv_async_send). */
struct inbox *inbox_new(void (*wake)(void *ctx), void *ctx);
void inbox_free(struct inbox *in); /* must be empty */
void inbox_post(struct inbox *in, struct job *job);

/* The same of n jobs that hang together by `next`, with one wake for all. */
void inbox_post_all(struct inbox *in, struct job *first, struct job *last, size_t n);

/* Calls done() of at most `max` jobs in the order of their posts. Returns how many were left:
 * if not 0 the caller must come again. */
size_t inbox_drain(struct inbox *in, size_t max);

/* From within its done(): the job is not finished, and its done() is called again before that of any
 * other. The drain ends with it, so that its caller may look at the time. */
void inbox_again(struct inbox *in, struct job *job);

/* --- lane: bounded queue, n threads --------------------------------------------------------
 * Owners have their turns: a thread takes the next job of the owner who has waited longest for one,
 * so that many jobs of one delay those of another by a job each. Beyond the bound who has nothing
 * waiting may still put one in, up to a quarter more. */

struct lane;

struct lane *lane_new(const char *name, unsigned threads, size_t queue_max, struct inbox *in,
                      struct err *e);

/* For small jobs without keys: a thread takes up to `most` that wait, its share of them, and posts
 * their results together. `run`, if not NULL, is called with them, linked by `next`, in place of their
 * own. Before the first job. */
void lane_batch(struct lane *l, size_t most, void (*run)(struct job *first));

/* Runs the queued jobs to their end, joins the threads. Their results stand in the inbox then. */
void lane_free(struct lane *l);

/* Takes the job. ERR_BUSY (job still the caller's) when queue_max jobs wait already. */
int lane_submit(struct lane *l, struct job *job, struct err *e) MUST_CHECK;

/* As lane_submit, but jobs with the same key run one after another in the order of submission, and
 * a waiting one occupies no thread. Waiting jobs count against queue_max. A zero key is no key. */
int lane_submit_keyed(struct lane *l, const struct id *key, struct job *job,
                      struct err *e) MUST_CHECK;

/* Called by the job of this key that runs: until it ends or closes it, jobs that pass do not stand behind
 * it, neither those that wait there already nor those that come. They run in their owners' turns. */
void lane_key_open(struct lane *l, const struct id *key, bool open);

/* Runs fn on a thread of the lane, as lane_submit_keyed would, and waits for its end. From a thread of
 * another lane only, and in one direction: two lanes that wait for each other would stop both. */
int lane_call(struct lane *l, const struct id *key, void (*fn)(void *arg), void *arg,
              struct err *e) MUST_CHECK;

/* A job that has to wait for long, for something that takes none of the machine's time, steps aside:
 * another job runs in its place, its key stays its own. `most` jobs may at once, each with a thread
 * made here (before the first job). */
int lane_spare(struct lane *l, unsigned most, struct err *e) MUST_CHECK;

/* On the job's thread. ERR_BUSY: so many are aside already. The end waits for a place. */
int lane_aside_begin(struct lane *l, struct err *e) MUST_CHECK;
void lane_aside_end(struct lane *l);

/* What a lane records, with its index among the values of their first label. */
struct lane_meters {
    unsigned lane;
    struct metric *wait;     /* histogram: from the submission to the thread that runs it */
    struct metric *rejected; /* counter: submissions to a full lane */
};
void lane_meter(struct lane *l, const struct lane_meters *m); /* before the first job */

size_t lane_depth(const struct lane *l); /* jobs waiting or running; any thread */
unsigned lane_threads(const struct lane *l);
size_t lane_keys(const struct lane *l); /* keys in use, for the lock gauge; any thread */

#endif
