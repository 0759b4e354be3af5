/* Workspaces: what a user's chats hold and may hold. */
#include "ops.h"
#include "usage.h"
#include "workspaces.h"

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

static void fill(struct workspace_view *v, const struct workspace *w, const struct store_usage *u,
                 int64_t chats)
{
    *v = (struct workspace_view){.workspace_id = w->workspace_id,
                                 .user_id = w->user_id,
                                 .created_at = w->created_at,
                                 .used_bytes = u->used_bytes,
                                 .quota_bytes = u->quota_bytes,
                                 .over_quota = u->over_quota,
                                 .chats = chats};
}

static int may_see(const struct call *c, struct err *e)
{
    const struct workspace_args *a = c->args;

    return caller_may_see(&c->caller, &a->user_id)
               ? 0
               : err_set(e, ERR_WORKSPACE_NOT_FOUND, "no such workspace");
}

/* --- make ------------------------------------------------------------------------------------ */

int op_workspace_put(struct call *c, struct err *e)
{
    const struct workspace_args *a = c->args;
    struct workspace w;
    struct store_usage used;
    int64_t chats;
    bool is_new;

    if (may_see(c, e) || store_workspace_touch(c->tx, &a->user_id, &w, &is_new, e) ||
        store_usage_get(c->tx, &a->user_id, &used, e) ||
        store_chat_count(c->tx, &a->user_id, &chats, e))
        return -1;
    fill(c->result, &w, &used, chats);
    c->status = is_new ? 201 : 200;
    return store_audit_deed(
        c->tx,
        &(struct audit_deed){
            .caller = &c->caller, .action = c->op->name, .kind = "workspace", .id = &a->user_id},
        e);
}

/* --- look ------------------------------------------------------------------------------------ */

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
    struct look l = {.args = c->args};
    struct store_usage used;

    if (may_see(c, e) || store_read(c->s->store, look_row, &l, e) ||
        usage_scan(c->s, &l.args->user_id, &used, e))
        return -1;
    fill(c->result, &l.workspace, &used, l.chats);
    return 0;
}

/* --- delete ---------------------------------------------------------------------------------- */

void op_workspace_delete_key(struct call *c, struct id *ret)
{
    *ret = ((const struct workspace_args *)c->args)->user_id;
}

int op_workspace_delete(struct call *c, struct err *e)
{
    struct workspace_deletion d = {.caller = &c->caller,
                                   .user_id = ((const struct workspace_args *)c->args)->user_id,
                                   .action = c->op->name};

    return may_see(c, e) || workspace_delete(c->s, &d, e) ? -1 : 0;
}
