#include "sim_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#define PIECE 4096 /* bytes that the disk takes at once */

#define SECTOR 512
#define NAME   "simulated"

/* Something done to a file and not synced yet: what was there, and what is. */
struct pending {
    sqlite3_int64 at; /* of a truncation: the new size */
    int len, was_len; /* of a truncation: len -1 */
    unsigned char *is, *was;
    struct pending *prev, *next;
};

struct disk_file {
    char path[128];
    struct pending *pending;
    struct disk_file *prev, *next;
};

struct sim_disk {
    sqlite3_vfs vfs, *real;
    struct sim_rng *rng;
    int64_t writes, end_at;
    bool ended, full;
    struct disk_file *files;
};

/* SQLite's file object: ours, and behind it the one of the VFS below. */
struct shim {
    sqlite3_file base;
    struct sim_disk *disk;
    struct disk_file *file;
    sqlite3_file *real;
};

static sqlite3_file *below(sqlite3_file *f)
{
    return ((struct shim *)f)->real;
}

/* Whether this write still reaches the disk. */
static bool reaches(struct sim_disk *d)
{
    if (!d->ended && d->end_at && d->writes + 1 >= d->end_at)
        d->ended = true;
    if (!d->ended)
        d->writes++;
    return !d->ended;
}

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* --- what is not synced ------------------------------------------------------------------------ */

static void pending_free(struct disk_file *f)
{
    struct pending *p, *next;

    DL_FOREACH_SAFE (f->pending, p, next) {
        DL_DELETE(f->pending, p);
        free(p->is);
        free(p->was);
        free(p);
    }
}

/* The bytes of [at, at + len) that the file has. */
static int read_range(sqlite3_file *real, sqlite3_int64 at, int len, unsigned char *to)
{
    sqlite3_int64 size = 0;

    if (real->pMethods->xFileSize(real, &size) != SQLITE_OK || size <= at)
        return 0;
    if (size - at < len)
        len = (int)(size - at);
    return real->pMethods->xRead(real, to, len, at) == SQLITE_OK ? len : 0;
}

static void note_write(struct shim *s, const void *data, int len, sqlite3_int64 at)
{
    struct pending *p = must(calloc(1, sizeof *p));

    *p = (struct pending){.at = at, .len = len};
    p->is = must(malloc((size_t)len));
    p->was = must(malloc((size_t)len));
    memcpy(p->is, data, (size_t)len);
    p->was_len = read_range(s->real, at, len, p->was);
    DL_APPEND(s->file->pending, p);
}

static void note_truncate(struct shim *s, sqlite3_int64 size)
{
    sqlite3_int64 old = 0;

    s->real->pMethods->xFileSize(s->real, &old);
    if (old <= size)
        return;
    struct pending *p = must(calloc(1, sizeof *p));

    *p = (struct pending){.at = size, .len = -1};
    p->was = must(malloc((size_t)(old - size)));
    p->was_len = read_range(s->real, size, (int)(old - size), p->was);
    DL_APPEND(s->file->pending, p);
}

/* --- a file ------------------------------------------------------------------------------------ */

static int shim_close(sqlite3_file *f)
{
    return below(f)->pMethods->xClose(below(f));
}

static int shim_read(sqlite3_file *f, void *to, int len, sqlite3_int64 at)
{
    return ((struct shim *)f)->disk->ended ? SQLITE_IOERR_READ
                                           : below(f)->pMethods->xRead(below(f), to, len, at);
}

static int write_piece(sqlite3_file *f, const void *data, int len, sqlite3_int64 at)
{
    struct shim *s = (struct shim *)f;

    if (!reaches(s->disk))
        return SQLITE_IOERR_WRITE;
    if (s->disk->full)
        return SQLITE_FULL;
    note_write(s, data, len, at);
    return below(f)->pMethods->xWrite(below(f), data, len, at);
}

/* A disk does not take a long write at once: it may end in the middle of one, and lose parts of it. */
static int shim_write(sqlite3_file *f, const void *data, int len, sqlite3_int64 at)
{
    for (int done = 0; done < len;) {
        int piece = len - done < PIECE ? len - done : PIECE;
        int rc = write_piece(f, (const char *)data + done, piece, at + done);

        if (rc != SQLITE_OK)
            return rc;
        done += piece;
    }
    return SQLITE_OK;
}

static int shim_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    struct shim *s = (struct shim *)f;

    if (!reaches(s->disk))
        return SQLITE_IOERR_TRUNCATE;
    note_truncate(s, size);
    return below(f)->pMethods->xTruncate(below(f), size);
}

/* The file is in memory: there is nothing to wait for. */
static int shim_sync(sqlite3_file *f, int flags)
{
    struct shim *s = (struct shim *)f;

    (void)flags;
    if (!reaches(s->disk))
        return SQLITE_IOERR_FSYNC;
    pending_free(s->file);
    return SQLITE_OK;
}

static int shim_size(sqlite3_file *f, sqlite3_int64 *ret)
{
    return below(f)->pMethods->xFileSize(below(f), ret);
}

static int shim_lock(sqlite3_file *f, int level)
{
    return below(f)->pMethods->xLock(below(f), level);
}

static int shim_unlock(sqlite3_file *f, int level)
{
    return below(f)->pMethods->xUnlock(below(f), level);
}

static int shim_reserved(sqlite3_file *f, int *ret)
{
    return below(f)->pMethods->xCheckReservedLock(below(f), ret);
}

static int shim_control(sqlite3_file *f, int op, void *arg)
{
    return below(f)->pMethods->xFileControl(below(f), op, arg);
}

static int shim_sector(sqlite3_file *f)
{
    return below(f)->pMethods->xSectorSize(below(f));
}

static int shim_traits(sqlite3_file *f)
{
    return below(f)->pMethods->xDeviceCharacteristics(below(f));
}

static int shim_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **ret)
{
    return below(f)->pMethods->xShmMap(below(f), page, size, extend, ret);
}

static int shim_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    return below(f)->pMethods->xShmLock(below(f), offset, n, flags);
}

static void shim_shm_barrier(sqlite3_file *f)
{
    below(f)->pMethods->xShmBarrier(below(f));
}

static int shim_shm_unmap(sqlite3_file *f, int remove_it)
{
    return below(f)->pMethods->xShmUnmap(below(f), remove_it);
}

static const sqlite3_io_methods shim_methods = {.iVersion = 2,
                                                .xClose = shim_close,
                                                .xRead = shim_read,
                                                .xWrite = shim_write,
                                                .xTruncate = shim_truncate,
                                                .xSync = shim_sync,
                                                .xFileSize = shim_size,
                                                .xLock = shim_lock,
                                                .xUnlock = shim_unlock,
                                                .xCheckReservedLock = shim_reserved,
                                                .xFileControl = shim_control,
                                                .xSectorSize = shim_sector,
                                                .xDeviceCharacteristics = shim_traits,
                                                .xShmMap = shim_shm_map,
                                                .xShmLock = shim_shm_lock,
                                                .xShmBarrier = shim_shm_barrier,
                                                .xShmUnmap = shim_shm_unmap};

/* --- the file system --------------------------------------------------------------------------- */

static struct sim_disk *disk_of(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

static struct disk_file *file_of(struct sim_disk *d, const char *path)
{
    struct disk_file *f;

    DL_FOREACH (d->files, f)
        if (!strcmp(f->path, path))
            return f;
    f = must(calloc(1, sizeof *f));
    snprintf(f->path, sizeof f->path, "%s", path);
    DL_APPEND(d->files, f);
    return f;
}

static int vfs_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *f, int flags, int *ret_flags)
{
    struct sim_disk *d = disk_of(vfs);
    struct shim *s = (struct shim *)f;

    s->base.pMethods = NULL;
    s->disk = d;
    s->real = (sqlite3_file *)(s + 1);
    s->real->pMethods = NULL;
    if (d->ended)
        return SQLITE_CANTOPEN;
    int rc = d->real->xOpen(d->real, path, s->real, flags, ret_flags);
    if (rc != SQLITE_OK)
        return rc;
    s->file = file_of(d, path ? path : "");
    s->base.pMethods = &shim_methods;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int sync_folder)
{
    struct sim_disk *d = disk_of(vfs);

    if (!reaches(d))
        return SQLITE_IOERR_DELETE;
    pending_free(file_of(d, path));
    return d->real->xDelete(d->real, path, sync_folder);
}

static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *ret)
{
    return disk_of(vfs)->real->xAccess(disk_of(vfs)->real, path, flags, ret);
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *path, int size, char *ret)
{
    return disk_of(vfs)->real->xFullPathname(disk_of(vfs)->real, path, size, ret);
}

static int vfs_random(sqlite3_vfs *vfs, int len, char *to)
{
    struct sim_rng r = {.state = (uint64_t)disk_of(vfs)->writes};

    for (int i = 0; i < len; i++)
        to[i] = (char)rng_next(&r);
    return len;
}

static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return us;
}

static int vfs_time(sqlite3_vfs *vfs, double *ret)
{
    return disk_of(vfs)->real->xCurrentTime(disk_of(vfs)->real, ret);
}

static int vfs_last_error(sqlite3_vfs *vfs, int size, char *ret)
{
    (void)vfs;
    if (size > 0)
        ret[0] = '\0';
    return 0;
}

struct sim_disk *sim_disk_new(struct sim_rng *rng)
{
    struct sim_disk *d = must(calloc(1, sizeof *d));

    d->rng = rng;
    d->real = must(sqlite3_vfs_find("unix"));
    d->vfs = (sqlite3_vfs){.iVersion = 1,
                           .szOsFile = (int)sizeof(struct shim) + d->real->szOsFile,
                           .mxPathname = d->real->mxPathname,
                           .zName = NAME,
                           .pAppData = d,
                           .xOpen = vfs_open,
                           .xDelete = vfs_delete,
                           .xAccess = vfs_access,
                           .xFullPathname = vfs_full_path,
                           .xRandomness = vfs_random,
                           .xSleep = vfs_sleep,
                           .xCurrentTime = vfs_time,
                           .xGetLastError = vfs_last_error};
    if (sqlite3_vfs_register(&d->vfs, 1) != SQLITE_OK)
        abort();
    return d;
}

void sim_disk_free(struct sim_disk *d)
{
    struct disk_file *f, *next;

    if (!d)
        return;
    sqlite3_vfs_unregister(&d->vfs);
    DL_FOREACH_SAFE (d->files, f, next) {
        pending_free(f);
        free(f);
    }
    free(d);
}

int64_t sim_disk_writes(const struct sim_disk *d)
{
    return d->writes;
}

void sim_disk_end_at(struct sim_disk *d, int64_t n)
{
    d->end_at = n ? d->writes + n : 0;
}

void sim_disk_end_now(struct sim_disk *d)
{
    d->ended = true;
}

bool sim_disk_ended(const struct sim_disk *d)
{
    return d->ended;
}

void sim_disk_fill(struct sim_disk *d, bool full)
{
    d->full = full;
}

/* --- after the end ----------------------------------------------------------------------------- */

static void put(int fd, const unsigned char *data, int len, sqlite3_int64 at)
{
    if (len > 0 && pwrite(fd, data, (size_t)len, at) != (ssize_t)len)
        abort();
}

/* Newest first: what the disk is sure to hold. */
static void take_back(int fd, struct disk_file *f)
{
    for (struct pending *p = f->pending ? f->pending->prev : NULL; p;
         p = p == f->pending ? NULL : p->prev) {
        put(fd, p->was, p->was_len, p->at);
        if (p->len > p->was_len && ftruncate(fd, p->at + p->was_len))
            abort();
    }
}

/* Some of it came through after all: each write whole, in part, or not. */
static void bring_some(struct sim_disk *d, int fd, struct disk_file *f)
{
    struct pending *p;

    DL_FOREACH (f->pending, p) {
        int fate = rng_index(d->rng, 4);
        int len = p->len;

        if (fate == 0)
            continue;
        if (p->len < 0) {
            if (fate > 1 && ftruncate(fd, p->at))
                abort();
            continue;
        }
        if (fate == 1)
            len = (int)rng_range(d->rng, 0, len / SECTOR) * SECTOR;
        put(fd, p->is, len, p->at);
    }
}

static void power_off(struct sim_disk *d, struct disk_file *f)
{
    int fd = f->pending ? open(f->path, O_RDWR | O_CLOEXEC) : -1;

    if (fd < 0)
        return;
    take_back(fd, f);
    bring_some(d, fd, f);
    close(fd);
}

void sim_disk_restore(struct sim_disk *d, enum disk_end how)
{
    struct disk_file *f;

    DL_FOREACH (d->files, f) {
        if (how == DISK_POWER_OFF)
            power_off(d, f);
        pending_free(f);
    }
    d->ended = d->full = false;
    d->end_at = 0;
}
