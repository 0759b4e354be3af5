/*
 * Sources of binds: checked, then mounted as what was checked.
 *
 * No component of a source may be a symlink. As root, the checked descriptor itself is cloned as a
 * mount and moved below STAGE in a mount namespace of our own, so a path that is exchanged later
 * changes nothing, and sources below directories closed to the agent's uid can be reached by the
 * bwrap that runs with it. The clone carries nosuid, nodev and read-only; bwrap, in a lesser user
 * namespace, cannot take them off again.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "keep.h"

/* Where bwrap builds the new root as well, in its own namespace; exists everywhere. */
#define STAGE "/tmp"

struct source {
    const char **path; /* in the spec */
    char *staged;      /* there, too: room for the path that will stand for it */
    const char *what;  /* its place in the sandbox, for messages */
    bool writable;
    bool is_dir;
    int map_fd; /* the user namespace of its ids, -1: as they are; of another */
    int fd;     /* the checked object; then the mount */
};

static int open_checked(struct source *src, struct fault *f)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    src->fd = (int)syscall(SYS_openat2, AT_FDCWD, *src->path, &how, sizeof(how));
    if (src->fd < 0 && errno == ELOOP)
        return fault_set(f, "the source of %s has a symlink in its path", src->what);
    if (src->fd < 0)
        return fault_sys(f, "the source of %s", src->what);
    struct stat st;
    if (fstat(src->fd, &st) < 0)
        return fault_sys(f, "the source of %s", src->what);
    src->is_dir = S_ISDIR(st.st_mode);
    if (!src->is_dir && !S_ISREG(st.st_mode))
        return fault_set(f, "the source of %s is neither file nor directory", src->what);
    return 0;
}

static size_t list_sources(struct keep_spec *s, int map_fd, struct source *ret)
{
    size_t n = 0;
    ret[n++] = (struct source){.path = &s->box, .what = BOX_DIR, .map_fd = -1, .fd = -1};
    for (size_t i = 0; i < s->helpers_n; i++)
        ret[n++] = (struct source){
            .path = &s->helpers[i].source, .what = s->helpers[i].target, .map_fd = -1, .fd = -1};
    for (size_t i = 0; i < s->binds_n; i++)
        ret[n++] = (struct source){.path = &s->binds[i].source,
                                   .what = s->binds[i].target,
                                   .writable = s->binds[i].writable,
                                   .map_fd = s->binds[i].mapped ? map_fd : -1,
                                   .fd = -1};
    for (size_t i = 0; i < n; i++)
        ret[i].staged = s->staged[i];
    return n;
}

/* The box is read-only in the sandbox, so bwrap could not make the mount points of helpers. */
static int make_helper_points(const struct keep_spec *s, int box_fd, struct fault *f)
{
    for (size_t i = 0; i < s->helpers_n; i++) {
        const char *name = s->helpers[i].target;
        int fd =
            openat(box_fd, name, O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0444);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
            return fault_sys(f, "the mount point of %s", name);
        close(fd);
        if (!S_ISREG(st.st_mode))
            return fault_set(f, "the mount point of %s is no file", name);
    }
    return 0;
}

/* By itself, so that its failure has a name: not every file system can, and not every kernel. */
static int map_mount(const struct source *src, struct fault *f)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)src->map_fd};
    if (mount_setattr(src->fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return fault_sys(f, "the file system of %s takes no mount with other ids", src->what);
    return 0;
}

static int clone_mount(struct source *src, struct fault *f)
{
    int tree = open_tree(src->fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (tree < 0)
        return fault_sys(f, "cannot clone the mount of %s", src->what);
    close(src->fd);
    src->fd = tree;
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                          (src->writable ? 0 : MOUNT_ATTR_RDONLY),
                              .propagation = MS_PRIVATE};
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return fault_sys(f, "cannot restrict the mount of %s", src->what);
    return src->map_fd >= 0 ? map_mount(src, f) : 0;
}

static int make_point(const char *path, bool is_dir)
{
    if (is_dir)
        return mkdir(path, 0755);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd >= 0)
        close(fd);
    return fd >= 0 ? 0 : -1;
}

/* Sources below STAGE are cloned already when it is covered. */
static int place_mounts(struct source *src, size_t n, struct fault *f)
{
    if (mount("leasekeep", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") < 0)
        return fault_sys(f, "cannot mount on " STAGE);
    for (size_t i = 0; i < n; i++) {
        char *path = src[i].staged;
        snprintf(path, KEEP_STAGED, STAGE "/%zu", i);
        if (make_point(path, src[i].is_dir) < 0 ||
            move_mount(src[i].fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return fault_sys(f, "cannot stage %s", src[i].what);
        *src[i].path = path;
    }
    if (mount(NULL, STAGE, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        return fault_sys(f, "cannot close " STAGE);
    return 0;
}

static int enter_namespace(struct fault *f)
{
    if (unshare(CLONE_NEWNS) < 0)
        return fault_sys(f, "cannot make a mount namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return fault_sys(f, "cannot make the mounts private");
    return 0;
}

static void close_all(struct source *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (src[i].fd >= 0)
            close(src[i].fd);
}

/* All of one sandbox: checked and, if it is to be staged, cloned. */
static int open_all(struct keep_spec *s, bool staged, struct source *src, size_t n, struct fault *f)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        r = open_checked(&src[i], f);
    if (r == 0)
        r = make_helper_points(s, src[0].fd, f);
    for (size_t i = 0; r == 0 && staged && i < n; i++)
        r = clone_mount(&src[i], f);
    return r;
}

/* How many sources there are; 0: it cannot be, and is not there any more. */
static size_t open_beside(struct keep_spec *s, struct source *src, struct fault *why)
{
    int map_fd = idmap_open((struct keep_ids){s->uid, s->gid},
                            (struct keep_ids){s->beside->uid, s->beside->gid});
    size_t n = list_sources(s->beside, map_fd, src);
    int r = map_fd < 0 ? fault_sys(why, "a user namespace for the ids of tools")
                       : open_all(s->beside, true, src, n, why);
    if (map_fd >= 0)
        close(map_fd);
    if (r == 0)
        return n;
    close_all(src, n);
    spec_free_beside(&s->beside);
    return 0;
}

int mounts_stage(struct keep_spec *s, struct fault *f, struct fault *why)
{
    struct source src[2 * KEEP_SOURCES_MAX]; /* with those of the tools' sandbox */
    bool staged = geteuid() == 0;
    size_t n = list_sources(s, -1, src);
    int r = staged ? enter_namespace(f) : 0;
    if (r == 0)
        r = open_all(s, staged, src, n, f);
    if (r == 0 && s->beside != NULL)
        n += open_beside(s, src + n, why);
    if (r == 0 && staged)
        r = place_mounts(src, n, f);
    close_all(src, n);
    return r;
}

int mounts_map(const char *source, const char *target, struct keep_ids from, struct keep_ids to,
               struct fault *f)
{
    struct source src = {.path = &source, .what = "the chat", .writable = true, .fd = -1};
    src.map_fd = idmap_open(from, to);
    int r = src.map_fd < 0 ? fault_sys(f, "a user namespace for the ids of tools")
                           : open_checked(&src, f);
    if (r == 0)
        r = clone_mount(&src, f);
    if (r == 0 && move_mount(src.fd, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        r = fault_sys(f, "cannot mount the chat for tools");
    close_all(&src, 1);
    if (src.map_fd >= 0)
        close(src.map_fd);
    return r;
}
