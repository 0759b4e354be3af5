#include "list.h"

void list_bind_seen(struct stmt *st, const struct store_list *l)
{
    bind_int(st, l->caller->limited);
    bind_id(st, &l->caller->key_id);
}

void list_bind_page(struct stmt *st, const struct store_list *l)
{
    bind_int(st, l->after.created_at);
    bind_id(st, &l->after.id);
    bind_int(st, l->limit);
}

static void bind_id_or_empty(struct stmt *st, const struct id *id)
{
    if (id_is_zero(id)) {
        bind_text(st, "");
    } else {
        bind_id(st, id);
    }
}

void list_bind_optional_id(struct stmt *st, const struct id *id)
{
    bind_id_or_empty(st, id);
    bind_id_or_empty(st, id);
}

void list_bind_optional(struct stmt *st, const char *text)
{
    bind_text(st, text);
    bind_text(st, text);
}

int list_walk(struct stmt *st, int (*read)(struct stmt *st, void *arg, struct err *e), void *arg,
              struct err *e)
{
    bool row = true;
    int rc = 0;
    while (rc == 0 && (rc = stmt_next(st, &row, e)) == 0 && row) {
        rc = read(st, arg, e);
    }
    return stmt_end(st, rc, e);
}
