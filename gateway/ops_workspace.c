/* Workspaces: what a user's chats hold and may hold. */
#include "ops.h"
#include "usage.h"

const struct field workspace_in[] = {
    FIELD_ID(struct workspace_args, user_id, .flags = FIELD_REQUIRED | FIELD_PATH,
             .doc = "the user"),
    {0},
};

const struct field workspace_fields[] = {
    FIELD_ID(struct workspace_view, workspace_id, .doc = "the workspace"),
    FIELD_ID(struct workspace_view, user_id, .doc = "whose it is"),
    FIELD_TIME(struct workspace_view, created_at, .doc = "when it was made"),
    FIELD_INT(struct workspace_view, used_bytes, .doc = "of files and histories, each file once"),
    FIELD_INT(struct workspace_view, quota_bytes, .doc = "how much it may hold"),
    FIELD_BOOL(struct workspace_view, over_quota, .doc = "whether it holds more"),
    FIELD_INT(struct workspace_view, chats, .doc = "how many"),
    {0},
};

struct look {
    const struct workspace_args *args;
    struct workspace workspace;
    int64_t chats;
};

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;

    return store_workspace_get(tx, &l->args->user_id, &l->workspace, e) ||
                   store_chat_count(tx, &l->args->user_id, &l->chats, e)
               ? -1
               : 0;
}

int op_workspace_get(struct call *c, struct err *e)
{
    struct workspace_view *v = c->result;
    struct look l = {.args = c->args};
    struct store_usage used;

    if (!caller_may_see(&c->caller, &l.args->user_id))
        return err_set(e, ERR_WORKSPACE_NOT_FOUND, "no such workspace");
    if (store_read(c->s->store, look_row, &l, e) || usage_scan(c->s, &l.args->user_id, &used, e))
        return -1;
    v->workspace_id = l.workspace.workspace_id;
    v->user_id = l.workspace.user_id;
    v->created_at = l.workspace.created_at;
    v->used_bytes = used.used_bytes;
    v->quota_bytes = used.quota_bytes;
    v->over_quota = used.over_quota;
    v->chats = l.chats;
    return 0;
}
