/* Which objects are on the disk. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "objects_disk.h"

#define DEPTH_MAX 8 /* of directories; keys of the project need four */

struct listing {
    int (*each)(void *ctx, const char *key, struct err *e);
    void *ctx;
    int depth;
    size_t len; /* of the path so far */
    char path[OBJECT_KEY_MAX + sizeof(OBJECT_SUFFIX)];
};

static int list_dir(struct listing *l, int dir, struct err *e);

/* A directory that has gone meanwhile has no objects. */
static int list_below(struct listing *l, int dir, const char *name, struct err *e)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? 0
                   : objects_disk_fail(e, "open a directory");
    }
    return list_dir(l, fd, e);
}

static int list_object(struct listing *l, size_t len, struct err *e)
{
    size_t suffix = strlen(OBJECT_SUFFIX);
    if (len <= suffix || strcmp(l->path + len - suffix, OBJECT_SUFFIX) != 0) {
        return 0;
    }
    l->path[len - suffix] = '\0';
    return l->each(l->ctx, l->path, e);
}

static int list_entry(struct listing *l, int dir, const struct dirent *entry, struct err *e)
{
    size_t before = l->len;
    size_t room = sizeof(l->path) - before;
    int n = snprintf(l->path + before, room, "%s%s", before > 0 ? "/" : "", entry->d_name);
    int rc = 0;
    if (entry->d_name[0] == '.' || n < 0 || (size_t)n >= room) {
        return 0;
    }
    l->len = before + (size_t)n;
    if (entry->d_type == DT_REG) {
        rc = list_object(l, l->len, e);
    } else if (entry->d_type != DT_LNK && l->depth < DEPTH_MAX) {
        rc = list_below(l, dir, entry->d_name, e);
    }
    l->len = before;
    return rc;
}

/* Takes the directory. */
static int list_dir(struct listing *l, int dir, struct err *e)
{
    DIR *d = fdopendir(dir);
    int rc = 0;
    if (d == NULL) {
        rc = objects_disk_fail(e, "read a directory");
        close(dir);
        return rc;
    }
    l->depth++;
    for (const struct dirent *entry; rc == 0 && (entry = readdir(d)) != NULL;) {
        rc = list_entry(l, dir, entry, e);
    }
    l->depth--;
    closedir(d);
    return rc;
}

int objects_disk_list(struct objects *o, const char *prefix,
                      int (*each)(void *ctx, const char *key, struct err *e), void *ctx,
                      struct err *e)
{
    struct listing l = {.each = each, .ctx = ctx};
    int n = snprintf(l.path, sizeof(l.path), "%s", prefix);
    if (n < 0 || (size_t)n >= sizeof(l.path)) {
        return err_set(e, ERR_INVALID_REQUEST, "a prefix has %d bytes at most", OBJECT_KEY_MAX);
    }
    l.len = (size_t)n;
    return list_below(&l, objects_disk_of(o)->root, n > 0 ? prefix : ".", e);
}
