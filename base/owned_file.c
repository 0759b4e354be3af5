#include "leasehold/owned_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 8 /* of a file that somebody makes and removes meanwhile */

/* By descriptor, and only of what was made just now: a path could lead elsewhere the next moment. */
int owned_give(int fd, const char *path)
{
    char copy[PATH_MAX];
    struct stat st;

    if (geteuid() != 0)
        return 0;
    if (strlen(path) >= sizeof copy) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(copy, path, strlen(path) + 1);
    if (stat(dirname(copy), &st))
        return -1;
    return st.st_uid == 0 ? 0 : fchown(fd, st.st_uid, st.st_gid);
}

static int make(const char *path, int flags, bool *ret_made)
{
    int fd = open(path, flags | O_CREAT | O_EXCL, 0600);

    if (fd < 0)
        return -1;
    if (owned_give(fd, path)) {
        int sys = errno;

        close(fd);
        unlink(path);
        errno = sys;
        return -1;
    }
    *ret_made = true;
    return fd;
}

int owned_open(const char *path, int flags, bool *ret_made)
{
    bool made = false;
    int fd = -1;

    for (int i = 0; i < TRIES && fd < 0; i++) {
        fd = make(path, flags, &made);
        if (fd < 0 && (errno != EEXIST || flags & O_EXCL))
            break;
        if (fd < 0)
            fd = open(path, flags);
        if (fd < 0 && errno != ENOENT)
            break;
    }
    if (ret_made)
        *ret_made = made;
    return fd;
}

int owned_mkdir(const char *path, mode_t mode)
{
    int fd, rc, sys;

    if (mkdir(path, 0700))
        return -1;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    rc = fd < 0 || fchmod(fd, mode) || owned_give(fd, path) ? -1 : 0;
    sys = errno;
    if (fd >= 0)
        close(fd);
    errno = sys;
    return rc;
}
