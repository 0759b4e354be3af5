/*
 * Memory of the parts under way: one sum for all uploads. The pages of a part that was sent serve the
 * next one, as fresh ones cost a fault each; with the last upload they go back to the system.
 */
#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#include "objects_s3.h"

/* Pages of their own: an allocator would keep them, in an arena of each thread. */
static char *pages_map(size_t len, struct err *e)
{
    void *data = mmap(NULL, len + 1, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        err_fill_code(e, ERR_INTERNAL, "no memory for an upload");
        return NULL;
    }
    return data;
}

/* With the lock held, as the next ones. */
static void kept_drop(struct objects_s3 *s)
{
    const struct s3_pages *p = &s->kept[--s->kept_n];
    s->kept_used -= p->len;
    munmap(p->data, p->len + 1);
}

static char *kept_find(struct objects_s3 *s, size_t len)
{
    for (size_t i = s->kept_n; i-- > 0;) {
        if (s->kept[i].len == len) {
            char *data = s->kept[i].data;
            s->kept[i] = s->kept[--s->kept_n];
            s->kept_used -= len;
            return data;
        }
    }
    return NULL;
}

static void kept_add(struct objects_s3 *s, char *data, size_t len)
{
    if (s->kept_n == S3_PAGES_KEPT) {
        kept_drop(s);
    }
    s->kept[s->kept_n++] = (struct s3_pages){data, len};
    s->kept_used += len;
}

/* What is kept counts only while there is an upload, and never makes one wait. */
static void kept_fit(struct objects_s3 *s)
{
    while (s->kept_n > 0 &&
           (s->memory_used == 0 || s->memory_used + s->kept_used > s->o.memory_bytes)) {
        kept_drop(s);
    }
}

static void account_give(struct objects_s3 *s, char *data, size_t len)
{
    pthread_mutex_lock(&s->lock);
    s->memory_used -= len;
    if (data != NULL) {
        kept_add(s, data, len);
    }
    kept_fit(s);
    pthread_cond_broadcast(&s->room);
    pthread_mutex_unlock(&s->lock);
}

/* false: it was cancelled. */
static bool wait_for_room(struct objects_s3 *s, size_t len, const atomic_bool *cancel)
{
    while (s->memory_used > 0 && s->memory_used + len > s->o.memory_bytes &&
           !s3_is_cancelled(cancel)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&s->room, &s->lock, &until);
    }
    return !s3_is_cancelled(cancel);
}

char *s3_memory_take(struct objects_s3 *s, size_t len, const atomic_bool *cancel, struct err *e)
{
    char *data = NULL;
    pthread_mutex_lock(&s->lock);
    bool ok = wait_for_room(s, len, cancel);
    if (ok) {
        data = kept_find(s, len);
        s->memory_used += len;
        kept_fit(s);
    }
    pthread_mutex_unlock(&s->lock);
    if (!ok) {
        err_fill_code(e, ERR_BUSY, "the upload was cancelled");
        return NULL;
    }
    data = data != NULL ? data : pages_map(len, e);
    if (data == NULL) {
        account_give(s, NULL, len);
    }
    return data;
}

void s3_memory_give(struct objects_s3 *s, char *data, size_t len)
{
    if (data != NULL) {
        account_give(s, data, len);
    }
}
