#include "leasehold/history.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "chat_history.h"
#include "history_md.h"
#include "history_text.h"
#include "leasehold/chatdir.h"
#include "stmt.h"

#define CLEAN_MAX (512 * 1024 * 1024) /* of a content with U+FFFD in it */

struct history {
    struct history_place place;
    int dir; /* of the chat */
    struct conn conn;
    struct history_md md;
    int64_t last_seq, md_seq;
    bool damaged;
};

/* --- damage ----------------------------------------------------------------------------------- */

/* To be asked before anything else is done with the connection. */
static void note_damage(struct history *h)
{
    int rc = h->conn.db != NULL ? sqlite3_extended_errcode(h->conn.db) : h->conn.open_rc;
    switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        h->damaged = true;
        break;
    case SQLITE_IOERR:
        h->damaged |= rc == SQLITE_IOERR_READ || rc == SQLITE_IOERR_SHORT_READ ||
                      rc == SQLITE_IOERR_CORRUPTFS;
        break;
    default:
        break;
    }
}

static int failed(struct history *h)
{
    note_damage(h);
    return -1;
}

bool history_is_damaged(const struct history *h)
{
    return h->damaged;
}

/* --- places ----------------------------------------------------------------------------------- */

static int place_path(const struct history_place *p, char *ret, size_t size)
{
    int n = snprintf(ret, size, "%s/chats/%s", ID_STR(&p->user_id), ID_STR(&p->chat_id));
    return n > 0 && (size_t)n < size ? 0 : -1;
}

static int open_dir(const struct history_place *p, int *ret, struct err *e)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    char below[PATH_MAX];
    int root = open(p->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || place_path(p, below, sizeof(below)) != 0) {
        return err_sys(e, ERR_INTERNAL, errno, "cannot open the workspace root");
    }
    *ret = (int)syscall(SYS_openat2, root, below, &how, sizeof(how));
    int sys = errno;
    close(root);
    if (*ret >= 0) {
        return 0;
    }
    return sys == ENOENT ? err_set(e, ERR_CHAT_NOT_FOUND, "the chat has no directory")
                         : err_sys(e, ERR_INTERNAL, sys, "cannot open the chat's directory");
}

static bool is_there(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Also checks that both files are ours: nobody but us can reach them, so once is enough. */
static int make_missing(const struct history *h, struct err *e)
{
    const struct history_place *p = &h->place;
    struct stat st;
    if (!is_there(h->dir, "history.db") || !is_there(h->dir, "history.md")) {
        return chatdir_make(p->root, &p->user_id, &p->chat_id, p->uid, p->gid, e);
    }
    if (fstatat(h->dir, "history.db", &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
        st.st_uid != geteuid() || st.st_nlink != 1) {
        return err_set(e, ERR_CONFLICT, "history.db is not what the gateway made");
    }
    return 0;
}

static int size_of(int dir, const char *name, int64_t *ret, struct err *e)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        *ret = st.st_size;
        return 0;
    }
    *ret = 0;
    return errno == ENOENT ? 0 : err_sys(e, ERR_INTERNAL, errno, "cannot look at a history");
}

int history_bytes(const struct history_place *p, struct history_bytes *ret, struct err *e)
{
    struct history_bytes b;
    int dir;
    if (open_dir(p, &dir, e) != 0) {
        return -1;
    }
    int rc = size_of(dir, "history.db", &b.db, e) != 0 || size_of(dir, "history.md", &b.md, e) != 0;
    close(dir);
    if (rc != 0) {
        return -1;
    }
    *ret = b;
    return 0;
}

int history_md_fd(const struct history *h, int64_t *ret_bytes)
{
    *ret_bytes = h->md.bytes;
    return h->md.fd;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* By path, as SQLite needs it for its journal: every directory on it is ours alone. */
static int open_db(struct history *h, struct err *e)
{
    char root[PATH_MAX], below[PATH_MAX], path[2 * PATH_MAX + 16];
    if (realpath(h->place.root, root) == NULL || place_path(&h->place, below, sizeof(below)) != 0) {
        return err_sys(e, ERR_INTERNAL, errno, "cannot resolve the workspace root");
    }
    snprintf(path, sizeof(path), "%s/%s/history.db", root, below);
    return conn_open(path, CONN_LONE, &h->conn, e) == 0 ? 0 : failed(h);
}

static int read_int(struct history *h, const char *sql, int64_t *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, &h->conn, "history", sql, e) != 0) {
        return failed(h);
    }
    return stmt_end_with_int(&st, ERR_INTERNAL, ret, e) == 0 ? 0 : failed(h);
}

static int load(struct history *h, struct err *e)
{
    int64_t tables;
    if (read_int(h, "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'meta'", &tables, e) != 0) {
        return -1;
    }
    if (tables == 0) {
        h->damaged = true;
        return err_set(e, ERR_INTERNAL, "history.db is empty");
    }
    if (chat_history_migrate(&h->conn, e) != 0) {
        return failed(h);
    }
    return read_int(h, "SELECT COALESCE(MAX(seq), 0) FROM messages", &h->last_seq, e) == 0 &&
                   read_int(h, "SELECT md_seq FROM projection", &h->md_seq, e) == 0 &&
                   read_int(h, "SELECT md_bytes FROM projection", &h->md.bytes, e) == 0
               ? 0
               : -1;
}

static int save_projection(struct history *h, int64_t seq, int64_t bytes, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, &h->conn, "history", "UPDATE projection SET md_seq = ?, md_bytes = ?", e) !=
        0) {
        return failed(h);
    }
    bind_int(&st, seq);
    bind_int(&st, bytes);
    return stmt_run_one(&st, ERR_INTERNAL, e) == 0 ? 0 : failed(h);
}

static int add_to_md(void *ctx, const struct history_message *m, struct err *e)
{
    struct history *h = ctx;
    return history_md_add(&h->md, m, e);
}

/* Behind md_seq, to the last message. */
static int md_catch_up(struct history *h, struct err *e)
{
    if (history_each(h, h->md_seq, INT64_MAX, add_to_md, h, e) != 0 ||
        history_md_sync(&h->md, e) != 0 ||
        save_projection(h, h->last_seq, h->md.bytes + h->md.ahead, e) != 0) {
        history_md_drop(&h->md);
        return -1;
    }
    history_md_keep(&h->md);
    h->md_seq = h->last_seq;
    return 0;
}

int history_md_rebuild(struct history *h, struct err *e)
{
    h->md_seq = 0;
    return history_md_cut(&h->md, 0, e) == 0 &&
                   history_md_head(&h->md, &h->place.chat_id, e) == 0 && md_catch_up(h, e) == 0
               ? 0
               : -1;
}

/* A file that is longer than we know ends with what a crash has left; one that is shorter has lost
 * something. A new history.db goes on behind what it finds. */
static int md_repair(struct history *h, struct err *e)
{
    int64_t size;
    if (history_md_size(&h->md, &size, e) != 0) {
        return -1;
    }
    bool is_new = h->md.bytes == 0 && h->md_seq == 0 && size > 0;
    if (is_new) {
        h->md.bytes = size;
        return h->last_seq == 0 ? save_projection(h, 0, size, e) : md_catch_up(h, e);
    }
    if (size < h->md.bytes || h->md.bytes == 0) {
        return history_md_rebuild(h, e);
    }
    if (size > h->md.bytes && history_md_cut(&h->md, h->md.bytes, e) != 0) {
        return -1;
    }
    return h->md_seq < h->last_seq ? md_catch_up(h, e) : 0;
}

static int open_md(struct history *h, struct err *e)
{
    int64_t bytes = h->md.bytes;
    if (history_md_open(h->dir, &h->md, e) != 0) {
        return -1;
    }
    h->md.bytes = bytes;
    return md_repair(h, e);
}

static struct history *new_handle(const struct history_place *p, struct err *e)
{
    struct history *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        err_set(e, ERR_INTERNAL, "no memory for a history");
        return NULL;
    }
    h->place = *p;
    h->dir = h->md.fd = -1;
    return h;
}

static int open_handle(struct history *h, struct err *e)
{
    return open_dir(&h->place, &h->dir, e) == 0 && make_missing(h, e) == 0 && open_db(h, e) == 0 &&
                   load(h, e) == 0 && open_md(h, e) == 0
               ? 0
               : -1;
}

int history_open(const struct history_place *p, struct history **ret, bool *ret_damaged,
                 struct err *e)
{
    struct history *h = new_handle(p, e);
    int rc = h != NULL ? open_handle(h, e) : -1;
    *ret_damaged = h != NULL && h->damaged;
    if (rc != 0) {
        history_close(h);
        return -1;
    }
    *ret = h;
    return 0;
}

void history_close(struct history *h)
{
    if (h == NULL) {
        return;
    }
    conn_close(&h->conn);
    history_md_close(&h->md);
    if (h->dir >= 0) {
        close(h->dir);
    }
    free(h);
}

/* --- a damaged one ---------------------------------------------------------------------------- */

/* The journal first: it would be played back into the new file. */
static int rename_broken(int dir, int64_t now_ms, char name[static HISTORY_BROKEN_NAME])
{
    char journal[HISTORY_BROKEN_NAME];
    snprintf(name, HISTORY_BROKEN_NAME, "history.db.broken-%lld", (long long)now_ms);
    snprintf(journal, sizeof(journal), "history.db-journal.broken-%lld", (long long)now_ms);
    if (renameat(dir, "history.db-journal", dir, journal) != 0 && errno != ENOENT) {
        return -1;
    }
    return renameat(dir, "history.db", dir, name) == 0 && fsync(dir) == 0 ? 0 : -1;
}

int history_move_aside(const struct history_place *p, int64_t now_ms,
                       char ret[static HISTORY_BROKEN_NAME], struct err *e)
{
    char name[HISTORY_BROKEN_NAME];
    int dir;
    if (open_dir(p, &dir, e) != 0) {
        return -1;
    }
    int rc = rename_broken(dir, now_ms, name);
    int sys = errno;
    close(dir);
    if (rc != 0) {
        return err_sys(e, ERR_INTERNAL, sys, "cannot move a broken history.db aside");
    }
    memcpy(ret, name, sizeof(name));
    return 0;
}

/* --- spools ----------------------------------------------------------------------------------- */

int history_spool_get(struct history *h, const struct id *session_id, struct history_spool *ret,
                      struct err *e)
{
    struct stmt st;
    bool row;
    if (stmt_open(&st, &h->conn, "spool", "SELECT n, bytes, lost FROM spools WHERE session_id = ?",
                  e) != 0) {
        return failed(h);
    }
    bind_id(&st, session_id);
    int rc = stmt_next(&st, &row, e);
    if (rc != 0) {
        note_damage(h);
    }
    *ret = (struct history_spool){.session_id = *session_id};
    if (rc == 0 && row) {
        ret->n = column_int(&st);
        ret->bytes = column_int(&st);
        ret->lost = column_int(&st);
    }
    return stmt_end(&st, rc, e);
}

static int spool_put(struct history *h, const struct history_spool *s, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, &h->conn, "spool",
                  "INSERT INTO spools (session_id, n, bytes, lost) VALUES (?, ?, ?, ?)"
                  " ON CONFLICT (session_id) DO UPDATE SET n = excluded.n, bytes = excluded.bytes,"
                  " lost = excluded.lost",
                  e) != 0) {
        return failed(h);
    }
    bind_id(&st, &s->session_id);
    bind_int(&st, s->n);
    bind_int(&st, s->bytes);
    bind_int(&st, s->lost);
    return stmt_run(&st, e) == 0 ? 0 : failed(h);
}

/* --- a client's own ids ----------------------------------------------------------------------- */

static bool same_text(struct stmt *st, const char *text, size_t len)
{
    int stored_len;
    const char *stored = column_borrow(st, &stored_len);
    return (size_t)stored_len == len && memcmp(stored, text, len) == 0;
}

/* Is there a message of its client_id? Then m->is tells, and it has the answers. */
static int find_known(struct history *h, struct history_message *m, struct err *e)
{
    struct stmt st;
    bool row = false;
    m->is = HISTORY_IS_NEW;
    if (m->client_id == NULL) {
        return 0;
    }
    if (stmt_open(&st, &h->conn, "message",
                  "SELECT seq, message_id, at, role, author, content FROM messages"
                  " WHERE client_id = ?",
                  e) != 0) {
        return failed(h);
    }
    bind_text(&st, m->client_id);
    int rc = stmt_next(&st, &row, e);
    if (rc != 0) {
        note_damage(h);
    } else if (row) {
        m->seq = column_int(&st);
        column_id(&st, &m->message_id);
        m->at = column_int(&st);
        bool same = column_enum(&st, history_role_names) == (int)m->role;
        same = same_text(&st, m->author, strlen(m->author)) && same;
        same = same_text(&st, m->content, m->content_len) && same;
        m->is = same ? HISTORY_IS_KNOWN : HISTORY_IS_ANOTHER;
    }
    return stmt_end(&st, rc, e);
}

/* --- messages --------------------------------------------------------------------------------- */

static int insert_row(struct history *h, const struct history_message *m, const struct id *session,
                      struct err *e)
{
    static const struct id none;
    struct stmt st;
    if (stmt_open(&st, &h->conn, "message",
                  "INSERT INTO messages"
                  " (seq, message_id, at, role, author, content, session_id, n, client_id)"
                  " VALUES (?, ?, ?, ?, ?, ?, ?, NULLIF(?, 0), NULLIF(?, ''))",
                  e) != 0) {
        return failed(h);
    }
    bind_int(&st, m->seq);
    bind_id(&st, &m->message_id);
    bind_int(&st, m->at);
    bind_text(&st, history_role_names[m->role]);
    bind_text(&st, m->author);
    bind_text_len(&st, m->content, m->content_len);
    bind_id_or_null(&st, session != NULL ? session : &none);
    bind_int(&st, m->n);
    bind_text(&st, m->client_id);
    return stmt_run(&st, e) == 0 ? 0 : failed(h);
}

static int insert_new(struct history *h, struct history_message *m, const struct id *session,
                      struct err *e)
{
    m->seq = h->last_seq + 1;
    id_random(&m->message_id);
    if (insert_row(h, m, session, e) != 0 || history_md_add(&h->md, m, e) != 0) {
        return -1;
    }
    h->last_seq = m->seq;
    return 0;
}

/* A message goes into both files as it can stand there. */
static int insert(struct history *h, struct history_message *m, const struct id *session,
                  struct err *e)
{
    struct history_message clean = *m;
    struct buf text;
    int rc = 0;
    buf_init(&text, CLEAN_MAX);
    if (!history_text_is_clean(m->content, m->content_len)) {
        history_text_clean(m->content, m->content_len, &text);
        rc = buf_ok(&text) ? 0 : err_set(e, ERR_INTERNAL, "no memory for a message");
        clean.content = text.data;
        clean.content_len = text.len;
    }
    if (rc == 0) {
        rc = find_known(h, &clean, e);
    }
    if (rc == 0 && clean.is == HISTORY_IS_NEW) {
        rc = insert_new(h, &clean, session, e);
    }
    buf_done(&text);
    if (rc == 0) {
        m->is = clean.is;
        m->at = clean.at;
        m->seq = clean.seq;
        m->message_id = clean.message_id;
    }
    return rc;
}

static int check_order(struct history *h, const struct history_message *messages, size_t n,
                       const struct history_spool *spool, struct err *e)
{
    struct history_spool had;
    if (history_spool_get(h, &spool->session_id, &had, e) != 0) {
        return -1;
    }
    int64_t last = had.n;
    for (size_t i = 0; i < n; i++) {
        if (messages[i].n <= last) {
            return err_set(e, ERR_CONFLICT, "the message was taken in before");
        }
        last = messages[i].n;
    }
    return spool->n >= last ? 0 : err_set(e, ERR_CONFLICT, "the spool was further than this");
}

static int append_rows(struct history *h, struct history_message *messages, size_t n,
                       const struct history_spool *spool, struct err *e)
{
    if (spool != NULL && check_order(h, messages, n, spool, e) != 0) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        if (insert(h, &messages[i], spool != NULL ? &spool->session_id : NULL, e) != 0) {
            return -1;
        }
    }
    if (spool != NULL && spool_put(h, spool, e) != 0) {
        return -1;
    }
    return history_md_sync(&h->md, e) == 0 &&
                   save_projection(h, h->last_seq, h->md.bytes + h->md.ahead, e) == 0
               ? 0
               : -1;
}

static int run(struct history *h, const char *sql, struct err *e)
{
    return conn_exec(&h->conn, sql, e) == 0 ? 0 : failed(h);
}

int history_append(struct history *h, struct history_message *messages, size_t messages_n,
                   const struct history_spool *spool, struct err *e)
{
    int64_t last = h->last_seq;
    if (run(h, "BEGIN IMMEDIATE", e) != 0) {
        return -1;
    }
    if (append_rows(h, messages, messages_n, spool, e) == 0 && run(h, "COMMIT", e) == 0) {
        history_md_keep(&h->md);
        h->md_seq = h->last_seq;
        return 0;
    }
    conn_rollback(&h->conn);
    history_md_drop(&h->md);
    h->last_seq = last;
    return -1;
}

static void read_message(struct stmt *st, struct history_message *ret)
{
    int len;
    *ret = (struct history_message){.seq = column_int(st)};
    column_id(st, &ret->message_id);
    ret->at = column_int(st);
    ret->role = (enum history_role)column_enum(st, history_role_names);
    ret->author = column_borrow(st, &len);
    ret->content = column_borrow(st, &len);
    ret->content_len = (size_t)len;
    ret->n = column_int(st);
}

int history_each(struct history *h, int64_t after, int64_t limit,
                 int (*each)(void *ctx, const struct history_message *m, struct err *e), void *ctx,
                 struct err *e)
{
    struct stmt st;
    struct history_message m;
    bool row = false;
    int rc = stmt_open(&st, &h->conn, "message",
                       "SELECT seq, message_id, at, role, author, content, n FROM messages"
                       " WHERE seq > ? ORDER BY seq LIMIT ?",
                       e);
    if (rc != 0) {
        return failed(h);
    }
    bind_int(&st, after);
    bind_int(&st, limit);
    while ((rc = stmt_next(&st, &row, e)) == 0 && row) {
        read_message(&st, &m);
        if ((rc = st.bad_read == NULL ? each(ctx, &m, e) : -1) != 0) {
            break;
        }
    }
    if (rc != 0 && !row) {
        note_damage(h);
    }
    return stmt_end(&st, st.bad_read != NULL ? 0 : rc, e);
}
