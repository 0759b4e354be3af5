/* What was committed, in commit order. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "invariants.h"
#include "sim.h"

/* --- looking ----------------------------------------------------------------------------------- */

int facts_lease(const struct sim *s, const struct id *lease_id)
{
    for (int i = s->leases_n - 1; i >= 0; i--)
        if (id_equal(&s->leases[i].l.lease_id, lease_id))
            return i;
    return -1;
}

int facts_session(const struct sim *s, const struct id *session_id)
{
    for (int i = s->sessions_n - 1; i >= 0; i--)
        if (id_equal(&s->sessions[i].row.session_id, session_id))
            return i;
    return -1;
}

int facts_signer(const struct sim *s, const char *kid)
{
    for (int i = 0; i < SIM_SIGNERS; i++)
        if (!strcmp(s->signers[i].row.kid, kid))
            return i;
    return -1;
}

static int facts_api(const struct sim *s, const struct id *key_id)
{
    for (int i = 0; i < SIM_APIS; i++)
        if (id_equal(&s->apis[i].row.key_id, key_id))
            return i;
    return -1;
}

bool facts_open(const struct lease_fact *f)
{
    return !f->end_seq && !f->closed;
}

bool facts_allowed(const struct sim *s, const struct lease_fact *f, int64_t seq, int64_t *ret_exp_s)
{
    const struct session_sim *x = &s->sessions[f->session];

    if (f->first_seq > seq || (f->end_seq && f->end_seq <= seq))
        return false;
    for (int64_t at = seq < x->n ? seq : x->n; at >= f->first_seq; at--) {
        const struct fact *log = &x->log[at % SIM_LOG];

        if ((log->kind == CHANGE_GRANT || log->kind == CHANGE_EXTEND) &&
            id_equal(&log->lease_id, &f->l.lease_id)) {
            *ret_exp_s = log->exp_ms / 1000;
            return true;
        }
    }
    return false;
}

static bool trusted_in(const struct fact *set, int signer, int64_t iat)
{
    return (set->trusted & 1U << signer) && (!set->retired[signer] || iat <= set->retired[signer]);
}

bool facts_trusts(const struct sim *s, int session, int64_t seq, const char *kid, int64_t iat)
{
    const struct session_sim *x = &s->sessions[session];
    int signer = facts_signer(s, kid);

    if (signer < 0)
        return false;
    for (int64_t at = seq < x->n ? seq : x->n; at > 0; at--)
        if (x->log[at % SIM_LOG].kind == CHANGE_KEYS)
            return trusted_in(&x->log[at % SIM_LOG], signer, iat);
    return trusted_in(&x->log[0], signer, iat);
}

bool facts_may(const struct sim *s, int api, const struct id *user_id)
{
    const struct api *a = &s->apis[api];

    if (a->row.revoked_at || a->row.role < ROLE_BOT)
        return false;
    if (!a->row.limited)
        return true;
    for (size_t i = 0; i < a->row.allowed_users.n; i++)
        if (id_equal(&a->users[i], user_id))
            return true;
    return false;
}

/* --- taking ------------------------------------------------------------------------------------ */

static void keys_note(const struct sim *s, struct fact *set)
{
    for (int i = 0; i < SIM_SIGNERS; i++) {
        const struct signer *k = &s->signers[i];

        if (!k->used || k->row.state == SIGNING_KEY_GONE || k->row.state == SIGNING_KEY_KILLED)
            continue;
        set->trusted |= 1U << i;
        set->retired[i] = k->row.state == SIGNING_KEY_RETIRED ? k->row.retired_at / 1000 : 0;
    }
}

static void session_begins(struct sim *s, const struct op *op, const struct change *c)
{
    struct session_sim *x = &s->sessions[s->sessions_n];

    if (s->sessions_n == SIM_SESSIONS)
        abort();
    *x = (struct session_sim){.row = c->sandbox,
                              .chat = op->chat,
                              .known = true,
                              .stop_at_us = NEVER,
                              .kill_at_us = NEVER};
    memcpy(x->secret, op->secret, sizeof x->secret);
    keys_note(s, &x->log[0]);
    s->sessions_n++;
}

static struct fact *log_entry(struct sim *s, int session, const struct change *c, int64_t at_us)
{
    struct session_sim *x = &s->sessions[session];
    struct fact *entry = &x->log[c->seq % SIM_LOG];

    invariant_06_seq_has_no_gap(s, session, c->seq);
    if (c->seq >= SIM_LOG)
        abort();
    *entry = (struct fact){.kind = c->kind, .code = c->code, .at_us = at_us};
    x->n = c->seq;
    return entry;
}

static void term_begins(const struct sim *s, const struct op *op, struct lease_fact *f)
{
    f->term_us = s->boot_us;
    f->ends_us = s->boot_us + (f->l.expires_at - op->wall_ms) * 1000;
}

static void granted(struct sim *s, const struct op *op, const struct change *c, int session,
                    int64_t at_us)
{
    struct lease_fact *f = &s->leases[s->leases_n];
    struct fact *entry = log_entry(s, session, c, at_us);

    if (s->leases_n == SIM_LEASES)
        abort();
    invariant_04_terminal_absorbs(s, facts_lease(s, &c->lease.lease_id), "granted");
    *f = (struct lease_fact){.l = c->lease,
                             .session = session,
                             .api = facts_api(s, &c->lease.api_key_id),
                             .first_seq = c->seq};
    term_begins(s, op, f);
    s->leases_n++;
    entry->lease_id = c->lease.lease_id;
    entry->exp_ms = c->lease.expires_at;
    invariant_08_life_is_bounded(s, op, f, NULL);
}

static void extended(struct sim *s, const struct op *op, const struct change *c, int session,
                     int64_t at_us)
{
    int at = facts_lease(s, &c->lease.lease_id);
    struct fact *entry = log_entry(s, session, c, at_us);
    struct lease before;

    invariant_04_terminal_absorbs(s, at, "renewed");
    if (at < 0)
        return;
    before = s->leases[at].l;
    invariant_08_no_end_is_put_off_at_the_end(s, op, &before);
    s->leases[at].l = c->lease;
    term_begins(s, op, &s->leases[at]);
    s->leases[at].shortened |= c->lease.expires_at < before.expires_at;
    entry->lease_id = c->lease.lease_id;
    entry->exp_ms = c->lease.expires_at;
    invariant_08_life_is_bounded(s, op, &s->leases[at], &before);
}

static void ends(struct lease_fact *f, int64_t seq, int64_t at_us, enum lease_state state)
{
    f->end_seq = seq;
    f->end_us = at_us;
    f->l.state = state;
}

static void revoked(struct sim *s, const struct change *c, int session, int64_t at_us)
{
    int at = facts_lease(s, &c->lease.lease_id);
    struct fact *entry = log_entry(s, session, c, at_us);

    invariant_04_terminal_absorbs(s, at, "revoked");
    entry->lease_id = c->lease.lease_id;
    if (at >= 0)
        ends(&s->leases[at], c->seq, at_us, c->lease.state);
}

static void all_revoked(struct sim *s, const struct change *c, int session, int64_t at_us)
{
    (void)log_entry(s, session, c, at_us);
    for (int i = 0; i < s->leases_n; i++)
        if (s->leases[i].session == session && facts_open(&s->leases[i]))
            ends(&s->leases[i], c->seq, at_us, LEASE_REVOKING);
}

static void closed(struct sim *s, const struct id *lease_id, int64_t at_us)
{
    int at = facts_lease(s, lease_id);

    if (at < 0 || s->leases[at].closed) {
        sim_fail(s, "invariant_04", "a lease is closed that is not there, or again");
        return;
    }
    s->leases[at].closed = true;
    s->leases[at].closed_us = at_us;
    s->leases[at].l.state = LEASE_CLOSED;
}

static void expired(struct sim *s, const struct change *c, int session, int64_t at_us)
{
    const struct change_expired *x = &c->expired;

    (void)log_entry(s, session, c, at_us);
    for (size_t i = 0; i < x->n; i++) {
        int at = facts_lease(s, &x->ids[i]);

        invariant_04_terminal_absorbs(s, at, "expired");
        if (at < 0)
            continue;
        ends(&s->leases[at], c->seq, at_us, LEASE_EXPIRING);
        if (!(x->closed & 1U << i))
            continue;
        invariant_20_closed_at_once_was_unused(s, &s->leases[at]);
        closed(s, &x->ids[i], at_us);
        s->seen[SEEN_CLOSED_AT_ONCE]++;
    }
}

static void take(struct sim *s, struct op *op, const struct change *c, int64_t at_us)
{
    bool of_lease = c->kind == CHANGE_GRANT || c->kind == CHANGE_EXTEND ||
                    c->kind == CHANGE_REVOKE || c->kind == CHANGE_LEASE_CLOSED;
    int session = facts_session(s, c->kind == CHANGE_EXPIRE ? &c->expired.session_id
                                   : of_lease               ? &c->lease.session_id
                                                            : &c->sandbox.session_id);

    if (c->kind == CHANGE_SESSION_STARTING) {
        session_begins(s, op, c);
        return;
    }
    if (session < 0)
        return; /* CHANGE_KEYS for the gateway itself */
    if (c->kind == CHANGE_SESSION_RUNNING || c->kind == CHANGE_SESSION_STOPPING)
        s->sessions[session].row.status = c->sandbox.status;
    if (c->kind == CHANGE_SESSION_ENDED) {
        s->sessions[session].row.status = c->sandbox.status;
        s->sessions[session].ended = true;
    }
    if (c->kind == CHANGE_GRANT)
        granted(s, op, c, session, at_us);
    if (c->kind == CHANGE_EXTEND)
        extended(s, op, c, session, at_us);
    if (c->kind == CHANGE_REVOKE)
        revoked(s, c, session, at_us);
    if (c->kind == CHANGE_REVOKE_ALL)
        all_revoked(s, c, session, at_us);
    if (c->kind == CHANGE_LEASE_CLOSED)
        closed(s, &c->lease.lease_id, at_us);
    if (c->kind == CHANGE_EXPIRE)
        expired(s, c, session, at_us);
    if (c->kind == CHANGE_KEYS)
        keys_note(s, log_entry(s, session, c, at_us));
}

/* What a write changed beside what it told of. */
static void take_rows(struct sim *s, const struct op *op)
{
    for (size_t i = 0; i < op->made_n; i++) {
        struct signer *k = &s->signers[facts_signer(s, op->made[i].kid)];

        k->row = op->made[i];
        k->used = true;
    }
    for (size_t i = 0; op->kind == OP_CONSUME && i < op->ids_n; i++) {
        int at = facts_lease(s, &op->ids[i]);

        if (at >= 0)
            s->leases[at].consumed = true;
    }
    if (op->kind == OP_KEY_UPDATE) {
        struct api *a = &s->apis[facts_api(s, &op->api_row.key_id)];

        a->row = op->api_row;
        memcpy(a->users, op->api_users, sizeof a->users);
        a->row.allowed_users.items = a->users;
        s->seen[SEEN_NARROWED]++;
    }
    if (op->kind == OP_ROTATE)
        s->seen[SEEN_ROTATED]++;
    if (op->kind == OP_KILL)
        s->seen[SEEN_KILLED_KEY]++;
    if (op->kind == OP_REVOKE_BY && op->matched > 1)
        s->seen[SEEN_BULK]++;
}

static void keys_cut(struct sim *s, struct fact *set)
{
    for (int i = 0; i < SIM_SIGNERS; i++)
        if (set->retired[i] > s->signers[i].row.retired_at / 1000)
            set->retired[i] = s->signers[i].row.retired_at / 1000;
}

/* From here on nothing of the time before is to come back; doors hear of it with their next snapshot. */
static void mark_lowered(struct sim *s, const struct op *op)
{
    invariant_20_reset_leaves_no_lease_open(s);
    s->high_ms = op->wall_ms;
    for (int i = 0; i < s->leases_n; i++)
        s->leases[i].of_other_time = true;
    for (int i = 0; i < s->sessions_n; i++)
        for (int64_t seq = 0; seq <= s->sessions[i].n; seq++)
            keys_cut(s, &s->sessions[i].log[seq]);
    s->reset_conns = s->conns;
}

void facts_commit(struct sim *s, struct op *op, int64_t at_us)
{
    struct bulk_check check;

    sim_trace(s, "%s committed, %zu changes", op_name(op->kind), op->changes_n);
    invariants_before_commit(s, op, &check);
    take_rows(s, op);
    for (size_t i = 0; i < op->changes_n && !s->failed; i++)
        take(s, op, &op->changes[i], at_us);
    op->committed = true;
    s->high_ms = op->wall_ms > s->high_ms ? op->wall_ms : s->high_ms;
    if (op->lowered)
        mark_lowered(s, op);
    if (!s->failed)
        invariants_after_commit(s, op, &check);
}

/* --- a commit that was broken off -------------------------------------------------------------- */

static bool was_committed(struct sim *s, int64_t audit_n)
{
    const struct op *op, *last = s->gw.group->prev;

    if (audit_n == last->audit_n)
        return true;
    if (audit_n == s->gw.audit_n)
        return false;
    sim_fail(s, "invariant_05",
             "%lld audit entries: neither before (%lld) nor behind (%lld) a group",
             (long long)audit_n, (long long)s->gw.audit_n, (long long)last->audit_n);
    DL_FOREACH (s->gw.group, op)
        sim_trace(s, "of the group: %s", op_name(op->kind));
    return false;
}

void facts_learn(struct sim *s, int64_t audit_n)
{
    struct op *op, *next;
    bool kept;

    if (!s->gw.group) {
        if (audit_n >= 0 && s->gw.audit_n && audit_n != s->gw.audit_n)
            sim_fail(s, "invariant_05", "%lld audit entries instead of %lld", (long long)audit_n,
                     (long long)s->gw.audit_n);
        return;
    }
    kept = audit_n >= 0 && was_committed(s, audit_n);
    if (audit_n >= 0)
        s->seen[kept ? SEEN_KEPT_COMMIT : SEEN_LOST_COMMIT]++;
    DL_FOREACH_SAFE (s->gw.group, op, next) {
        if (kept)
            facts_commit(s, op, s->boot_us);
        op_free(op);
    }
    s->gw.group = NULL;
}
