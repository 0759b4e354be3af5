/* What the parts of the disk store share. */
#ifndef STORAGE_OBJECTS_DISK_H
#define STORAGE_OBJECTS_DISK_H

#include "leasehold/objects.h"

#define DISK_SECRET_LEN 32
#define OBJECT_SUFFIX   ".obj" /* of files, never of directories: "a" may be a key beside "a/b" */

struct objects_disk {
    struct objects base;
    int root, temp; /* directories; constant */
    int lock;       /* held for as long as the store is open */
    uint8_t secret[DISK_SECRET_LEN];
};

static inline struct objects_disk *objects_disk_of(struct objects *o)
{
    return (struct objects_disk *)o;
}

int objects_disk_secret(int root, uint8_t ret[static DISK_SECRET_LEN], struct err *e) MUST_CHECK;
int objects_disk_presign(struct objects *o, const struct object_presign *p, struct buf *ret,
                         struct err *e) MUST_CHECK;

int objects_disk_list(struct objects *o, const char *prefix,
                      int (*each)(void *ctx, const char *key, struct err *e), void *ctx,
                      struct err *e) MUST_CHECK;

/* ERR_STORAGE_FULL or ERR_INTERNAL by errno. */
int objects_disk_fail(struct err *e, const char *what) MUST_CHECK;

#endif
