/*
 * Objects as files: the bytes, and behind them a line of fixed length that says what they are. A file
 * is made aside and renamed, so that it is whole or not there; the line goes with it.
 */
#include "objects_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hex.h"
#include "leasehold/process.h"

#define TEMP_DIR    ".new"
#define LOCK_FILE   ".lock"
#define SEGMENT_MAX 200

int objects_disk_fail(struct err *e, const char *what)
{
    bool full = errno == ENOSPC || errno == EDQUOT;
    return err_sys(e, full ? ERR_STORAGE_FULL : ERR_INTERNAL, errno, "object store, %s", what);
}

/* --- where an object stands ------------------------------------------------------------------- */

static bool is_plain(const char *key)
{
    size_t segment = 0;
    for (; *key != '\0'; key++) {
        bool slash = *key == '/';
        bool ok = (*key >= 'a' && *key <= 'z') || (*key >= '0' && *key <= '9') || *key == '-' ||
                  *key == '_';
        if ((slash && segment == 0) || (!slash && !ok) || segment > SEGMENT_MAX) {
            return false;
        }
        segment = slash ? 0 : segment + 1;
    }
    return segment > 0;
}

/* The keys of the project are paths. Any other text is one file name by its hash: no key climbs out,
 * clashes by case, or is too long for a directory. */
int objects_disk_path(const char *key, char ret[static DISK_PATH_TEXT], struct err *e)
{
    uint8_t hash[32];
    char hex[HASH_HEX];
    size_t len = strlen(key);
    if (len == 0 || len > OBJECT_KEY_MAX) {
        return err_set(e, ERR_INVALID_REQUEST, "a key has 1 to %d bytes", OBJECT_KEY_MAX);
    }
    if (is_plain(key)) {
        snprintf(ret, DISK_PATH_TEXT, "%s" OBJECT_SUFFIX, key);
        return 0;
    }
    if (EVP_Digest(key, len, hash, NULL, EVP_sha256(), NULL) != 1) {
        return err_set(e, ERR_INTERNAL, "no hash of a key");
    }
    hash_to_hex(hash, hex);
    snprintf(ret, DISK_PATH_TEXT, "%%%s" OBJECT_SUFFIX, hex);
    return 0;
}

int objects_disk_sync_dir(int root, const char *dir)
{
    int fd = openat(root, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    int rc = fsync(fd), sys = errno;
    close(fd);
    errno = sys;
    return rc;
}

void objects_disk_parent(const char *path, char ret[static DISK_PATH_TEXT])
{
    const char *slash = strrchr(path, '/');
    int len = slash != NULL ? (int)(slash - path) : 1;
    snprintf(ret, DISK_PATH_TEXT, "%.*s", len, slash != NULL ? path : ".");
}

/* --- the line behind the bytes ---------------------------------------------------------------- */

static int foot_read(int fd, struct object_info *ret, struct err *e)
{
    char foot[DISK_FOOT_LEN + 1], sha256[65], token[OBJECT_TOKEN_TEXT];
    long long size;
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return objects_disk_fail(e, "look at an object");
    }
    if (st.st_size < DISK_FOOT_LEN ||
        pread(fd, foot, DISK_FOOT_LEN, st.st_size - DISK_FOOT_LEN) != (ssize_t)DISK_FOOT_LEN) {
        return err_set(e, ERR_INTERNAL, "an object of the disk store is cut");
    }
    foot[DISK_FOOT_LEN] = '\0';
    if (sscanf(foot, "\nleasehold-object 1 %lld %64s %64s", &size, sha256, token) != 3 ||
        size != (long long)st.st_size - DISK_FOOT_LEN) {
        return err_set(e, ERR_INTERNAL, "an object of the disk store is damaged");
    }
    ret->size_bytes = size;
    snprintf(ret->sha256, sizeof(ret->sha256), "%s", sha256);
    snprintf(ret->token, sizeof(ret->token), "%s", token);
    return 0;
}

static int open_object(const struct objects_disk *d, const char *key, struct object_info *ret,
                       struct err *e)
{
    char path[DISK_PATH_TEXT];
    if (objects_disk_path(key, path, e) != 0) {
        return -1;
    }
    int fd = openat(d->root, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT || errno == ENOTDIR
                   ? err_set(e, ERR_NOT_FOUND, "there is no such object")
                   : objects_disk_fail(e, "open an object");
    }
    if (foot_read(fd, ret, e) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* --- get -------------------------------------------------------------------------------------- */

struct reading {
    int fd;
    const struct object_get *g;
    const struct object_info *info;
    struct objects_check *check; /* NULL: a range, which has no sum */
    char *chunk;
};

/* The last piece is kept back until the sum of the whole holds. */
static int copy_out(const struct reading *r, int64_t from, int64_t len, struct err *e)
{
    while (len > 0) {
        size_t want = len < DISK_CHUNK_LEN ? (size_t)len : DISK_CHUNK_LEN;
        ssize_t n = pread(r->fd, r->chunk, want, from);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? objects_disk_fail(e, "read an object")
                         : err_set(e, ERR_INTERNAL, "an object is shorter than it was");
        }
        from += n;
        len -= n;
        if (r->check != NULL &&
            (objects_check_add(r->check, r->chunk, (size_t)n, e) != 0 ||
             (len == 0 && objects_check_end(r->check, r->info->sha256, e) != 0))) {
            return -1;
        }
        if (r->g->write(r->g->ctx, r->chunk, (size_t)n, e) != 0) {
            return -1;
        }
    }
    return 0;
}

static int send(int fd, const struct object_get *g, const struct object_info *info, struct err *e)
{
    struct reading r = {.fd = fd, .g = g, .info = info};
    int64_t rest = info->size_bytes - g->offset;
    int64_t len = g->len >= 0 && g->len < rest ? g->len : rest;
    bool whole = len == info->size_bytes;
    if (g->offset < 0 || rest < 0 || (rest == 0 && info->size_bytes > 0)) {
        return err_set(e, ERR_RANGE_NOT_SATISFIABLE, "the object has %lld bytes",
                       (long long)info->size_bytes);
    }
    if (g->head != NULL && g->head(g->ctx, info, e) != 0) {
        return -1;
    }
    r.chunk = malloc(DISK_CHUNK_LEN);
    r.check = whole ? objects_check_new() : NULL;
    int rc = r.chunk != NULL && (!whole || r.check != NULL)
                 ? copy_out(&r, g->offset, len, e)
                 : err_set(e, ERR_INTERNAL, "no memory to read an object");
    free(r.chunk);
    objects_check_free(r.check);
    return rc;
}

static int disk_get(struct objects *o, const struct object_get *g, struct err *e)
{
    struct object_info info;
    int fd = open_object(objects_disk_of(o), g->key, &info, e);
    if (fd < 0) {
        return -1;
    }
    int rc = send(fd, g, &info, e);
    close(fd);
    return rc;
}

int objects_disk_open(struct objects *o, const char *key, struct object_info *ret, struct err *e)
{
    return open_object(objects_disk_of(o), key, ret, e);
}

static int disk_head(struct objects *o, const char *key, struct object_info *ret, struct err *e)
{
    int fd = open_object(objects_disk_of(o), key, ret, e);
    if (fd < 0) {
        return -1;
    }
    close(fd);
    return 0;
}

/* --- delete and the rest ---------------------------------------------------------------------- */

/* Empty directories go with their last object; one that is not stays. */
static void remove_parents(int root, const char *path)
{
    char dir[DISK_PATH_TEXT], above[DISK_PATH_TEXT];
    objects_disk_parent(path, dir);
    while (strcmp(dir, ".") != 0 && unlinkat(root, dir, AT_REMOVEDIR) == 0) {
        objects_disk_parent(dir, above);
        memcpy(dir, above, sizeof(dir));
    }
}

static int disk_del(struct objects *o, const char *key, struct err *e)
{
    const struct objects_disk *d = objects_disk_of(o);
    char path[DISK_PATH_TEXT], dir[DISK_PATH_TEXT];
    if (objects_disk_path(key, path, e) != 0) {
        return -1;
    }
    if (unlinkat(d->root, path, 0) != 0) {
        return errno == ENOENT || errno == ENOTDIR ? 0 : objects_disk_fail(e, "remove an object");
    }
    objects_disk_parent(path, dir);
    if (objects_disk_sync_dir(d->root, dir) != 0 && errno != ENOENT) {
        return objects_disk_fail(e, "remove an object for good");
    }
    remove_parents(d->root, path);
    return 0;
}

/* What a killed process has left aside is gone at the next start: there are no uploads to list. */
static int disk_uploads(struct objects *o, const char *prefix,
                        int (*each)(void *ctx, const struct object_upload *u, struct err *e),
                        void *ctx, struct err *e)
{
    (void)o, (void)prefix, (void)each, (void)ctx, (void)e;
    return 0;
}

static int disk_abort(struct objects *o, const char *key, const char *upload_id, struct err *e)
{
    (void)o, (void)key, (void)upload_id, (void)e;
    return 0;
}

static int disk_check(struct objects *o, struct err *e)
{
    const struct objects_disk *d = objects_disk_of(o);
    struct stat st;
    if (fstat(d->temp, &st) != 0) {
        return objects_disk_fail(e, "look at its directory");
    }
    if (st.st_nlink == 0) {
        return err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "its directory was removed");
    }
    int fd = openat(d->temp, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    /* A full disk is told by the store of metadata; some file systems have no such files. */
    return errno != EROFS && errno != EIO && errno != EACCES
               ? 0
               : err_sys(e, ERR_OBJECT_STORE_UNAVAILABLE, errno, "it cannot be written to");
}

static void disk_free(struct objects *o)
{
    struct objects_disk *d = objects_disk_of(o);
    const int fds[] = {d->root, d->temp, d->lock};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    OPENSSL_cleanse(d->secret, sizeof(d->secret));
    free(d);
}

static const struct objects_vtable disk_vtable = {
    .name = "disk",
    .put = objects_disk_put,
    .spool = objects_disk_spool,
    .adopt = objects_disk_adopt,
    .get = disk_get,
    .head = disk_head,
    .del = disk_del,
    .list = objects_disk_list,
    .presign = objects_disk_presign,
    .uploads = disk_uploads,
    .abort = disk_abort,
    .check = disk_check,
    .free = disk_free,
};

/* --- open ------------------------------------------------------------------------------------- */

static int open_dir(int at, const char *path)
{
    if (mkdirat(at, path, 0700) != 0 && errno != EEXIST) {
        return -1;
    }
    return openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int remove_left_over(int temp, struct err *e)
{
    int copy = openat(temp, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (d == NULL) {
        if (copy >= 0) {
            close(copy);
        }
        return objects_disk_fail(e, "look for what is left over");
    }
    for (const struct dirent *entry; rc == 0 && (entry = readdir(d)) != NULL;) {
        if (entry->d_name[0] != '.' && unlinkat(temp, entry->d_name, 0) != 0 && errno != ENOENT) {
            rc = objects_disk_fail(e, "remove what is left over");
        }
    }
    closedir(d);
    return rc;
}

static int take_lock(struct objects_disk *d, struct err *e)
{
    d->lock = openat(d->root, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (d->lock < 0 || process_lock(d->lock) != 0) {
        return err_sys(e, ERR_INTERNAL, errno,
                       "the object store is held: does another leasehold run?");
    }
    return 0;
}

static int open_all(struct objects_disk *d, const char *dir, struct err *e)
{
    d->root = open_dir(AT_FDCWD, dir);
    if (d->root < 0) {
        return objects_disk_fail(e, "open its directory");
    }
    if (take_lock(d, e) != 0) {
        return -1;
    }
    d->temp = open_dir(d->root, TEMP_DIR);
    if (d->temp < 0) {
        return objects_disk_fail(e, "open its directory of new objects");
    }
    return remove_left_over(d->temp, e) || objects_disk_secret(d->root, d->secret, e) ? -1 : 0;
}

int objects_disk_new(const char *dir, struct objects **ret, struct err *e)
{
    struct objects_disk *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for the object store");
    }
    d->base.v = &disk_vtable;
    d->root = d->temp = d->lock = -1;
    if (open_all(d, dir, e) != 0) {
        disk_free(&d->base);
        return -1;
    }
    *ret = &d->base;
    return 0;
}
