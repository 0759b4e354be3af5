/*
 * Messages on their way between two threads, in order, counted in bytes so that either side can
 * stop when too much lies here. Any thread.
 */
#ifndef CLI_MESSAGE_QUEUE_H
#define CLI_MESSAGE_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Free bytes in front of the data, where the sender writes the frame's header. */
#define MESSAGE_HEADROOM 32

struct message {
    struct message *prev, *next;
    bool text;  /* else binary */
    bool final; /* the last piece of its message */
    size_t len;
    unsigned char room[MESSAGE_HEADROOM];
    unsigned char data[]; /* right behind the room */
};

struct message_queue {
    pthread_mutex_t lock;
    struct message *first; /* under the lock, as bytes */
    size_t bytes;
};

void message_queue_init(struct message_queue *q);
void message_queue_done(struct message_queue *q);

/* Copies. -1 without memory. */
int message_queue_push(struct message_queue *q, const void *data, size_t len, bool text,
                       bool final);

struct message *message_queue_pop(struct message_queue *q); /* returns new; NULL: empty */

size_t message_queue_count(struct message_queue *q);

/* Data bytes and a little for each message, so that empty ones count as well; 0: empty. */
size_t message_queue_bytes(struct message_queue *q);

#endif
