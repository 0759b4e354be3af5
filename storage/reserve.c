#include "reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "leasehold/owned_file.h"
#include "stmt.h"

#define KIB (INT64_C(1024))
#define MIB (1024 * KIB)

#define LOG_STEP_MAX (16 * MIB)
#define LOG_STEP_MIN (1 * MIB) /* less would not hold one group */
#define DISK_SHARE   8         /* of a small disk, for the log; half as much for the database */
#define FREE_MIN     (1 * MIB) /* beside the reserve, for ordinary writes */
#define GRAIN        (64 * KIB)
#define GIVE_WAY     (2 * MIB)    /* a fast writer takes as much while a database is opened */
#define CHUNK_MAX    (1024 * MIB) /* SQLite has it as an int */

/* Of the format of the log, and of its index as SQLite 3 maps it. */
#define LOG_HEAD       32
#define FRAME_HEAD     24
#define INDEX_BYTES    32768
#define INDEX_FRAMES   4096
#define INDEX_IN_FIRST 4062 /* the first part has a header */

static int64_t rounded_up(int64_t n, int64_t grain)
{
    return (n + grain - 1) / grain * grain;
}

/* --- what there is ---------------------------------------------------------------------------- */

static int64_t log_used(const struct reserve *r)
{
    return LOG_HEAD + r->checkpoint->wal_pages * (r->page_bytes + FRAME_HEAD);
}

static bool log_has_room(const struct reserve *r)
{
    return r->log_end - log_used(r) >= r->log_step / 2;
}

static bool db_has_room(const struct reserve *r)
{
    return r->db_end - r->db_used >= r->db_step / 2;
}

/* What anybody may still write. That root may write more on ext4 does not make the disk less full
 * for the agents. */
static int64_t disk_free(const struct reserve *r)
{
    struct statvfs fs;
    return fstatvfs(r->db_fd, &fs) == 0 ? (int64_t)(fs.f_bavail * fs.f_frsize) : 0;
}

static int read_pragma(struct conn *c, const char *sql, int64_t *ret, struct err *e)
{
    struct stmt st;
    return stmt_open(&st, c, "size", sql, e) == 0 ? stmt_end_with_int(&st, ERR_INTERNAL, ret, e)
                                                  : -1;
}

/* --- holding ---------------------------------------------------------------------------------- */

/* 0, or -1 with errno. */
static int hold(int fd, int mode, int64_t end)
{
    int rc;
    do {
        rc = fallocate(fd, mode, 0, end);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

/* An index that had to grow in the middle of a write would need blocks then. */
static int hold_index(struct reserve *r, int64_t log_end)
{
    sqlite3_file *file = NULL;
    volatile void *mapped;
    int64_t frames = log_end / (r->page_bytes + FRAME_HEAD);
    int64_t last = (frames + INDEX_FRAMES - INDEX_IN_FIRST) / INDEX_FRAMES;
    if (sqlite3_file_control(r->conn->db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
        file->pMethods->iVersion < 2) {
        return -1;
    }
    for (int i = 0; i <= last; i++) {
        if (file->pMethods->xShmMap(file, i, INDEX_BYTES, 1, &mapped) != SQLITE_OK) {
            return -1;
        }
    }
    return hold(r->index_fd, 0, (last + 1) * INDEX_BYTES);
}

static int hold_log(struct reserve *r)
{
    int64_t end = rounded_up(log_used(r) + r->log_step, GRAIN);
    if (hold(r->log_fd, FALLOC_FL_KEEP_SIZE, end) != 0 || hold_index(r, end) != 0) {
        return -1;
    }
    r->log_end = end;
    return 0;
}

/* No checkpoint cuts the file below `end`: that is a multiple of the chunk. */
static void keep_db(struct reserve *r, int64_t end)
{
    int64_t parts = end / CHUNK_MAX + 1;
    int chunk = (int)rounded_up(rounded_up(end, parts) / parts, r->page_bytes);
    sqlite3_file_control(r->conn->db, "main", SQLITE_FCNTL_CHUNK_SIZE, &chunk);
    r->db_end = end;
}

static int hold_db(struct reserve *r)
{
    int64_t end = rounded_up(r->db_used + r->db_step, GRAIN);
    if (hold(r->db_fd, 0, end) == 0) {
        keep_db(r, end);
        return 0;
    }
    if (r->db_used > r->db_end) {
        keep_db(r, r->db_used);
    }
    return -1;
}

/* The file first: a checkpoint of the log goes by its chunk. */
static bool renew(struct reserve *r)
{
    int64_t pages;
    struct err e;
    if (read_pragma(r->conn, "PRAGMA page_count", &pages, &e) != 0) {
        return false;
    }
    r->db_used = pages * r->page_bytes;
    bool db = db_has_room(r) || hold_db(r) == 0;
    if (!log_has_room(r)) {
        checkpoint_when_idle(r->checkpoint);
    }
    bool log = log_has_room(r) || hold_log(r) == 0;
    return db && log && disk_free(r) >= FREE_MIN;
}

void reserve_renew(struct reserve *r)
{
    if (r->log_step == 0) {
        return;
    }
    bool was_short = r->is_short;
    r->is_short = !renew(r);
    int64_t log_room = r->log_end - log_used(r), db_room = r->db_end - r->db_used;
    metric_set(r->bytes, 0, 0, log_room + db_room);
    if (r->is_short != was_short) {
        log_event(r->log, r->is_short ? LOG_ERROR : LOG_INFO,
                  r->is_short ? "store_reserve_short" : "store_reserve_whole",
                  LF_INT("log_bytes", log_room), LF_INT("db_bytes", db_room),
                  LF_INT("free_bytes", disk_free(r)));
    }
}

void reserve_tidy(struct reserve *r)
{
    struct stat st;
    if (r->log_step == 0 || fstat(r->log_fd, &st) != 0 ||
        (st.st_size <= 2 * r->log_step && r->log_end <= 2 * r->log_step)) {
        return;
    }
    checkpoint_truncate(r->checkpoint);
    if (!checkpoint_is_pending(r->checkpoint)) {
        r->log_end = 0;
        reserve_renew(r);
    }
}

bool reserve_is_short(const struct reserve *r)
{
    return r->is_short;
}

/* --- life ------------------------------------------------------------------------------------- */

void reserve_init(struct reserve *r)
{
    *r = (struct reserve){.db_fd = -1, .log_fd = -1, .index_fd = -1};
}

static int open_beside(const char *db_path, const char *suffix, int *ret)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof(path), "%s%s", db_path, suffix) >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    *ret = owned_open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC, NULL);
    return *ret >= 0 ? 0 : -1;
}

static int64_t log_step_of(const struct reserve *r)
{
    struct statvfs fs;
    if (fstatvfs(r->db_fd, &fs) != 0) {
        return 0;
    }
    int64_t share = (int64_t)(fs.f_blocks * fs.f_frsize) / DISK_SHARE / GRAIN * GRAIN;
    return share < LOG_STEP_MIN ? 0 : share < LOG_STEP_MAX ? share : LOG_STEP_MAX;
}

/* A piece of the end; all of it where that cannot be (ext4 punches nothing behind a file's end).
 * *ret_freed: whether there was any. */
static int give_way(int fd, bool *ret_freed)
{
    struct stat st, left;
    if (fstat(fd, &st) != 0) {
        return -1;
    }
    int64_t end = st.st_blocks * 512, from = end - GIVE_WAY;
    bool piece = from > st.st_size &&
                 fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, GIVE_WAY) == 0;
    if (fstat(fd, &left) != 0 ||
        ((!piece || left.st_blocks == st.st_blocks) && ftruncate(fd, st.st_size) != 0) ||
        fstat(fd, &left) != 0) {
        return -1;
    }
    *ret_freed = left.st_blocks < st.st_blocks;
    return 0;
}

bool reserve_give_way(const char *path)
{
    bool freed = false;
    int fd;
    if (open_beside(path, "-wal", &fd) != 0) {
        return false;
    }
    int rc = give_way(fd, &freed);
    close(fd);
    return rc == 0 && freed;
}

/* What an earlier run has held is there still. 0, or -1 with errno: the file system holds none. */
static int take_over(struct reserve *r)
{
    struct stat st;
    bool freed = true;
    while (hold_index(r, 0) != 0 && errno == ENOSPC && freed) {
        if (give_way(r->log_fd, &freed) != 0) {
            return -1;
        }
    }
    if (fstat(r->log_fd, &st) != 0) {
        return -1;
    }
    r->log_end = st.st_size;
    if (fstat(r->db_fd, &st) != 0) {
        return -1;
    }
    if (hold(r->log_fd, FALLOC_FL_KEEP_SIZE, GRAIN) != 0 && errno != ENOSPC && errno != EDQUOT) {
        return -1;
    }
    if (st.st_size > 0 && hold(r->db_fd, 0, st.st_size) == 0) {
        keep_db(r, st.st_size);
    }
    return 0;
}

static int begin(struct reserve *r, const struct reserve_options *o)
{
    struct err e;
    int keep = 1;
    int64_t step = log_step_of(r);
    if (step == 0) {
        errno = ENOSPC;
        return -1;
    }
    if (read_pragma(r->conn, "PRAGMA page_size", &r->page_bytes, &e) != 0) {
        errno = EIO;
        return -1;
    }
    if (open_beside(o->path, "-wal", &r->log_fd) != 0 ||
        open_beside(o->path, "-shm", &r->index_fd) != 0 || take_over(r) != 0) {
        return -1;
    }
    sqlite3_file_control(r->conn->db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
    checkpoint_keep_log(r->checkpoint, (int)(step / 4 / (r->page_bytes + FRAME_HEAD)));
    checkpoint_when_idle(r->checkpoint); /* from here on it is known how much is in the log */
    r->log_step = step;
    r->db_step = step / 2;
    return 0;
}

void reserve_open(struct reserve *r, const struct reserve_options *o, struct conn *conn,
                  struct checkpoint *checkpoint)
{
    r->conn = conn;
    r->checkpoint = checkpoint;
    r->log = o->log;
    r->bytes = o->bytes;
    if (begin(r, o) != 0) {
        log_event(o->log, LOG_WARNING, "store_without_reserve", LF_STR("path", o->path),
                  LF_INT("errno", errno));
        return;
    }
    reserve_renew(r);
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* A log without its head is an empty one. Left as it is it would be played back: into another
 * database, if somebody puts a backup in place of this one. */
void reserve_close(struct reserve *r, bool log_is_done)
{
    static const char no_head[LOG_HEAD];
    if (r->log_step > 0 && log_is_done &&
        (pwrite(r->log_fd, no_head, sizeof(no_head), 0) != (ssize_t)sizeof(no_head) ||
         fdatasync(r->log_fd) != 0)) {
        log_event(r->log, LOG_WARNING, "store_log_unmarked", LF_INT("errno", errno));
    }
    close_fd(&r->log_fd);
    close_fd(&r->index_fd);
    close_fd(&r->db_fd);
    r->log_step = 0;
}
