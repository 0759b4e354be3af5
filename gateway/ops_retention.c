/* A round of retention on request. */
#include <string.h>

#include "ops.h"
#include "retention.h"

#define ITEMS_MAX 1000 /* told of; the others go all the same */

const struct field retention_run_in[] = {
    FIELD_BOOL(struct retention_run_args, dry_run, .flags = FIELD_QUERY, .def = "false",
               .doc = "tells what would go, and leaves it"),
    {0},
};

static const struct field item_fields[] = {
    FIELD_STR(struct retention_view, kind, .doc = "file, workspace or artifact"),
    FIELD_STR(struct retention_view, id,
              .doc = "of the file, user or artifact; chat/name without a row"),
    FIELD_STR(struct retention_view, reason, .doc = "why it goes"),
    FIELD_INT(struct retention_view, size_bytes, .doc = "that come free"),
    {0},
};

const struct field retention_run_out[] = {
    FIELD_OBJLIST(struct retention_result, items, item_fields, struct retention_view,
                  .max = ITEMS_MAX, .doc = "what went, or would; the first 1,000"),
    {0},
};

void op_retention_key(struct call *c, struct id *ret)
{
    (void)c;
    *ret = retention_key;
}

static void add_item(void *ctx, const struct retention_item *item)
{
    struct call *c = ctx;
    struct retention_result *r = c->result;
    struct retention_view *v = (struct retention_view *)r->items.items + r->items.n;
    char *id;

    if (r->items.n == ITEMS_MAX)
        return;
    id = arena_strndup(c->arena, item->id, strlen(item->id));
    if (!id)
        return;
    *v = (struct retention_view){.kind = (char *)(uintptr_t)item->kind,
                                 .id = id,
                                 .reason = (char *)(uintptr_t)item->reason,
                                 .size_bytes = item->size_bytes};
    r->items.n++;
}

int op_retention_run(struct call *c, struct err *e)
{
    const struct retention_run_args *a = c->args;
    struct retention_result *r = c->result;
    const struct retention_round round = {
        .s = c->s, .caller = &c->caller, .dry_run = a->dry_run, .item = add_item, .ctx = c};

    r->items.items = call_alloc(c, ITEMS_MAX * sizeof(struct retention_view));
    if (!r->items.items)
        return err_set(e, ERR_INTERNAL, "no memory for a list");
    return retention_round(&round, e);
}
