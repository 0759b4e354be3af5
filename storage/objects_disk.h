/* What the parts of the disk store share. */
#ifndef STORAGE_OBJECTS_DISK_H
#define STORAGE_OBJECTS_DISK_H

#include "leasehold/objects.h"

#define DISK_SECRET_LEN 32
#define OBJECT_SUFFIX   ".obj" /* of files, never of directories: "a" may be a key beside "a/b" */
#define DISK_PATH_TEXT  (OBJECT_KEY_MAX + sizeof(OBJECT_SUFFIX))
#define DISK_FOOT_LEN   256 /* of the line behind the bytes */
#define DISK_CHUNK_LEN  (256u * 1024)

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

/* Where the object of a key stands, below the root. */
int objects_disk_path(const char *key, char ret[static DISK_PATH_TEXT], struct err *e) MUST_CHECK;
/* The part of `path` before its last slash, "." without one. */
void objects_disk_parent(const char *path, char ret[static DISK_PATH_TEXT]);
int objects_disk_sync_dir(int root, const char *dir); /* -1 with errno */

/* Members of the vtable. */
int objects_disk_put(struct objects *o, const struct object_put *p, struct object_info *ret,
                     struct err *e) MUST_CHECK;
int objects_disk_spool(struct objects *o, int *ret_fd, struct err *e) MUST_CHECK;
int objects_disk_adopt(struct objects *o, const struct object_put *p, int fd,
                       struct object_info *ret, struct err *e) MUST_CHECK;

/* ERR_STORAGE_FULL or ERR_INTERNAL by errno. */
int objects_disk_fail(struct err *e, const char *what) MUST_CHECK;

#endif
