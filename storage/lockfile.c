#include "lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/process.h"

static const char clean_mark[] = "clean\n";
static const char open_mark[] = "open \n"; /* as long, so that one write replaces the other */

#define MARK_LEN (sizeof(clean_mark) - 1)

int lockfile_take(const char *db_path, struct lockfile *ret, bool *ret_clean, struct err *e)
{
    char path[PATH_MAX], mark[MARK_LEN];
    int len = snprintf(path, sizeof(path), "%s.lock", db_path);
    if (len < 0 || (size_t)len >= sizeof(path)) {
        return err_set(e, ERR_INTERNAL, "the path of the database is too long");
    }
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_sys(e, ERR_INTERNAL, errno, "cannot open %s", path);
    }
    if (process_lock(fd) != 0) {
        int sys = errno;
        close(fd);
        return err_sys(e, ERR_INTERNAL, sys, "%s is held: does another leasehold run?", path);
    }
    *ret_clean = pread(fd, mark, sizeof(mark), 0) == (ssize_t)sizeof(mark) &&
                 memcmp(mark, clean_mark, sizeof(mark)) == 0;
    ret->fd = fd;
    return 0;
}

int lockfile_mark(struct lockfile *l, bool clean, struct err *e)
{
    const char *mark = clean ? clean_mark : open_mark;
    if (pwrite(l->fd, mark, MARK_LEN, 0) != (ssize_t)MARK_LEN || fdatasync(l->fd) != 0) {
        return err_sys(e, errno == ENOSPC ? ERR_STORAGE_FULL : ERR_INTERNAL, errno,
                       "cannot mark the database as %s", clean ? "closed" : "open");
    }
    return 0;
}

void lockfile_drop(struct lockfile *l)
{
    if (l->fd >= 0) {
        close(l->fd);
        l->fd = -1;
    }
}

bool lockfile_is_held(const char *db_path)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof(path), "%s.lock", db_path) >= sizeof(path)) {
        return false;
    }
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool held = process_lock(fd) != 0;
    close(fd);
    return held;
}
