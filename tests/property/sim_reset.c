/*
 * The operator who lowers the mark of a clock that was far ahead: `leasehold clock-reset`, its code of
 * production (gateway/clock_reset.c) on the store of the gateway that is stopped. Each of its writes is taken
 * for one of ours (store_write_end is linked with --wrap), so that what it commits becomes a fact.
 */
#include "../../gateway/app.h"
#include "invariants.h"
#include "leasehold/clock.h"
#include "sim.h"

/* That runs on this thread; NULL: none does. */
static _Thread_local struct sim *resetting;

int __real_store_write_end(struct store *store, store_fn fn, void *arg, struct err *e);
int __wrap_store_write_end(struct store *store, store_fn fn, void *arg, struct err *e);
int __wrap_store_write_end(struct store *store, store_fn fn, void *arg, struct err *e)
{
    struct sim *s = resetting;
    struct op *op;
    int rc;

    if (!s)
        return __real_store_write_end(store, fn, arg, e);
    op = op_new(s, OP_RESET, -1);
    op->fn = fn;
    op->fn_arg = arg;
    rc = __real_store_write_end(store, op_run, op, e);
    if (rc && op->in_group && sim_disk_ended(s->disk))
        return rc; /* the next start knows */
    if (rc)
        gateway_group_failed(s);
    gateway_group_committed(s);
    op_free(op);
    return rc;
}

/* --- what it finds ----------------------------------------------------------------------------- */

static int key_row(void *ctx, const struct signing_key *k, struct err *e)
{
    struct op *op = ctx;

    (void)e;
    invariant_17_reset_leaves_no_key_ahead(op->sim, op, k);
    op->made[op->made_n++] = *k;
    return 0;
}

static int session_row(void *ctx, const struct sandbox *row, struct err *e)
{
    const struct op *op = ctx;

    (void)e;
    invariant_20_reset_leaves_no_session_ahead(op->sim, op, row);
    return 0;
}

/* The rows as they are in the write that has lowered the mark. */
int reset_looked_at(struct op *op, struct store_tx *tx, struct err *e)
{
    int64_t mark_ms;

    if (store_clock_mark(tx, &mark_ms, e) || store_signing_key_each(tx, key_row, op, e) ||
        store_sandbox_each_active(tx, session_row, op, e))
        return -1;
    if (mark_ms != op->wall_ms)
        sim_fail(op->sim, "invariant_08", "the mark is lowered to %lld, the clock stands at %lld",
                 (long long)mark_ms, (long long)op->wall_ms);
    return 0;
}

/* --- what it does ------------------------------------------------------------------------------ */

static void changed(void *ctx, const struct change *changes, size_t n)
{
    const struct sim *s = ctx;

    (void)changes;
    if (!s->gw.group || s->gw.group->changes_n != n)
        sim_fail(ctx, "invariant_05", "%zu changes came out of a write that made others", n);
    gateway_group_committed(ctx);
}

static int run(struct sim *s, struct store *store, struct err *e)
{
    const struct config cfg = {.sandbox.max_ttl_seconds = SIM_SESSION_MAX_S};
    struct clock_reset asked = {.reason = "the clock was ahead"};
    struct clock_reset_found found;
    char mark[TIME_TEXT];

    if (gateway_audit_learn(s, store, e) || clock_reset_of(store, &cfg, &asked, &found, e))
        return -1;
    if (found.mark_ms <= found.now_ms)
        return 0; /* the clock has come there by itself */
    asked.mark = time_format(found.mark_ms, mark);
    sim_disk_fill(s->disk, s->boot_us < s->full_until_us);
    if (clock_reset_of(store, &cfg, &asked, &found, e))
        return -1;
    s->seen[SEEN_RESET]++;
    return 0;
}

bool reset_clock(struct sim *s)
{
    struct store_options o = {.path = s->path,
                              .log = s->log,
                              .readers = 1,
                              .changed = changed,
                              .changed_ctx = s,
                              .clock = &s->clock,
                              .manual = true};
    struct store *store = NULL;
    struct err e;
    int rc;

    sim_trace(s, "the mark of the clock is to be lowered");
    if (!s->quiet && !s->resting && rng_one_in(&s->rng, 2))
        sim_disk_end_at(s->disk, rng_range(&s->rng, 1, 120));
    resetting = s;
    rc = store_open(&o, &store, &e) || run(s, store, &e) ? -1 : 0;
    resetting = NULL;
    if (rc && !sim_disk_ended(s->disk) && s->boot_us >= s->full_until_us)
        sim_fail(s, "reset", "the mark is not lowered: %s", e.msg);
    store_close(store);
    s->seen[SEEN_RESET_BROKEN] += rc != 0;
    sim_trace(s, "clock reset: %d", rc);
    gateway_disk_back(s);
    return !rc;
}
