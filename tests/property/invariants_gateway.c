/* The invariants that are asked of rules, store and broker: 4-6, 8, 12, 13, 15, 19-22. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "../../lease/broker_state.h"
#include "../../storage/tx.h"
#include "invariants.h"

#define RETRIED_US   (15 * SEC) /* the broker asks the store again; a few times this is enough */
#define TERM_OVER_US (7 * SEC)  /* … and once here, where no disk was full */
#define FILE_MOST    (64 << 20)

/* --- commits ----------------------------------------------------------------------------------- */

void invariant_04_terminal_absorbs(struct sim *s, int lease, const char *what)
{
    bool granted = !strcmp(what, "granted");

    if (granted && lease >= 0)
        sim_fail(s, "invariant_04", "%s is granted again", SHORT(&s->leases[lease].l.lease_id));
    if (!granted && (lease < 0 || !facts_open(&s->leases[lease])))
        sim_fail(s, "invariant_04", "a lease is %s that is not open", what);
}

void invariant_06_seq_has_no_gap(struct sim *s, int session, int64_t seq)
{
    if (seq != s->sessions[session].n + 1)
        sim_fail(s, "invariant_06", "entry %lld of a log follows %lld", (long long)seq,
                 (long long)s->sessions[session].n);
}

void invariant_08_life_is_bounded(struct sim *s, const struct op *op, const struct lease_fact *f,
                                  const struct lease *before)
{
    const struct lease *l = &f->l;

    if (l->expires_at <= 0 || l->max_expires_at <= 0 || l->expires_at > l->max_expires_at)
        sim_fail(s, "invariant_08", "%s: exp %lld, mex %lld", SHORT(&l->lease_id),
                 (long long)l->expires_at, (long long)l->max_expires_at);
    if (before && l->max_expires_at != before->max_expires_at)
        sim_fail(s, "invariant_08", "%s: its mex changed", SHORT(&l->lease_id));
    if (!before && l->max_expires_at > l->issued_at + s->policy.max_s * 1000)
        sim_fail(s, "invariant_08", "%s: its mex is too far", SHORT(&l->lease_id));
    if (l->expires_at > op->wall_ms + (s->policy.ttl_max_s + 2) * 1000)
        sim_fail(s, "invariant_08", "%s: its exp is too far", SHORT(&l->lease_id));
}

static bool matches(const struct store_match *m, const struct lease *l)
{
    switch (m->by) {
    case MATCH_ALL:
        return true;
    case MATCH_SESSION:
        return id_equal(&m->id, &l->session_id);
    case MATCH_CHAT:
        return id_equal(&m->id, &l->chat_id);
    case MATCH_USER:
        return id_equal(&m->id, &l->user_id);
    case MATCH_API_KEY:
        return id_equal(&m->id, &l->api_key_id);
    case MATCH_KID:
        return !strcmp(m->kid, l->kid) || !strcmp(m->kid, l->renewed_kid);
    }
    return false;
}

/* By the rows of its key as they are in that very write, not as the request was admitted with. */
static bool seen_by(const struct sim *s, const struct op *op, const struct id *user_id)
{
    const struct api *a = &s->apis[op->api];

    for (size_t i = 0; i < a->row.allowed_users.n; i++)
        if (id_equal(&a->users[i], user_id))
            return true;
    return !op->caller.limited;
}

void invariants_before_commit(struct sim *s, const struct op *op, struct bulk_check *ret)
{
    *ret = (struct bulk_check){.leases_n = s->leases_n};
    if (op->kind != OP_REVOKE_BY && op->kind != OP_KILL)
        return;
    for (int i = 0; i < s->leases_n; i++) {
        const struct lease_fact *f = &s->leases[i];

        ret->matches[i] =
            facts_open(f) && matches(&op->match, &f->l) && seen_by(s, op, &f->l.user_id);
        ret->n += ret->matches[i];
    }
}

void invariant_12_bulk_ends_what_was_there(struct sim *s, const struct op *op,
                                           const struct bulk_check *check)
{
    size_t ended = 0;

    for (size_t i = 0; i < op->changes_n; i++)
        if (op->changes[i].kind == CHANGE_REVOKE)
            ended += check->matches[facts_lease(s, &op->changes[i].lease.lease_id)];
    for (int i = 0; i < check->leases_n; i++)
        if (check->matches[i] && facts_open(&s->leases[i]))
            sim_fail(s, "invariant_12", "%s matched and goes on", SHORT(&s->leases[i].l.lease_id));
    if (op->matched != check->n)
        sim_fail(s, "invariant_12", "%zu leases match, %zu were found", check->n, op->matched);
    for (size_t i = 0; i < op->changes_n; i++)
        if (op->changes[i].kind == CHANGE_REVOKE && ended != check->n)
            sim_fail(s, "invariant_12", "%zu were ended instead of %zu", ended, check->n);
}

/* As gateway/ops_key.c reads it: what the key may not issue any more is not open any more. */
void invariant_13_no_lease_beyond_rights(struct sim *s)
{
    for (int i = 0; i < s->leases_n; i++) {
        const struct lease_fact *f = &s->leases[i];
        const struct api_key *k = f->api < 0 ? NULL : &s->apis[f->api].row;

        if (!facts_open(f) || !k)
            continue;
        if (!facts_may(s, f->api, &f->l.user_id) ||
            (k->expires_at && f->l.max_expires_at > k->expires_at))
            sim_fail(s, "invariant_13", "%s is open and beyond the rights of its key",
                     SHORT(&f->l.lease_id));
        if (f->l.scope & ~(unsigned)(SCOPE_READ | SCOPE_WRITE))
            sim_fail(s, "invariant_13", "%s has the scope %u", SHORT(&f->l.lease_id), f->l.scope);
    }
}

/* Behind the highest time that is durable, but for the skew, and the second that a start may not know. */
void invariant_08_nothing_is_issued_behind(struct sim *s, const struct op *op)
{
    for (size_t i = 0; i < op->changes_n; i++)
        if ((op->changes[i].kind == CHANGE_GRANT || op->changes[i].kind == CHANGE_EXTEND) &&
            op->wall_ms + s->policy.skew_s * 1000 + 1000 < s->high_ms)
            sim_fail(s, "invariant_08", "%s is issued %lld ms behind what the clock has shown",
                     SHORT(&op->changes[i].lease.lease_id), (long long)(s->high_ms - op->wall_ms));
}

/* Who has less than a second left may be closed by the time it is told. */
void invariant_08_no_end_is_put_off_at_the_end(struct sim *s, const struct op *op,
                                               const struct lease *before)
{
    if (before->expires_at < op->wall_ms + 1000)
        sim_fail(s, "invariant_08", "%s is renewed %lld ms before its end",
                 SHORT(&before->lease_id), (long long)(before->expires_at - op->wall_ms));
}

/* By the rows of its key as of that write. */
void invariant_15_no_authority_no_term(struct sim *s, const struct op *op)
{
    if ((op->kind == OP_GRANT || op->kind == OP_RENEW) &&
        !facts_may(s, op->api, &op->lease.user_id))
        sim_fail(s, "invariant_15", "%s of %s by a key that may not", op_name(op->kind),
                 SHORT(&op->lease.lease_id));
}

/* By what is open in the facts, not by the counts that the rule goes by. */
void invariant_19_quotas_hold(struct sim *s, const struct op *op)
{
    int64_t all = 0, of_user = 0, of_session = 0;

    if (op->kind != OP_GRANT)
        return;
    for (int i = 0; i < s->leases_n; i++) {
        const struct lease_fact *f = &s->leases[i];

        all += facts_open(f);
        of_user += facts_open(f) && id_equal(&f->l.user_id, &op->lease.user_id);
        of_session += facts_open(f) && id_equal(&f->l.session_id, &op->lease.session_id);
    }
    if (all > s->policy.global_max || of_user > s->policy.per_user ||
        of_session > s->policy.per_session)
        sim_fail(s, "invariant_19", "%lld leases, %lld of a user, %lld of a session are open",
                 (long long)all, (long long)of_user, (long long)of_session);
}

void invariants_after_commit(struct sim *s, const struct op *op, const struct bulk_check *check)
{
    if (op->kind == OP_REVOKE_BY || op->kind == OP_KILL)
        invariant_12_bulk_ends_what_was_there(s, op, check);
    invariant_13_no_lease_beyond_rights(s);
    invariant_15_no_authority_no_term(s, op);
    invariant_19_quotas_hold(s, op);
    invariant_08_nothing_is_issued_behind(s, op);
}

static size_t open_leases(const struct sim *s)
{
    size_t n = 0;

    for (int i = 0; i < s->leases_n; i++)
        n += facts_open(&s->leases[i]);
    return n;
}

/* The counts by which quotas go, where a group begins. */
void invariants_in_write(struct sim *s, const struct store_tx *tx)
{
    struct store_lease_counts counts;
    const struct id none = {{0}};

    if (s->gw.group)
        return;
    store_lease_count(tx, &none, &none, &counts);
    if (counts.all != (int64_t)open_leases(s))
        sim_fail(s, "invariant_19", "the store counts %lld open leases, there are %zu",
                 (long long)counts.all, open_leases(s));
}

/* --- a clock that is reset --------------------------------------------------------------------- */

/* One would live until a time that is not to come for long. */
void invariant_20_reset_leaves_no_lease_open(struct sim *s)
{
    for (int i = 0; i < s->leases_n; i++)
        if (facts_open(&s->leases[i]))
            sim_fail(s, "invariant_20", "the mark is lowered, and %s of the time before is open",
                     SHORT(&s->leases[i].l.lease_id));
}

void invariant_20_reset_leaves_no_session_ahead(struct sim *s, const struct op *op,
                                                const struct sandbox *row)
{
    if (row->last_activity_at > op->wall_ms ||
        row->expires_at > op->wall_ms + row->idle_ttl_s * 1000 ||
        row->max_expires_at > op->wall_ms + SIM_SESSION_MAX_S * 1000)
        sim_fail(s, "invariant_20", "the mark is lowered, and session %s has until a time before",
                 SHORT(&row->session_id));
}

/* It would vouch for what it signs until then. */
void invariant_17_reset_leaves_no_key_ahead(struct sim *s, const struct op *op,
                                            const struct signing_key *k)
{
    const struct signing_key *was = &s->signers[facts_signer(s, k->kid)].row;

    if (k->state != was->state)
        sim_fail(s, "invariant_17", "a reset of the clock makes a key %d that was %d", k->state,
                 was->state);
    if (k->state == SIGNING_KEY_RETIRED &&
        (k->retired_at > op->wall_ms || k->retired_at > was->retired_at))
        sim_fail(s, "invariant_17", "the mark is lowered to %lld, and a key retired at %lld",
                 (long long)op->wall_ms, (long long)k->retired_at);
}

/* --- answers ----------------------------------------------------------------------------------- */

void invariant_05_durable_before_visible(struct sim *s, const struct op *op)
{
    if (!op->job.rc && !op->committed)
        sim_fail(s, "invariant_05", "%s is answered before its commit", op_name(op->kind));
    if (!op->job.rc && op->kind == OP_GRANT && facts_lease(s, &op->lease.lease_id) < 0)
        sim_fail(s, "invariant_05", "a grant is answered that was not committed");
}

void invariant_15_no_authority_no_knowledge(struct sim *s, const struct op *op)
{
    int lease = facts_lease(s, &op->lease_id);
    bool sees = lease >= 0 && caller_may_see(&op->caller, &s->leases[lease].l.user_id);

    if (op->kind != OP_RENEW && op->kind != OP_LOOK && op->kind != OP_REVOKE)
        return;
    if (sees || op->api < 0)
        return;
    if (!op->job.rc)
        sim_fail(s, "invariant_15", "%s of a lease that its caller may not see", op_name(op->kind));
    else if (op->job.e.code != ERR_NOT_FOUND || strcmp(op->job.e.msg, "no such lease") != 0)
        sim_fail(s, "invariant_15", "%s tells of a lease: %s", op_name(op->kind), op->job.e.msg);
}

void invariant_15_introspection_is_true(struct sim *s, int lease, bool told, bool is)
{
    if (told != is)
        sim_fail(s, "invariant_15", "introspection calls a token of %s %s",
                 SHORT(&s->leases[lease].l.lease_id), told ? "active" : "inactive");
}

void invariants_answered(struct sim *s, const struct op *op)
{
    invariant_05_durable_before_visible(s, op);
    invariant_15_no_authority_no_knowledge(s, op);
}

/* Of a lease that the broker calls active its door has confirmed the grant. */
void invariant_05_active_is_what_the_door_has(struct sim *s, int session)
{
    const struct sim_door *d = &s->sessions[session].door;

    for (int i = 0; i < s->leases_n; i++) {
        const struct lease_fact *f = &s->leases[i];
        struct lease view = f->l;

        if (f->session != session || !facts_open(f))
            continue;
        broker_lease_view(s->gw.broker, &view);
        if (view.state == LEASE_ACTIVE && d->alive && door_core_applied(d->core) < f->first_seq)
            sim_fail(s, "invariant_05", "%s is active, its door is at %lld of %lld",
                     SHORT(&f->l.lease_id), (long long)door_core_applied(d->core),
                     (long long)f->first_seq);
    }
}

void invariants_heard(struct sim *s, int session)
{
    invariant_05_active_is_what_the_door_has(s, session);
}

/* --- rows -------------------------------------------------------------------------------------- */

struct row_check {
    struct sim *sim;
    size_t n;
};

static void row_compare(struct sim *s, const struct lease_fact *f, const struct lease *l)
{
    bool state = f->closed ? l->state == LEASE_CLOSED
                           : (f->end_seq ? l->state == f->l.state
                                         : l->state == LEASE_PENDING || l->state == LEASE_ACTIVE);

    if (!state)
        sim_fail(s, f->closed ? "invariant_04" : "invariant_05",
                 "the row of %s is %s, it was committed as %s", SHORT(&l->lease_id),
                 lease_state_names[l->state], lease_state_names[f->l.state]);
    if (l->expires_at != f->l.expires_at || l->max_expires_at != f->l.max_expires_at ||
        l->grant_seq != f->l.grant_seq || l->scope != f->l.scope || l->ep != f->l.ep)
        sim_fail(s, "invariant_05", "the row of %s differs from what was committed",
                 SHORT(&l->lease_id));
    if (f->consumed != (l->consumed_at != 0))
        sim_fail(s, "invariant_10", "the row of %s says consumed %d, committed was %d",
                 SHORT(&l->lease_id), l->consumed_at != 0, f->consumed);
}

static int row_each(void *ctx, const struct lease *l, struct err *e)
{
    struct row_check *r = ctx;

    (void)e;
    r->n++;
    if (facts_lease(r->sim, &l->lease_id) < 0)
        sim_fail(r->sim, "invariant_19", "a row of a lease that was never committed");
    return 0;
}

static int rows_look(struct store_tx *tx, void *arg, struct err *e)
{
    struct sim *s = arg;
    struct row_check r = {.sim = s};
    size_t expected = 0;

    for (int i = 0; i < s->leases_n; i++) {
        struct lease l;

        expected += !s->leases[i].closed;
        if (store_lease_get(tx, &s->leases[i].l.lease_id, &l, e)) {
            sim_fail(s, "invariant_05", "the row of %s is not there",
                     SHORT(&s->leases[i].l.lease_id));
            return 0;
        }
        row_compare(s, &s->leases[i], &l);
    }
    for (int i = 0; i < s->sessions_n; i++) {
        struct sandbox row;

        if (store_sandbox_get(tx, &s->sessions[i].row.session_id, &row, e))
            return -1;
        if (row.log_seq != s->sessions[i].n || row.status != s->sessions[i].row.status)
            sim_fail(s, "invariant_05", "the row of session %s: log at %lld instead of %lld, %s",
                     SHORT(&row.session_id), (long long)row.log_seq, (long long)s->sessions[i].n,
                     sandbox_status_names[row.status]);
    }
    if (store_lease_each_open(tx, row_each, &r, e))
        return -1;
    if (r.n != expected)
        sim_fail(s, "invariant_19", "%zu rows are not closed, %zu should be", r.n, expected);
    return 0;
}

void invariant_05_what_was_seen_is_there(struct sim *s)
{
    struct err e;

    if (store_read(s->gw.store, rows_look, s, &e) && !sim_disk_ended(s->disk))
        sim_fail(s, "invariant_05", "the rows cannot be read: %s", e.msg);
}

void invariant_19_rows_agree(struct sim *s)
{
    invariant_05_what_was_seen_is_there(s);
}

void invariants_started(struct sim *s)
{
    invariant_05_what_was_seen_is_there(s);
}

/* --- the broker -------------------------------------------------------------------------------- */

/* Which of them an ending lease is in changes with time alone, and is counted once a second. */
static size_t ending(const struct broker_counts *c)
{
    return c->state[LEASE_REVOKING] + c->state[LEASE_EXPIRING] + c->state[LEASE_UNCONFIRMED];
}

void invariant_19_counts_agree(struct sim *s)
{
    const struct broker *b = s->gw.broker;
    const struct lease_node *n, *next;
    struct broker_counts counts, recount;
    size_t nodes = 0;

    broker_counts(b, &counts);
    broker_recount(b, &recount);
    if (counts.leases != recount.leases || counts.connections != recount.connections ||
        counts.state[LEASE_PENDING] != recount.state[LEASE_PENDING] ||
        counts.state[LEASE_ACTIVE] != recount.state[LEASE_ACTIVE] ||
        ending(&counts) != ending(&recount))
        sim_fail(s, "invariant_19", "the broker's counters are not what it has");
    HASH_ITER (hh, b->leases, n, next) {
        nodes++;
        if (n->due.index >= b->due.n || b->due.nodes[n->due.index] != &n->due)
            sim_fail(s, "invariant_19", "%s has no place in the heap", SHORT(&n->l.lease_id));
    }
    if (nodes != b->due.n)
        sim_fail(s, "invariant_19", "%zu leases, %zu places in the heap", nodes, b->due.n);
}

void invariant_21_expiry_is_bounded(struct sim *s)
{
    if (s->tick_calls > 1 || s->tick_expired > BROKER_BATCH)
        sim_fail(s, "invariant_21", "one turn asked for %zu expiries", s->tick_expired);
}

void invariants_ticked(struct sim *s)
{
    invariant_21_expiry_is_bounded(s);
}

/* --- time -------------------------------------------------------------------------------------- */

static void lapse(struct sim *s)
{
    int64_t now_ms = sim_wall_ms(s);

    for (int i = 0; i < s->leases_n; i++) {
        struct lease_fact *f = &s->leases[i];

        if (now_ms < f->l.expires_at)
            f->lapsed_us = 0;
        else if (!f->lapsed_us)
            f->lapsed_us = s->boot_us;
    }
}

void invariant_20_every_lease_closes(struct sim *s)
{
    int64_t grace_ms = (s->policy.skew_s + s->policy.seal_s) * 1000, now_ms = sim_wall_ms(s);

    if (!s->gw.up || s->boot_us - s->gw.up_since_us < RETRIED_US ||
        s->boot_us - s->full_until_us < RETRIED_US || s->boot_us - s->stepped_us < RETRIED_US ||
        s->boot_us - s->slept_us < RETRIED_US)
        return;
    for (int i = 0; i < s->leases_n; i++) {
        const struct lease_fact *f = &s->leases[i];

        if (facts_open(f) && s->gw.up_since_us < f->term_us &&
            f->ends_us + TERM_OVER_US + s->policy.skew_s * SEC < s->boot_us)
            sim_fail(s, "invariant_20", "%s is open %lld us behind its term, by the boot clock",
                     SHORT(&f->l.lease_id), (long long)(s->boot_us - f->ends_us));
        if (!f->closed && f->l.max_expires_at + grace_ms + RETRIED_US / 1000 < now_ms)
            sim_fail(s, "invariant_20", "%s is %s long behind its mex", SHORT(&f->l.lease_id),
                     lease_state_names[f->l.state]);
    }
}

/* --- secrets ----------------------------------------------------------------------------------- */

static void search(struct sim *s, const char *name, int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = size > 0 && size < FILE_MOST ? malloc((size_t)size) : NULL;

    if (!text || pread(fd, text, (size_t)size, 0) != size) {
        free(text);
        return;
    }
    for (int i = 0; i < s->leases_n; i += s->leases_n / 4 + 1)
        for (int t = 0; t < s->leases[i].tokens_n; t++) {
            const char *sig = strrchr(s->leases[i].tokens[t], '.') + 1;

            if (memmem(text, (size_t)size, sig, strlen(sig)))
                sim_fail(s, "invariant_22", "a token stands in the %s", name);
        }
    for (int i = 0; i < s->sessions_n; i += s->sessions_n / 4 + 1)
        if (memmem(text, (size_t)size, s->sessions[i].secret, strlen(s->sessions[i].secret)))
            sim_fail(s, "invariant_22", "a door's secret stands in the %s", name);
    if (memmem(text, (size_t)size, "PRIVATE KEY", 11))
        sim_fail(s, "invariant_22", "a private key stands in the %s", name);
    free(text);
}

void invariant_22_no_secret_is_written(struct sim *s)
{
    static const char *const suffixes[] = {"", "-wal"};

    search(s, "log", s->log_fd);
    for (int i = 0; i < 2; i++) {
        char path[100];
        FILE *f;

        snprintf(path, sizeof path, "%s%s", s->path, suffixes[i]);
        f = fopen(path, "re");
        if (!f)
            continue;
        search(s, "database", fileno(f));
        fclose(f);
    }
}

/* --- moments ----------------------------------------------------------------------------------- */

void invariants_always(struct sim *s)
{
    const struct sim_door *d;

    if (s->failed)
        return;
    lapse(s);
    for (int at = 0; (d = door_next(s, &at));)
        invariants_of_door(s, d);
    if (s->gw.up)
        invariant_19_counts_agree(s);
    invariant_20_every_lease_closes(s);
}

void invariants_now_and_then(struct sim *s)
{
    if (s->gw.up)
        invariant_19_rows_agree(s);
}

/* What a door let in by a `once` lease is in its row, once the door has told of it; except where the
 * disk was full: then the door and the broker know. */
void invariant_10_use_is_durable(struct sim *s)
{
    for (int i = 0; i < s->leases_n && !s->seen[SEEN_FULL]; i++) {
        const struct lease_fact *f = &s->leases[i];
        const struct session_sim *x = &s->sessions[f->session];

        if (f->l.use == USE_ONCE && f->admitted && !f->consumed && facts_open(f) && !x->ended &&
            x->door.alive && !x->ending_asked)
            sim_fail(s, "invariant_10", "%s let in, and its row does not say so",
                     SHORT(&f->l.lease_id));
    }
}

void invariants_at_rest(struct sim *s)
{
    const struct sim_door *d;

    invariant_10_use_is_durable(s);

    if (!s->gw.up)
        sim_fail(s, "rest", "the gateway is not up");
    for (int at = 0; (d = door_next(s, &at));)
        if (!d->zombie && !s->sessions[d->session].ended && !s->sessions[d->session].ending_asked &&
            (door_core_state(d->core) != DOOR_LIVE ||
             door_core_applied(d->core) != s->sessions[d->session].n))
            sim_fail(s, "invariant_07", "a door that is reached is %s at %lld of %lld",
                     door_state_name(door_core_state(d->core)),
                     (long long)door_core_applied(d->core), (long long)s->sessions[d->session].n);
}

int invariants_open_leases(const struct sim *s)
{
    int n = 0;

    for (int i = 0; i < s->leases_n; i++)
        n += !s->leases[i].closed;
    return n;
}

void invariants_at_the_end(struct sim *s)
{
    if (invariants_open_leases(s))
        sim_fail(s, "invariant_20", "%d leases never closed", invariants_open_leases(s));
    if (!s->failed)
        invariant_19_rows_agree(s);
    invariant_22_no_secret_is_written(s);
}
