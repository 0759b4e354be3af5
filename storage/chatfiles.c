#include "leasehold/chatfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "chatfiles.h"
#include "hex.h"
#include "leasehold/chatdir.h"
#include "leasehold/file_name.h"

#define HASH_BLOCK (256 * 1024)
#define HASH_LOOK  (64 * 1024 * 1024) /* read between two looks whether it is still the same */
#define NS_PER_S   1000000000

static int open_beneath(int dir, const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = flags | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

int chatfile_fail(struct err *e, int sys, const char *what)
{
    bool full = sys == ENOSPC || sys == EDQUOT;
    return err_sys(e, full ? ERR_STORAGE_FULL : ERR_INTERNAL, sys, "chat files, %s", what);
}

static int missing(struct err *e)
{
    return err_set(e, ERR_CHAT_FILE_NOT_FOUND, "no such file");
}

/* --- the directories -------------------------------------------------------------------------- */

static int open_part(int dir, const char *path, int *ret, struct err *e)
{
    int fd = open_beneath(dir, path, O_RDONLY | O_DIRECTORY);
    if (fd >= 0) {
        *ret = fd;
        return 0;
    }
    if (errno == ENOENT) {
        return err_set(e, ERR_CHAT_NOT_FOUND, "the chat has no directory");
    }
    if (errno == ELOOP || errno == ENOTDIR || errno == EXDEV) {
        return err_set(e, ERR_CONFLICT, "the chat's directory is not what the gateway made");
    }
    return chatfile_fail(e, errno, "its directory");
}

static int open_parts(int root, const char *path, struct chatfiles *d, struct err *e)
{
    struct stat st;
    if (open_part(root, path, &d->chat_fd, e) != 0 ||
        open_part(d->chat_fd, "files", &d->files_fd, e) != 0) {
        return -1;
    }
    if (fstat(d->files_fd, &st) != 0) {
        return chatfile_fail(e, errno, "its directory");
    }
    d->uid = st.st_uid;
    d->gid = st.st_gid;
    return 0;
}

int chatfiles_open(const char *root, const struct id *user_id, const struct id *chat_id,
                   struct chatfiles *ret, struct err *e)
{
    char path[2 * ID_TEXT + 16];
    struct chatfiles d = {.chat_fd = -1, .files_fd = -1};
    snprintf(path, sizeof(path), "%s/chats/%s", ID_STR(user_id), ID_STR(chat_id));
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0) {
        return err_sys(e, ERR_INTERNAL, errno, "cannot open the workspace root %s", root);
    }
    int rc = open_parts(root_fd, path, &d, e);
    close(root_fd);
    if (rc != 0) {
        chatfiles_close(&d);
        return -1;
    }
    *ret = d;
    return 0;
}

void chatfiles_close(struct chatfiles *d)
{
    if (d->files_fd >= 0) {
        close(d->files_fd);
    }
    if (d->chat_fd >= 0) {
        close(d->chat_fd);
    }
    d->chat_fd = d->files_fd = -1;
}

/* --- one file --------------------------------------------------------------------------------- */

static void stamp_of(const struct stat *st, struct file_stamp *ret)
{
    *ret = (struct file_stamp){
        .size_bytes = st->st_size,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec,
        .ctime_ns = (int64_t)st->st_ctim.tv_sec * NS_PER_S + st->st_ctim.tv_nsec,
        .ino = st->st_ino,
    };
}

bool file_stamp_equal(const struct file_stamp *a, const struct file_stamp *b)
{
    return a->size_bytes == b->size_bytes && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns && a->ino == b->ino;
}

/* A file of the chat's: not somebody else's that has got a second name in here. */
static bool is_file(const struct chatfiles *d, const struct stat *st)
{
    return S_ISREG(st->st_mode) && (st->st_nlink == 1 || st->st_uid == d->uid);
}

/* The same of an opened one. A file of somebody else that has lost its name in here since it was opened
 * has one name, too: but not this one, and no agent can give it that again. */
static bool is_opened_file(const struct chatfiles *d, const char *path, const struct stat *st)
{
    struct stat now;
    if (!is_file(d, st) || st->st_uid == d->uid) {
        return is_file(d, st);
    }
    int fd = open_beneath(d->files_fd, path, O_PATH);
    if (fd < 0) {
        return false;
    }
    bool same = fstat(fd, &now) == 0 && now.st_ino == st->st_ino && now.st_dev == st->st_dev &&
                now.st_nlink == 1;
    close(fd);
    return same;
}

int chatfile_stamp(int fd, struct file_stamp *ret, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return chatfile_fail(e, errno, "a file");
    }
    stamp_of(&st, ret);
    return 0;
}

int chatfiles_read_beneath(const struct chatfiles *d, const char *path, int *ret_fd,
                           struct file_stamp *ret_stamp, struct err *e)
{
    struct stat st;
    /* Non-blocking: neither a pipe without a writer nor a lease that an agent holds keeps us. */
    int fd = open_beneath(d->files_fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (errno == EAGAIN) {
            return err_set(e, ERR_CONFLICT, "the agent holds this file");
        }
        bool absent = errno == ENOENT || errno == ELOOP || errno == ENXIO || errno == EXDEV ||
                      errno == ENOTDIR || errno == EACCES || errno == ENODEV ||
                      errno == ENAMETOOLONG;
        return absent ? missing(e) : chatfile_fail(e, errno, "a file");
    }
    if (fstat(fd, &st) != 0 || !is_opened_file(d, path, &st)) {
        close(fd);
        return missing(e);
    }
    stamp_of(&st, ret_stamp);
    *ret_fd = fd;
    return 0;
}

int chatfiles_read(const struct chatfiles *d, const char *name, int *ret_fd,
                   struct file_stamp *ret_stamp, struct err *e)
{
    return file_name_valid(name) ? chatfiles_read_beneath(d, name, ret_fd, ret_stamp, e)
                                 : missing(e);
}

int chatfiles_stat(const struct chatfiles *d, const char *name, struct file_stamp *ret,
                   struct err *e)
{
    struct stat st;
    if (!file_name_valid(name) || fstatat(d->files_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !is_file(d, &st)) {
        return missing(e);
    }
    stamp_of(&st, ret);
    return 0;
}

void file_gone_of(const struct stat *st, struct file_gone *ret)
{
    *ret = (struct file_gone){
        .bytes = st->st_nlink == 1 ? chatdir_size_shown(st->st_size) : 0,
        .ctime_ns = (int64_t)st->st_ctim.tv_sec * NS_PER_S + st->st_ctim.tv_nsec,
    };
}

int chatfiles_remove(const struct chatfiles *d, const char *name, struct file_gone *ret,
                     struct err *e)
{
    struct stat st;
    if (!file_name_valid(name) || fstatat(d->files_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !is_file(d, &st)) {
        return missing(e);
    }
    if (unlinkat(d->files_fd, name, 0) != 0) {
        return errno == ENOENT || errno == EISDIR ? missing(e)
                                                  : chatfile_fail(e, errno, "removing a file");
    }
    file_gone_of(&st, ret);
    return 0;
}

int chatfiles_sync(const struct chatfiles *d, struct err *e)
{
    return fsync(d->files_fd) == 0 ? 0 : chatfile_fail(e, errno, "removing a file");
}

/* --- all of them ------------------------------------------------------------------------------ */

static DIR *open_listing(int dir, struct err *e)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL) {
        chatfile_fail(e, errno, "a directory");
        if (fd >= 0) {
            close(fd);
        }
    }
    return d;
}

int chatfiles_each(const struct chatfiles *d, size_t max,
                   int (*each)(void *ctx, const char *name, const struct file_stamp *s,
                               struct err *e),
                   void *ctx, struct err *e)
{
    DIR *dir = open_listing(d->files_fd, e);
    if (dir == NULL) {
        return -1;
    }
    int rc = 0;
    struct dirent *entry;
    while (rc == 0 && max > 0 && (entry = readdir(dir)) != NULL) {
        struct file_stamp stamp;
        struct err ignored;
        max--;
        if (chatfiles_stat(d, entry->d_name, &stamp, &ignored) == 0) {
            rc = each(ctx, entry->d_name, &stamp, e);
        }
    }
    closedir(dir);
    return rc;
}

/* --- hashing ---------------------------------------------------------------------------------- */

struct hashing {
    int fd;
    const struct file_stamp *stamp;
    const atomic_bool *stop;
    EVP_MD_CTX *md;
    char *block;
    bool changed;
};

static bool has_changed(const struct hashing *h)
{
    struct file_stamp now;
    struct err ignored;
    return chatfile_stamp(h->fd, &now, &ignored) != 0 || !file_stamp_equal(&now, h->stamp);
}

/* A long one that has changed is not read to its end, which may be far: it may grow all the time. */
static int hash_all(struct hashing *h, struct err *e)
{
    int64_t at = 0, look_at = HASH_LOOK;
    (void)posix_fadvise(h->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    while (!h->changed) {
        ssize_t n = pread(h->fd, h->block, HASH_BLOCK, at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return chatfile_fail(e, errno, "reading a file");
        }
        if (n == 0) {
            return 0;
        }
        if (h->stop != NULL && *h->stop) {
            return err_set(e, ERR_BUSY, "the gateway is stopping");
        }
        if (EVP_DigestUpdate(h->md, h->block, (size_t)n) != 1) {
            return err_set(e, ERR_INTERNAL, "SHA-256 does not work");
        }
        at += n;
        if (at >= look_at) {
            h->changed = has_changed(h);
            look_at = at + HASH_LOOK;
        }
    }
    return 0;
}

int chatfile_hash(int fd, const struct file_stamp *stamp, const atomic_bool *stop,
                  char ret[static 65], bool *ret_stable, struct err *e)
{
    uint8_t hash[32];
    struct file_stamp now;
    struct hashing h = {.fd = fd,
                        .stamp = stamp,
                        .stop = stop,
                        .md = EVP_MD_CTX_new(),
                        .block = malloc(HASH_BLOCK)};
    int rc = -1;
    if (h.block == NULL || h.md == NULL || EVP_DigestInit_ex(h.md, EVP_sha256(), NULL) != 1) {
        err_set(e, ERR_INTERNAL, "no memory for a hash");
    } else if (hash_all(&h, e) == 0 && chatfile_stamp(fd, &now, e) == 0) {
        rc = EVP_DigestFinal_ex(h.md, hash, NULL) == 1
                 ? 0
                 : err_set(e, ERR_INTERNAL, "SHA-256 does not work");
    }
    EVP_MD_CTX_free(h.md);
    free(h.block);
    if (rc == 0) {
        hash_to_hex(hash, ret);
        *ret_stable = !h.changed && file_stamp_equal(&now, stamp);
    }
    return rc;
}
