#include "high_water.h"

#include "stmt.h"
#include "tx.h"

#define SAVE_EVERY_MS 1000

static int read_saved(struct conn *c, int64_t *ret_ms, struct err *e)
{
    struct stmt st;
    return stmt_open(&st, c, "high water", "SELECT at FROM high_water WHERE one = 1", e) == 0
               ? stmt_end_with_int(&st, ERR_INTERNAL, ret_ms, e)
               : -1;
}

int high_water_load(struct high_water *h, struct conn *c, struct err *e)
{
    if (read_saved(c, &h->saved_ms, e) != 0) {
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
    if (h->lowering || h->group_ms < h->saved_ms + SAVE_EVERY_MS) {
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
    if (durable && (h->lowering || h->group_ms > atomic_load(&h->at_ms))) {
        atomic_store(&h->at_ms, h->group_ms);
    }
    if (durable && h->saving_ms != 0) {
        h->saved_ms = h->saving_ms;
    }
    h->group_ms = h->saving_ms = 0;
    h->lowering = false;
}

int store_clock_mark(struct store_tx *tx, int64_t *ret_ms, struct err *e)
{
    return read_saved(tx->conn, ret_ms, e);
}

int store_clock_lower(struct store_tx *tx, int64_t from_ms, struct err *e)
{
    struct high_water *h = tx->high_water;
    struct stmt st;
    if (h == NULL) {
        return err_set(e, ERR_INTERNAL, "the clock's mark lowered in a read");
    }
    if (stmt_open(&st, tx->conn, "mark of this time",
                  "UPDATE high_water SET at = ? WHERE one = 1 AND at = ?", e) != 0) {
        return -1;
    }
    bind_int(&st, tx->now_ms);
    bind_int(&st, from_ms);
    if (stmt_run_one(&st, ERR_CONFLICT, e) != 0) {
        return -1;
    }
    h->saving_ms = tx->now_ms;
    h->lowering = true;
    return 0;
}

int64_t high_water_behind_ms(const struct high_water *h, int64_t now_ms)
{
    int64_t at_ms = atomic_load(&h->at_ms);
    return at_ms > now_ms ? at_ms - now_ms : 0;
}
