/* Files of a chat that nobody has read or written for long. */
#include <stdio.h>
#include <string.h>

#include "chats.h"
#include "files.h"
#include "leasehold/chatdir.h"
#include "leasehold/counted.h"
#include "retention.h"

#define BATCH   32 /* files that go by one write */
#define ID_ROOM (ID_TEXT + 264)

struct idle_file {
    struct chatdir_held held;
    struct file_gone gone;
    struct file row; /* zero file_id: it has none */
    char id[ID_ROOM];
};

struct cleaning {
    const struct retention_round *r;
    const struct id *user_id, *chat_id;
    char quarantine[4096];
    int64_t before_ms;
    struct idle_file files[BATCH];
    size_t n;
    bool more;
    int rc;
    struct err *e;
};

static int refuse_lease(void *ctx, const struct lease *l, struct err *e)
{
    (void)ctx;
    (void)l;
    return err_set(e, ERR_CONFLICT, "the chat has a live lease");
}

/* 0: the chat is at rest. */
static int at_rest(struct store_tx *tx, void *arg, struct err *e)
{
    const struct caller everybody = {.role = ROLE_ADMIN};
    const struct cleaning *c = arg;
    const struct store_match of_chat = {.by = MATCH_CHAT, .id = *c->chat_id};
    struct sandbox active;

    if (!store_sandbox_active(tx, c->chat_id, &active, e))
        return err_set(e, ERR_CHAT_HAS_ACTIVE_SANDBOX, "the chat has a sandbox");
    return e->code == ERR_NOT_FOUND
               ? store_lease_each_match(tx, &of_chat, &everybody, refuse_lease, NULL, e)
               : -1;
}

/* --- one file ---------------------------------------------------------------------------------- */

struct row_look {
    const struct id *chat_id;
    const char *name;
    struct file row;
};

static int find_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct row_look *l = arg;

    if (!store_file_find(tx, l->chat_id, l->name, &l->row, e))
        return 0;
    l->row = (struct file){.size_bytes = 0};
    return e->code == ERR_CHAT_FILE_NOT_FOUND ? 0 : -1;
}

/* The file system says that it lies idle: what does its row? Only what stands in files/ itself has one. */
static int look_at(const struct cleaning *c, const struct chatdir_file *f, struct idle_file *ret,
                   bool *ret_idle, struct err *e)
{
    struct row_look l = {.chat_id = c->chat_id, .name = f->name};
    const struct file *row = &l.row;

    if (f->is_top && store_read(c->r->s->store, find_row, &l, e))
        return -1;
    if (id_is_zero(&row->file_id)) {
        snprintf(ret->id, sizeof ret->id, "%s/%.255s", ID_STR(c->chat_id), f->name);
        *ret_idle = true;
    } else {
        files_complete(c->r->s, &l.row);
        snprintf(ret->id, sizeof ret->id, "%s", ID_STR(&row->file_id));
        *ret_idle = row->last_read_at < c->before_ms && row->last_update_at < c->before_ms &&
                    row->created_at < c->before_ms;
    }
    ret->row = l.row;
    ret->gone =
        (struct file_gone){.bytes = f->is_last_name ? f->size_bytes : 0, .ctime_ns = f->ctime_ns};
    return 0;
}

static int walk(struct cleaning *c,
                int (*file)(void *ctx, const struct chatdir_file *f, struct err *e), struct err *e)
{
    const struct chatdir_idle idle = {.before_ms = c->before_ms, .file = file, .ctx = c};

    return chatdir_each_idle(c->r->s->cfg->sandbox.chats_root, c->user_id, c->chat_id, &idle, e);
}

/* Without the chat's lock. */
static int note_one(void *ctx, const struct chatdir_file *f, struct err *e)
{
    struct cleaning *c = ctx;
    struct idle_file file;
    bool idle;

    if (look_at(c, f, &file, &idle, e))
        return -1;
    c->more |= idle;
    if (idle && c->r->dry_run)
        retention_tell(c->r, RETENTION_FILE, file.id, "idle", file.gone.bytes);
    return 0;
}

/* --- removing, under the lock ------------------------------------------------------------------ */

/* The walk has looked at it a moment ago, and nothing but the file lane can reach it now. */
static int take_one(void *ctx, const struct chatdir_file *f, struct err *e)
{
    struct cleaning *c = ctx;
    struct idle_file *file = &c->files[c->n];

    bool idle;

    if (c->n == BATCH) {
        c->more = true;
        return 0;
    }
    if (look_at(c, f, file, &idle, e))
        return -1;
    if (!idle)
        return 0;
    if (chatdir_quarantine_file(c->quarantine, f, &file->held, e))
        return -1;
    c->n++;
    return 0;
}

static int remove_row(struct store_tx *tx, const struct cleaning *c, const struct idle_file *f,
                      int64_t *ret_counted, struct err *e)
{
    bool has_row = !id_is_zero(&f->row.file_id);
    const struct audit_deed deed = {.caller = c->r->caller,
                                    .action = "retention.file",
                                    .kind = "file",
                                    .name = f->id,
                                    .detail = "idle",
                                    .chat_id = c->chat_id,
                                    .chat_name = has_row ? f->row.name : NULL};

    if (store_counted_of(tx, c->user_id, &f->row.file_id, &f->gone, ret_counted, e))
        return -1;
    if (has_row &&
        (store_file_delete(tx, &f->row.file_id, e) || file_event(tx, "file.deleted", &f->row, e)))
        return -1;
    return store_audit_deed(tx, &deed, e);
}

static int remove_rows(struct store_tx *tx, void *arg, struct err *e)
{
    const struct cleaning *c = arg;
    int64_t bytes = 0;

    if (at_rest(tx, arg, e))
        return -1;
    for (size_t i = 0; i < c->n; i++) {
        int64_t counted;
        if (remove_row(tx, c, &c->files[i], &counted, e))
            return -1;
        bytes += counted;
    }
    return store_usage_add(tx, c->user_id, -bytes, false, e);
}

static void restore(struct cleaning *c)
{
    struct err e;

    for (size_t i = 0; i < c->n; i++)
        if (chatdir_restore_file(&c->files[i].held, &e))
            log_error(c->r->s->log, "quarantine_failed", &e, LF_STR("file", c->files[i].id));
}

static int remove_batch(struct cleaning *c, struct err *e)
{
    c->n = 0;
    c->more = false;
    if (store_read(c->r->s->store, at_rest, c, e))
        return -1;
    if (walk(c, take_one, e) || (c->n && store_write_end(c->r->s->store, remove_rows, c, e))) {
        restore(c);
        return -1;
    }
    for (size_t i = 0; i < c->n; i++) {
        chatdir_forget_file(&c->files[i].held);
        retention_tell(c->r, RETENTION_FILE, c->files[i].id, "idle", c->files[i].gone.bytes);
    }
    return 0;
}

static void remove_held(void *arg)
{
    struct cleaning *c = arg;

    files_lock(c->r->s->files, c->chat_id);
    store_usage_hold(c->r->s->store, c->user_id);
    c->rc = remove_batch(c, c->e);
    store_usage_release(c->r->s->store, c->user_id);
    files_unlock(c->r->s->files, c->chat_id);
}

static void remove_locked(void *arg)
{
    struct cleaning *c = arg;

    if (lane_call(c->r->s->file, c->chat_id, remove_held, c, c->e))
        c->rc = -1;
}

int retention_files(const struct retention_round *r, const struct id *user_id,
                    const struct id *chat_id, struct err *e)
{
    struct services *s = r->s;
    struct cleaning c = {.r = r, .user_id = user_id, .chat_id = chat_id, .e = e};

    c.before_ms = clock_wall_ms(s->clock) - s->cfg->retention.file_idle_seconds * 1000;
    if (store_read(s->store, at_rest, &c, e) ||
        chats_quarantine(s, c.quarantine, sizeof c.quarantine, e) || walk(&c, note_one, e))
        return -1;
    while (c.more && !r->dry_run && !s->stopping)
        if (lane_call(s->runtime, chat_id, remove_locked, &c, e) || c.rc)
            return -1;
    return 0;
}
