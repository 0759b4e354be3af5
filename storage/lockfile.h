/*
 * The file beside the database (<path>.lock) that keeps a second process out (no other program may
 * write or checkpoint) and remembers whether the last one closed the database.
 */
#ifndef STORAGE_LOCKFILE_H
#define STORAGE_LOCKFILE_H

#include <stdbool.h>

#include "leasehold/err.h"

struct lockfile {
    int fd; /* -1: not held */
};

/* *ret_clean: the last owner closed the database. */
int lockfile_take(const char *db_path, struct lockfile *ret, bool *ret_clean,
                  struct err *e) MUST_CHECK;
int lockfile_mark(struct lockfile *l, bool clean, struct err *e) MUST_CHECK; /* durable */
bool lockfile_is_held(const char *db_path);
void lockfile_drop(struct lockfile *l);

#endif
