#include "chats.h"

#include <stdio.h>
#include <stdlib.h>

#include "leasehold/chatdir.h"

static int quarantine_path(const struct services *s, char *ret, size_t size, struct err *e)
{
    if ((size_t)snprintf(ret, size, "%s/quarantine", s->cfg->storage.data_dir) >= size)
        return err_set(e, ERR_INTERNAL, "storage.data_dir is too long a path");
    return 0;
}

/* --- taking apart, on the FILE lane ---------------------------------------------------------- */

struct destroy {
    struct job job;
    struct services *s;
    struct id user_id, chat_id;
};

static void destroy_run(struct job *job)
{
    struct destroy *d = (struct destroy *)((char *)job - offsetof(struct destroy, job));
    char path[4096];
    struct err e;

    if (quarantine_path(d->s, path, sizeof path, &e) ||
        chatdir_destroy(path, &d->user_id, &d->chat_id, &e))
        log_error(d->s->log, "quarantine_failed", &e, LF_ID("chat_id", &d->chat_id));
}

static void destroy_done(struct job *job)
{
    free((char *)job - offsetof(struct destroy, job));
}

/* A full lane or no memory: the next start does it. */
static void destroy_later(struct services *s, const struct id *user_id, const struct id *chat_id)
{
    struct destroy *d = calloc(1, sizeof *d);
    struct err e;

    if (!d)
        return;
    d->job.run = destroy_run;
    d->job.done = destroy_done;
    d->s = s;
    d->user_id = *user_id;
    d->chat_id = *chat_id;
    if (lane_submit(s->file, &d->job, &e)) {
        log_error(s->log, "quarantine_failed", &e, LF_ID("chat_id", chat_id));
        free(d);
    }
}

/* --- deletion -------------------------------------------------------------------------------- */

struct deletion {
    struct services *s;
    const struct id *user_id, *chat_id;
    store_fn row;
    void *arg;
    struct chatdir_usage usage;
    int rc;
    struct err *e;
};

static int delete_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct deletion *d = arg;

    return d->row(tx, d->arg, e) || store_usage_add(tx, d->user_id, -d->usage.bytes, false, e) ? -1
                                                                                               : 0;
}

static int delete_held(struct deletion *d, struct err *e)
{
    const char *root = d->s->cfg->sandbox.chats_root;
    char path[4096];
    struct err why;

    if (quarantine_path(d->s, path, sizeof path, e) ||
        chatdir_chat_usage(root, d->user_id, d->chat_id, &d->usage, e) ||
        chatdir_quarantine(root, path, d->user_id, d->chat_id, e))
        return -1;
    if (!store_write_end(d->s->store, delete_row, d, e))
        return 0;
    if (chatdir_restore(root, path, d->user_id, d->chat_id, &why))
        log_error(d->s->log, "quarantine_failed", &why, LF_ID("chat_id", d->chat_id));
    return -1;
}

/* On the FILE lane: nothing reads or adds to the chat's files and history meanwhile. */
static void delete_run(void *arg)
{
    struct deletion *d = arg;

    store_usage_hold(d->s->store, d->user_id);
    d->rc = delete_held(d, d->e);
    store_usage_release(d->s->store, d->user_id);
}

int chats_delete(struct services *s, const struct id *user_id, const struct id *chat_id,
                 store_fn row, void *arg, struct err *e)
{
    struct deletion d = {
        .s = s, .user_id = user_id, .chat_id = chat_id, .row = row, .arg = arg, .e = e};

    if (lane_call(s->file, chat_id, delete_run, &d, e) || d.rc)
        return -1;
    destroy_later(s, user_id, chat_id);
    log_event(s->log, LOG_INFO, "chat_deleted", LF_ID("chat_id", chat_id));
    return 0;
}

/* --- after a crash --------------------------------------------------------------------------- */

struct look {
    struct id chat_id;
    struct arena *arena;
    bool there;
};

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;
    struct chat chat;

    l->there = !store_chat_get(tx, &l->chat_id, l->arena, &chat, e);
    return l->there || e->code == ERR_CHAT_NOT_FOUND ? 0 : -1;
}

static int recover_one(void *ctx, const struct id *user_id, const struct id *chat_id, struct err *e)
{
    struct services *s = ctx;
    struct look l = {.chat_id = *chat_id, .arena = arena_new(65536)};
    char path[4096];
    struct err why;
    int rc;

    if (!l.arena)
        return err_set(e, ERR_INTERNAL, "no memory to look at the quarantine");
    rc = store_read(s->store, look_row, &l, e);
    arena_free(l.arena);
    if (rc)
        return -1;
    if (!l.there) {
        destroy_later(s, user_id, chat_id);
        return 0;
    }
    if (quarantine_path(s, path, sizeof path, e))
        return -1;
    /* What cannot go back stays where it is, for people to look at: the others are not held up. */
    if (chatdir_restore(s->cfg->sandbox.chats_root, path, user_id, chat_id, &why))
        log_error(s->log, "quarantine_failed", &why, LF_ID("chat_id", chat_id));
    else
        log_event(s->log, LOG_WARNING, "chat_restored", LF_ID("chat_id", chat_id));
    return 0;
}

int chats_recover(struct services *s, struct err *e)
{
    char path[4096];

    return quarantine_path(s, path, sizeof path, e) ||
                   chatdir_each_quarantined(path, recover_one, s, e)
               ? -1
               : 0;
}
