/*
 * A walk over the files below a directory that agents write to: no link is followed, however deep
 * they went, and what they move meanwhile is seen once, twice or not at all, but never left by.
 */
#ifndef STORAGE_CHATDIR_WALK_H
#define STORAGE_CHATDIR_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "leasehold/err.h"

/* A regular file, as it was a moment ago. */
struct chatdir_entry {
    int dir; /* it stands in */
    const char *name;
    size_t depth; /* of that directory; 0: where the walk began */
    const struct stat *st;
};

struct chatdir_visitor {
    int (*file)(void *ctx, const struct chatdir_entry *f, struct err *e); /* -1 ends the walk */
    void *ctx;
};

/* No directory is no file. *ret_over: there is more than one walk looks at. */
int chatdir_walk(const char *path, const struct chatdir_visitor *v, bool *ret_over,
                 struct err *e) MUST_CHECK;

#endif
