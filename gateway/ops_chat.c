/* Chats: a row in the store and a directory on disk. */
#include <stdio.h>
#include <string.h>

#include "leasehold/chatdir.h"
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

static int audit(struct store_tx *tx, struct call *c, const struct id *chat_id, struct err *e)
{
    char object[sizeof "chat:" + ID_TEXT];

    snprintf(object, sizeof object, "chat:%s", ID_STR(chat_id));
    return store_audit(tx,
                       &(struct audit_entry){.at = store_now_ms(tx),
                                             .actor = ID_STR(&c->caller.key_id),
                                             .action = "chat.create",
                                             .object = object,
                                             .outcome = "ok",
                                             .address = c->caller.address,
                                             .request_id = c->request_id,
                                             .detail = ""},
                       e);
}

struct ensure {
    struct call *c;
    const struct chat_create_args *a;
    struct chat chat;
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
    if (store_chat_insert(tx, chat, e) || audit(tx, en->c, &chat->chat_id, e))
        return -1;
    en->made = true;
    return 0;
}

static int find_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct ensure *en = arg;
    int rc = find_own(tx, en, e);

    en->made = rc == 1; /* to be made, so far */
    return rc < 0 ? -1 : 0;
}

int chat_ensure(struct call *c, const struct chat_create_args *a, struct chat *ret, bool *ret_new,
                struct err *e)
{
    const struct config_sandbox *cfg = &c->s->cfg->sandbox;
    struct ensure en = {.c = c, .a = a, .chat.chat_id = a->chat_id};

    if (!caller_may_see(&c->caller, &a->user_id))
        return err_set(e, ERR_CHAT_NOT_FOUND, "no such chat of this user");
    if (!a->has_chat_id)
        id_random(&en.chat.chat_id);
    /* The directory first: a row without one would be a chat that cannot work. One without a row
     * (a crash between) is taken over when the id is asked for again. Looking before making keeps
     * a refused request from leaving a directory. */
    if (store_read(c->s->store, find_row, &en, e))
        return -1;
    if (en.made &&
        chatdir_make(cfg->chats_root, &a->user_id, &en.chat.chat_id, cfg->uid, cfg->gid, e))
        return -1;
    if (en.made) {
        en.made = false;
        if (store_write(c->s->store, ensure_row, &en, e))
            return -1;
    }
    *ret = en.chat;
    *ret_new = en.made;
    return 0;
}

int op_chat_create(struct call *c, struct err *e)
{
    bool made;

    if (chat_ensure(c, c->args, c->result, &made, e))
        return -1;
    c->status = made ? 201 : 200;
    return 0;
}

int op_chat_get(struct call *c, struct err *e)
{
    const struct chat_args *a = c->args;

    return chat_visible(c->tx, &c->caller, &a->chat_id, c->arena, c->result, e);
}
