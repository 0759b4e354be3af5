#include <pthread.h>
#include <stdlib.h>

#include "leasehold/lanes.h"

struct inbox {
    void (*wake)(void *ctx);
    void *ctx;
    pthread_mutex_t lock;
    struct job *first, *last; /* guarded by lock */
    size_t n;                 /* guarded by lock */
    struct job *again;        /* the drainer's */
};

struct inbox *inbox_new(void (*wake)(void *ctx), void *ctx)
{
    struct inbox *in = calloc(1, sizeof(*in));
    if (in != NULL) {
        in->wake = wake;
        in->ctx = ctx;
        pthread_mutex_init(&in->lock, NULL);
    }
    return in;
}

void inbox_free(struct inbox *in)
{
    if (in != NULL) {
        pthread_mutex_destroy(&in->lock);
        free(in);
    }
}

void inbox_post(struct inbox *in, struct job *job)
{
    inbox_post_all(in, job, job, 1);
}

void inbox_post_all(struct inbox *in, struct job *first, struct job *last, size_t n)
{
    last->next = NULL;
    pthread_mutex_lock(&in->lock);
    bool was_empty = in->n == 0;
    if (was_empty) {
        in->first = first;
    } else {
        in->last->next = first;
    }
    in->last = last;
    in->n += n;
    pthread_mutex_unlock(&in->lock);
    /* A drainer that left something comes again by itself: only the first post has to wake it. */
    if (was_empty) {
        in->wake(in->ctx);
    }
}

void inbox_again(struct inbox *in, struct job *job)
{
    in->again = job;
}

/* The job that is not finished, and the n behind it that were taken with it, before all others. Returns how
 * many wait. */
static size_t put_back(struct inbox *in, struct job *behind, size_t n)
{
    struct job *first = in->again, *last = first;
    in->again = NULL;
    first->next = behind;
    for (size_t i = 0; i < n; i++) {
        last = last->next;
    }
    pthread_mutex_lock(&in->lock);
    if (in->n == 0) {
        last->next = NULL;
        in->last = last;
    } else {
        last->next = in->first;
    }
    in->first = first;
    in->n += n + 1;
    size_t waiting = in->n;
    pthread_mutex_unlock(&in->lock);
    return waiting;
}

size_t inbox_drain(struct inbox *in, size_t max)
{
    pthread_mutex_lock(&in->lock);
    struct job *job = in->first;
    size_t taken = in->n < max ? in->n : max;
    for (size_t i = 0; i < taken; i++) {
        in->first = in->first->next;
    }
    in->n -= taken;
    size_t left = in->n;
    pthread_mutex_unlock(&in->lock);

    for (; taken > 0 && in->again == NULL; taken--) {
        struct job *next = job->next; /* done() may free the job */
        job->done(job);
        job = next;
    }
    return in->again != NULL ? put_back(in, job, taken) : left;
}
