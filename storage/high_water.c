#include "high_water.h"

#include "stmt.h"

#define SAVE_EVERY_MS 1000

int high_water_load(struct high_water *h, struct conn *c, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, c, "high water", "SELECT at FROM high_water WHERE one = 1", e) != 0 ||
        stmt_end_with_int(&st, ERR_INTERNAL, &h->saved_ms, e) != 0) {
        return -1;
    }
    atomic_store(&h->at_ms, h->saved_ms);
    return 0;
}

void high_water_note(struct high_water *h, int64_t now_ms)
{
    h->group_ms = now_ms > h->group_ms ? now_ms : h->group_ms;
}

int high_water_write(struct high_water *h, struct conn *c, struct err *e)
{
    struct stmt st;
    if (h->group_ms < h->saved_ms + SAVE_EVERY_MS) {
        return 0;
    }
    if (stmt_open(&st, c, "high water", "UPDATE high_water SET at = ? WHERE one = 1", e) != 0) {
        return -1;
    }
    bind_int(&st, h->group_ms);
    h->saving_ms = h->group_ms;
    return stmt_run_one(&st, ERR_INTERNAL, e);
}

void high_water_settle(struct high_water *h, bool durable)
{
    if (durable && h->group_ms > atomic_load(&h->at_ms)) {
        atomic_store(&h->at_ms, h->group_ms);
    }
    if (durable && h->saving_ms != 0) {
        h->saved_ms = h->saving_ms;
    }
    h->group_ms = h->saving_ms = 0;
}

int64_t high_water_behind_ms(const struct high_water *h, int64_t now_ms)
{
    int64_t at_ms = atomic_load(&h->at_ms);
    return at_ms > now_ms ? at_ms - now_ms : 0;
}
