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

enum lockfile_mark {
    LOCKFILE_OPEN,    /* or nobody has said */
    LOCKFILE_CLEAN,   /* closed in order, and whole as far as anybody knows */
    LOCKFILE_DAMAGED, /* a check has found it so */
};

/* *ret_mark: what the last owner has left. */
int lockfile_take(const char *db_path, struct lockfile *ret, enum lockfile_mark *ret_mark,
                  struct err *e) MUST_CHECK;
int lockfile_mark(struct lockfile *l, enum lockfile_mark mark,
                  struct err *e) MUST_CHECK; /* durable */
bool lockfile_is_held(const char *db_path);
void lockfile_drop(struct lockfile *l);

#endif
