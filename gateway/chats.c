#include "chats.h"

#include <stdio.h>
#include <stdlib.h>

#include "artifacts.h"
#include "files.h"
#include "leasehold/chatdir.h"
#include "leasehold/counted.h"

int chats_quarantine(const struct services *s, char *ret, size_t size, struct err *e)
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

    if (chats_quarantine(d->s, path, sizeof path, &e) ||
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

/* Of a row that is looked at for its owner alone. */
#define CHAT_ARENA 65536

static int find_chat(struct store_tx *tx, struct chat_deletion *d, struct err *e)
{
    struct arena *arena = arena_new(CHAT_ARENA);
    struct chat chat;
    int rc;

    if (!arena)
        return err_set(e, ERR_INTERNAL, "no memory to look at a chat");
    rc = store_chat_get(tx, &d->chat_id, arena, &chat, e);
    arena_free(arena);
    if (rc)
        return -1;
    if (d->caller && !caller_may_see(d->caller, &chat.user_id))
        return err_set(e, ERR_CHAT_NOT_FOUND, "no such chat");
    d->user_id = chat.user_id;
    return 0;
}

static int no_lease(void *ctx, const struct lease *l, struct err *e)
{
    (void)ctx;
    (void)l;
    return err_set(e, ERR_CONFLICT, "the chat has a live lease");
}

int chat_deletable(struct store_tx *tx, struct chat_deletion *d, struct err *e)
{
    const struct caller everybody = {.role = ROLE_ADMIN};
    const struct store_match of_chat = {.by = MATCH_CHAT, .id = d->chat_id};
    struct sandbox active;

    if (find_chat(tx, d, e))
        return -1;
    if (!store_sandbox_active(tx, &d->chat_id, &active, e))
        return err_set(e, ERR_CHAT_HAS_ACTIVE_SANDBOX, "the chat's sandbox is %s",
                       sandbox_status_names[active.status]);
    if (e->code != ERR_NOT_FOUND ||
        store_lease_each_match(tx, &of_chat, &everybody, no_lease, NULL, e))
        return -1;
    return d->may ? d->may(tx, d->arg, e) : 0;
}

struct deletion {
    struct services *s;
    struct chat_deletion *d;
    int64_t scanned_ns, put_bytes; /* the last scan, and what was put since */
    struct chatdir_usage usage;
    int rc;
    struct err *e;
};

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct deletion *del = arg;

    return chat_deletable(tx, del->d, e);
}

static int counted_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct deletion *del = arg;

    return store_counted_chat(tx, &del->d->user_id, &del->d->chat_id, &del->scanned_ns,
                              &del->put_bytes, e);
}

/* What no scan has seen is in the sum only as far as it was put. */
static int64_t counted_bytes(const struct deletion *del)
{
    int64_t changed = del->usage.changed_bytes;

    return del->usage.bytes - changed + (del->put_bytes < changed ? del->put_bytes : changed);
}

static int delete_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct deletion *del = arg;
    struct chat_deletion *d = del->d;

    return chat_deletable(tx, d, e) ||
                   store_chat_delete(tx, &d->chat_id, artifacts_links_hold(del->s->artifacts), e) ||
                   store_usage_add(tx, &d->user_id, -counted_bytes(del), false, e) ||
                   store_audit_deed(tx,
                                    &(struct audit_deed){.caller = d->caller,
                                                         .action = d->action,
                                                         .kind = "chat",
                                                         .id = &d->chat_id,
                                                         .detail = d->detail},
                                    e)
               ? -1
               : 0;
}

static int delete_held(struct deletion *del, struct err *e)
{
    const char *root = del->s->cfg->sandbox.chats_root;
    const struct chat_deletion *d = del->d;
    char path[4096];
    struct err why;

    if (chats_quarantine(del->s, path, sizeof path, e) ||
        store_read(del->s->store, counted_row, del, e) ||
        chatdir_chat_usage(root, &d->user_id, &d->chat_id, del->scanned_ns, &del->usage, e) ||
        chatdir_quarantine(root, path, &d->user_id, &d->chat_id, e))
        return -1;
    chat_dirs_forget(files_dirs(del->s->files), &d->chat_id);
    if (!store_write_end(del->s->store, delete_row, del, e))
        return 0;
    if (chatdir_restore(root, path, &d->user_id, &d->chat_id, &why))
        log_error(del->s->log, "quarantine_failed", &why, LF_ID("chat_id", &d->chat_id));
    return -1;
}

/* On the FILE lane: nothing reads or adds to the chat's files and history meanwhile. */
static void delete_run(void *arg)
{
    struct deletion *del = arg;

    files_lock(del->s->files, &del->d->chat_id);
    store_usage_hold(del->s->store, &del->d->user_id);
    del->rc = delete_held(del, del->e);
    store_usage_release(del->s->store, &del->d->user_id);
    files_unlock(del->s->files, &del->d->chat_id);
}

/* Looking first spares a refused one the directory's way there and back. */
int chat_delete(struct services *s, struct chat_deletion *d, struct err *e)
{
    struct deletion del = {.s = s, .d = d, .e = e};

    if (store_read(s->store, look_row, &del, e) ||
        lane_call(s->file, &d->chat_id, delete_run, &del, e) || del.rc)
        return -1;
    destroy_later(s, &d->user_id, &d->chat_id);
    log_event(s->log, LOG_INFO, "chat_deleted", LF_ID("chat_id", &d->chat_id),
              LF_STR("action", d->action));
    return 0;
}

/* --- after a crash --------------------------------------------------------------------------- */

struct look {
    struct id chat_id;
    struct arena *arena;
    bool there;
};

static int recover_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;
    struct chat chat;

    l->there = !store_chat_get(tx, &l->chat_id, l->arena, &chat, e);
    return l->there || e->code == ERR_CHAT_NOT_FOUND ? 0 : -1;
}

static int recover_one(void *ctx, const struct id *user_id, const struct id *chat_id, struct err *e)
{
    struct services *s = ctx;
    struct look l = {.chat_id = *chat_id, .arena = arena_new(CHAT_ARENA)};
    char path[4096];
    struct err why;
    int rc;

    if (!l.arena)
        return err_set(e, ERR_INTERNAL, "no memory to look at the quarantine");
    rc = store_read(s->store, recover_row, &l, e);
    arena_free(l.arena);
    if (rc)
        return -1;
    if (!l.there) {
        destroy_later(s, user_id, chat_id);
        return 0;
    }
    if (chats_quarantine(s, path, sizeof path, e))
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
    size_t held;

    if (chats_quarantine(s, path, sizeof path, e) ||
        chatdir_each_quarantined(path, recover_one, s, e))
        return -1;
    held = chatdir_count_held(path);
    if (held)
        log_event(s->log, LOG_WARNING, "quarantine_left", LF_STR("path", path),
                  LF_INT("files", (int64_t)held));
    return 0;
}
