/* Rows of files. */
#include <stdio.h>
#include <string.h>

#include "leasehold/file_name.h"
#include "list.h"

#define FILE_COLUMNS                                                                               \
    "file_id, chat_id, user_id, name, content_type, size_bytes, sha256, created_at, last_read_at," \
    " last_update_at, stamp_size, stamp_mtime_ns, stamp_ctime_ns, stamp_ino"

static void read_file(struct stmt *st, struct file *f)
{
    *f = (struct file){0};
    column_id(st, &f->file_id);
    column_id(st, &f->chat_id);
    column_id(st, &f->user_id);
    column_text(st, f->name, sizeof(f->name));
    column_text(st, f->content_type, sizeof(f->content_type));
    f->size_bytes = column_int(st);
    column_text(st, f->sha256, sizeof(f->sha256));
    f->created_at = column_int(st);
    f->last_read_at = column_int(st);
    f->last_update_at = column_int(st);
    f->stamp.size_bytes = column_int(st);
    f->stamp.mtime_ns = column_int(st);
    f->stamp.ctime_ns = column_int(st);
    f->stamp.ino = (uint64_t)column_int(st);
}

static int take_first(struct stmt *st, struct file *ret, struct err *e)
{
    struct file f;
    int rc = stmt_first(st, ERR_CHAT_FILE_NOT_FOUND, e);
    if (rc == 0) {
        read_file(st, &f);
    }
    if (stmt_end(st, rc, e) != 0) {
        return -1;
    }
    *ret = f;
    return 0;
}

int store_file_get(struct store_tx *tx, const struct id *file_id, struct file *ret, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "file", "SELECT " FILE_COLUMNS " FROM files WHERE file_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, file_id);
    return take_first(&st, ret, e);
}

static int name_key(const char *name, char *ret, struct err *e)
{
    return file_name_key(name, ret)
               ? 0
               : err_set(e, ERR_INVALID_ATTACHMENT_NAME, "the name has no Unicode normal form");
}

int store_file_find(struct store_tx *tx, const struct id *chat_id, const char *name,
                    struct file *ret, struct err *e)
{
    char key[FILE_NAME_KEY_SIZE];
    struct stmt st;
    if (name_key(name, key, e) != 0 ||
        stmt_open(&st, tx->conn, "file",
                  "SELECT " FILE_COLUMNS " FROM files WHERE chat_id = ? AND name_key = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, chat_id);
    bind_text(&st, key);
    return take_first(&st, ret, e);
}

static int delete_by_name(struct store_tx *tx, const struct id *chat_id, const char *key,
                          struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "file", "DELETE FROM files WHERE chat_id = ? AND name_key = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, chat_id);
    bind_text(&st, key);
    return stmt_run(&st, e);
}

static void bind_values(struct stmt *st, const struct file *f)
{
    bind_text(st, f->content_type);
    bind_int(st, f->size_bytes);
    bind_text(st, f->sha256);
    bind_int(st, f->created_at);
    bind_int(st, f->last_read_at);
    bind_int(st, f->last_update_at);
    bind_int(st, f->stamp.size_bytes);
    bind_int(st, f->stamp.mtime_ns);
    bind_int(st, f->stamp.ctime_ns);
    bind_int(st, (int64_t)f->stamp.ino);
}

int store_file_put(struct store_tx *tx, const struct file *f, struct err *e)
{
    char key[FILE_NAME_KEY_SIZE];
    struct stmt st;
    if (name_key(f->name, key, e) != 0 || delete_by_name(tx, &f->chat_id, key, e) != 0 ||
        stmt_open(&st, tx->conn, "file",
                  "INSERT INTO files (name_key, " FILE_COLUMNS
                  ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_text(&st, key);
    bind_id(&st, &f->file_id);
    bind_id(&st, &f->chat_id);
    bind_id(&st, &f->user_id);
    bind_text(&st, f->name);
    bind_values(&st, f);
    return stmt_run(&st, e);
}

int store_file_update(struct store_tx *tx, const struct file *f, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "file",
                  "UPDATE files SET content_type = ?, size_bytes = ?, sha256 = ?, created_at = ?,"
                  " last_read_at = ?, last_update_at = ?, stamp_size = ?, stamp_mtime_ns = ?,"
                  " stamp_ctime_ns = ?, stamp_ino = ? WHERE file_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_values(&st, f);
    bind_id(&st, &f->file_id);
    return stmt_run_one(&st, ERR_CHAT_FILE_NOT_FOUND, e);
}

int store_file_delete(struct store_tx *tx, const struct id *file_id, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "file", "DELETE FROM files WHERE file_id = ?", e) != 0) {
        return -1;
    }
    bind_id(&st, file_id);
    return stmt_run_one(&st, ERR_CHAT_FILE_NOT_FOUND, e);
}

int store_file_read_at(struct store_tx *tx, const struct id *file_id, int64_t at, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, tx->conn, "file",
                  "UPDATE files SET last_read_at = ? WHERE file_id = ? AND last_read_at < ?",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, at);
    bind_id(&st, file_id);
    bind_int(&st, at);
    return stmt_run(&st, e);
}

/* --- list ------------------------------------------------------------------------------------- */

struct file_walk {
    int (*each)(void *ctx, const struct file *f, struct err *e);
    void *ctx;
};

static int walk_file(struct stmt *st, void *arg, struct err *e)
{
    const struct file_walk *w = arg;
    struct file f;
    read_file(st, &f);
    return w->each(w->ctx, &f, e);
}

int store_file_list(struct store_tx *tx, const struct store_list *l, const struct id *chat_id,
                    int (*each)(void *ctx, const struct file *f, struct err *e), void *ctx,
                    struct err *e)
{
    struct file_walk w = {.each = each, .ctx = ctx};
    struct stmt st;
    if (stmt_open(&st, tx->conn, "file",
                  l != NULL ? "SELECT " FILE_COLUMNS
                              " FROM files WHERE chat_id = ? " LIST_PAGE("created_at", "file_id")
                            : "SELECT " FILE_COLUMNS " FROM files WHERE chat_id = ?",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, chat_id);
    if (l != NULL) {
        list_bind_page(&st, l);
    }
    return list_walk(&st, walk_file, &w, e);
}
