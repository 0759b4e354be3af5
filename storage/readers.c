#include "readers.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "monotonic.h"

#define WAIT_MS 5000

int readers_open(struct readers *r, const char *path, unsigned n, struct err *e)
{
    *r = (struct readers){.all = calloc(n, sizeof(*r->all))};
    if (r->all == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for %u readers", n);
    }
    pthread_mutex_init(&r->lock, NULL);
    monotonic_cond_init(&r->returned);
    for (; r->n < n; r->n++) {
        struct reader *reader = &r->all[r->n];
        if (conn_open(path, CONN_READ, &reader->conn, e) != 0) {
            readers_close(r);
            return -1;
        }
        readers_give(r, reader);
    }
    return 0;
}

void readers_close(struct readers *r)
{
    if (r->all == NULL) {
        return;
    }
    for (unsigned i = 0; i < r->n; i++) {
        conn_close(&r->all[i].conn);
    }
    free(r->all);
    r->all = NULL;
    pthread_cond_destroy(&r->returned);
    pthread_mutex_destroy(&r->lock);
}

int readers_take(struct readers *r, struct reader **ret, struct err *e)
{
    struct timespec deadline = monotonic_in_ms(WAIT_MS);
    int rc = 0;
    pthread_mutex_lock(&r->lock);
    while (r->free == NULL && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&r->returned, &r->lock, &deadline);
    }
    struct reader *reader = r->free;
    if (reader != NULL) {
        r->free = reader->next;
    }
    pthread_mutex_unlock(&r->lock);
    if (reader == NULL) {
        return err_set(e, ERR_BUSY, "too many reads of the store at once");
    }
    *ret = reader;
    return 0;
}

void readers_give(struct readers *r, struct reader *reader)
{
    pthread_mutex_lock(&r->lock);
    reader->next = r->free;
    r->free = reader;
    pthread_cond_signal(&r->returned);
    pthread_mutex_unlock(&r->lock);
}
