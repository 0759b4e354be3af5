#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/clock.h"
#include "leasehold/owned_file.h"
#include "hex.h"
#include "migrate.h"
#include "stmt.h"

#define READERS_DEFAULT   2
#define QUEUE_MAX_DEFAULT 10000
#define GROUP_MAX_DEFAULT 256
#define WAIT_MS_DEFAULT   30000
#define CHECK_FIRST_BYTES (64 * 1024 * 1024) /* a quarter of a second */

/* --- opening ---------------------------------------------------------------------------------- */

static int sync_parent(const char *path, struct err *e)
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof(copy)) {
        return err_set(e, ERR_INTERNAL, "the path of the database is too long");
    }
    memcpy(copy, path, strlen(path) + 1);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd >= 0 ? fsync(fd) : -1;
    int sys = errno;
    if (fd >= 0) {
        close(fd);
    }
    return rc == 0 ? 0 : err_sys(e, ERR_INTERNAL, sys, "cannot sync the directory of %s", path);
}

/* SQLite would make the file readable to others, and does not sync the directory it stands in. It would
 * also take a file that something has emptied for a database that is to be made.
 * Closing any descriptor of the file drops SQLite's locks: this one stays as long as they are. */
static int make_file(const char *path, int *ret_fd, bool *ret_made, struct err *e)
{
    struct stat st;
    int fd = owned_open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK, ret_made);
    *ret_fd = fd;
    if (fd < 0 || fstat(fd, &st) != 0) {
        return err_sys(e, ERR_INTERNAL, errno, "cannot open the database %s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return err_set(e, ERR_INTERNAL, "the database %s is not a file", path);
    }
    if (st.st_size == 0 && !*ret_made) {
        return err_set(e, ERR_INTERNAL,
                       "the database %s is empty: restore a backup, or remove it and what stands "
                       "beside it to begin anew",
                       path);
    }
    return sync_parent(path, e);
}

static int unusable(const char *path, const char *why, struct err *e)
{
    return err_set(e, ERR_INTERNAL, "the database is unusable (%.60s), restore a backup: %s", why,
                   path);
}

/* The end of the audit chain goes to the log, where who cuts the chain cannot reach it. */
static void log_opened(const struct store_options *o, int64_t applied,
                       const struct audit_head *audit)
{
    char hash[HASH_HEX];
    hash_to_hex(audit->hash, hash);
    log_event(o->log, LOG_INFO, "store_opened", LF_STR("path", o->path),
              LF_INT("migrations_applied", applied), LF_INT("audit_n", audit->n),
              LF_STR("audit_hash", hash));
}

static int open_writer(struct writer *w, const struct store_options *o, struct err *e)
{
    int rc;
    do {
        rc = writer_open(w, o, e);
    } while (rc != 0 && e->code == ERR_STORAGE_FULL && reserve_give_way(o->path));
    return rc;
}

static bool file_is_small(const struct store *s, const struct store_options *o)
{
    struct stat st;
    return fstat(s->writer.reserve.db_fd, &st) != 0 || st.st_size <= o->check_first_bytes;
}

static int prepare_file(struct store *s, const struct store_options *o, struct err *e)
{
    bool made = false;
    enum lockfile_mark left;
    int64_t applied = 0;
    if (lockfile_take(o->path, &s->lock, &left, e) != 0 ||
        make_file(o->path, &s->writer.reserve.db_fd, &made, e) != 0) {
        return -1;
    }
    if (open_writer(&s->writer, o, e) != 0) {
        return e->code == ERR_INTERNAL ? unusable(o->path, e->msg, e) : -1;
    }
    s->unchecked = left != LOCKFILE_CLEAN && !made;
    if (s->unchecked && (left == LOCKFILE_DAMAGED || file_is_small(s, o))) {
        if (store_check_now(&s->writer.conn, o, e) != 0) {
            return -1;
        }
        s->unchecked = false;
    }
    if (lockfile_mark(&s->lock, LOCKFILE_OPEN, e) != 0 ||
        migrate(&s->writer.conn, migrations, &applied, e) != 0 ||
        audit_trail_load(&s->writer.audit, &s->writer.conn, e) != 0 ||
        high_water_load(&s->writer.high_water, &s->writer.conn, e) != 0 ||
        lease_counts_load(&s->writer.leases, &s->writer.conn, e) != 0 ||
        lease_blocks_load(&s->writer.lease_blocks, &s->writer.conn, e) != 0 ||
        event_group_load(&s->writer.events, &s->writer.conn, e) != 0) {
        return -1;
    }
    reserve_open(
        &s->writer.reserve,
        &(struct reserve_options){.path = o->path, .log = o->log, .bytes = o->meters.reserve},
        &s->writer.conn, &s->writer.checkpoint);
    log_opened(o, applied, &s->writer.audit.head);
    return 0;
}

/* On the thread of the check. */
static void damaged(void *ctx, const char *found)
{
    struct store *s = ctx;
    struct err e;
    (void)found;
    writer_refuse_all(&s->writer);
    if (lockfile_mark(&s->lock, LOCKFILE_DAMAGED, &e) != 0) {
        log_error(s->writer.options.log, "store_damage_unmarked", &e);
    }
}

static int check_begin(struct store *s, const struct store_options *o, struct err *e)
{
    s->check.damaged = damaged;
    s->check.ctx = s;
    return store_check_begin(&s->check, o, e);
}

/* Readers close first: the last connection to close checkpoints, and that must be the writer's. */
static void shut(struct store *s)
{
    writer_stop(&s->writer);
    s->whole = store_check_end(&s->check);
    readers_close(&s->readers);
    writer_close(&s->writer);
}

int store_open(const struct store_options *options, struct store **ret, struct err *e)
{
    struct store_options o = *options;
    o.readers = o.readers != 0 ? o.readers : READERS_DEFAULT;
    o.queue_max = o.queue_max != 0 ? o.queue_max : QUEUE_MAX_DEFAULT;
    o.group_max = o.group_max != 0 ? o.group_max : GROUP_MAX_DEFAULT;
    o.quota_bytes = o.quota_bytes != 0 ? o.quota_bytes : INT64_MAX;
    o.wait_ms = o.wait_ms != 0 ? o.wait_ms : WAIT_MS_DEFAULT;
    o.clock = o.clock != NULL ? o.clock : &clock_system;
    o.check_first_bytes = o.check_first_bytes != 0 ? o.check_first_bytes : CHECK_FIRST_BYTES;

    struct store *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for the store");
    }
    s->lock.fd = -1;
    usage_gate_init(&s->usage, o.quota_bytes);
    s->writer.usage = &s->usage;
    reserve_init(&s->writer.reserve);
    /* What a savepoint can undo stays in memory: a file for it could find the disk full. Refused,
     * and not needed, once SQLite is in use. */
    (void)sqlite3_config(SQLITE_CONFIG_STMTJRNL_SPILL, -1);
    /* Nobody asks SQLite how much memory it has, and counting takes a lock at each allocation. */
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    if (prepare_file(s, &o, e) != 0 || readers_open(&s->readers, o.path, o.readers, e) != 0 ||
        writer_start(&s->writer, e) != 0 || (s->unchecked && check_begin(s, &o, e) != 0)) {
        shut(s);
        lockfile_drop(&s->lock);
        usage_gate_done(&s->usage);
        free(s);
        return -1;
    }
    *ret = s;
    return 0;
}

bool store_is_held(const char *path)
{
    return lockfile_is_held(path);
}

void store_close(struct store *s)
{
    if (s == NULL) {
        return;
    }
    struct log *log = s->writer.options.log;
    struct err e;
    shut(s);
    if (s->whole && lockfile_mark(&s->lock, LOCKFILE_CLEAN, &e) != 0) {
        log_error(log, "store_close_unmarked", &e);
    }
    lockfile_drop(&s->lock);
    usage_gate_done(&s->usage);
    free(s);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* By a statement that is kept: a ROLLBACK is parsed anew, which is a tenth of a small read. */
static void read_end(struct conn *c)
{
    struct err ignored;
    if (stmt_exec(c, "COMMIT", &ignored) != 0) {
        conn_rollback(c);
    }
}

int store_read(struct store *s, store_fn fn, void *arg, struct err *e)
{
    struct reader *reader;
    if (readers_take(&s->readers, &reader, e) != 0) {
        return -1;
    }
    struct store_tx tx = {.conn = &reader->conn,
                          .now_ms = clock_wall_ms(s->writer.options.clock),
                          .usage = &s->usage};
    int rc = stmt_exec(&reader->conn, "BEGIN", e);
    if (rc == 0) {
        rc = fn(&tx, arg, e);
    }
    read_end(&reader->conn);
    readers_give(&s->readers, reader);
    return rc;
}
