#include "ready.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <uthash.h>

struct expected {
    struct id session_id;
    bool is_ready;
    UT_hash_handle hh;
};

struct ready {
    pthread_mutex_t lock;
    pthread_cond_t changed;    /* waits by the monotonic clock */
    struct expected *sessions; /* lock */
    bool closed;               /* lock */
};

struct ready *ready_new(void)
{
    struct ready *r = calloc(1, sizeof *r);
    pthread_condattr_t attr;

    if (!r)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    return r;
}

void ready_free(struct ready *r)
{
    struct expected *x, *next;

    if (!r)
        return;
    HASH_ITER (hh, r->sessions, x, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(r->sessions, x);
        free(x);
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

int ready_expect(struct ready *r, const struct id *session_id)
{
    struct expected *x = calloc(1, sizeof *x);

    if (!x)
        return -1;
    x->session_id = *session_id;
    pthread_mutex_lock(&r->lock);
    HASH_ADD(hh, r->sessions, session_id, sizeof x->session_id, x);
    pthread_mutex_unlock(&r->lock);
    return 0;
}

/* With the lock held. */
static struct expected *find(struct ready *r, const struct id *session_id)
{
    struct expected *x;

    HASH_FIND(hh, r->sessions, session_id, sizeof *session_id, x);
    return x;
}

void ready_forget(struct ready *r, const struct id *session_id)
{
    struct expected *x;

    pthread_mutex_lock(&r->lock);
    x = find(r, session_id);
    if (x)
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(r->sessions, x);
    pthread_mutex_unlock(&r->lock);
    free(x);
}

void ready_set(struct ready *r, const struct id *session_id, bool is_ready)
{
    struct expected *x;

    pthread_mutex_lock(&r->lock);
    x = find(r, session_id);
    if (x)
        x->is_ready = is_ready;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void ready_close(struct ready *r)
{
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

int ready_wait(struct ready *r, const struct id *session_id, int64_t timeout_ms, struct err *e)
{
    struct timespec until;
    struct expected *x;
    int rc = 0;
    bool ok, closed;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&r->lock);
    while ((x = find(r, session_id)) && !x->is_ready && !r->closed && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&r->changed, &r->lock, &until);
    ok = x && x->is_ready;
    closed = r->closed;
    pthread_mutex_unlock(&r->lock);
    return ok       ? 0
           : closed ? err_set(e, ERR_BUSY, "the gateway is stopping")
                    : err_set(e, ERR_SANDBOX_START_FAILED,
                              "door and agent were not ready within the start timeout");
}
