#include "caller.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BODY_MAX 65536

enum call_state { CALL_NONE, CALL_ASKED, CALL_ANSWERED };

struct caller {
    pthread_t thread;
    struct api *api; /* thread only */
    int wake_fd;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum call_state state; /* under the lock */
    bool stopping;         /* under the lock */
    /* Owned by the thread while CALL_ASKED, by the user else. */
    const char *method;
    char *path;
    struct buf body;
    bool has_body;
    long timeout_ms;
    struct api_answer answer;
    int rc;
    struct err err;
};

static void answered(struct caller *c)
{
    uint64_t one = 1;
    pthread_mutex_lock(&c->lock);
    c->state = CALL_ANSWERED;
    pthread_mutex_unlock(&c->lock);
    ssize_t n = write(c->wake_fd, &one, sizeof(one));
    (void)n; /* a full counter wakes as well */
}

/* Waits for a call to make; false: there will be none. */
static bool wait_for_call(struct caller *c)
{
    pthread_mutex_lock(&c->lock);
    while (c->state != CALL_ASKED && !c->stopping) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    bool go_on = !c->stopping;
    pthread_mutex_unlock(&c->lock);
    return go_on;
}

static void *serve(void *arg)
{
    struct caller *c = arg;
    while (wait_for_call(c)) {
        c->rc = api_call(c->api, c->method, c->path, c->has_body ? &c->body : NULL, c->timeout_ms,
                         &c->answer, &c->err);
        answered(c);
    }
    return NULL;
}

static void release(struct caller *c)
{
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    api_answer_done(&c->answer);
    buf_done(&c->body);
    api_free(c->api);
    free(c->path);
    free(c);
}

struct caller *caller_new(const struct api_access *access, int wake_fd)
{
    struct caller *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    buf_init(&c->body, BODY_MAX);
    api_answer_init(&c->answer);
    c->wake_fd = wake_fd;
    c->api = api_new(access);
    if (c->api == NULL || pthread_create(&c->thread, NULL, serve, c) != 0) {
        release(c);
        return NULL;
    }
    return c;
}

void caller_free(struct caller *c)
{
    if (c == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    release(c);
}

bool caller_busy(struct caller *c)
{
    pthread_mutex_lock(&c->lock);
    bool busy = c->state != CALL_NONE;
    pthread_mutex_unlock(&c->lock);
    return busy;
}

int caller_start(struct caller *c, const char *method, const char *path, const struct buf *body,
                 long timeout_ms)
{
    free(c->path);
    c->method = method;
    c->path = strdup(path);
    c->timeout_ms = timeout_ms;
    c->has_body = body != NULL;
    buf_reset(&c->body);
    if (body != NULL) {
        buf_add(&c->body, body->data, body->len);
    }
    if (c->path == NULL || !buf_ok(&c->body)) {
        return -1;
    }
    pthread_mutex_lock(&c->lock);
    c->state = CALL_ASKED;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return 0;
}

bool caller_take(struct caller *c, struct api_answer *ret, int *ret_rc, struct err *e)
{
    pthread_mutex_lock(&c->lock);
    bool there = c->state == CALL_ANSWERED;
    c->state = there ? CALL_NONE : c->state;
    pthread_mutex_unlock(&c->lock);
    if (!there) {
        return false;
    }
    *ret = c->answer;
    *ret_rc = c->rc;
    *e = c->err;
    api_answer_init(&c->answer);
    return true;
}
