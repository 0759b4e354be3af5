#include "message_queue.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

void message_queue_init(struct message_queue *q)
{
    *q = (struct message_queue){0};
    pthread_mutex_init(&q->lock, NULL);
}

void message_queue_done(struct message_queue *q)
{
    struct message *m;
    while ((m = message_queue_pop(q)) != NULL) {
        free(m);
    }
    pthread_mutex_destroy(&q->lock);
}

static size_t weight(const struct message *m)
{
    return sizeof(*m) + m->len;
}

int message_queue_push(struct message_queue *q, const void *data, size_t len, bool text, bool final)
{
    struct message *m = malloc(sizeof(*m) + len);
    if (m == NULL) {
        return -1;
    }
    *m = (struct message){.text = text, .final = final, .len = len};
    if (len > 0) {
        memcpy(m->data, data, len);
    }
    pthread_mutex_lock(&q->lock);
    DL_APPEND(q->first, m);
    q->bytes += weight(m);
    pthread_mutex_unlock(&q->lock);
    return 0;
}

struct message *message_queue_pop(struct message_queue *q)
{
    pthread_mutex_lock(&q->lock);
    struct message *m = q->first;
    if (m != NULL) {
        DL_DELETE(q->first, m);
        q->bytes -= weight(m);
    }
    pthread_mutex_unlock(&q->lock);
    return m;
}

size_t message_queue_count(struct message_queue *q)
{
    const struct message *m;
    int n;
    pthread_mutex_lock(&q->lock);
    DL_COUNT(q->first, m, n);
    pthread_mutex_unlock(&q->lock);
    return (size_t)n;
}

size_t message_queue_bytes(struct message_queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t bytes = q->bytes;
    pthread_mutex_unlock(&q->lock);
    return bytes;
}
