/* What a backup in the place of the metadata brings along: histories. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "leasehold/backup.h"
#include "leasehold/chatdir.h"
#include "stmt.h"
#include "tx.h"

#define AT_ONCE 256

struct restore {
    const struct history_place *place;
    bool there; /* there is anything to restore */
    struct id after, users[AT_ONCE], chats[AT_ONCE];
    size_t n;
    int64_t restored;
};

static int look(struct store_tx *tx, void *arg, struct err *e)
{
    struct restore *r = arg;
    struct stmt st;
    int64_t n;
    if (stmt_open(&st, tx->conn, "backup",
                  "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'backup_histories'", e) != 0 ||
        stmt_end_with_int(&st, ERR_INTERNAL, &n, e) != 0) {
        return -1;
    }
    r->there = n > 0;
    return 0;
}

static int list(struct store_tx *tx, void *arg, struct err *e)
{
    struct restore *r = arg;
    struct stmt st;
    bool row = true;
    int rc;
    r->n = 0;
    if (stmt_open(&st, tx->conn, "backup",
                  "SELECT user_id, chat_id FROM backup_histories WHERE part = 0 AND chat_id > ?"
                  " ORDER BY chat_id LIMIT ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, &r->after);
    bind_int(&st, AT_ONCE);
    while ((rc = stmt_next(&st, &row, e)) == 0 && row) {
        column_id(&st, &r->users[r->n]);
        column_id(&st, &r->chats[r->n]);
        r->after = r->chats[r->n++];
    }
    return stmt_end(&st, rc, e);
}

/* --- one history ------------------------------------------------------------------------------ */

struct one {
    const struct id *chat_id;
    int fd;
};

static int fail(struct err *e, const char *what)
{
    bool full = errno == ENOSPC || errno == EDQUOT;
    return err_sys(e, full ? ERR_STORAGE_FULL : ERR_INTERNAL, errno, "%s", what);
}

static int write_part(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        bytes += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int write_parts(struct store_tx *tx, void *arg, struct err *e)
{
    const struct one *o = arg;
    struct stmt st;
    bool row = true;
    int rc;
    if (stmt_open(&st, tx->conn, "backup",
                  "SELECT bytes FROM backup_histories WHERE chat_id = ? ORDER BY part", e) != 0) {
        return -1;
    }
    bind_id(&st, o->chat_id);
    while ((rc = stmt_next(&st, &row, e)) == 0 && row) {
        size_t len;
        const uint8_t *bytes = column_blob(&st, &len);
        if (write_part(o->fd, bytes, len) != 0) {
            rc = fail(e, "write a history");
            break;
        }
    }
    return stmt_end(&st, rc, e);
}

/* Under another name first: a start that is broken off begins anew. */
static int write_history(struct store *s, const char *dir, const struct id *chat_id, struct err *e)
{
    char path[4096 + 32], part[4096 + 32];
    snprintf(path, sizeof(path), "%s/history.db", dir);
    snprintf(part, sizeof(part), "%s/history.db-restored", dir);
    struct one o = {.chat_id = chat_id,
                    .fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600)};
    if (o.fd < 0) {
        return fail(e, "make a history");
    }
    int rc = store_read(s, write_parts, &o, e);
    if (rc == 0 && fsync(o.fd) != 0) {
        rc = fail(e, "write a history");
    }
    close(o.fd);
    if (rc == 0 && rename(part, path) != 0) {
        rc = fail(e, "make a history");
    }
    return rc;
}

static int make_way(const struct history_place *p, const struct id *user_id,
                    const struct id *chat_id, char *ret, size_t size, struct err *e)
{
    const char *const names[] = {ID_STR(user_id), "chats", ID_STR(chat_id)};
    size_t len = strlen(p->root);
    if (len + 3 * ID_TEXT + 16 > size) {
        return err_set(e, ERR_INTERNAL, "the path of the workspace root is too long");
    }
    memcpy(ret, p->root, len + 1);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        len += (size_t)snprintf(ret + len, size - len, "/%s", names[i]);
        if (mkdir(ret, 0700) != 0 && errno != EEXIST) {
            return fail(e, "make a chat's directory");
        }
    }
    return 0;
}

/* The history first: with the directory complete it would have an empty one, which a start that is
 * broken off here would leave. history.md follows when it is opened next. */
static int restore_one(struct store *s, struct restore *r, size_t i, struct err *e)
{
    const struct history_place *p = r->place;
    char dir[4096], path[4096 + 16];
    if (make_way(p, &r->users[i], &r->chats[i], dir, sizeof(dir), e) != 0) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/history.db", dir);
    if (access(path, F_OK) == 0) {
        return 0;
    }
    if (write_history(s, dir, &r->chats[i], e) != 0 ||
        chatdir_make(p->root, &r->users[i], &r->chats[i], p->uid, p->gid, e) != 0) {
        return -1;
    }
    r->restored++;
    return 0;
}

static int drop(struct store_tx *tx, void *arg, struct err *e)
{
    (void)arg;
    return conn_exec(tx->conn, "DROP TABLE backup_histories", e);
}

static int restore_all(struct store *s, struct restore *r, struct err *e)
{
    do {
        if (store_read(s, list, r, e) != 0) {
            return -1;
        }
        for (size_t i = 0; i < r->n; i++) {
            if (restore_one(s, r, i, e) != 0) {
                return -1;
            }
        }
    } while (r->n == AT_ONCE);
    return store_write(s, drop, NULL, e);
}

int backup_restore(struct store *s, const struct history_place *place, int64_t *ret_restored,
                   struct err *e)
{
    struct restore r = {.place = place};
    if (store_read(s, look, &r, e) != 0 || (r.there && restore_all(s, &r, e) != 0)) {
        return -1;
    }
    *ret_restored = r.restored;
    return 0;
}
