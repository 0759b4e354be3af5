/* What the parts of the disk store share. */
#ifndef STORAGE_OBJECTS_DISK_H
#define STORAGE_OBJECTS_DISK_H

#include "leasehold/objects.h"

#define DISK_SECRET_LEN 32

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

/* ERR_STORAGE_FULL or ERR_INTERNAL by errno. */
int objects_disk_fail(struct err *e, const char *what) MUST_CHECK;

#endif
