#include "leasehold/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/chatdir.h"
#include "list.h"
#include "store.h"

#define PART_BYTES (1024 * 1024)
#define AT_ONCE    256 /* chats of one look */

/* Only a backup has it, and a store between its first start on one and the end of that start. */
static const char histories_table[] = "CREATE TABLE backup_histories ("
                                      " chat_id TEXT NOT NULL,"
                                      " user_id TEXT NOT NULL,"
                                      " part INTEGER NOT NULL,"
                                      " bytes BLOB NOT NULL,"
                                      " PRIMARY KEY (chat_id, part));";

struct backup {
    struct conn conn; /* of the copy */
    char *path;
    uint8_t part[PART_BYTES];
};

/* --- the metadata ----------------------------------------------------------------------------- */

/* In one step, so that it is one snapshot; meanwhile writes go on, in the log alone. */
static int copy(struct conn *to, struct conn *from, struct err *e)
{
    sqlite3_backup *b = sqlite3_backup_init(to->db, "main", from->db, "main");
    if (b == NULL) {
        return conn_fail(to, sqlite3_extended_errcode(to->db), "backup", e);
    }
    int rc = sqlite3_backup_step(b, -1);
    int end = sqlite3_backup_finish(b);
    if (rc == SQLITE_DONE && end == SQLITE_OK) {
        return 0;
    }
    return conn_fail(to, end != SQLITE_OK ? end : rc, "backup", e);
}

static int copy_from_reader(struct store *s, struct backup *b, struct err *e)
{
    struct reader *reader;
    if (readers_take(&s->readers, &reader, e) != 0) {
        return -1;
    }
    int rc = copy(&b->conn, &reader->conn, e);
    readers_give(&s->readers, reader);
    return rc;
}

/* A file of its own, without a log beside it. It is synced once, at its end. */
static int open_copy(struct backup *b, struct err *e)
{
    int fd = open(b->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_sys(e, ERR_INTERNAL, errno, "make %s", b->path);
    }
    close(fd);
    return conn_open(b->path, CONN_LONE, &b->conn, e);
}

static int begin(struct store *s, struct backup *b, struct err *e)
{
    return open_copy(b, e) == 0 && copy_from_reader(s, b, e) == 0 &&
                   conn_exec(&b->conn,
                             "PRAGMA journal_mode = MEMORY;"
                             "PRAGMA synchronous = OFF;",
                             e) == 0 &&
                   conn_exec(&b->conn, "BEGIN IMMEDIATE", e) == 0 &&
                   conn_exec(&b->conn, histories_table, e) == 0
               ? 0
               : -1;
}

int backup_begin(struct store *s, const char *path, struct backup **ret, struct err *e)
{
    struct backup *b = calloc(1, sizeof(*b));
    if (b == NULL || (b->path = strdup(path)) == NULL) {
        free(b);
        return err_set(e, ERR_INTERNAL, "no memory for a backup");
    }
    if (begin(s, b, e) != 0) {
        backup_free(b);
        return -1;
    }
    *ret = b;
    return 0;
}

void backup_free(struct backup *b)
{
    if (b == NULL) {
        return;
    }
    if (b->conn.db != NULL) {
        conn_rollback(&b->conn);
    }
    conn_close(&b->conn);
    free(b->path);
    free(b);
}

/* --- chats ------------------------------------------------------------------------------------ */

struct chats {
    struct id users[AT_ONCE], chats[AT_ONCE];
    size_t n;
};

static int read_chat(struct stmt *st, void *arg, struct err *e)
{
    struct chats *c = arg;
    (void)e;
    column_id(st, &c->users[c->n]);
    column_id(st, &c->chats[c->n]);
    c->n++;
    return 0;
}

static int list_chats(struct conn *conn, const struct id *after, struct chats *ret, struct err *e)
{
    struct stmt st;
    ret->n = 0;
    if (stmt_open(&st, conn, "chat",
                  "SELECT user_id, chat_id FROM chats WHERE chat_id > ? ORDER BY chat_id LIMIT ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, after);
    bind_int(&st, AT_ONCE);
    return list_walk(&st, read_chat, ret, e);
}

int backup_each_chat(struct backup *b,
                     int (*each)(void *ctx, const struct id *user_id, const struct id *chat_id,
                                 struct err *e),
                     void *ctx, struct err *e)
{
    struct id after = {{0}};
    struct chats c;
    do {
        if (list_chats(&b->conn, &after, &c, e) != 0) {
            return -1;
        }
        for (size_t i = 0; i < c.n; i++) {
            if (each(ctx, &c.users[i], &c.chats[i], e) != 0) {
                return -1;
            }
            after = c.chats[i];
        }
    } while (c.n == AT_ONCE);
    return 0;
}

/* --- histories -------------------------------------------------------------------------------- */

static int add_part(struct backup *b, const struct history_place *p, int64_t part, size_t len,
                    struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, &b->conn, "history",
                  "INSERT INTO backup_histories (chat_id, user_id, part, bytes)"
                  " VALUES (?, ?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, &p->chat_id);
    bind_id(&st, &p->user_id);
    bind_int(&st, part);
    bind_blob(&st, b->part, len);
    return stmt_run(&st, e);
}

static ssize_t read_part(int fd, uint8_t *ret, int64_t part)
{
    size_t done = 0;
    ssize_t n = 1;
    while (done < PART_BYTES && n != 0) {
        n = pread(fd, ret + done, PART_BYTES - done, (off_t)(part * PART_BYTES + (int64_t)done));
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)done;
}

static int add_parts(struct backup *b, const struct history_place *p, int fd, struct err *e)
{
    ssize_t n = PART_BYTES;
    for (int64_t part = 0; n == PART_BYTES; part++) {
        n = read_part(fd, b->part, part);
        if (n < 0) {
            return err_sys(e, ERR_INTERNAL, errno, "read a history");
        }
        if (n > 0 && add_part(b, p, part, (size_t)n, e) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Opening it plays back what a crash has left; once it is closed its bytes are all there is. */
static int settle(const struct history_place *p, bool *ret_whole, struct err *e)
{
    struct history *h;
    bool damaged;
    *ret_whole = false;
    if (history_open(p, &h, &damaged, e) == 0) {
        history_close(h);
        *ret_whole = true;
        return 0;
    }
    return damaged || e->code == ERR_CHAT_NOT_FOUND ? 0 : -1;
}

int backup_add_history(struct backup *b, const struct history_place *p, bool *ret_added,
                       struct err *e)
{
    char path[4096];
    if (settle(p, ret_added, e) != 0) {
        return -1;
    }
    if (!*ret_added) {
        return 0;
    }
    if ((size_t)snprintf(path, sizeof(path), "%s/%s/chats/%s/history.db", p->root,
                         ID_STR(&p->user_id), ID_STR(&p->chat_id)) >= sizeof(path)) {
        return err_set(e, ERR_INTERNAL, "the path of the workspace root is too long");
    }
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return err_sys(e, ERR_INTERNAL, errno, "open a history");
    }
    int rc = add_parts(b, p, fd, e);
    close(fd);
    return rc;
}

/* --- its end ---------------------------------------------------------------------------------- */

static int check(struct backup *b, struct err *e)
{
    struct stmt st;
    char found[128];
    if (stmt_open(&st, &b->conn, "check", "PRAGMA quick_check(1)", e) != 0) {
        return -1;
    }
    int rc = stmt_first(&st, ERR_INTERNAL, e);
    if (rc == 0) {
        column_text(&st, found, sizeof(found));
        rc = strcmp(found, "ok") == 0
                 ? 0
                 : err_set(e, ERR_INTERNAL, "the backup is not whole (%.60s)", found);
    }
    return stmt_end(&st, rc, e);
}

static int sync_file(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int rc = fd >= 0 ? fsync(fd) : -1;
    int sys = errno;
    if (fd >= 0) {
        close(fd);
    }
    return rc == 0 ? 0
                   : err_sys(e, sys == ENOSPC ? ERR_STORAGE_FULL : ERR_INTERNAL, sys,
                             "make a backup durable");
}

int backup_end(struct backup *b, struct err *e)
{
    if (conn_exec(&b->conn, "COMMIT", e) != 0 ||
        conn_exec(&b->conn, "PRAGMA journal_mode = DELETE", e) != 0 || check(b, e) != 0) {
        return -1;
    }
    conn_close(&b->conn);
    return sync_file(b->path, e);
}
