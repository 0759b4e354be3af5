/*
 * Putting objects on the disk: a file is made aside, and is one of the objects from the moment it is
 * renamed on. Bytes that come to us piece by piece are gathered in such a file at once, which has no
 * name until it is whole: they are written once.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hex.h"
#include "objects_disk.h"

#define MAKE_TRIES 8

/* --- its place -------------------------------------------------------------------------------- */

/* Every directory above `path`, durable. */
static int make_parents(int root, const char *path)
{
    char dir[DISK_PATH_TEXT], above[DISK_PATH_TEXT];
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        size_t len = (size_t)(slash - path);
        memcpy(dir, path, len);
        dir[len] = '\0';
        objects_disk_parent(dir, above);
        if ((mkdirat(root, dir, 0700) != 0 && errno != EEXIST) ||
            objects_disk_sync_dir(root, above) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Also where another thread has just removed the directories, which were empty. */
static int publish(const struct objects_disk *d, const char *temp, const char *path, struct err *e)
{
    char dir[DISK_PATH_TEXT];
    objects_disk_parent(path, dir);
    for (int i = 0; i < MAKE_TRIES; i++) {
        if (make_parents(d->root, path) == 0 && renameat(d->temp, temp, d->root, path) == 0) {
            return objects_disk_sync_dir(d->root, dir) == 0 || errno == ENOENT
                       ? 0
                       : objects_disk_fail(e, "keep a directory");
        }
        if (errno != ENOENT) {
            break;
        }
    }
    return objects_disk_fail(e, "rename an object");
}

static void foot_format(const struct object_info *info, char ret[static DISK_FOOT_LEN + 1])
{
    int n = snprintf(ret, DISK_FOOT_LEN, "\nleasehold-object 1 %lld %s %s",
                     (long long)info->size_bytes, info->sha256, info->token);
    memset(ret + n, ' ', (size_t)(DISK_FOOT_LEN - 1 - n));
    ret[DISK_FOOT_LEN - 1] = '\n';
    ret[DISK_FOOT_LEN] = '\0';
}

/* --- put -------------------------------------------------------------------------------------- */

static int write_all(int fd, const char *data, size_t len, struct err *e)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return objects_disk_fail(e, "write an object");
        }
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int copy_in(int fd, const struct object_put *p, EVP_MD_CTX *md, char *chunk,
                   int64_t *ret_size, struct err *e)
{
    ssize_t n;
    while ((n = p->read(p->ctx, chunk, DISK_CHUNK_LEN, e)) > 0) {
        if (p->cancel != NULL && atomic_load(p->cancel)) {
            return err_set(e, ERR_BUSY, "the upload was cancelled");
        }
        *ret_size += n;
        if (p->len >= 0 && *ret_size > p->len) {
            return err_set(e, ERR_TOO_LARGE, "more comes than was said");
        }
        if (EVP_DigestUpdate(md, chunk, (size_t)n) != 1) {
            return err_set(e, ERR_INTERNAL, "no hash of an object");
        }
        if (write_all(fd, chunk, (size_t)n, e) != 0) {
            return -1;
        }
        if (p->progress != NULL) {
            p->progress(p->ctx, *ret_size);
        }
    }
    if (n < 0) {
        return -1;
    }
    return p->len < 0 || *ret_size == p->len
               ? 0
               : err_set(e, ERR_INVALID_REQUEST, "less comes than was said");
}

static int is_as_summed(const struct object_put *p, const struct object_info *info, struct err *e)
{
    return p->sha256 == NULL || strcmp(p->sha256, info->sha256) == 0
               ? 0
               : err_set(e, ERR_INTERNAL, "an upload is not what was summed before");
}

/* Bytes and foot, durable. */
static int fill(int fd, const struct object_put *p, struct object_info *ret, struct err *e)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    char *chunk = malloc(DISK_CHUNK_LEN), foot[DISK_FOOT_LEN + 1];
    uint8_t hash[32];
    int rc = -1;
    if (md == NULL || chunk == NULL || EVP_DigestInit_ex(md, EVP_sha256(), NULL) != 1) {
        err_fill_code(e, ERR_INTERNAL, "no memory for an object");
    } else if (copy_in(fd, p, md, chunk, &ret->size_bytes, e) == 0) {
        EVP_DigestFinal_ex(md, hash, NULL);
        hash_to_hex(hash, ret->sha256);
        foot_format(ret, foot);
        rc = is_as_summed(p, ret, e) || write_all(fd, foot, DISK_FOOT_LEN, e) ? -1 : 0;
        if (rc == 0 && fsync(fd) != 0) {
            rc = objects_disk_fail(e, "keep an object");
        }
    }
    free(chunk);
    EVP_MD_CTX_free(md);
    return rc;
}

int objects_disk_put(struct objects *o, const struct object_put *p, struct object_info *ret,
                     struct err *e)
{
    struct objects_disk *d = objects_disk_of(o);
    struct object_info info = {0};
    struct id fresh;
    char temp[ID_TEXT], path[DISK_PATH_TEXT];
    if (objects_disk_path(p->key, path, e) != 0) {
        return -1;
    }
    id_random(&fresh);
    id_format(&fresh, temp);
    snprintf(info.token, sizeof(info.token), "%s", p->token);
    int fd = openat(d->temp, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return objects_disk_fail(e, "make an object");
    }
    int rc = fill(fd, p, &info, e);
    close(fd);
    if (rc != 0 || publish(d, temp, path, e) != 0) {
        unlinkat(d->temp, temp, 0);
        return -1;
    }
    *ret = info;
    return 0;
}

/* --- adopt ------------------------------------------------------------------------------------ */

int objects_disk_spool(struct objects *o, int *ret_fd, struct err *e)
{
    int fd = openat(objects_disk_of(o)->temp, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT) {
        return objects_disk_fail(e, "make a file for an upload");
    }
    *ret_fd = fd;
    return 0;
}

/* The file as it stands gets its foot and is made durable. */
static int close_file(int fd, const struct object_put *p, const struct object_info *info,
                      struct err *e)
{
    char foot[DISK_FOOT_LEN + 1];
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return objects_disk_fail(e, "look at an upload");
    }
    if (st.st_size != p->len) {
        return err_set(e, st.st_size < p->len ? ERR_INVALID_REQUEST : ERR_TOO_LARGE,
                       "%s comes than was said", st.st_size < p->len ? "less" : "more");
    }
    foot_format(info, foot);
    if (lseek(fd, 0, SEEK_END) < 0 || write_all(fd, foot, DISK_FOOT_LEN, e) != 0) {
        return -1;
    }
    return fsync(fd) == 0 ? 0 : objects_disk_fail(e, "keep an object");
}

int objects_disk_adopt(struct objects *o, const struct object_put *p, int fd,
                       struct object_info *ret, struct err *e)
{
    struct objects_disk *d = objects_disk_of(o);
    struct object_info info = {.size_bytes = p->len};
    struct id fresh;
    char temp[ID_TEXT], path[DISK_PATH_TEXT], self[64];
    snprintf(info.token, sizeof(info.token), "%s", p->token);
    snprintf(info.sha256, sizeof(info.sha256), "%s", p->sha256);
    if (objects_disk_path(p->key, path, e) != 0 || close_file(fd, p, &info, e) != 0) {
        return -1;
    }
    id_random(&fresh);
    id_format(&fresh, temp);
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, self, d->temp, temp, AT_SYMLINK_FOLLOW) != 0) {
        return objects_disk_fail(e, "name an object");
    }
    if (publish(d, temp, path, e) != 0) {
        unlinkat(d->temp, temp, 0);
        return -1;
    }
    *ret = info;
    return 0;
}
