#include "leasehold/lanes.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Without memory an insert leaves the item out instead of ending the process. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "leasehold/clock.h"

#define THREAD_NAME 16

struct queue {
    struct job *first, *last;
};

/* Somebody with jobs in the lane that do not run yet. */
struct owner {
    struct id id;
    struct queue ready;        /* what a thread may take now */
    size_t waiting;            /* in there and behind keys */
    struct owner *prev, *next; /* in their turn, while something is ready */
    UT_hash_handle hh;
};

/* A key in use: one job of it stands in the lane's queue or runs, the others wait here. */
struct key_slot {
    struct id key;
    struct queue waiting;
    bool open; /* by the job that runs: who passes need not wait */
    UT_hash_handle hh;
};

struct lane {
    struct inbox *in;
    size_t queue_max;
    size_t batch;                         /* most jobs that a thread takes at once */
    void (*run_batch)(struct job *first); /* NULL: each job's own */
    size_t shares;                        /* threads, also while they are still being made */
    char name[THREAD_NAME];
    struct lane_meters meters;
    pthread_mutex_t lock;
    pthread_cond_t ready;  /* for one of the idle: something is ready; for all: the lane closes */
    pthread_cond_t place;  /* one is free for a job that comes back from aside */
    size_t idle;           /* guarded by lock: threads that wait for `ready` */
    bool waking;           /* guarded by lock: one of them has been called and has not come yet */
    struct owner *owners;  /* guarded by lock */
    struct owner *turns;   /* guarded by lock: those with something that a thread may take now */
    struct key_slot *keys; /* guarded by lock */
    size_t waiting;        /* guarded by lock: in the queue and behind keys */
    bool closing;          /* guarded by lock */
    size_t places;         /* for jobs that run; a job aside has none */
    size_t running;        /* guarded by lock: places in use */
    size_t aside;          /* guarded by lock: jobs that have left their place */
    size_t returning;      /* guarded by lock: and wait for one again */
    atomic_size_t depth;   /* written under lock, read by any thread */
    atomic_size_t n_keys;  /* written under lock, read by any thread */
    pthread_t *spares;     /* that take the places of jobs aside */
    unsigned n_spares;
    unsigned n_threads;
    pthread_t threads[];
};

static void queue_push(struct queue *q, struct job *job)
{
    job->next = NULL;
    if (q->first == NULL) {
        q->first = job;
    } else {
        q->last->next = job;
    }
    q->last = job;
}

static struct job *queue_pop(struct queue *q)
{
    struct job *job = q->first;
    if (job != NULL) {
        q->first = job->next;
        job->next = NULL;
    }
    return job;
}

/* --- under the lock -------------------------------------------------------------------------- */

static struct key_slot *slot_find(struct lane *l, const struct id *key)
{
    struct key_slot *slot;
    HASH_FIND(hh, l->keys, key, sizeof(*key), slot);
    return slot;
}

static struct key_slot *slot_add(struct lane *l, const struct id *key)
{
    struct key_slot *slot = calloc(1, sizeof(*slot));
    if (slot == NULL) {
        return NULL;
    }
    slot->key = *key;
    HASH_ADD(hh, l->keys, key, sizeof(slot->key), slot);
    if (slot->hh.tbl == NULL) {
        free(slot);
        return NULL;
    }
    atomic_fetch_add(&l->n_keys, 1);
    return slot;
}

static void slot_remove(struct lane *l, struct key_slot *slot)
{
    HASH_DEL(l->keys, slot);
    free(slot);
    atomic_fetch_sub(&l->n_keys, 1);
}

static struct owner *owner_find(struct lane *l, const struct id *id)
{
    struct owner *o;
    HASH_FIND(hh, l->owners, id, sizeof(*id), o);
    return o;
}

static struct owner *owner_get(struct lane *l, const struct id *id)
{
    struct owner *o = owner_find(l, id);
    if (o != NULL || (o = calloc(1, sizeof(*o))) == NULL) {
        return o;
    }
    o->id = *id;
    HASH_ADD(hh, l->owners, id, sizeof(o->id), o);
    if (o->hh.tbl == NULL) {
        free(o);
        return NULL;
    }
    return o;
}

static void owner_tidy(struct lane *l, struct owner *o)
{
    if (o->waiting == 0) {
        HASH_DEL(l->owners, o);
        free(o);
    }
}

/* The owner of a job that waits is there. */
static void make_ready(struct lane *l, struct job *job)
{
    struct owner *o = owner_find(l, &job->owner);
    if (o->ready.first == NULL) {
        DL_APPEND(l->turns, o);
    }
    queue_push(&o->ready, job);
}

/* Under the lock. Who comes back from aside goes first. */
static bool has_place(const struct lane *l)
{
    return l->running + l->returning < l->places;
}

/* One comes at a time, and calls the next if there is more than it takes: a thread that is busy with
 * short jobs has often taken them before another one is there. Call it, with the lock given back. */
static bool needs_thread(struct lane *l)
{
    bool needs = l->turns != NULL && has_place(l) && l->idle > 0 && !l->waking;
    l->waking |= needs;
    return needs;
}

static struct job *take_turn(struct lane *l)
{
    struct owner *o = l->turns;
    if (o == NULL) {
        return NULL;
    }
    struct job *job = queue_pop(&o->ready);
    DL_DELETE(l->turns, o);
    if (o->ready.first != NULL) {
        DL_APPEND(l->turns, o);
    }
    l->waiting--;
    o->waiting--;
    owner_tidy(l, o);
    return job;
}

/* Or pass, as one without a key. */
static void key_wait(struct lane *l, const struct key_slot *slot, struct queue *waiting,
                     struct job *job)
{
    if (!slot->open || !job->passes) {
        queue_push(waiting, job);
        return;
    }
    job->passed = true;
    job->key = (struct id){{0}};
    make_ready(l, job);
}

static void pass_waiting(struct lane *l, struct key_slot *slot)
{
    struct queue stays = {NULL, NULL};
    struct job *job;
    while ((job = queue_pop(&slot->waiting)) != NULL) {
        key_wait(l, slot, &stays, job);
    }
    slot->waiting = stays;
}

/* The job of this key has run: the next one behind it may. */
static void key_release(struct lane *l, const struct id *key)
{
    struct key_slot *slot = slot_find(l, key);
    struct job *next = queue_pop(&slot->waiting);
    slot->open = false;
    if (next != NULL) {
        make_ready(l, next);
    } else {
        slot_remove(l, slot);
    }
}

static int key_admit(struct lane *l, struct job *job, struct err *e)
{
    struct key_slot *slot = slot_find(l, &job->key);
    if (slot != NULL) {
        key_wait(l, slot, &slot->waiting, job);
        return 0;
    }
    if (slot_add(l, &job->key) == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for a key of lane %s", l->name);
    }
    make_ready(l, job);
    return 0;
}

static bool has_room(const struct lane *l, const struct owner *o)
{
    size_t most = o->waiting == 0 ? l->queue_max + l->queue_max / 4 : l->queue_max;
    return l->waiting < most;
}

static int admit_of(struct lane *l, struct owner *o, struct job *job, struct err *e)
{
    if (!has_room(l, o)) {
        metric_add(l->meters.rejected, l->meters.lane, 0, 1);
        return err_set(e, ERR_BUSY, "lane %s is full", l->name);
    }
    if (id_is_zero(&job->key)) {
        make_ready(l, job);
    } else if (key_admit(l, job, e) != 0) {
        return -1;
    }
    l->waiting++;
    o->waiting++;
    atomic_fetch_add(&l->depth, 1);
    return 0;
}

static int admit(struct lane *l, struct job *job, struct err *e)
{
    struct owner *o = owner_get(l, &job->owner);
    if (o == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for an owner in lane %s", l->name);
    }
    int rc = admit_of(l, o, job, e);
    owner_tidy(l, o);
    return rc;
}

/* --- threads --------------------------------------------------------------------------------- */

/* Under the lock: what one thread runs next; *ret_n of them. */
static struct queue take_share(struct lane *l, size_t *ret_n)
{
    size_t share = (l->waiting + l->shares - 1) / l->shares;
    size_t most = share < l->batch ? share : l->batch, n = 0;
    struct queue taken = {NULL, NULL};
    struct job *job;
    while (n < most && (job = take_turn(l)) != NULL) {
        queue_push(&taken, job);
        n++;
    }
    *ret_n = n;
    return taken;
}

/* Under the lock. */
static void place_leave(struct lane *l)
{
    l->running--;
    if (l->returning > 0) {
        pthread_cond_signal(&l->place);
    }
}

/* None: the lane has closed and everything has run. A closing lane's jobs behind a key need no
 * further thread: the one that runs their predecessor takes them from the queue itself. Nobody is
 * woken for the place that a thread leaves: it looks for the next job itself. */
static struct queue take(struct lane *l, bool has_run, size_t *ret_n)
{
    pthread_mutex_lock(&l->lock);
    if (has_run) {
        place_leave(l);
    }
    while (l->turns == NULL ? !l->closing : !has_place(l)) {
        l->idle++;
        pthread_cond_wait(&l->ready, &l->lock);
        l->idle--;
        l->waking = false;
    }
    struct queue taken = take_share(l, ret_n);
    l->running += *ret_n > 0;
    bool more = needs_thread(l);
    if (*ret_n == 0) { /* those that wait for a place need none any more */
        pthread_cond_broadcast(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    if (more) {
        pthread_cond_signal(&l->ready);
    }
    return taken;
}

static void run_all(struct lane *l, struct job *first)
{
    for (struct job *job = first; job != NULL; job = job->next) {
        metric_observe(l->meters.wait, l->meters.lane, 0,
                       clock_boot_us(&clock_system) - job->queued_us);
        if (l->run_batch == NULL) {
            job->run(job);
        }
    }
    if (l->run_batch != NULL) {
        l->run_batch(first);
    }
}

static void *serve(void *arg)
{
    struct lane *l = arg;
    size_t n;
    for (struct queue taken = take(l, false, &n); n > 0; taken = take(l, true, &n)) {
        struct id key = taken.last->key; /* jobs with a key are taken one by one */
        run_all(l, taken.first);
        atomic_fetch_sub(&l->depth, n);
        /* Posted before the key is released, so that results of one key come in its order. From
         * here on the jobs are the drainer's. */
        inbox_post_all(l->in, taken.first, taken.last, n);
        if (!id_is_zero(&key)) {
            pthread_mutex_lock(&l->lock);
            key_release(l, &key);
            pthread_mutex_unlock(&l->lock);
        }
    }
    return NULL;
}

/* Signals of the process are the loop's; those of a fault stay with the thread that made it. */
static void block_signals(sigset_t *ret_before)
{
    sigset_t all;
    sigfillset(&all);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&all, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &all, ret_before);
}

static int start_threads(struct lane *l, pthread_t *threads, unsigned *n, unsigned wanted)
{
    sigset_t before;
    int rc = 0;
    block_signals(&before);
    while (rc == 0 && *n < wanted) {
        rc = pthread_create(&threads[*n], NULL, serve, l);
        if (rc == 0) {
            pthread_setname_np(threads[*n], l->name);
            (*n)++;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

struct lane *lane_new(const char *name, unsigned threads, size_t queue_max, struct inbox *in,
                      struct err *e)
{
    struct lane *l = calloc(1, sizeof(*l) + threads * sizeof(l->threads[0]));
    if (l == NULL) {
        err_set(e, ERR_INTERNAL, "no memory for lane %s", name);
        return NULL;
    }
    l->in = in;
    l->queue_max = queue_max;
    l->batch = 1;
    l->shares = l->places = threads;
    snprintf(l->name, sizeof(l->name), "%s", name);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->ready, NULL);
    pthread_cond_init(&l->place, NULL);
    int rc = start_threads(l, l->threads, &l->n_threads, threads);
    if (rc != 0) {
        err_sys(e, ERR_INTERNAL, rc, "start a thread of lane %s", name);
        lane_free(l);
        return NULL;
    }
    return l;
}

void lane_free(struct lane *l)
{
    if (l == NULL) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->ready);
    pthread_mutex_unlock(&l->lock);
    for (unsigned i = 0; i < l->n_threads; i++) {
        pthread_join(l->threads[i], NULL);
    }
    for (unsigned i = 0; i < l->n_spares; i++) {
        pthread_join(l->spares[i], NULL);
    }
    free(l->spares);
    pthread_cond_destroy(&l->place);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* --- jobs aside ------------------------------------------------------------------------------ */

int lane_spare(struct lane *l, unsigned most, struct err *e)
{
    l->spares = calloc(most, sizeof(l->spares[0]));
    if (l->spares == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for lane %s", l->name);
    }
    int rc = start_threads(l, l->spares, &l->n_spares, most);
    return rc != 0 ? err_sys(e, ERR_INTERNAL, rc, "start a thread of lane %s", l->name) : 0;
}

int lane_aside_begin(struct lane *l, struct err *e)
{
    int rc = 0;
    bool more = false;
    pthread_mutex_lock(&l->lock);
    if (l->aside >= l->n_spares) {
        rc = err_set(e, ERR_BUSY, "too much waits in lane %s already", l->name);
    } else {
        l->aside++;
        place_leave(l);
        more = needs_thread(l);
    }
    pthread_mutex_unlock(&l->lock);
    if (more) {
        pthread_cond_signal(&l->ready);
    }
    return rc;
}

void lane_aside_end(struct lane *l)
{
    pthread_mutex_lock(&l->lock);
    l->returning++;
    while (l->running >= l->places) {
        pthread_cond_wait(&l->place, &l->lock);
    }
    l->returning--;
    l->aside--;
    l->running++;
    pthread_mutex_unlock(&l->lock);
}

/* --- submission ------------------------------------------------------------------------------ */

static void unlock_and_wake(struct lane *l)
{
    bool more = needs_thread(l);
    pthread_mutex_unlock(&l->lock);
    if (more) {
        pthread_cond_signal(&l->ready);
    }
}

static int submit(struct lane *l, struct job *job, const struct id *key, struct err *e)
{
    job->key = *key;
    job->passed = false;
    job->queued_us = clock_boot_us(&clock_system);
    pthread_mutex_lock(&l->lock);
    int rc = admit(l, job, e);
    unlock_and_wake(l);
    return rc;
}

int lane_submit(struct lane *l, struct job *job, struct err *e)
{
    return submit(l, job, &(struct id){{0}}, e);
}

int lane_submit_keyed(struct lane *l, const struct id *key, struct job *job, struct err *e)
{
    return submit(l, job, key, e);
}

void lane_key_open(struct lane *l, const struct id *key, bool open)
{
    pthread_mutex_lock(&l->lock);
    struct key_slot *slot = slot_find(l, key);
    if (slot != NULL) {
        slot->open = open;
        pass_waiting(l, slot);
    }
    unlock_and_wake(l);
}

/* --- from another lane ----------------------------------------------------------------------- */

struct lane_call {
    struct job job;
    void (*fn)(void *arg);
    void *arg;
    sem_t *over;
};

static void call_run(struct job *job)
{
    struct lane_call *c = (struct lane_call *)((char *)job - offsetof(struct lane_call, job));
    c->fn(c->arg);
    sem_post(c->over); /* the caller, and what it lent, is gone from here on */
}

static void call_done(struct job *job)
{
    free((char *)job - offsetof(struct lane_call, job));
}

int lane_call(struct lane *l, const struct id *key, void (*fn)(void *arg), void *arg, struct err *e)
{
    struct lane_call *c = calloc(1, sizeof(*c));
    sem_t over;
    if (c == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for a job of lane %s", l->name);
    }
    sem_init(&over, 0, 0);
    *c = (struct lane_call){
        .job = {.run = call_run, .done = call_done}, .fn = fn, .arg = arg, .over = &over};
    int rc = lane_submit_keyed(l, key, &c->job, e);
    if (rc != 0) {
        free(c);
    }
    while (rc == 0 && sem_wait(&over) != 0) {
    }
    sem_destroy(&over);
    return rc;
}

void lane_batch(struct lane *l, size_t most, void (*run)(struct job *first))
{
    pthread_mutex_lock(&l->lock);
    l->batch = most;
    l->run_batch = run;
    pthread_mutex_unlock(&l->lock);
}

void lane_meter(struct lane *l, const struct lane_meters *m)
{
    pthread_mutex_lock(&l->lock);
    l->meters = *m;
    pthread_mutex_unlock(&l->lock);
}

unsigned lane_threads(const struct lane *l)
{
    return l->n_threads;
}

size_t lane_depth(const struct lane *l)
{
    return atomic_load(&l->depth);
}

size_t lane_keys(const struct lane *l)
{
    return atomic_load(&l->n_keys);
}
