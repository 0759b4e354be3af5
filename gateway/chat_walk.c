#include "chat_walk.h"

static int add_chat(void *ctx, const struct chat *c, struct err *e)
{
    struct chat_walk *w = ctx;

    (void)e;
    w->ids[w->n++] = c->chat_id;
    w->after = (struct store_place){c->created_at, c->chat_id};
    return 0;
}

int chat_walk_row(struct store_tx *tx, void *arg, struct err *e)
{
    const struct caller everybody = {.role = ROLE_ADMIN};
    struct chat_walk *w = arg;
    const struct store_list l = {.after = w->after, .limit = CHAT_WALK, .caller = &everybody};
    const struct store_filter f = {.user_id = w->user_id};

    w->n = 0;
    return store_chat_list(tx, &l, &f, add_chat, w, e);
}

bool chat_walk_goes_on(const struct chat_walk *w)
{
    return w->n == CHAT_WALK;
}
