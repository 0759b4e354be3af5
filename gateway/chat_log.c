#include "chat_log.h"

#include <stdio.h>

/* --- telling ----------------------------------------------------------------------------------- */

static int tell_row(struct store_tx *tx, void *arg, struct err *e)
{
    return store_audit_deed(tx, arg, e);
}

void chat_log_tell(struct services *s, const char *action, const char *kind, const struct id *id,
                   const char *detail)
{
    struct audit_deed d = {
        .action = action, .kind = kind, .id = id, .outcome = "failed", .detail = detail};
    char object[16 + ID_TEXT];
    struct err e;

    snprintf(object, sizeof object, "%s:%s", kind, ID_STR(id));
    log_event(s->log, LOG_ERROR, action, LF_STR("object", object), LF_STR("detail", detail));
    if (store_write(s->store, tell_row, &d, &e))
        log_error(s->log, "audit_lost", &e, LF_STR("action", action));
}

/* --- what it takes ----------------------------------------------------------------------------- */

/* A file that was set aside stays where it is and goes on being counted: the new one is all added. */
static int note_bytes(struct chat_log *l, bool new_db, struct err *e)
{
    struct history_bytes b;

    if (history_bytes(&l->place, &b, e))
        return -1;
    l->bytes_before = (new_db ? 0 : b.db) + b.md;
    return 0;
}

/* What cannot be looked at now the next scan counts. */
int64_t chat_log_added(struct chat_log *l)
{
    int64_t before = l->bytes_before;
    struct err e;

    return note_bytes(l, false, &e) ? 0 : l->bytes_before - before;
}

struct rest {
    const struct id *user_id;
    int64_t bytes;
};

static int count_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct rest *r = arg;

    return store_usage_add(tx, r->user_id, r->bytes, false, e);
}

static void count_rest(struct chat_log *l)
{
    struct rest r = {.user_id = &l->place.user_id, .bytes = chat_log_added(l)};
    struct err e;

    if (r.bytes && store_write(l->s->store, count_row, &r, &e) && e.code != ERR_WORKSPACE_NOT_FOUND)
        log_error(l->s->log, "usage_uncounted", &e, LF_ID("chat_id", &l->place.chat_id));
}

/* --- open and close ---------------------------------------------------------------------------- */

static int replace(struct chat_log *l, struct err *e)
{
    char name[HISTORY_BROKEN_NAME];
    bool damaged;

    history_close(l->history);
    l->history = NULL;
    if (history_move_aside(&l->place, clock_wall_ms(l->s->clock), name, e) ||
        note_bytes(l, true, e))
        return -1;
    chat_log_tell(l->s, "history.broken", "chat", &l->place.chat_id, name);
    return history_open(&l->place, &l->history, &damaged, e);
}

static int open_history(struct chat_log *l, struct err *e)
{
    bool damaged;

    if (note_bytes(l, false, e))
        return -1;
    if (!history_open(&l->place, &l->history, &damaged, e))
        return 0;
    return damaged ? replace(l, e) : -1;
}

int chat_log_open(struct chat_log *l, struct services *s, const struct id *user_id,
                  const struct id *chat_id, struct err *e)
{
    const struct config_sandbox *cfg = &s->cfg->sandbox;

    *l = (struct chat_log){.s = s,
                           .place = {.root = cfg->chats_root,
                                     .user_id = *user_id,
                                     .chat_id = *chat_id,
                                     .uid = cfg->uid,
                                     .gid = cfg->gid}};
    store_usage_hold(s->store, user_id);
    if (!open_history(l, e))
        return 0;
    history_close(l->history);
    l->history = NULL;
    store_usage_release(s->store, user_id);
    return -1;
}

void chat_log_close(struct chat_log *l)
{
    if (!l->history)
        return;
    history_close(l->history);
    l->history = NULL;
    count_rest(l);
    store_usage_release(l->s->store, &l->place.user_id);
}

/* --- work -------------------------------------------------------------------------------------- */

/* A damaged history.db is found out at any moment; then once more with a new one. After a failed
 * replacement there is none, and the caller closes what is left. */
static int renew(struct chat_log *l, struct err *e)
{
    if (!history_is_damaged(l->history))
        return -1;
    if (!replace(l, e))
        return 0;
    store_usage_release(l->s->store, &l->place.user_id);
    return -1;
}

int chat_log_append(struct chat_log *l, struct history_message *messages, size_t messages_n,
                    const struct history_spool *spool, struct err *e)
{
    if (!history_append(l->history, messages, messages_n, spool, e))
        return 0;
    return renew(l, e) || history_append(l->history, messages, messages_n, spool, e) ? -1 : 0;
}

int chat_log_each(struct chat_log *l, int64_t after, int64_t limit,
                  int (*each)(void *ctx, const struct history_message *m, struct err *e), void *ctx,
                  struct err *e)
{
    if (!history_each(l->history, after, limit, each, ctx, e))
        return 0;
    l->renewed = !renew(l, e);
    return -1;
}
