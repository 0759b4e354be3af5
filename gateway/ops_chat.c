/* Chats: a row in the store and a directory on disk. */
#include <stdio.h>
#include <string.h>

#include "chats.h"
#include "idempotency.h"
#include "leasehold/chatdir.h"
#include "leasehold/history.h"
#include "ops.h"

const struct field chat_create_in[] = {
    FIELD_ID(struct chat_create_args, user_id, .flags = FIELD_REQUIRED, .doc = "the owner"),
    FIELD_ID(struct chat_create_args, chat_id,
             .has = offsetof(struct chat_create_args, has_chat_id), .doc = "the caller's own id"),
    FIELD_STR(struct chat_create_args, title, .max = 256, .def = "", .doc = "for people"),
    FIELD_RAW(struct chat_create_args, metadata, .max = 16384,
              .doc = "an object of the caller's own"),
    {0},
};

const struct field chat_in[] = {
    FIELD_ID(struct chat_args, chat_id, .flags = FIELD_REQUIRED | FIELD_PATH, .doc = "the chat"),
    {0},
};

const struct field chat_list_in[] = {
    PAGE_IN(struct chat_list_args),
    FIELD_ID(struct chat_list_args, user_id, .flags = FIELD_QUERY, .doc = "only this user's"),
    {0},
};

const struct field chat_list_out[] = {
    PAGE_OUT(chat_fields, struct chat),
    {0},
};

int chat_visible(struct store_tx *tx, const struct caller *caller, const struct id *chat_id,
                 struct arena *arena, struct chat *ret, struct err *e)
{
    struct chat chat;

    if (store_chat_get(tx, chat_id, arena, &chat, e))
        return -1;
    if (!caller_may_see(caller, &chat.user_id))
        return err_set(e, ERR_CHAT_NOT_FOUND, "no such chat");
    *ret = chat;
    return 0;
}

static int audit(struct store_tx *tx, struct call *c, const char *action, const struct id *chat_id,
                 struct err *e)
{
    return store_audit_deed(
        tx,
        &(struct audit_deed){.caller = &c->caller, .action = action, .kind = "chat", .id = chat_id},
        e);
}

/* Makings of one id go one after another: the second finds what the first has made. */
void op_chat_create_key(struct call *c, struct id *ret)
{
    *ret = ((const struct chat_create_args *)c->args)->chat_id;
}

struct ensure {
    struct call *c;
    const struct chat_create_args *a;
    bool answers; /* the call, with this chat */
    struct chat chat;
    int64_t bytes; /* of its new history */
    bool made;
};

/* 0 found, 1 unknown, -1 error (also: of another owner). */
static int find_own(struct store_tx *tx, struct ensure *en, struct err *e)
{
    if (store_chat_get(tx, &en->chat.chat_id, en->c->arena, &en->chat, e))
        return e->code == ERR_CHAT_NOT_FOUND ? 1 : -1;
    if (!id_equal(&en->chat.user_id, &en->a->user_id))
        return err_set(e, ERR_CHAT_NOT_FOUND, "no such chat of this user");
    return 0;
}

static int ensure_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct ensure *en = arg;
    struct workspace w;
    bool new_workspace;
    int rc = find_own(tx, en, e);

    if (rc <= 0)
        return rc;
    if (store_workspace_touch(tx, &en->a->user_id, &w, &new_workspace, e))
        return -1;
    struct chat *chat = &en->chat;
    chat->user_id = en->a->user_id;
    chat->workspace_id = w.workspace_id;
    chat->created_at = chat->updated_at = store_now_ms(tx);
    chat->generation = 0;
    chat->metadata = en->a->metadata ? en->a->metadata : (char *)"{}";
    snprintf(chat->title, sizeof chat->title, "%s", en->a->title ? en->a->title : "");
    if (store_chat_insert(tx, chat, e) ||
        store_usage_add(tx, &chat->user_id, en->bytes, false, e) ||
        audit(tx, en->c, "chat.create", &chat->chat_id, e))
        return -1;
    en->made = true;
    if (!en->answers)
        return 0;
    en->c->status = 201;
    *(struct chat *)en->c->result = *chat;
    return idempotency_record(en->c, tx, e);
}

static int find_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct ensure *en = arg;
    int rc = find_own(tx, en, e);

    en->made = rc == 1; /* to be made, so far */
    return rc < 0 ? -1 : 0;
}

static int make_dir(struct ensure *en, struct err *e)
{
    const struct config_sandbox *cfg = &en->c->s->cfg->sandbox;
    const struct history_place place = {
        .root = cfg->chats_root, .user_id = en->a->user_id, .chat_id = en->chat.chat_id};
    struct history_bytes bytes;

    if (chatdir_make(place.root, &place.user_id, &place.chat_id, cfg->uid, cfg->gid, e) ||
        history_bytes(&place, &bytes, e))
        return -1;
    en->bytes = bytes.db + bytes.md;
    return 0;
}

static int ensure(struct ensure *en, struct err *e)
{
    struct call *c = en->c;
    const struct chat_create_args *a = en->a;

    if (!caller_may_see(&c->caller, &a->user_id))
        return err_set(e, ERR_CHAT_NOT_FOUND, "no such chat of this user");
    en->chat.chat_id = a->chat_id;
    if (!a->has_chat_id)
        id_random(&en->chat.chat_id);
    /* The directory first: a row without one would be a chat that cannot work. One without a row
     * (a crash between) is taken over when the id is asked for again. Looking before making keeps
     * a refused request from leaving a directory. */
    if (store_read(c->s->store, find_row, en, e))
        return -1;
    if (!en->made)
        return 0;
    en->made = false;
    store_usage_hold(c->s->store, &a->user_id);
    int rc = make_dir(en, e) || store_write(c->s->store, ensure_row, en, e) ? -1 : 0;
    store_usage_release(c->s->store, &a->user_id);
    return rc;
}

int chat_ensure(struct call *c, const struct chat_create_args *a, struct err *e)
{
    struct ensure en = {.c = c, .a = a};

    return ensure(&en, e);
}

int op_chat_create(struct call *c, struct err *e)
{
    struct ensure en = {.c = c, .a = c->args, .answers = true};

    if (ensure(&en, e))
        return -1;
    *(struct chat *)c->result = en.chat;
    c->status = en.made ? 201 : 200;
    return 0;
}

int op_chat_get(struct call *c, struct err *e)
{
    const struct chat_args *a = c->args;

    return chat_visible(c->tx, &c->caller, &a->chat_id, c->arena, c->result, e);
}

/* --- list ------------------------------------------------------------------------------------ */

static int list_each(void *ctx, const struct chat *chat, struct err *e)
{
    struct page_build *p = ctx;
    struct chat *item = page_add(p, chat->created_at, &chat->chat_id);

    if (!item)
        return 0;
    *item = *chat;
    item->metadata = arena_strndup(p->c->arena, chat->metadata, strlen(chat->metadata));
    return item->metadata ? 0 : err_set(e, ERR_INTERNAL, "no memory for a list");
}

int op_chat_list(struct call *c, struct err *e)
{
    const struct chat_list_args *a = c->args;
    struct store_filter filter = {.user_id = a->user_id};
    struct page_build page;
    struct store_list list;

    if (page_begin(&page, c, &a->page, 'c', sizeof(struct chat), &list, e) ||
        store_chat_list(c->tx, &list, &filter, list_each, &page, e))
        return -1;
    return page_end(&page, c->result, e);
}

/* --- delete ---------------------------------------------------------------------------------- */

void op_chat_delete_key(struct call *c, struct id *ret)
{
    *ret = ((const struct chat_args *)c->args)->chat_id;
}

int op_chat_delete(struct call *c, struct err *e)
{
    struct chat_deletion d = {.caller = &c->caller,
                              .chat_id = ((const struct chat_args *)c->args)->chat_id,
                              .action = c->op->name};

    return chat_delete(c->s, &d, e);
}
