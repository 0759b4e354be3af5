#include "write_queue.h"

#include <assert.h>
#include <errno.h>

#include "monotonic.h"

#define PASSED_MAX 4

void write_queue_init(struct write_queue *q)
{
    *q = (struct write_queue){.tail = &q->head, .later_tail = &q->later};
    pthread_mutex_init(&q->lock, NULL);
    monotonic_cond_init(&q->filled);
}

void write_queue_done(struct write_queue *q)
{
    pthread_cond_destroy(&q->filled);
    pthread_mutex_destroy(&q->lock);
}

bool write_queue_put(struct write_queue *q, struct store_job *j, size_t most)
{
    assert(j->ends || !j->later);
    pthread_mutex_lock(&q->lock);
    bool taken = !q->closing && q->waiting < most;
    if (taken) {
        struct job ***tail = j->later ? &q->later_tail : &q->tail;
        j->job.next = NULL;
        **tail = &j->job;
        *tail = &j->job.next;
        q->waiting++;
        pthread_cond_signal(&q->filled);
    }
    pthread_mutex_unlock(&q->lock);
    return taken;
}

bool write_queue_withdraw(struct write_queue *q, struct store_job *j)
{
    pthread_mutex_lock(&q->lock);
    struct job **at = &q->head;
    while (*at != NULL && *at != &j->job) {
        at = &(*at)->next;
    }
    bool found = *at != NULL;
    if (found) {
        *at = j->job.next;
        if (q->tail == &j->job.next) {
            q->tail = at;
        }
        q->waiting--;
    }
    pthread_mutex_unlock(&q->lock);
    return found;
}

/* Under the lock. */
static struct job *pop_later(struct write_queue *q)
{
    struct job *j = q->later;
    if (j != NULL) {
        q->later = j->next;
        if (q->later == NULL) {
            q->later_tail = &q->later;
        }
        j->next = NULL;
        q->waiting--;
    }
    return j;
}

struct store_job *write_queue_take_later(struct write_queue *q)
{
    pthread_mutex_lock(&q->lock);
    struct job *j = pop_later(q);
    pthread_mutex_unlock(&q->lock);
    return (struct store_job *)j;
}

struct store_job *write_queue_take(struct write_queue *q, size_t most)
{
    pthread_mutex_lock(&q->lock);
    struct job *group = q->head, **end = &group;
    size_t n = 0;
    for (; *end != NULL && n < most; n++) {
        end = &(*end)->next;
    }
    q->head = *end;
    *end = NULL;
    q->waiting -= n;
    if (q->head == NULL) {
        q->tail = &q->head;
    }
    if (n == 0 || q->passed >= PASSED_MAX) {
        *end = pop_later(q);
        q->passed = 0;
    } else {
        q->passed += q->later != NULL;
    }
    pthread_mutex_unlock(&q->lock);
    return (struct store_job *)group;
}

bool write_queue_wait(struct write_queue *q, long idle_ms)
{
    struct timespec until = monotonic_in_ms(idle_ms);
    int rc = 0;
    pthread_mutex_lock(&q->lock);
    while (q->waiting == 0 && !q->closing && rc != ETIMEDOUT) {
        rc = idle_ms == 0 ? pthread_cond_wait(&q->filled, &q->lock)
                          : pthread_cond_timedwait(&q->filled, &q->lock, &until);
    }
    bool filled = q->waiting > 0 || q->closing;
    pthread_mutex_unlock(&q->lock);
    return filled;
}

void write_queue_close(struct write_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closing = true;
    pthread_cond_signal(&q->filled);
    pthread_mutex_unlock(&q->lock);
}
