#include "leasehold/chatdir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "chat_history.h"

#define HISTORY_IMAGE_MAX 65536
#define NAME_TEXT         (ID_TEXT + 8)
#define WAYS_MAX          16

/* Who the sandbox's agent is; of nobody else when the gateway cannot give files away. */
struct agent {
    bool known;
    uid_t uid;
    gid_t gid;
};

static int not_ours(struct err *e, const char *name)
{
    return err_set(e, ERR_CONFLICT, "%s in the chat's directory is not what the gateway made",
                   name);
}

static int fail_sys(struct err *e, int sys, const char *name)
{
    if (sys == ELOOP || sys == ENOTDIR) {
        return not_ours(e, name);
    }
    bool full = sys == ENOSPC || sys == EDQUOT;
    return err_sys(e, full ? ERR_STORAGE_FULL : ERR_INTERNAL, sys, "chat directory, %s", name);
}

/* --- directories ------------------------------------------------------------------------------ */

static int set_owner_and_mode(int fd, const struct agent *owner, struct err *e, const char *name)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return fail_sys(e, errno, name);
    }
    uid_t uid = owner->known ? owner->uid : geteuid();
    if (owner->known && (st.st_uid != uid || st.st_gid != owner->gid)) {
        if (fchown(fd, uid, owner->gid) != 0) {
            return fail_sys(e, errno, name);
        }
    } else if (st.st_uid != uid) {
        return not_ours(e, name);
    }
    if ((st.st_mode & 07777) != 0700 && fchmod(fd, 0700) != 0) {
        return fail_sys(e, errno, name);
    }
    return 0;
}

/* Makes or opens the directory `name` in `parent`, 0700 and the owner's, and makes its entry
 * durable: also an older one, whose maker may have been killed before it did. Returns its fd. */
static int open_dir(int parent, const char *name, const struct agent *owner, struct err *e)
{
    if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST) {
        return fail_sys(e, errno, name);
    }
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return fail_sys(e, errno, name);
    }
    int rc = set_owner_and_mode(fd, owner, e, name);
    if (rc == 0 && fsync(parent) != 0) {
        rc = fail_sys(e, errno, name);
    }
    if (rc != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The names below a directory, made as far as they are missing. Returns the fd of the last. */
static int open_way(const char *root, const char *const *names, size_t n, struct err *e)
{
    static const struct agent gateway = {.known = false};
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return err_sys(e, ERR_INTERNAL, errno, "cannot open the workspace root %s", root);
    }
    for (size_t i = 0; fd >= 0 && i < n; i++) {
        int child = open_dir(fd, names[i], &gateway, e);
        close(fd);
        fd = child;
    }
    return fd;
}

/* <root>/<user_id>/chats/<chat_id>. The empty directories of a workspace that is being deleted may go
 * on the way: then once more. */
static int open_chat_dir(const char *root, const struct id *user_id, const struct id *chat_id,
                         struct err *e)
{
    const char *const names[] = {ID_STR(user_id), "chats", ID_STR(chat_id)};
    int fd = -1;
    e->sys = ENOENT;
    for (int i = 0; i < WAYS_MAX && fd < 0 && e->sys == ENOENT; i++) {
        fd = open_way(root, names, sizeof(names) / sizeof(names[0]), e);
    }
    return fd;
}

/* --- files ------------------------------------------------------------------------------------ */

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* Agents of `readers` may read it through a bind mount; the directory keeps all others out. */
static int fill_file(int fd, const struct buf *content, const struct agent *readers)
{
    if (readers->known && (fchown(fd, (uid_t)-1, readers->gid) != 0 || fchmod(fd, 0640) != 0)) {
        return -1;
    }
    return write_all(fd, content->data, content->len) == 0 && fsync(fd) == 0 ? 0 : -1;
}

/* Under another name first: the file is there whole or not at all, and never replaces one. */
static int create_file(int dir, const char *name, const struct buf *content,
                       const struct agent *readers, struct err *e)
{
    struct id random;
    char temporary[NAME_TEXT];
    id_random(&random);
    snprintf(temporary, sizeof(temporary), ".new-%s", ID_STR(&random));
    int fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return fail_sys(e, errno, name);
    }
    int rc = fill_file(fd, content, readers);
    if (rc == 0) {
        rc = renameat2(dir, temporary, dir, name, RENAME_NOREPLACE);
    }
    int sys = errno;
    close(fd);
    if (rc == 0) {
        return 0;
    }
    unlinkat(dir, temporary, 0);
    return sys == EEXIST ? 0 : fail_sys(e, sys, name); /* another one was first: as good */
}

/* Is there a file of ours? Never opens it: to close history.db would drop locks SQLite holds. */
static int check_file(int dir, const char *name, bool *ret_exists, struct err *e)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        *ret_exists = false;
        return errno == ENOENT ? 0 : fail_sys(e, errno, name);
    }
    *ret_exists = true;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1) {
        return not_ours(e, name);
    }
    return 0;
}

static int make_history_db(int dir, struct err *e)
{
    static const struct agent nobody = {.known = false};
    bool exists;
    if (check_file(dir, "history.db", &exists, e) != 0) {
        return -1;
    }
    if (exists) {
        return 0;
    }
    struct buf image;
    buf_init(&image, HISTORY_IMAGE_MAX);
    int rc = chat_history_image(&image, e);
    if (rc == 0) {
        rc = create_file(dir, "history.db", &image, &nobody, e);
    }
    buf_done(&image);
    return rc;
}

static int make_history_md(int dir, const struct id *chat_id, const struct agent *agent,
                           struct err *e)
{
    bool exists;
    if (check_file(dir, "history.md", &exists, e) != 0) {
        return -1;
    }
    if (exists) {
        return 0;
    }
    struct buf heading;
    buf_init(&heading, 256);
    buf_printf(&heading, "# %s\n", ID_STR(chat_id));
    int rc = buf_ok(&heading) ? create_file(dir, "history.md", &heading, agent, e)
                              : err_set(e, ERR_INTERNAL, "no memory for a heading");
    buf_done(&heading);
    return rc;
}

int chatdir_make(const char *root, const struct id *user_id, const struct id *chat_id, int64_t uid,
                 int64_t gid, struct err *e)
{
    const struct agent agent = {.known = geteuid() == 0, .uid = (uid_t)uid, .gid = (gid_t)gid};
    int dir = open_chat_dir(root, user_id, chat_id, e);
    if (dir < 0) {
        return -1;
    }
    int files = -1;
    if (make_history_db(dir, e) == 0 && make_history_md(dir, chat_id, &agent, e) == 0) {
        files = open_dir(dir, "files", &agent, e); /* its sync is for the other two as well */
    }
    close(dir);
    if (files < 0) {
        return -1;
    }
    close(files);
    return 0;
}

/* --- paths ------------------------------------------------------------------------------------ */

static int open_beneath(int root_fd, const char *path)
{
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
}

/* Is `path` below root, without symlinks, a thing of this type? */
static int check_beneath(const char *root, const char *path, mode_t type, struct err *e)
{
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0) {
        return err_sys(e, ERR_INTERNAL, errno, "cannot open the workspace root %s", root);
    }
    struct stat st;
    int fd = open_beneath(root_fd, path);
    int rc = fd >= 0 ? fstat(fd, &st) : -1;
    int sys = errno;
    if (fd >= 0) {
        close(fd);
    }
    close(root_fd);
    if (rc != 0) {
        return sys == ENOENT ? err_set(e, ERR_CHAT_NOT_FOUND, "the chat has no directory")
                             : fail_sys(e, sys == EXDEV ? ELOOP : sys, "a part");
    }
    return (st.st_mode & S_IFMT) == type ? 0 : not_ours(e, "a part");
}

static int checked_path(const char *root, const struct id *user_id, const struct id *chat_id,
                        const char *name, mode_t type, char *ret, size_t size, struct err *e)
{
    char below[2 * ID_TEXT + 32], absolute_root[PATH_MAX];
    snprintf(below, sizeof(below), "%s/chats/%s/%s", ID_STR(user_id), ID_STR(chat_id), name);
    if (check_beneath(root, below, type, e) != 0) {
        return -1;
    }
    if (realpath(root, absolute_root) == NULL) {
        return err_sys(e, ERR_INTERNAL, errno, "cannot resolve the workspace root %s", root);
    }
    if (strlen(absolute_root) + 1 + strlen(below) >= size) {
        return err_set(e, ERR_INTERNAL, "the path of the workspace root is too long");
    }
    snprintf(ret, size, "%s/%s", absolute_root, below);
    return 0;
}

int chatdir_files_path(const char *root, const struct id *user_id, const struct id *chat_id,
                       char *ret, size_t size, struct err *e)
{
    return checked_path(root, user_id, chat_id, "files", S_IFDIR, ret, size, e);
}

int chatdir_history_md_path(const char *root, const struct id *user_id, const struct id *chat_id,
                            char *ret, size_t size, struct err *e)
{
    return checked_path(root, user_id, chat_id, "history.md", S_IFREG, ret, size, e);
}
