/* The gateway's writes: the rules of production inside them, the rest as gateway/ does it. */
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "../../storage/tx.h"
#include "invariants.h"
#include "leasehold/arena.h"
#include "sim.h"

#define TOO_LATE "the lease has less than a second left"

#define STORED_S 1 /* as in gateway/signing_keys.c */

static const char *const names[OP_KINDS] = {
    "session.begin", "session.run",  "session.stop", "session.end",   "grant",      "renew",
    "look",          "revoke",       "revoke_by",    "key.update",    "key.rotate", "key.kill",
    "key.gone",      "lease.expire", "lease.close",  "lease.consume", "reset",
};

const char *op_name(enum op_kind kind)
{
    return names[kind];
}

struct op *op_new(struct sim *s, enum op_kind kind, int api)
{
    struct op *op = calloc(1, sizeof *op);

    if (!op)
        abort();
    op->sim = s;
    op->kind = kind;
    op->api = api;
    op->session = op->signer = op->chat = -1;
    if (api >= 0) {
        const struct api *a = &s->apis[api];

        memcpy(op->users, a->cached_users, sizeof op->users);
        op->caller = (struct caller){.key_id = a->cached.key_id,
                                     .role = a->cached.role,
                                     .limited = a->cached.limited,
                                     .users = op->users,
                                     .users_n = a->cached.allowed_users.n,
                                     .expires_at = a->cached.expires_at,
                                     .address = "",
                                     .request_id = ""};
    }
    return op;
}

void op_free(struct op *op)
{
    free(op->ids);
    free(op->due);
    free(op->token);
    free(op->changes);
    free(op);
}

static const struct caller *caller_of(const struct op *op)
{
    return op->api < 0 ? NULL : &op->caller;
}

/* --- sessions ---------------------------------------------------------------------------------- */

static int run_session_begin(struct op *op, struct store_tx *tx, struct err *e)
{
    struct sim *s = op->sim;
    struct sandbox *row = &op->sandbox;
    const struct chat *chat = &s->chats[op->chat];

    SHA256((const uint8_t *)op->secret, strlen(op->secret), row->door_secret_hash);
    row->chat_id = chat->chat_id;
    row->user_id = chat->user_id;
    row->workspace_id = chat->workspace_id;
    row->status = SANDBOX_STARTING;
    row->created_at = store_now_ms(tx);
    row->max_expires_at = row->created_at + SIM_SESSION_MAX_S * 1000;
    row->last_activity_at = row->created_at;
    row->idle_ttl_s = SIM_SESSION_IDLE_S;
    row->expires_at = row->created_at + row->idle_ttl_s * 1000;
    if (store_chat_bump_generation(tx, &row->chat_id, &row->generation, e) ||
        store_sandbox_insert(tx, row, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_STARTING, .sandbox = *row});
    return 0;
}

static int session_row(struct op *op, struct store_tx *tx, struct err *e)
{
    return store_sandbox_get(tx, &op->sim->sessions[op->session].row.session_id, &op->sandbox, e);
}

static bool is_over(const struct sandbox *row)
{
    return row->status == SANDBOX_STOPPED || row->status == SANDBOX_FAILED;
}

static int run_session_run(struct op *op, struct store_tx *tx, struct err *e)
{
    if (session_row(op, tx, e))
        return -1;
    if (op->sandbox.status != SANDBOX_STARTING)
        return err_set(e, ERR_CONFLICT, "it is not starting");
    op->sandbox.status = SANDBOX_RUNNING;
    if (store_sandbox_update(tx, &op->sandbox, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_RUNNING, .sandbox = op->sandbox});
    return 0;
}

static int run_session_stop(struct op *op, struct store_tx *tx, struct err *e)
{
    const struct lease_ending how = {.code = CLOSE_REVOKED, .reason = "stopped"};

    if (session_row(op, tx, e))
        return -1;
    if (is_over(&op->sandbox))
        return 0;
    op->sandbox.status = SANDBOX_STOPPING;
    if (store_sandbox_update(tx, &op->sandbox, e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_STOPPING, .sandbox = op->sandbox});
    return lease_end_session(tx, &op->sandbox, &how, &op->matched, e);
}

static int run_session_end(struct op *op, struct store_tx *tx, struct err *e)
{
    if (session_row(op, tx, e))
        return -1;
    if (is_over(&op->sandbox))
        return 0;
    op->sandbox.status = SANDBOX_STOPPED;
    if (store_sandbox_update(tx, &op->sandbox, e) ||
        lease_close_session(tx, &op->sandbox.session_id, "stopped", e))
        return -1;
    store_emit(tx, &(struct change){.kind = CHANGE_SESSION_ENDED, .sandbox = op->sandbox});
    return 0;
}

/* --- leases ------------------------------------------------------------------------------------ */

static int mint(struct op *op, struct store_tx *tx, struct err *e)
{
    struct sim *s = op->sim;
    struct buf b;
    int rc;

    buf_init(&b, TOKEN_MAX);
    rc = lease_mint(&s->policy, s->gw.keys, &op->lease, store_now_ms(tx), &b, e);
    if (!rc)
        op->token = strndup(b.data, b.len);
    buf_done(&b);
    return rc;
}

static int run_grant(struct op *op, struct store_tx *tx, struct err *e)
{
    struct sim *s = op->sim;

    return session_row(op, tx, e) ||
                   lease_issue(tx, &s->policy, keyset_signing_kid(s->gw.keys), &op->caller,
                               &op->sandbox, &op->request, &op->lease, e) ||
                   mint(op, tx, e)
               ? -1
               : 0;
}

static int run_renew(struct op *op, struct store_tx *tx, struct err *e)
{
    struct sim *s = op->sim;

    return lease_renew(tx, &s->policy, keyset_signing_kid(s->gw.keys), &op->caller, &op->lease_id,
                       op->request.ttl_s, &op->lease, e) ||
                   mint(op, tx, e)
               ? -1
               : 0;
}

static int run_look(struct op *op, struct store_tx *tx, struct err *e)
{
    return lease_visible(tx, &op->caller, &op->lease_id, &op->lease, e);
}

static int run_revoke(struct op *op, struct store_tx *tx, struct err *e)
{
    const struct lease_ending how = {
        .code = CLOSE_REVOKED, .reason = "revoked", .caller = caller_of(op)};
    bool was_open;

    return lease_visible(tx, &op->caller, &op->lease_id, &op->lease, e) ||
                   lease_end_one(tx, &op->lease, &how, &was_open, e)
               ? -1
               : 0;
}

/* --- many leases ------------------------------------------------------------------------------- */

struct found {
    struct id *ids, *sessions;
    size_t n, size;
    const struct op *op;
};

static int found_add(void *ctx, const struct lease *l, struct err *e)
{
    struct found *f = ctx;

    (void)e;
    if (f->n == f->size) {
        f->size = f->size ? 2 * f->size : 64;
        f->ids = reallocarray(f->ids, f->size, sizeof *f->ids);
        f->sessions = reallocarray(f->sessions, f->size, sizeof *f->sessions);
        if (!f->ids || !f->sessions)
            abort();
    }
    f->ids[f->n] = l->lease_id;
    f->sessions[f->n++] = l->session_id;
    return 0;
}

static int end_found(struct found *f, struct store_tx *tx, const struct lease_ending *how,
                     struct err *e)
{
    for (size_t i = 0; i < f->n; i++) {
        struct lease l;
        bool was_open;

        if (store_lease_get(tx, &f->ids[i], &l, e) || lease_end_one(tx, &l, how, &was_open, e))
            return -1;
    }
    return 0;
}

/* All of each session by one entry, as gateway/bulk_revoke.c does it for whole sessions. */
static int end_found_sessions(struct found *f, struct store_tx *tx, const struct lease_ending *how,
                              struct err *e)
{
    for (size_t i = 0; i < f->n; i++) {
        struct sandbox row;
        size_t n;

        if (i && id_equal(&f->sessions[i], &f->sessions[i - 1]))
            continue;
        if (store_sandbox_get(tx, &f->sessions[i], &row, e) ||
            lease_end_session(tx, &row, how, &n, e))
            return -1;
    }
    return 0;
}

static int end_matching(struct op *op, struct store_tx *tx, const struct store_match *m,
                        const char *reason, struct err *e)
{
    const struct lease_ending how = {
        .code = CLOSE_REVOKED, .reason = reason, .caller = caller_of(op)};
    struct found f = {.op = op};
    bool whole = m->by != MATCH_API_KEY && m->by != MATCH_KID;
    int rc = store_lease_each_match(tx, m, &op->caller, found_add, &f, e);

    op->matched = f.n;
    if (!rc)
        rc = whole ? end_found_sessions(&f, tx, &how, e) : end_found(&f, tx, &how, e);
    free(f.ids);
    free(f.sessions);
    return rc;
}

static int run_revoke_by(struct op *op, struct store_tx *tx, struct err *e)
{
    return end_matching(op, tx, &op->match, "revoked", e);
}

/* --- API keys ---------------------------------------------------------------------------------- */

static bool among(const struct list *users, const struct id *user_id)
{
    const struct id *ids = users->items;

    for (size_t i = 0; i < users->n; i++)
        if (id_equal(&ids[i], user_id))
            return true;
    return false;
}

/* As gateway/ops_key.c: what the key may not have issued any more. */
static int narrow_add(void *ctx, const struct lease *l, struct err *e)
{
    struct found *f = ctx;
    const struct api_key *k = &f->op->api_row;

    if (!k->revoked_at && k->role >= ROLE_BOT &&
        (!k->limited || among(&k->allowed_users, &l->user_id)) &&
        (!k->expires_at || l->max_expires_at <= k->expires_at))
        return 0;
    return found_add(ctx, l, e);
}

static int run_key_update(struct op *op, struct store_tx *tx, struct err *e)
{
    struct api_key *k = &op->api_row;
    const struct store_match m = {.by = MATCH_API_KEY, .id = k->key_id};
    const struct lease_ending how = {.code = CLOSE_REVOKED, .reason = "rights_changed"};
    struct found f = {.op = op};
    int rc;

    k->allowed_users.items = op->api_users;
    if (k->revoked_at)
        k->revoked_at = store_now_ms(tx);
    rc = store_api_key_update(tx, k, e) ||
                 store_lease_each_match(tx, &m, &(struct caller){0}, narrow_add, &f, e) ||
                 end_found(&f, tx, &how, e)
             ? -1
             : 0;
    op->matched = f.n;
    free(f.ids);
    free(f.sessions);
    return rc;
}

/* --- signing keys ------------------------------------------------------------------------------ */

static int set_add(const struct sim *s, struct keyset *ks, const struct signing_key *k,
                   struct err *e)
{
    const struct signer *signer = &s->signers[facts_signer(s, k->kid)];
    struct key_public pub = signer->pub;

    if (k->state == SIGNING_KEY_NEXT || k->state == SIGNING_KEY_SIGNING)
        return keyset_add_signing_file(ks, signer->path, e);
    if (k->state != SIGNING_KEY_RETIRED)
        return 0;
    pub.retired_at = k->retired_at / 1000;
    return keyset_add_public(ks, &pub, e);
}

/* The set of the rows as committed, with `changed` laid over them. */
int gateway_keys_make(struct sim *s, const struct signing_key *changed, size_t changed_n,
                      struct keyset **ret, struct err *e)
{
    struct keyset *ks = keyset_new();
    const char *signing = NULL;

    for (int i = 0; ks && i < SIM_SIGNERS; i++) {
        const struct signing_key *k = s->signers[i].used ? &s->signers[i].row : NULL;

        for (size_t c = 0; c < changed_n; c++)
            if (!strcmp(changed[c].kid, s->signers[i].row.kid))
                k = &changed[c];
        if (!k)
            continue;
        if (set_add(s, ks, k, e)) {
            keyset_free(ks);
            return -1;
        }
        if (k->state == SIGNING_KEY_SIGNING)
            signing = k->kid;
    }
    if (!ks || !signing || keyset_sign_with(ks, signing, e)) {
        keyset_free(ks);
        return err_set(e, ERR_INTERNAL, "no key signs");
    }
    *ret = ks;
    return 0;
}

static int tell_session(void *ctx, const struct sandbox *row, struct err *e)
{
    struct store_tx *tx = ctx;
    struct change c = {.kind = CHANGE_KEYS, .sandbox = *row};

    if (store_session_next_seq(tx, &row->session_id, &c.seq, e))
        return -1;
    store_emit(tx, &c);
    return 0;
}

static int tell(struct op *op, struct store_tx *tx, struct err *e)
{
    struct keyset *ks;

    store_emit(tx, &(struct change){.kind = CHANGE_KEYS});
    if (store_sandbox_each_active(tx, tell_session, tx, e) ||
        gateway_keys_make(op->sim, op->made, op->made_n, &ks, e))
        return -1;
    keyset_free(op->sim->gw.pending_keys);
    op->sim->gw.pending_keys = ks;
    op->made_keys = true;
    return 0;
}

static int row_in(const struct sim *s, enum signing_key_state state)
{
    for (int i = 0; i < SIM_SIGNERS; i++)
        if (s->signers[i].used && s->signers[i].row.state == state)
            return i;
    return -1;
}

static int fresh(const struct sim *s)
{
    for (int i = 0; i < SIM_SIGNERS; i++)
        if (!s->signers[i].used)
            return i;
    return -1;
}

/* The next key signs, and a new one is the next. */
static int promote(struct op *op, struct store_tx *tx, bool next_signs, struct err *e)
{
    const struct sim *s = op->sim;
    int next = row_in(s, SIGNING_KEY_NEXT), made = fresh(s);
    struct signing_key *k = &op->made[op->made_n];

    if (made < 0 || next < 0)
        return err_set(e, ERR_CONFLICT, "no further keys");
    if (next_signs) {
        *k = s->signers[next].row;
        k->state = SIGNING_KEY_SIGNING;
        k->signing_at = store_now_ms(tx);
        op->made_n++;
        if (store_signing_key_update(tx, k++, e))
            return -1;
    }
    *k = s->signers[made].row;
    k->state = SIGNING_KEY_NEXT;
    k->created_at = store_now_ms(tx);
    op->made_n++;
    return store_signing_key_insert(tx, k, e);
}

static int run_rotate(struct op *op, struct store_tx *tx, struct err *e)
{
    struct signing_key *old = &op->made[op->made_n++];

    *old = op->sim->signers[row_in(op->sim, SIGNING_KEY_SIGNING)].row;
    old->state = SIGNING_KEY_RETIRED;
    old->retired_at = store_now_ms(tx) + STORED_S * 1000;
    return store_signing_key_update(tx, old, e) || promote(op, tx, true, e) || tell(op, tx, e) ? -1
                                                                                               : 0;
}

static int run_kill(struct op *op, struct store_tx *tx, struct err *e)
{
    struct signing_key *dead = &op->made[op->made_n++];
    enum signing_key_state before;

    *dead = op->sim->signers[op->signer].row;
    before = dead->state;
    if (!op->sim->signers[op->signer].used || before == SIGNING_KEY_KILLED)
        return err_set(e, ERR_CONFLICT, "it is no key to be killed");
    dead->state = SIGNING_KEY_KILLED;
    dead->ended_at = store_now_ms(tx);
    op->match = (struct store_match){.by = MATCH_KID, .kid = dead->kid};
    if (store_signing_key_update(tx, dead, e) ||
        ((before == SIGNING_KEY_SIGNING || before == SIGNING_KEY_NEXT) &&
         promote(op, tx, before == SIGNING_KEY_SIGNING, e)))
        return -1;
    return tell(op, tx, e) || end_matching(op, tx, &op->match, "signing_key_killed", e) ? -1 : 0;
}

static int run_gone(struct op *op, struct store_tx *tx, struct err *e)
{
    const struct sim *s = op->sim;
    int at = row_in(s, SIGNING_KEY_RETIRED);
    struct signing_key *k = &op->made[op->made_n++];

    if (at < 0 || s->signers[at].row.retired_at + (s->policy.ttl_max_s + s->policy.skew_s) * 1000 >
                      store_now_ms(tx))
        return err_set(e, ERR_CONFLICT, "none is to go");
    *k = s->signers[at].row;
    k->state = SIGNING_KEY_GONE;
    k->ended_at = store_now_ms(tx);
    return store_signing_key_update(tx, k, e) || tell(op, tx, e) ? -1 : 0;
}

/* --- by the broker ----------------------------------------------------------------------------- */

static int run_expire(struct op *op, struct store_tx *tx, struct err *e)
{
    return lease_expire(tx, op->due, op->due_n, e);
}

static int run_close(struct op *op, struct store_tx *tx, struct err *e)
{
    return lease_close(tx, op->ids, op->ids_n, e);
}

static int run_consume(struct op *op, struct store_tx *tx, struct err *e)
{
    return lease_consume(tx, op->ids, op->ids_n, e);
}

static int run_reset(struct op *op, struct store_tx *tx, struct err *e)
{
    int64_t before, after;

    if (store_clock_mark(tx, &before, e) || op->fn(tx, op->fn_arg, e) ||
        store_clock_mark(tx, &after, e))
        return -1;
    op->lowered = after < before;
    return op->lowered ? reset_looked_at(op, tx, e) : 0;
}

/* --- any --------------------------------------------------------------------------------------- */

static int (*const runs[OP_KINDS])(struct op *op, struct store_tx *tx, struct err *e) = {
    [OP_SESSION_BEGIN] = run_session_begin,
    [OP_SESSION_RUN] = run_session_run,
    [OP_SESSION_STOP] = run_session_stop,
    [OP_SESSION_END] = run_session_end,
    [OP_GRANT] = run_grant,
    [OP_RENEW] = run_renew,
    [OP_LOOK] = run_look,
    [OP_REVOKE] = run_revoke,
    [OP_REVOKE_BY] = run_revoke_by,
    [OP_KEY_UPDATE] = run_key_update,
    [OP_ROTATE] = run_rotate,
    [OP_KILL] = run_kill,
    [OP_GONE] = run_gone,
    [OP_EXPIRE] = run_expire,
    [OP_CLOSE] = run_close,
    [OP_CONSUME] = run_consume,
    [OP_RESET] = run_reset,
};

/* Each leaves an entry in the audit trail: by their number the next start tells whether a commit
 * that was broken off has happened. */
static int audit(struct op *op, struct store_tx *tx, struct err *e)
{
    return store_audit(tx,
                       &(struct audit_entry){.at = store_now_ms(tx),
                                             .actor = "gateway",
                                             .action = names[op->kind],
                                             .object = "",
                                             .outcome = "ok",
                                             .address = "",
                                             .request_id = "",
                                             .detail = ""},
                       e);
}

int op_run(struct store_tx *tx, void *arg, struct err *e)
{
    struct op *op = arg;
    struct sim *s = op->sim;
    size_t before = tx->changes->n;

    if (s->gw.dying)
        return err_set(e, ERR_INTERNAL, "the gateway ends");
    /* Rows of keys are read from the facts: of two changes in one group the second comes again. */
    if (s->gw.pending_keys && op->kind >= OP_ROTATE && op->kind <= OP_GONE)
        return err_set(e, ERR_BUSY, "the keys are being changed");
    op->wall_ms = store_now_ms(tx);
    invariants_in_write(s, tx);
    if (runs[op->kind](op, tx, e) || audit(op, tx, e)) {
        if (op->made_keys) { /* what it would have signed with is taken back with it */
            keyset_free(s->gw.pending_keys);
            s->gw.pending_keys = NULL;
        }
        return -1;
    }
    op->changes_n = tx->changes->n - before;
    op->changes = malloc((op->changes_n + 1) * sizeof *op->changes);
    if (!op->changes)
        abort();
    for (size_t i = 0; i < op->changes_n; i++)
        op->changes[i] = tx->changes->items[before + i];
    op->audit_n = tx->audit->head.n;
    op->in_group = true;
    DL_APPEND(s->gw.group, op);
    return 0;
}

/* --- answers ----------------------------------------------------------------------------------- */

static void keep_token(struct sim *s, struct op *op)
{
    int at = facts_lease(s, &op->lease.lease_id);
    struct lease_fact *f;

    if (at < 0)
        return; /* invariants_answered has said so */
    f = &s->leases[at];
    if (f->tokens_n == SIM_TOKENS) {
        free(f->tokens[0]);
        memmove(f->tokens, f->tokens + 1, (SIM_TOKENS - 1) * sizeof f->tokens[0]);
        f->tokens_n--;
    }
    f->tokens[f->tokens_n++] = op->token;
    op->token = NULL;
}

static void session_begun(struct sim *s, struct op *op)
{
    int at = facts_session(s, &op->sandbox.session_id);

    if (at >= 0 && !s->sessions[at].ended)
        door_start(s, at, false);
}

/* As authentication takes over what was committed. */
static void api_changed(struct sim *s, const struct op *op)
{
    struct api *a = &s->apis[0];

    for (int i = 0; i < SIM_APIS; i++)
        if (id_equal(&s->apis[i].row.key_id, &op->api_row.key_id))
            a = &s->apis[i];
    a->cached = a->row;
    memcpy(a->cached_users, a->users, sizeof a->users);
}

/* What has to be done is asked for again. */
static void try_again(struct sim *s, const struct op *op)
{
    if (op->kind == OP_SESSION_STOP) {
        s->sessions[op->session].ending_asked = false;
        s->sessions[op->session].stop_at_us = s->boot_us + SEC;
    }
    if (op->kind == OP_SESSION_END)
        s->sessions[op->session].kill_at_us = s->boot_us + SEC;
}

void op_answered(struct op *op)
{
    struct sim *s = op->sim;

    sim_trace(s, "%s %s: %d %s", names[op->kind],
              op->kind == OP_GRANT || op->kind == OP_RENEW ? SHORT(&op->lease.lease_id)
                                                           : SHORT(&op->lease_id),
              op->job.rc, op->job.rc ? err_code_name(op->job.e.code) : "");
    invariants_answered(s, op);
    if (!op->job.rc) {
        if (op->token)
            keep_token(s, op);
        if (op->kind == OP_SESSION_BEGIN)
            session_begun(s, op);
        if (op->kind == OP_SESSION_STOP && !s->sessions[op->session].ended)
            gateway_wait(s, op->session);
        if (op->kind == OP_KEY_UPDATE)
            api_changed(s, op);
    } else {
        s->seen[SEEN_DENIED_OP]++;
        s->seen[SEEN_QUOTA] += op->job.e.code == ERR_LEASE_QUOTA_EXCEEDED;
        s->seen[SEEN_TOO_LATE] += op->kind == OP_RENEW && !strcmp(op->job.e.msg, TOO_LATE);
        s->seen[SEEN_BEHIND] += op->kind == OP_GRANT && op->job.e.code == ERR_SERVICE_NOT_READY;
        try_again(s, op);
    }
    op_free(op);
}
