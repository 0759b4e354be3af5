/*
 * Rows of files and what stands on disk. An agent makes, changes and removes files without a word, so
 * a row is held against the disk whenever it is asked for: by size, times and inode. What differs is
 * hashed again, and the row follows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file_sums.h"
#include "files.h"
#include "leasehold/chatdir.h"
#include "leasehold/file_name.h"
#include "leasehold/json.h"
#include "ops.h"

#define HASH_ONE_MAX  (256 * 1024 * 1024) /* for a request that is about this file */
#define HASH_LIST_MAX (64 * 1024 * 1024)  /* for a list, together */
#define ENTRIES_MAX   100000              /* of a directory are looked at */
#define CHANGES_MAX   2000                /* rows are written for one list; the next one goes on */
#define EVENT_CAP     4096

void file_look_init(struct file_look *l)
{
    *l = (struct file_look){.dir = {.chat_fd = -1, .files_fd = -1}, .fd = -1};
}

void file_look_done(struct file_look *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    if (l->kept) {
        chat_dirs_give(files_dirs(l->files), l->kept);
        l->kept = NULL;
        l->dir.chat_fd = l->dir.files_fd = -1;
    }
    chatfiles_close(&l->dir);
}

int file_event(struct store_tx *tx, const char *name, const struct file *f, struct err *e)
{
    struct buf data;
    int rc;

    buf_init(&data, EVENT_CAP);
    json_encode(file_fields, f, &data);
    rc = buf_ok(&data) ? store_event_append(tx,
                                            &(struct store_event){.name = name,
                                                                  .user_id = f->user_id,
                                                                  .chat_id = f->chat_id,
                                                                  .data = data.data},
                                            e)
                       : err_set(e, ERR_INTERNAL, "no memory for an event");
    buf_done(&data);
    return rc;
}

/* --- one row --------------------------------------------------------------------------------- */

/* What is known of a file on disk: the row of now, or a new one. */
static void row_follow(struct file *f, const struct file_look *l, const char *name,
                       const struct file_stamp *stamp, int64_t now)
{
    if (id_is_zero(&f->file_id)) {
        *f = (struct file){.chat_id = l->chat.chat_id, .user_id = l->chat.user_id};
        id_random(&f->file_id);
        snprintf(f->name, sizeof f->name, "%s", name);
        snprintf(f->content_type, sizeof f->content_type, "%s", file_type_of(name));
        f->created_at = now;
    }
    f->sha256[0] = '\0';
    f->stamp = *stamp;
    f->size_bytes = chatdir_size_shown(stamp->size_bytes);
    f->last_update_at = stamp->mtime_ns / 1000000;
    if (f->last_update_at > now || f->last_update_at < 0)
        f->last_update_at = now; /* an agent may set any time */
}

static bool is_current(const struct file *f, const struct file_stamp *stamp)
{
    return f->sha256[0] && file_stamp_equal(&f->stamp, stamp);
}

static int hash_into(struct file *f, int fd, struct err *e)
{
    bool stable;

    if (chatfile_hash(fd, &f->stamp, NULL, f->sha256, &stable, e))
        return -1;
    if (!stable)
        f->sha256[0] = '\0'; /* it is being written */
    return 0;
}

/* A put may have come between: its row is the newer one, and stays. */
static int row_keep(struct store_tx *tx, struct file *f, struct err *e)
{
    struct chat chat;
    struct arena *arena = arena_new(65536);
    int rc = arena ? store_chat_get(tx, &f->chat_id, arena, &chat, e)
                   : err_set(e, ERR_INTERNAL, "no memory for a chat");
    struct file now;

    arena_free(arena);
    if (rc)
        return -1;
    if (store_file_find(tx, &f->chat_id, f->name, &now, e))
        return e->code == ERR_CHAT_FILE_NOT_FOUND ? store_file_put(tx, f, e) : -1;
    if (id_equal(&now.file_id, &f->file_id))
        return store_file_update(tx, f, e);
    *f = now;
    return 0;
}

static int row_keep_one(struct store_tx *tx, void *arg, struct err *e)
{
    return row_keep(tx, arg, e);
}

static int row_drop_one(struct store_tx *tx, void *arg, struct err *e)
{
    const struct file *f = arg;

    return store_file_delete(tx, &f->file_id, e);
}

/* The next list would do it as well. */
static void drop_row(struct call *c, struct file *f)
{
    struct err e;

    if (store_write(c->s->store, row_drop_one, f, &e) && e.code != ERR_CHAT_FILE_NOT_FOUND)
        log_error(c->s->log, "file_row", &e, LF_ID("file_id", &f->file_id));
}

/* --- one file -------------------------------------------------------------------------------- */

struct look_row {
    struct call *c;
    const struct id *chat_id;
    const char *name; /* NULL: only the chat */
    struct file_look *l;
};

/* Its row goes with the chat's and tells whose that is: one look-up instead of two. */
static int look_known(struct look_row *r, struct err *e)
{
    struct file_look *l = r->l;

    if (!caller_may_see(&r->c->caller, &l->file.user_id))
        return err_set(e, ERR_CHAT_NOT_FOUND, "no such chat");
    l->chat.chat_id = *r->chat_id;
    l->chat.user_id = l->file.user_id;
    return 0;
}

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct look_row *r = arg;
    struct file_look *l = r->l;
    struct err why = {.code = ERR_CHAT_FILE_NOT_FOUND};

    if (r->name && !store_file_find(tx, r->chat_id, r->name, &l->file, &why))
        return look_known(r, e);
    if (chat_visible(tx, &r->c->caller, r->chat_id, r->c->arena, &l->chat, e))
        return -1;
    if (why.code == ERR_CHAT_FILE_NOT_FOUND)
        return 0;
    *e = why;
    return -1;
}

static int look_open(struct call *c, const struct id *chat_id, const char *name,
                     struct file_look *l, struct err *e)
{
    struct look_row r = {.c = c, .chat_id = chat_id, .name = name, .l = l};

    const char *root = c->s->cfg->sandbox.chats_root;

    if (store_read(c->s->store, look_row, &r, e))
        return -1;
    if (!l->only_reads)
        return chatfiles_open(root, &l->chat.user_id, chat_id, &l->dir, e);
    l->files = c->s->files;
    return chat_dirs_take(files_dirs(l->files), root, &l->chat.user_id, chat_id, &l->kept, &l->dir,
                          e);
}

int file_look_chat(struct call *c, const struct id *chat_id, struct file_look *ret, struct err *e)
{
    return look_open(c, chat_id, NULL, ret, e);
}

/* A file that an agent has given the same name in another normal form. */
struct same_name {
    char key[FILE_NAME_KEY_SIZE];
    char found[FILE_NAME_MAX + 1];
};

static int same_name_each(void *ctx, const char *name, const struct file_stamp *s, struct err *e)
{
    struct same_name *same = ctx;
    char key[FILE_NAME_KEY_SIZE];

    (void)s;
    (void)e;
    if (!same->found[0] && file_name_key(name, key) && !strcmp(key, same->key))
        snprintf(same->found, sizeof same->found, "%s", name);
    return 0;
}

static bool is_ascii(const char *name)
{
    while (*name && !(*name & 0x80))
        name++;
    return !*name;
}

static int open_by_key(struct file_look *l, const char *name, struct file_stamp *ret_stamp,
                       struct err *e)
{
    struct same_name same = {.found = ""};
    struct err ignored;

    if (e->code != ERR_CHAT_FILE_NOT_FOUND || !file_name_valid(name) || is_ascii(name) ||
        !file_name_key(name, same.key) ||
        chatfiles_each(&l->dir, ENTRIES_MAX, same_name_each, &same, &ignored) || !same.found[0])
        return -1;
    snprintf(l->file.name, sizeof l->file.name, "%s", same.found);
    return chatfiles_read(&l->dir, same.found, &l->fd, ret_stamp, e);
}

int file_look_at(struct call *c, const struct id *chat_id, const char *name, struct file_look *ret,
                 struct err *e)
{
    struct file *f = &ret->file;
    struct file_stamp stamp;
    bool known;

    if (look_open(c, chat_id, name, ret, e))
        return -1;
    known = !id_is_zero(&f->file_id);
    if (!known)
        snprintf(f->name, sizeof f->name, "%s", name);
    if (chatfiles_read(&ret->dir, f->name, &ret->fd, &stamp, e) &&
        open_by_key(ret, name, &stamp, e)) {
        if (known && e->code == ERR_CHAT_FILE_NOT_FOUND)
            drop_row(c, f);
        return -1;
    }
    if (known && is_current(f, &stamp))
        return 0;
    bool long_one = stamp.size_bytes > HASH_ONE_MAX;
    if (known && long_one && file_stamp_equal(&f->stamp, &stamp)) {
        file_sums_ask(files_sums(c->s->files), f);
        return 0;
    }
    char found[FILE_NAME_MAX + 1];
    snprintf(found, sizeof found, "%s", f->name);
    row_follow(f, ret, found, &stamp, clock_wall_ms(c->s->clock));
    if (!long_one && hash_into(f, ret->fd, e))
        return -1;
    struct file row = *f;
    if (store_write(c->s->store, row_keep_one, &row, e))
        return -1;
    f->file_id = row.file_id;
    if (long_one)
        file_sums_ask(files_sums(c->s->files), f);
    return 0;
}

/* --- all of a chat --------------------------------------------------------------------------- */

struct sync {
    struct call *c;
    struct file_look *l;
    struct store_tx *tx;
    struct file *changed; /* to be written */
    size_t changed_n;
    struct id *gone;
    size_t gone_n;
};

static int note_row(void *ctx, const struct file *f, struct err *e)
{
    struct sync *y = ctx;
    struct file_stamp stamp;
    struct err why;

    (void)e;
    if (chatfiles_stat(&y->l->dir, f->name, &stamp, &why)) {
        if (y->gone_n < CHANGES_MAX)
            y->gone[y->gone_n++] = f->file_id;
    } else if (!is_current(f, &stamp) && y->changed_n < CHANGES_MAX) {
        y->changed[y->changed_n++] = *f;
    }
    return 0;
}

static int note_entry(void *ctx, const char *name, const struct file_stamp *stamp, struct err *e)
{
    struct sync *y = ctx;
    struct file f;

    (void)stamp;
    if (y->changed_n == CHANGES_MAX || !store_file_find(y->tx, &y->l->chat.chat_id, name, &f, e))
        return 0;
    if (e->code != ERR_CHAT_FILE_NOT_FOUND)
        return e->code == ERR_INVALID_ATTACHMENT_NAME ? 0 : -1;
    f = (struct file){.chat_id = y->l->chat.chat_id};
    snprintf(f.name, sizeof f.name, "%s", name);
    y->changed[y->changed_n++] = f;
    return 0;
}

static int compare_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct sync *y = arg;

    y->tx = tx;
    return store_file_list(tx, NULL, &y->l->chat.chat_id, note_row, y, e) ||
                   chatfiles_each(&y->l->dir, ENTRIES_MAX, note_entry, y, e)
               ? -1
               : 0;
}

/* Reads what has changed, as far as it is to be hashed now. */
static int follow_all(struct sync *y, struct err *e)
{
    int64_t now = clock_wall_ms(y->c->s->clock), budget = HASH_LIST_MAX;
    size_t kept = 0;

    for (size_t i = 0; i < y->changed_n; i++) {
        struct file f = y->changed[i];
        struct file_stamp stamp;
        struct err gone;
        int fd, rc = 0;
        if (chatfiles_read(&y->l->dir, f.name, &fd, &stamp, &gone))
            continue;
        char name[FILE_NAME_MAX + 1];
        snprintf(name, sizeof name, "%s", f.name);
        bool as_before = !id_is_zero(&f.file_id) && file_stamp_equal(&f.stamp, &stamp);
        row_follow(&f, y->l, name, &stamp, now);
        bool hash = stamp.size_bytes <= budget;
        if (hash) {
            budget -= stamp.size_bytes;
            rc = hash_into(&f, fd, e);
        }
        close(fd);
        if (rc)
            return -1;
        if (hash || !as_before)
            y->changed[kept++] = f;
    }
    y->changed_n = kept;
    return 0;
}

static int sync_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct sync *y = arg;

    for (size_t i = 0; i < y->gone_n; i++)
        if (store_file_delete(tx, &y->gone[i], e) && e->code != ERR_CHAT_FILE_NOT_FOUND)
            return -1;
    for (size_t i = 0; i < y->changed_n; i++)
        if (row_keep(tx, &y->changed[i], e))
            return -1;
    return 0;
}

int file_look_all(struct call *c, struct file_look *l, struct err *e)
{
    struct sync y = {.c = c, .l = l};
    int rc = -1;

    y.changed = malloc(CHANGES_MAX * sizeof *y.changed);
    y.gone = malloc(CHANGES_MAX * sizeof *y.gone);
    if (!y.changed || !y.gone)
        err_set(e, ERR_INTERNAL, "no memory for a list of files");
    else if (!store_read(c->s->store, compare_row, &y, e) && !follow_all(&y, e))
        rc = y.changed_n || y.gone_n ? store_write(c->s->store, sync_row, &y, e) : 0;
    free(y.changed);
    free(y.gone);
    return rc;
}
