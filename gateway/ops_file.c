/* Files of a chat: list, look, delete. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "leasehold/counted.h"
#include "leasehold/file_name.h"
#include "ops.h"

const struct field file_fields[] = {
    FIELD_ID(struct file, file_id, .doc = "the file; one that is put again is another"),
    FIELD_ID(struct file, chat_id, .doc = "the chat it stands in"),
    FIELD_CHARS(struct file, name, .doc = "as it was sent"),
    FIELD_CHARS(struct file, content_type, .doc = "as it was sent, or by the name's ending"),
    FIELD_INT(struct file, size_bytes, .doc = "its length"),
    FIELD_CHARS(struct file, sha256, .flags = FIELD_NULL_ZERO,
                .doc = "hexadecimal; null: an agent has just changed it"),
    FIELD_TIME(struct file, created_at, .doc = "when it was put, or first seen"),
    FIELD_TIME(struct file, last_read_at, .doc = "when it was last downloaded"),
    FIELD_TIME(struct file, last_update_at, .doc = "when its content last changed"),
    FIELD_TIME(struct file, expires_at, .doc = "when it will have been idle for too long"),
    {0},
};

#define CHAT_ID(T) FIELD_ID(T, chat_id, .flags = FIELD_REQUIRED | FIELD_PATH, .doc = "the chat")

const struct field file_name_in[] = {
    CHAT_ID(struct file_name_args),
    FIELD_STR(struct file_name_args, name, .flags = FIELD_REQUIRED | FIELD_PATH, .max = 4096,
              .doc = "1 to 255 bytes of UTF-8 without slashes and control characters"),
    {0},
};

const struct field file_form_in[] = {
    CHAT_ID(struct file_name_args),
    {0},
};

const struct field file_list_in[] = {
    PAGE_IN(struct file_list_args),
    CHAT_ID(struct file_list_args),
    {0},
};

const struct field file_list_out[] = {
    PAGE_OUT(file_fields, struct file),
    {0},
};

const struct field file_id_in[] = {
    FIELD_ID(struct file_id_args, file_id, .flags = FIELD_REQUIRED | FIELD_PATH, .doc = "the file"),
    {0},
};

const struct field file_cleared_out[] = {
    FIELD_INT(struct file_cleared, deleted, .doc = "how many"),
    {0},
};

/* --- list ------------------------------------------------------------------------------------ */

struct list_look {
    struct call *c;
    const struct id *chat_id;
    struct page_build page;
    struct store_list list;
};

static int list_each(void *ctx, const struct file *f, struct err *e)
{
    struct list_look *l = ctx;
    struct file *item = page_add(&l->page, f->created_at, &f->file_id);

    (void)e;
    if (item) {
        *item = *f;
        files_complete(l->c->s, item);
    }
    return 0;
}

static int list_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct list_look *l = arg;

    return store_file_list(tx, &l->list, l->chat_id, list_each, l, e);
}

int op_file_list(struct call *c, struct err *e)
{
    const struct file_list_args *a = c->args;
    struct list_look list = {.c = c, .chat_id = &a->chat_id};
    struct file_look look;
    int rc;

    if (page_begin(&list.page, c, &a->page, 'f', sizeof(struct file), &list.list, e))
        return -1;
    file_look_init(&look);
    rc = file_look_chat(c, &a->chat_id, &look, e) || file_look_all(c, &look, e) ||
                 store_read(c->s->store, list_row, &list, e)
             ? -1
             : 0;
    file_look_done(&look);
    return rc ? -1 : page_end(&list.page, c->result, e);
}

/* --- by id ----------------------------------------------------------------------------------- */

struct stat_look {
    struct call *c;
    struct file file;
};

static int stat_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct stat_look *l = arg;
    const struct file_id_args *a = l->c->args;

    if (store_file_get(tx, &a->file_id, &l->file, e))
        return -1;
    return caller_may_see(&l->c->caller, &l->file.user_id)
               ? 0
               : err_set(e, ERR_CHAT_FILE_NOT_FOUND, "no such file");
}

int op_file_stat(struct call *c, struct err *e)
{
    const struct file_id_args *a = c->args;
    struct stat_look row = {.c = c};
    struct file_look look;
    int rc;

    if (store_read(c->s->store, stat_row, &row, e))
        return -1;
    file_look_init(&look);
    rc = file_look_at(c, &row.file.chat_id, row.file.name, &look, e);
    file_look_done(&look);
    if (rc)
        return -1;
    if (!id_equal(&look.file.file_id, &a->file_id))
        return err_set(e, ERR_CHAT_FILE_NOT_FOUND, "no such file"); /* put again just now */
    files_complete(c->s, &look.file);
    *(struct file *)c->result = look.file;
    return 0;
}

/* --- delete ---------------------------------------------------------------------------------- */

/* One file of a clear. */
struct cleared {
    char name[FILE_NAME_MAX + 1];
    struct file_gone gone;
};

struct removal {
    struct call *c;
    struct file_look look;
    struct file_gone gone; /* delete */
    struct cleared *files; /* clear: what has been removed */
    size_t n, max;
    struct file *rows; /* and the rows without a file */
    size_t rows_n, rows_max;
};

static int removed_row(struct store_tx *tx, const struct file *f, struct err *e)
{
    if (id_is_zero(&f->file_id))
        return 0;
    if (store_file_delete(tx, &f->file_id, e))
        return e->code == ERR_CHAT_FILE_NOT_FOUND ? 0 : -1;
    return file_event(tx, "file.deleted", f, e);
}

static int delete_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct removal *r = arg;
    const struct file *f = &r->look.file;
    const struct id *user_id = &r->look.chat.user_id;
    bool has_row = !id_is_zero(&f->file_id);
    int64_t counted;

    if (store_counted_of(tx, user_id, &f->file_id, &r->gone, &counted, e) ||
        removed_row(tx, f, e) || store_usage_add(tx, user_id, -counted, false, e))
        return -1;
    return store_audit_deed(tx,
                            &(struct audit_deed){.caller = &r->c->caller,
                                                 .action = "file.delete",
                                                 .kind = "file",
                                                 .id = has_row ? &f->file_id : NULL,
                                                 .name = f->name,
                                                 .within = has_row ? NULL : &r->look.chat.chat_id,
                                                 .chat_id = &r->look.chat.chat_id,
                                                 .chat_name = f->name},
                            e);
}

/* Under the chat's lock: what is there, what it was called, and the end of it. */
static int delete_held(struct removal *r, struct err *e)
{
    struct call *c = r->c;
    struct store *store = c->s->store;
    const struct file_name_args *a = c->args;
    int rc;

    if (file_look_at(c, &a->chat_id, a->name, &r->look, e))
        return -1;
    store_usage_hold(store, &r->look.chat.user_id);
    rc = chatfiles_remove(&r->look.dir, r->look.file.name, &r->gone, e) ||
                 chatfiles_sync(&r->look.dir, e) || store_write_end(store, delete_row, r, e)
             ? -1
             : 0;
    store_usage_release(store, &r->look.chat.user_id);
    return rc;
}

int op_file_delete(struct call *c, struct err *e)
{
    const struct file_name_args *a = c->args;
    struct removal r = {.c = c};
    int rc;

    if (file_name_check(a->name, e))
        return -1;
    file_look_init(&r.look);
    files_lock(c->s->files, &a->chat_id);
    rc = delete_held(&r, e);
    files_unlock(c->s->files, &a->chat_id);
    file_look_done(&r.look);
    return rc;
}

/* --- clear ----------------------------------------------------------------------------------- */

#define CLEAR_MAX 100000

static int clear_each(void *ctx, const char *name, const struct file_stamp *s, struct err *e)
{
    struct removal *r = ctx;
    struct cleared *f;

    (void)s;
    if (r->n == r->max) {
        size_t max = r->max ? r->max * 2 : 64;
        f = realloc(r->files, max * sizeof *f);
        if (!f)
            return err_set(e, ERR_INTERNAL, "no memory for a list of files");
        r->files = f;
        r->max = max;
    }
    f = &r->files[r->n];
    if (chatfiles_remove(&r->look.dir, name, &f->gone, e))
        return e->code == ERR_CHAT_FILE_NOT_FOUND ? 0 : -1;
    snprintf(f->name, sizeof f->name, "%s", name);
    r->n++;
    return 0;
}

/* Before their rows go. */
static int count_cleared(struct store_tx *tx, const struct removal *r, int64_t *ret, struct err *e)
{
    const struct chat *chat = &r->look.chat;
    int64_t sum = 0;

    for (size_t i = 0; i < r->n; i++) {
        struct file row;
        int64_t counted;
        if (store_file_find(tx, &chat->chat_id, r->files[i].name, &row, e)) {
            if (e->code != ERR_CHAT_FILE_NOT_FOUND && e->code != ERR_INVALID_ATTACHMENT_NAME)
                return -1;
            row.file_id = (struct id){0};
        }
        if (store_counted_of(tx, &chat->user_id, &row.file_id, &r->files[i].gone, &counted, e))
            return -1;
        sum += counted;
    }
    *ret = sum;
    return 0;
}

/* The rows whose files are gone go with them. */
static int note_gone(void *ctx, const struct file *f, struct err *e)
{
    struct removal *r = ctx;
    struct file_stamp stamp;
    struct err why;

    if (!chatfiles_stat(&r->look.dir, f->name, &stamp, &why))
        return 0;
    if (r->rows_n == r->rows_max) {
        size_t max = r->rows_max ? r->rows_max * 2 : 64;
        struct file *rows = realloc(r->rows, max * sizeof *rows);
        if (!rows)
            return err_set(e, ERR_INTERNAL, "no memory for a list of files");
        r->rows = rows;
        r->rows_max = max;
    }
    r->rows[r->rows_n++] = *f;
    return 0;
}

static int clear_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct removal *r = arg;
    int64_t counted;

    r->rows_n = 0;
    if (count_cleared(tx, r, &counted, e) ||
        store_file_list(tx, NULL, &r->look.chat.chat_id, note_gone, r, e))
        return -1;
    for (size_t i = 0; i < r->rows_n; i++)
        if (removed_row(tx, &r->rows[i], e))
            return -1;
    if (store_usage_add(tx, &r->look.chat.user_id, -counted, false, e))
        return -1;
    return store_audit_deed(tx,
                            &(struct audit_deed){.caller = &r->c->caller,
                                                 .action = "file.clear",
                                                 .kind = "chat",
                                                 .id = &r->look.chat.chat_id},
                            e);
}

static int clear_held(struct removal *r, struct err *e)
{
    struct store *store = r->c->s->store;
    const struct file_name_args *a = r->c->args;
    int rc;

    if (file_look_chat(r->c, &a->chat_id, &r->look, e))
        return -1;
    store_usage_hold(store, &r->look.chat.user_id);
    rc = chatfiles_each(&r->look.dir, CLEAR_MAX, clear_each, r, e) ||
                 (r->n && chatfiles_sync(&r->look.dir, e))
             ? -1
             : 0;
    /* What has been removed is written down in any case. */
    struct err why;
    if (store_write_end(store, clear_row, r, rc ? &why : e))
        rc = -1;
    store_usage_release(store, &r->look.chat.user_id);
    return rc;
}

int op_file_clear(struct call *c, struct err *e)
{
    const struct file_name_args *a = c->args;
    struct removal r = {.c = c};
    int rc;

    file_look_init(&r.look);
    files_lock(c->s->files, &a->chat_id);
    rc = clear_held(&r, e);
    files_unlock(c->s->files, &a->chat_id);
    file_look_done(&r.look);
    free(r.files);
    free(r.rows);
    if (!rc)
        ((struct file_cleared *)c->result)->deleted = (int64_t)r.n;
    return rc;
}
