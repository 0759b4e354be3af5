#include "log_vfs.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#define GATHER_MAX                                                                                 \
    (120 *                                                                                         \
     1024) /* bytes kept back at most: SQLite's own layer writes no more than 128 KiB at once */

struct log_file {
    sqlite3_file base; /* first: what SQLite sees */
    char *kept;        /* GATHER_MAX bytes; NULL before the first write */
    sqlite3_int64 at;  /* where in the file they belong */
    int len;
};

static sqlite3_vfs log_vfs;

static sqlite3_vfs *below(void)
{
    return log_vfs.pAppData;
}

/* SQLite's own file stands behind ours, in the same memory. */
static sqlite3_file *real(sqlite3_file *file)
{
    return (sqlite3_file *)((struct log_file *)file + 1);
}

/* --- writing ---------------------------------------------------------------------------------- */

static int bring(sqlite3_file *file)
{
    struct log_file *f = (struct log_file *)file;
    int len = f->len;
    f->len = 0; /* also when it fails: SQLite takes back what it cannot write */
    return len == 0 ? SQLITE_OK : real(file)->pMethods->xWrite(real(file), f->kept, len, f->at);
}

static int log_write(sqlite3_file *file, const void *data, int len, sqlite3_int64 at)
{
    struct log_file *f = (struct log_file *)file;
    if (f->len > 0 && (at != f->at + f->len || len > GATHER_MAX - f->len)) {
        int rc = bring(file);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }
    if (f->kept == NULL) {
        f->kept = malloc(GATHER_MAX);
    }
    if (f->kept == NULL || len > GATHER_MAX) {
        return real(file)->pMethods->xWrite(real(file), data, len, at);
    }
    if (f->len == 0) {
        f->at = at;
    }
    memcpy(f->kept + f->len, data, (size_t)len);
    f->len += len;
    return SQLITE_OK;
}

/* --- what has to find it in the file ---------------------------------------------------------- */

static int log_read(sqlite3_file *file, void *to, int len, sqlite3_int64 at)
{
    int rc = bring(file);
    return rc != SQLITE_OK ? rc : real(file)->pMethods->xRead(real(file), to, len, at);
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int rc = bring(file);
    return rc != SQLITE_OK ? rc : real(file)->pMethods->xTruncate(real(file), size);
}

static int log_sync(sqlite3_file *file, int flags)
{
    int rc = bring(file);
    return rc != SQLITE_OK ? rc : real(file)->pMethods->xSync(real(file), flags);
}

static int log_size(sqlite3_file *file, sqlite3_int64 *ret)
{
    int rc = bring(file);
    return rc != SQLITE_OK ? rc : real(file)->pMethods->xFileSize(real(file), ret);
}

static int log_close(sqlite3_file *file)
{
    int rc = bring(file), closed = real(file)->pMethods->xClose(real(file));
    free(((struct log_file *)file)->kept);
    return rc != SQLITE_OK ? rc : closed;
}

/* --- the rest --------------------------------------------------------------------------------- */

static int log_lock(sqlite3_file *file, int level)
{
    return real(file)->pMethods->xLock(real(file), level);
}

static int log_unlock(sqlite3_file *file, int level)
{
    return real(file)->pMethods->xUnlock(real(file), level);
}

static int log_reserved(sqlite3_file *file, int *ret)
{
    return real(file)->pMethods->xCheckReservedLock(real(file), ret);
}

static int log_control(sqlite3_file *file, int op, void *arg)
{
    int rc = bring(file);
    return rc != SQLITE_OK ? rc : real(file)->pMethods->xFileControl(real(file), op, arg);
}

static int log_sector(sqlite3_file *file)
{
    return real(file)->pMethods->xSectorSize(real(file));
}

static int log_device(sqlite3_file *file)
{
    return real(file)->pMethods->xDeviceCharacteristics(real(file));
}

/* Shared memory and mappings are the database's, not the log's. */
static const sqlite3_io_methods log_methods = {
    .iVersion = 1,
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_reserved,
    .xFileControl = log_control,
    .xSectorSize = log_sector,
    .xDeviceCharacteristics = log_device,
};

static int log_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *ret)
{
    (void)vfs;
    if ((flags & SQLITE_OPEN_WAL) == 0) {
        return below()->xOpen(below(), path, file, flags, ret);
    }
    memset(file, 0, sizeof(struct log_file));
    int rc = below()->xOpen(below(), path, real(file), flags, ret);
    if (rc == SQLITE_OK) {
        file->pMethods = &log_methods;
    } else if (real(file)->pMethods != NULL) {
        (void)real(file)->pMethods->xClose(real(file));
    }
    return rc;
}

static int log_delete(sqlite3_vfs *vfs, const char *path, int sync)
{
    (void)vfs;
    return below()->xDelete(below(), path, sync);
}

static int log_access(sqlite3_vfs *vfs, const char *path, int flags, int *ret)
{
    (void)vfs;
    return below()->xAccess(below(), path, flags, ret);
}

static int log_full_path(sqlite3_vfs *vfs, const char *path, int size, char *ret)
{
    (void)vfs;
    return below()->xFullPathname(below(), path, size, ret);
}

static int log_randomness(sqlite3_vfs *vfs, int size, char *ret)
{
    (void)vfs;
    return below()->xRandomness(below(), size, ret);
}

static int log_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return below()->xSleep(below(), us);
}

static int log_time(sqlite3_vfs *vfs, double *ret)
{
    (void)vfs;
    return below()->xCurrentTime(below(), ret);
}

static int log_last_error(sqlite3_vfs *vfs, int size, char *ret)
{
    (void)vfs;
    return below()->xGetLastError != NULL ? below()->xGetLastError(below(), size, ret) : 0;
}

static int fill(sqlite3_vfs *base)
{
    log_vfs = (sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = (int)sizeof(struct log_file) + base->szOsFile,
        .mxPathname = base->mxPathname,
        .zName = LOG_VFS,
        .pAppData = base,
        .xOpen = log_open,
        .xDelete = log_delete,
        .xAccess = log_access,
        .xFullPathname = log_full_path,
        .xRandomness = log_randomness,
        .xSleep = log_sleep,
        .xCurrentTime = log_time,
        .xGetLastError = log_last_error,
    };
    return sqlite3_vfs_register(&log_vfs, 0) == SQLITE_OK ? 0 : -1;
}

/* When a default goes, the next in SQLite's list is it: that may be ours. */
int log_vfs_register(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int rc = 0;
    (void)pthread_mutex_lock(&lock);
    sqlite3_vfs *base = sqlite3_vfs_find(NULL);
    if (base == NULL || base != log_vfs.pAppData) {
        (void)sqlite3_vfs_unregister(&log_vfs);
        base = sqlite3_vfs_find(NULL);
        rc = base != NULL ? fill(base) : -1;
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}
