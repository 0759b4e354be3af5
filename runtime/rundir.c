#include "rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "leasehold/tool_link.h"

#define LEVELS_MAX 8 /* three are in use; a bound on the recursion */

int rundir_paths(const char *run_dir, const struct id *session_id, struct rundir *ret,
                 struct err *e)
{
    const char *session = ID_STR(session_id);
    int n = snprintf(ret->tools_socket, sizeof ret->tools_socket, "%s/%s/box/" TOOL_DIR_BOX,
                     run_dir, session);

    snprintf(ret->path, sizeof ret->path, "%s/%s", run_dir, session);
    snprintf(ret->box, sizeof ret->box, "%s/%s/box", run_dir, session);
    snprintf(ret->tools_links, sizeof ret->tools_links, "%s/%s/links", run_dir, session);
    snprintf(ret->tools_box, sizeof ret->tools_box, "%s/%s/tools", run_dir, session);
    if (n < 0 || (size_t)n >= sizeof ret->tools_socket)
        return err_set(e, ERR_SANDBOX_START_FAILED, "run_dir is too long a path");
    return 0;
}

int rundir_make(const struct rundir *r, struct err *e)
{
    if (mkdir(r->path, 0700))
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "make the run directory");
    /* 0755 whatever the umask: the agent looks up its socket in it. */
    if (mkdir(r->box, 0755) || chmod(r->box, 0755)) {
        err_sys(e, ERR_SANDBOX_START_FAILED, errno, "make the box directory");
        rmdir(r->path);
        return -1;
    }
    return 0;
}

/* A mount beneath is not gone through. By the kind of mount, not by st_dev: an overlay file system
 * answers another st_dev for its files than for their directories. -1 with errno. */
static int open_beneath(int parent, const char *name)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };

    return (int)syscall(SYS_openat2, parent, name, &how, sizeof how);
}

static int remove_beneath(int parent, const char *name, int levels);

/* Takes `fd`. */
static int empty(int fd, int levels)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    int rc = 0, sys;

    if (!dir) {
        sys = errno;
        close(fd);
        errno = sys;
        return -1;
    }
    while (!rc && (errno = 0, entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = remove_beneath(dirfd(dir), entry->d_name, levels);
    }
    sys = errno;
    closedir(dir);
    errno = sys;
    return rc || sys ? -1 : 0;
}

static int remove_beneath(int parent, const char *name, int levels)
{
    int fd;

    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR || levels == 0)
        return -1;
    fd = open_beneath(parent, name);
    if (fd < 0 || empty(fd, levels - 1))
        return -1;
    return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -1;
}

int rundir_remove(const struct rundir *r, struct err *e)
{
    int fd = open(r->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || empty(fd, LEVELS_MAX) || (rmdir(r->path) && errno != ENOENT))
        return err_sys(e, ERR_SANDBOX_STOP_FAILED, errno, "remove the run directory");
    return 0;
}

void rundir_log_tail(const char *path, const char *name, char *ret, size_t size)
{
    char file[PATH_MAX];
    struct stat st;
    ssize_t n = 0;
    int fd = -1;
    char *line;

    if ((size_t)snprintf(file, sizeof file, "%s/%s", path, name) < sizeof file)
        fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && !fstat(fd, &st))
        n = pread(fd, ret, size - 1, st.st_size < (off_t)size ? 0 : st.st_size - (off_t)size + 1);
    if (fd >= 0)
        close(fd);
    while (n > 0 && ret[n - 1] == '\n')
        n--;
    ret[n > 0 ? n : 0] = '\0';
    line = n > 0 && st.st_size >= (off_t)size ? strchr(ret, '\n') : NULL;
    if (line) /* the one before was cut */
        memmove(ret, line + 1, strlen(line));
}

int rundir_each(const char *run_dir,
                int (*each)(void *ctx, const struct id *session_id, struct err *e), void *ctx,
                struct err *e)
{
    DIR *dir = opendir(run_dir);
    struct dirent *entry;
    struct id id;
    int rc = 0;

    if (!dir)
        return err_sys(e, ERR_SANDBOX_LIST_FAILED, errno, "list the run directory");
    while (!rc && (errno = 0, entry = readdir(dir)))
        if (strlen(entry->d_name) == ID_TEXT - 1 && id_parse(entry->d_name, ID_TEXT - 1, &id))
            rc = each(ctx, &id, e);
    if (!rc && errno)
        rc = err_sys(e, ERR_SANDBOX_LIST_FAILED, errno, "list the run directory");
    closedir(dir);
    return rc;
}

void rundir_tools_chat_unmount(const char *path)
{
    while (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        ;
    rmdir(path);
}

static int unmount_one(void *ctx, const struct id *session_id, struct err *e)
{
    char path[PATH_MAX];

    (void)e;
    if ((size_t)snprintf(path, sizeof path, "%s/%s/" RUNDIR_TOOLS_CHAT, (const char *)ctx,
                         ID_STR(session_id)) < sizeof path)
        rundir_tools_chat_unmount(path);
    return 0;
}

int rundir_unmount_left(const char *run_dir, struct err *e)
{
    return rundir_each(run_dir, unmount_one, (void *)(uintptr_t)run_dir, e);
}
