/* Leases whose time is over. Those that end together were issued together, as a rule, and have numbers in a
 * row: these are one statement. */
#include <string.h>

#include "leasehold/store.h"
#include "lease_counts.h"
#include "list.h"
#include "stmt.h"
#include "tx.h"

/* Neighbours by number, which end alike. */
struct expiry_run {
    const struct store_lease_expiry *x; /* the first of them */
    size_t n;
    bool *found;
};

static bool is_next(const struct store_lease_expiry *x, const struct store_lease_expiry *next)
{
    return next->n == x->n + 1 && next->expires_at == x->expires_at && next->state == x->state &&
           next->reason == x->reason;
}

static size_t run_length(const struct store_lease_expiry *x, size_t n)
{
    size_t len = 1;
    while (len < n && is_next(&x[len - 1], &x[len])) {
        len++;
    }
    return len;
}

/* SQLite counts the rows that a statement has changed; which they are it tells here alone, without a table
 * of them that RETURNING would have it make. */
static void note_changed(void *ctx, int op, const char *db, const char *table, sqlite3_int64 n)
{
    struct expiry_run *run = ctx;
    (void)db;
    if (op == SQLITE_UPDATE && strcmp(table, "leases") == 0) {
        run->found[n - run->x->n] = true;
    }
}

#define EXPIRE_LEASES(closed)                                                                      \
    "UPDATE leases SET state = ?, revoked_reason = ?" closed                                       \
    " WHERE n BETWEEN ? AND ? AND expires_at <= ? AND " LEASE_IS_OPEN

static int expire_run(struct store_tx *tx, struct expiry_run *run, struct err *e)
{
    const struct store_lease_expiry *x = run->x;
    struct stmt st;
    if (stmt_open(&st, tx->conn, "lease",
                  x->state == LEASE_CLOSED ? EXPIRE_LEASES(", closed = 1") : EXPIRE_LEASES(""),
                  e) != 0) {
        return -1;
    }
    bind_text(&st, lease_state_names[x->state]);
    bind_text(&st, x->reason);
    bind_int(&st, x->n);
    bind_int(&st, x->n + (int64_t)run->n - 1);
    bind_int(&st, x->expires_at);
    sqlite3_update_hook(tx->conn->db, note_changed, run);
    int rc = stmt_run(&st, e);
    sqlite3_update_hook(tx->conn->db, NULL, NULL);
    return rc;
}

static int count_run(struct store_tx *tx, const struct expiry_run *run, struct err *e)
{
    for (size_t i = 0; i < run->n; i++) {
        const struct store_lease_expiry *x = &run->x[i];
        if (!run->found[i]) {
            continue;
        }
        if (lease_counts_add(tx->leases, &x->session_id, &x->user_id, -1, e) != 0 ||
            (x->state == LEASE_CLOSED && lease_blocks_close(tx->lease_blocks, x->n, e) != 0)) {
            return -1;
        }
    }
    return 0;
}

/* --- who will end ----------------------------------------------------------------------------- */

static int note_open(struct stmt *st, void *arg, struct err *e)
{
    struct expiry_run *run = arg;
    (void)e;
    run->found[column_int(st) - run->x->n] = true;
    return 0;
}

static int open_run(struct store_tx *tx, struct expiry_run *run, struct err *e)
{
    struct stmt st;
    if (stmt_open(
            &st, tx->conn, "lease",
            "SELECT n FROM leases WHERE n BETWEEN ? AND ? AND expires_at = ? AND " LEASE_IS_OPEN,
            e) != 0) {
        return -1;
    }
    bind_int(&st, run->x->n);
    bind_int(&st, run->x->n + (int64_t)run->n - 1);
    bind_int(&st, run->x->expires_at);
    return list_walk(&st, note_open, run, e);
}

/* --- together --------------------------------------------------------------------------------- */

static struct expiry_run run_of(const struct store_lease_expiry *x, size_t n, bool *found)
{
    struct expiry_run run = {.x = x, .n = run_length(x, n), .found = found};
    memset(found, 0, run.n * sizeof(*found));
    return run;
}

int store_lease_open_until(struct store_tx *tx, const struct store_lease_expiry *x, size_t n,
                           bool *ret_open, struct err *e)
{
    struct expiry_run run;
    for (size_t i = 0; i < n; i += run.n) {
        run = run_of(x + i, n - i, ret_open + i);
        if (open_run(tx, &run, e) != 0) {
            return -1;
        }
    }
    return 0;
}

int store_lease_expire(struct store_tx *tx, const struct store_lease_expiry *x, size_t n,
                       bool *ret_found, struct err *e)
{
    struct expiry_run run;
    for (size_t i = 0; i < n; i += run.n) {
        run = run_of(x + i, n - i, ret_found + i);
        if (expire_run(tx, &run, e) != 0 || count_run(tx, &run, e) != 0) {
            return -1;
        }
    }
    return 0;
}
