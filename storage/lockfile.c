#include "lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "leasehold/owned_file.h"
#include "leasehold/process.h"

#define MARK_LEN 6 /* each, so that one write replaces the other */

static const char *const marks[] = {
    [LOCKFILE_OPEN] = "open \n", [LOCKFILE_CLEAN] = "clean\n", [LOCKFILE_DAMAGED] = "bad  \n"};

static enum lockfile_mark mark_read(int fd)
{
    char mark[MARK_LEN];
    if (pread(fd, mark, sizeof(mark), 0) != (ssize_t)sizeof(mark)) {
        return LOCKFILE_OPEN;
    }
    if (memcmp(mark, marks[LOCKFILE_CLEAN], MARK_LEN) == 0) {
        return LOCKFILE_CLEAN;
    }
    return memcmp(mark, marks[LOCKFILE_DAMAGED], MARK_LEN) == 0 ? LOCKFILE_DAMAGED : LOCKFILE_OPEN;
}

int lockfile_take(const char *db_path, struct lockfile *ret, enum lockfile_mark *ret_mark,
                  struct err *e)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof(path), "%s.lock", db_path);
    if (len < 0 || (size_t)len >= sizeof(path)) {
        return err_set(e, ERR_INTERNAL, "the path of the database is too long");
    }
    int fd = owned_open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC, NULL);
    if (fd < 0) {
        return err_sys(e, ERR_INTERNAL, errno, "cannot open %s", path);
    }
    if (process_lock(fd) != 0) {
        int sys = errno;
        close(fd);
        return err_sys(e, ERR_INTERNAL, sys, "%s is held: does another leasehold run?", path);
    }
    *ret_mark = mark_read(fd);
    ret->fd = fd;
    return 0;
}

int lockfile_mark(struct lockfile *l, enum lockfile_mark mark, struct err *e)
{
    if (pwrite(l->fd, marks[mark], MARK_LEN, 0) != (ssize_t)MARK_LEN || fdatasync(l->fd) != 0) {
        return err_sys(e, errno == ENOSPC ? ERR_STORAGE_FULL : ERR_INTERNAL, errno,
                       "cannot mark the database as %.5s", marks[mark]);
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
