/*
 * `leasehold clock-reset`: a clock that was far ahead by mistake has left its mark, behind which nothing is
 * issued, and things that end by the time it told. All leases that are open end first, each session's by
 * an entry of its log: none of that time, and none whose end was put off by it, lives on. What has ended
 * stays so. Then what is left of that time is cut to now, and the mark with it. Broken off between, it is
 * done again from the start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "leasehold/clock.h"
#include "leasehold/door_proto.h"
#include "leasehold/lease_rules.h"
#include "leasehold/store.h"

#define REASON "clock_reset"

struct reset {
    const struct clock_reset *asked;
    const struct config *cfg;
    struct sandbox *sessions;
    size_t n, size;
    size_t at; /* the session whose turn it is */
    struct signing_key *keys;
    size_t keys_n;
    struct clock_reset_found *found;
};

/* --- what there is --------------------------------------------------------------------------- */

static int add_session(void *ctx, const struct sandbox *s, struct err *e)
{
    struct reset *r = ctx;

    if (r->n == r->size) {
        size_t size = r->size ? r->size * 2 : 64;
        struct sandbox *sessions = reallocarray(r->sessions, size, sizeof *sessions);

        if (!sessions)
            return err_set(e, ERR_INTERNAL, "no memory for the sessions");
        r->sessions = sessions;
        r->size = size;
    }
    r->sessions[r->n++] = *s;
    return 0;
}

static int count_lease(void *ctx, const struct lease *l, struct err *e)
{
    struct reset *r = ctx;

    (void)e;
    r->found->leases += l->state == LEASE_PENDING || l->state == LEASE_ACTIVE;
    return 0;
}

static int add_key(void *ctx, const struct signing_key *k, struct err *e)
{
    struct reset *r = ctx;
    struct signing_key *keys = reallocarray(r->keys, r->keys_n + 1, sizeof *keys);

    if (!keys)
        return err_set(e, ERR_INTERNAL, "no memory for the keys");
    r->keys = keys;
    r->keys[r->keys_n++] = *k;
    return 0;
}

static int look(struct store_tx *tx, void *arg, struct err *e)
{
    struct reset *r = arg;

    r->found->now_ms = store_now_ms(tx);
    return store_clock_mark(tx, &r->found->mark_ms, e) ||
                   store_sandbox_each_active(tx, add_session, r, e) ||
                   store_lease_each_open(tx, count_lease, r, e) ||
                   store_signing_key_each(tx, add_key, r, e)
               ? -1
               : 0;
}

/* --- what is done ---------------------------------------------------------------------------- */

static int end_leases(struct store_tx *tx, void *arg, struct err *e)
{
    const struct reset *r = arg;
    const struct lease_ending how = {.code = CLOSE_REVOKED, .reason = REASON};
    size_t n;

    return lease_end_session(tx, &r->sessions[r->at], &how, &n, e);
}

static bool cut(int64_t *at_ms, int64_t most_ms)
{
    bool later = *at_ms > most_ms;

    if (later)
        *at_ms = most_ms;
    return later;
}

static int cut_session(struct store_tx *tx, const struct reset *r, struct sandbox *s, struct err *e)
{
    const struct config_sandbox *c = &r->cfg->sandbox;
    int64_t now = store_now_ms(tx);
    bool later = cut(&s->last_activity_at, now);

    later |= cut(&s->expires_at, now + s->idle_ttl_s * 1000);
    later |= cut(&s->max_expires_at, now + c->max_ttl_seconds * 1000);
    return later ? store_sandbox_update(tx, s, e) : 0;
}

/* It vouches for no token that says to be issued behind now. */
static int cut_key(struct store_tx *tx, struct signing_key *k, struct err *e)
{
    bool later = k->state == SIGNING_KEY_RETIRED && cut(&k->retired_at, store_now_ms(tx));

    return later ? store_signing_key_update(tx, k, e) : 0;
}

static int audit(struct store_tx *tx, const struct reset *r, struct err *e)
{
    char from[TIME_TEXT], to[TIME_TEXT], detail[STORE_AUDIT_DETAIL];

    snprintf(detail, sizeof detail, "from=%s to=%s leases=%lld reason=%.128s",
             time_format(r->found->mark_ms, from), time_format(store_now_ms(tx), to),
             (long long)r->found->leases, r->asked->reason);
    return store_audit_deed(tx,
                            &(struct audit_deed){.actor = "operator",
                                                 .action = "clock.reset",
                                                 .kind = "clock",
                                                 .name = "mark",
                                                 .detail = detail},
                            e);
}

static int lower(struct store_tx *tx, void *arg, struct err *e)
{
    struct reset *r = arg;
    struct store_lease_counts open;

    store_lease_count(tx, &(struct id){{0}}, &(struct id){{0}}, &open);
    if (open.all)
        return err_set(e, ERR_INTERNAL, "%lld leases are open in sessions that have ended",
                       (long long)open.all);
    for (size_t i = 0; i < r->n; i++)
        if (cut_session(tx, r, &r->sessions[i], e))
            return -1;
    for (size_t i = 0; i < r->keys_n; i++)
        if (cut_key(tx, &r->keys[i], e))
            return -1;
    /* The mark last: as it is in memory it is not taken back with a write that fails. */
    return store_idempotency_cut(tx, store_now_ms(tx), e) || audit(tx, r, e) ||
                   store_clock_lower(tx, r->found->mark_ms, e)
               ? -1
               : 0;
}

static int end_all(struct store *store, struct reset *r, struct err *e)
{
    for (r->at = 0; r->at < r->n; r->at++)
        if (store_write_end(store, end_leases, r, e))
            return -1;
    return 0;
}

static int check_mark(const struct reset *r, struct err *e)
{
    const struct clock_reset_found *f = r->found;
    char mark[TIME_TEXT];

    time_format(f->mark_ms, mark);
    if (strcmp(r->asked->mark, mark) != 0)
        return err_set(e, ERR_CONFLICT, "the mark stands at %s: name it exactly", mark);
    if (f->mark_ms <= f->now_ms)
        return err_set(e, ERR_CONFLICT, "the clock is not behind the mark: nothing to do");
    return 0;
}

int clock_reset_of(struct store *store, const struct config *cfg, const struct clock_reset *asked,
                   struct clock_reset_found *ret, struct err *e)
{
    struct reset r = {.asked = asked, .cfg = cfg, .found = ret};
    int rc;

    *ret = (struct clock_reset_found){0};
    rc = store_read(store, look, &r, e);
    if (!rc && asked->mark)
        rc = check_mark(&r, e) || end_all(store, &r, e) || store_write_end(store, lower, &r, e) ? -1
                                                                                                : 0;
    free(r.sessions);
    free(r.keys);
    return rc;
}
