/*
 * The run directory: whose gateway runs on it, and that it is ready. Main thread.
 */
#ifndef GATEWAY_RUN_DIR_H
#define GATEWAY_RUN_DIR_H

#include "leasehold/config.h"
#include "leasehold/log.h"

/* Makes and locks it. It is the user's whose gateway was the first on it. *ret is the lock, -1 without. */
int run_dir_take(const struct config *cfg, struct log *log, int *ret, struct err *e) MUST_CHECK;

/* The file `ready`: the URL, the pid. */
int run_dir_ready(const struct config *cfg, const char *url, struct err *e) MUST_CHECK;
void run_dir_unready(const struct config *cfg);

#endif
