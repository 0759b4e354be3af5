/*
 * A file that arrives. It is written without a name (O_TMPFILE), where that is not possible under one
 * in the chat's own directory, which no sandbox sees. It gets its name by an exchange: what it
 * replaces is kept until the row is durable, so that a put can be taken back.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chatfiles.h"
#include "hex.h"

#define TEMP_PREFIX "incoming-"
#define FILE_MODE   0644
#define FLUSH_BYTES (8 * 1024 * 1024) /* so much is on its way to the disk before the end's sync */
#define RACES_MAX   100               /* an agent makes and removes the name meanwhile */

/* A directory only if an agent has won every race against its going back; then it is empty, or stays. */
static void remove_temp(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) != 0 && errno == EISDIR) {
        (void)unlinkat(dir, name, AT_REMOVEDIR);
    }
}

/* The chat may be deleted while a file arrives: its directory is taken apart then. */
static bool dir_gone(const struct chatfiles *d)
{
    struct stat chat, files;
    return (fstat(d->chat_fd, &chat) == 0 && chat.st_nlink == 0) ||
           (fstat(d->files_fd, &files) == 0 && files.st_nlink == 0);
}

static int dir_fail(const struct chatfiles *d, int sys, const char *what, struct err *e)
{
    return sys == ENOENT || dir_gone(d)
               ? err_set(e, ERR_CHAT_NOT_FOUND, "the chat has been deleted")
               : chatfile_fail(e, sys, what);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void temp_name(char ret[static CHATFILE_TEMP])
{
    struct id random;
    id_random(&random);
    snprintf(ret, CHATFILE_TEMP, TEMP_PREFIX "%s", ID_STR(&random));
}

static int sum_begin(struct chatfile *f, struct err *e)
{
    f->md = EVP_MD_CTX_new();
    return f->md != NULL && EVP_DigestInit_ex(f->md, EVP_sha256(), NULL) == 1
               ? 0
               : err_set(e, ERR_INTERNAL, "no memory for a hash");
}

static int open_named(struct chatfile *f)
{
    temp_name(f->temp);
    int fd = openat(f->dir.chat_fd, f->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    FILE_MODE);
    /* By the lock a sweep sees that somebody is still at it. */
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int open_new(struct chatfile *f, struct err *e)
{
    f->fd = openat(f->dir.chat_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, FILE_MODE);
    if (f->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
        f->fd = open_named(f);
    }
    if (f->fd < 0) {
        return dir_fail(&f->dir, errno, "making a file", e);
    }
    bool give = geteuid() == 0;
    if (fchmod(f->fd, FILE_MODE) != 0 || (give && fchown(f->fd, f->dir.uid, f->dir.gid) != 0)) {
        return chatfile_fail(e, errno, "making a file");
    }
    return sum_begin(f, e);
}

int chatfile_begin_sum(struct chatfile *ret, struct err *e)
{
    *ret = (struct chatfile){.dir = {.chat_fd = -1, .files_fd = -1}, .fd = -1};
    return sum_begin(ret, e);
}

int chatfile_begin(struct chatfiles *dir, struct chatfile *ret, struct err *e)
{
    struct chatfile f = {.dir = *dir, .fd = -1};
    *dir = (struct chatfiles){.chat_fd = -1, .files_fd = -1};
    if (open_new(&f, e) != 0) {
        chatfile_end(&f);
        return -1;
    }
    *ret = f;
    return 0;
}

int chatfile_write(struct chatfile *f, const char *data, size_t len, struct err *e)
{
    if (EVP_DigestUpdate(f->md, data, len) != 1) {
        return err_set(e, ERR_INTERNAL, "SHA-256 does not work");
    }
    while (len > 0 && f->fd >= 0) {
        ssize_t n = write(f->fd, data, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return chatfile_fail(e, errno, "writing a file");
        }
        data += n;
        len -= (size_t)n;
        f->size += n;
    }
    if (f->fd >= 0 && f->size - f->flushed >= FLUSH_BYTES) {
        (void)sync_file_range(f->fd, f->flushed, f->size - f->flushed, SYNC_FILE_RANGE_WRITE);
        f->flushed = f->size;
    }
    return 0;
}

int chatfile_sync(struct chatfile *f, char ret_sha256[static 65], struct err *e)
{
    uint8_t hash[32];
    if (EVP_DigestFinal_ex(f->md, hash, NULL) != 1) {
        return err_set(e, ERR_INTERNAL, "SHA-256 does not work");
    }
    hash_to_hex(hash, ret_sha256);
    return f->fd < 0 || fsync(f->fd) == 0 ? 0 : chatfile_fail(e, errno, "writing a file");
}

/* --- its place -------------------------------------------------------------------------------- */

static int give_temp_name(struct chatfile *f, struct err *e)
{
    char self[64];
    if (f->temp[0] != '\0') {
        return 0;
    }
    snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
    temp_name(f->temp);
    if (linkat(AT_FDCWD, self, f->dir.chat_fd, f->temp, AT_SYMLINK_FOLLOW) != 0) {
        int sys = errno;
        f->temp[0] = '\0';
        return dir_fail(&f->dir, sys, "naming a file", e);
    }
    return 0;
}

static int rename_temp(const struct chatfile *f, const char *name, unsigned flags)
{
    return renameat2(f->dir.chat_fd, f->temp, f->dir.files_fd, name, flags);
}

static int taken(struct err *e)
{
    return err_set(e, ERR_CONFLICT, "there is a directory of this name");
}

/* What was exchanged goes back to its name, whatever has become of that meanwhile. */
static void give_back(struct chatfile *f, const char *name)
{
    for (int i = 0; i < RACES_MAX; i++) {
        if (rename_temp(f, name, RENAME_EXCHANGE) == 0) {
            return;
        }
        if (errno == ENOENT && rename_temp(f, name, RENAME_NOREPLACE) == 0) {
            f->temp[0] = '\0';
            return;
        }
    }
}

/* What now stands under the temporary name. It was `before`, unless an agent has been quicker: the
 * exchange has touched its ctime, and a name that was exchanged for another counts for nothing. */
static int look_at_replaced(struct chatfile *f, const char *name, const struct stat *before,
                            struct file_gone *ret, struct err *e)
{
    struct file_gone was;
    struct stat st;
    if (fstatat(f->dir.chat_fd, f->temp, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return chatfile_fail(e, errno, "replacing a file");
    }
    if (S_ISDIR(st.st_mode)) {
        give_back(f, name);
        return taken(e);
    }
    f->replaced = S_ISREG(st.st_mode);
    file_gone_of(before, &was);
    file_gone_of(&st, ret);
    if (!f->replaced || st.st_ino != before->st_ino) {
        ret->bytes = 0;
    }
    ret->bytes = ret->bytes < was.bytes ? ret->bytes : was.bytes;
    ret->ctime_ns = was.ctime_ns;
    return 0;
}

/* 1: something has changed under our hands: once more. */
static int try_place(struct chatfile *f, const char *name, bool fresh, struct file_gone *ret_gone,
                     struct err *e)
{
    struct stat st;
    bool there = fstatat(f->dir.files_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && fresh) {
        return err_set(e, ERR_PRECONDITION_FAILED, "there is a file of this name");
    }
    if (there && S_ISDIR(st.st_mode)) {
        return taken(e);
    }
    if (rename_temp(f, name, there ? RENAME_EXCHANGE : RENAME_NOREPLACE) != 0) {
        return errno == EEXIST || errno == ENOENT ? 1 : chatfile_fail(e, errno, "placing a file");
    }
    *ret_gone = (struct file_gone){0};
    if (there) {
        return look_at_replaced(f, name, &st, ret_gone, e);
    }
    f->temp[0] = '\0';
    return 0;
}

int chatfile_place(struct chatfile *f, const char *name, bool fresh, struct file_stamp *ret_stamp,
                   struct file_gone *ret_gone, struct err *e)
{
    int rc = 1;
    chatfiles_sweep(&f->dir);
    if (give_temp_name(f, e) != 0) {
        return -1;
    }
    for (int i = 0; rc == 1 && i < RACES_MAX; i++) {
        rc = try_place(f, name, fresh, ret_gone, e);
    }
    if (rc == 1) {
        return dir_gone(&f->dir) ? dir_fail(&f->dir, ENOENT, "placing a file", e)
                                 : err_set(e, ERR_CONFLICT, "the agent keeps changing this name");
    }
    if (rc != 0) {
        return -1;
    }
    f->placed = true;
    snprintf(f->name, sizeof(f->name), "%s", name);
    if (fsync(f->dir.files_fd) != 0) {
        chatfile_fail(e, errno, "placing a file");
        chatfile_displace(f);
        return -1;
    }
    if (chatfile_stamp(f->fd, ret_stamp, e) != 0) {
        chatfile_displace(f);
        return -1;
    }
    return 0;
}

void chatfile_displace(struct chatfile *f)
{
    if (!f->placed) {
        return;
    }
    f->placed = false;
    if (f->temp[0] != '\0') {
        give_back(f, f->name);
    } else {
        (void)unlinkat(f->dir.files_fd, f->name, 0);
    }
    (void)fsync(f->dir.files_fd);
}

void chatfile_end(struct chatfile *f)
{
    if (f->temp[0] != '\0') {
        remove_temp(f->dir.chat_fd, f->temp);
        f->temp[0] = '\0';
    }
    if (f->fd >= 0) {
        close(f->fd);
    }
    f->fd = -1;
    EVP_MD_CTX_free(f->md);
    f->md = NULL;
    chatfiles_close(&f->dir);
}

/* --- what was left ---------------------------------------------------------------------------- */

static void sweep_one(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool idle = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (idle) {
        remove_temp(dir, name);
    }
    if (fd >= 0) {
        close(fd);
    }
}

void chatfiles_sweep(const struct chatfiles *d)
{
    int fd = openat(d->chat_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, TEMP_PREFIX, sizeof(TEMP_PREFIX) - 1) == 0) {
            sweep_one(d->chat_fd, entry->d_name);
        }
    }
    closedir(dir);
}
