#include "workspaces.h"

#include "chat_walk.h"
#include "chats.h"
#include "leasehold/chatdir.h"

#define ROUNDS_MAX 100000 /* of that many chats: somebody makes them faster than they go */

/* --- the chats -------------------------------------------------------------------------------- */

static struct chat_deletion deletion_of(const struct workspace_deletion *d,
                                        const struct id *chat_id)
{
    return (struct chat_deletion){.caller = d->caller,
                                  .user_id = d->user_id,
                                  .chat_id = *chat_id,
                                  .action = d->action,
                                  .detail = d->detail,
                                  .may = d->may,
                                  .arg = d->arg};
}

/* --- looking ---------------------------------------------------------------------------------- */

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct workspace_deletion *d = arg;
    struct chat_walk chats = {.user_id = d->user_id};
    struct workspace w;

    if (store_workspace_get(tx, &d->user_id, &w, e))
        return -1;
    if (d->caller && !caller_may_see(d->caller, &d->user_id))
        return err_set(e, ERR_WORKSPACE_NOT_FOUND, "no such workspace");
    if (d->may && d->may(tx, d->arg, e))
        return -1;
    do {
        if (chat_walk_row(tx, &chats, e))
            return -1;
        for (size_t i = 0; i < chats.n; i++) {
            struct chat_deletion one = deletion_of(d, &chats.ids[i]);

            if (chat_deletable(tx, &one, e))
                return -1;
        }
    } while (chat_walk_goes_on(&chats));
    return 0;
}

int workspace_deletable(struct services *s, struct workspace_deletion *d, struct err *e)
{
    return store_read(s->store, look_row, d, e);
}

/* --- deletion --------------------------------------------------------------------------------- */

struct one {
    struct services *s;
    struct chat_deletion d;
    int rc;
    struct err *e;
};

static void delete_one(void *arg)
{
    struct one *one = arg;

    one->rc = chat_delete(one->s, &one->d, one->e);
}

/* One that another has deleted meanwhile is gone as well. */
static int delete_chats(struct services *s, const struct workspace_deletion *d,
                        const struct chat_walk *chats, struct err *e)
{
    for (size_t i = 0; i < chats->n; i++) {
        struct one one = {.s = s, .d = deletion_of(d, &chats->ids[i]), .e = e};

        if (s->stopping)
            return err_set(e, ERR_BUSY, "the gateway is stopping");
        if (lane_call(s->runtime, &chats->ids[i], delete_one, &one, e) ||
            (one.rc && e->code != ERR_CHAT_NOT_FOUND))
            return -1;
    }
    return 0;
}

static int delete_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct workspace_deletion *d = arg;

    return (d->may && d->may(tx, d->arg, e)) || store_workspace_delete(tx, &d->user_id, e) ||
                   store_audit_deed(tx,
                                    &(struct audit_deed){.caller = d->caller,
                                                         .action = d->action,
                                                         .kind = "workspace",
                                                         .id = &d->user_id,
                                                         .detail = d->detail},
                                    e)
               ? -1
               : 0;
}

static int delete_all(struct services *s, struct workspace_deletion *d, struct err *e)
{
    for (int round = 0; round < ROUNDS_MAX; round++) {
        struct chat_walk chats = {.user_id = d->user_id};

        if (store_read(s->store, chat_walk_row, &chats, e) || delete_chats(s, d, &chats, e))
            return -1;
        if (!chats.n && !store_write_end(s->store, delete_row, d, e))
            return 0;
        if (!chats.n && e->code != ERR_CONFLICT)
            return -1;
    }
    return err_set(e, ERR_CONFLICT, "new chats are made in it");
}

/* What cannot be swept now, the next removal or round of retention sweeps. */
static void remove_dir(struct services *s, const struct id *user_id)
{
    char path[4096];
    struct err e;

    if (chats_quarantine(s, path, sizeof path, &e) ||
        chatdir_remove_workspace(s->cfg->sandbox.chats_root, path, user_id, &e) ||
        chatdir_sweep(path, &e))
        log_error(s->log, "quarantine_failed", &e, LF_ID("user_id", user_id));
}

int workspace_delete(struct services *s, struct workspace_deletion *d, struct err *e)
{
    if (workspace_deletable(s, d, e) || delete_all(s, d, e))
        return -1;
    remove_dir(s, &d->user_id);
    log_event(s->log, LOG_INFO, "workspace_deleted", LF_ID("user_id", &d->user_id),
              LF_STR("action", d->action));
    return 0;
}
