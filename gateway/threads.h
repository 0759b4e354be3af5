/* The lanes of the gateway: which threads there are for what may block. */
#ifndef GATEWAY_THREADS_H
#define GATEWAY_THREADS_H

#include "services.h"

#define READ_THREADS   2
#define FILE_THREADS   4
#define SLOW_THREADS   2
#define BODY_THREADS   4
#define OBJECT_THREADS 4

/* Those that read from the store. */
#define THREADS_OF_STORE (READ_THREADS + FILE_THREADS + SLOW_THREADS + OBJECT_THREADS)

/* Makes the lanes of s; `queue_max` waiting jobs of each, 0: as many as is right. What was made
 * before a failure stays for app_done. */
int threads_make(struct services *s, size_t queue_max, struct err *e) MUST_CHECK;

#endif
