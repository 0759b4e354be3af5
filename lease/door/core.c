#include "core_state.h"

#include <stdlib.h>
#include <utlist.h>

#define PRUNE_AFTER_S 60 /* an expired lease is kept this long for a renewal under way */

bool core_may_admit(const struct door_core *c, int64_t now_us)
{
    return c->state == DOOR_LIVE && !c->done && now_us - c->heard_us < c->config.stale_s * US_PER_S;
}

bool core_may_carry(const struct door_core *c, int64_t now_us)
{
    return now_us - c->heard_us < c->config.seal_s * US_PER_S;
}

/* --- leases -------------------------------------------------------------------------------- */

int64_t core_gateway_s(const struct door_core *c, int64_t now_us)
{
    return (now_us + c->offset_us) / US_PER_S;
}

struct door_lease *core_lease_find(const struct door_core *c, const struct id *jti)
{
    struct door_lease *lease;

    HASH_FIND(hh, c->leases, jti, sizeof(*jti), lease);
    return lease;
}

static struct door_lease *lease_make(struct door_core *c, const struct id *jti)
{
    struct door_lease *lease = core_lease_find(c, jti);

    if (lease)
        return lease;
    lease = calloc(1, sizeof(*lease));
    if (!lease)
        return NULL;
    lease->jti = *jti;
    HASH_ADD(hh, c->leases, jti, sizeof(lease->jti), lease);
    return lease;
}

static int lease_allow(struct door_core *c, const struct door_allow *allow, struct err *e)
{
    struct door_lease *lease = lease_make(c, &allow->jti);

    if (!lease)
        return err_set(e, ERR_INTERNAL, "no memory for a lease");
    lease->allowed = true;
    lease->exp = allow->exp;
    lease->scope = allow->scope;
    lease->mc = allow->mc;
    lease->use = allow->use;
    return 0;
}

void core_lease_drop_if_dead(struct door_core *c, struct door_lease *lease, int64_t now_us)
{
    int64_t now_s = core_gateway_s(c, now_us);

    if (lease->live > 0 || now_s <= lease->consumed_until ||
        (lease->allowed && now_s <= lease->exp + PRUNE_AFTER_S))
        return;
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
    HASH_DEL(c->leases, lease);
    free(lease);
}

/* Ends that take no right away: what is on its way may still arrive. */
static bool is_soft(int code)
{
    return code == CLOSE_AGENT_ENDED || code == CLOSE_SLOW_READER;
}

bool core_peer_close(struct door_core *c, struct door_peer *peer, int code)
{
    bool closing = peer->code != 0;

    if (!is_soft(code))
        peer->revoked = true;
    if (closing && (is_soft(code) || !is_soft(peer->code)))
        return false;
    peer->code = code;
    c->io.close(c->io.ctx, peer, code);
    return true;
}

int64_t core_lease_cut(struct door_core *c, struct door_lease *lease, int code)
{
    struct door_peer *peer;
    int64_t n = 0;

    /* First the flag on all of them: closing takes time, and nothing may pass meanwhile. */
    DL_FOREACH (lease->peers, peer)
        peer->revoked |= !is_soft(code);
    DL_FOREACH (lease->peers, peer)
        n += core_peer_close(c, peer, code);
    return n;
}

int64_t core_cut_all(struct door_core *c, int code)
{
    struct door_lease *lease;
    int64_t n = 0;

    DL_FOREACH (c->busy, lease)
        n += core_lease_cut(c, lease, code);
    return n;
}

/* --- life ---------------------------------------------------------------------------------- */

struct door_core *door_core_new(const struct door_core_config *config,
                                const struct door_core_io *io, int64_t now_us)
{
    struct door_core *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->keys = keyset_new();
    c->memo = token_memo_new();
    if (!c->keys || !c->memo) {
        keyset_free(c->keys);
        token_memo_free(c->memo);
        free(c);
        return NULL;
    }
    c->config = *config;
    c->io = *io;
    c->heard_us = now_us;
    c->over_us = config->life_s ? now_us + config->life_s * US_PER_S : INT64_MAX;
    c->prune_next_us = now_us + PRUNE_EVERY_US;
    c->deny_window_us = now_us;
    return c;
}

void door_core_free(struct door_core *c)
{
    struct door_lease *lease, *next;

    if (!c)
        return;
    HASH_ITER (hh, c->leases, lease, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(c->leases, lease);
        free(lease);
    }
    keyset_free(c->keys);
    token_memo_free(c->memo);
    free(c);
}

/* --- messages of the gateway ---------------------------------------------------------------- */

/* The leases with connections, in memory of the caller's. */
int core_conns_list(const struct door_core *c, struct list *ret)
{
    struct door_lease *lease, *next;
    struct door_conn *conns = calloc(HASH_COUNT(c->leases) + 1, sizeof(*conns));
    size_t n = 0;

    if (!conns)
        return -1;
    HASH_ITER (hh, c->leases, lease, next)
        if (lease->live > 0)
            conns[n++] = (struct door_conn){.jti = lease->jti, .n = lease->live};
    *ret = (struct list){.items = conns, .n = n};
    return 0;
}

/* The `once` leases that were used, in memory of the caller's. */
static int consumed_list(const struct door_core *c, struct list *ret)
{
    struct door_lease *lease, *next;
    struct id *ids = calloc(HASH_COUNT(c->leases) + 1, sizeof(*ids));
    size_t n = 0;

    if (!ids)
        return -1;
    HASH_ITER (hh, c->leases, lease, next)
        if (lease->consumed_until)
            ids[n++] = lease->jti;
    *ret = (struct list){.items = ids, .n = n};
    return 0;
}

int door_core_hello(struct door_core *c, int64_t now_us, struct door_msg *ret, struct err *e)
{
    struct door_msg m = {.t = DOOR_HELLO,
                         .sid = c->config.session_id,
                         .ep = c->config.ep,
                         .boot_id = c->damaged ? (struct id){{0}} : c->config.boot_id,
                         .applied = c->applied,
                         .agent = c->agent};

    if (core_conns_list(c, &m.conns))
        return err_set(e, ERR_INTERNAL, "no memory for the list of connections");
    if (consumed_list(c, &m.consumed)) {
        free(m.conns.items);
        return err_set(e, ERR_INTERNAL, "no memory for the list of used leases");
    }
    c->linked = true;
    c->synced = false;
    c->resync = false;
    c->linked_us = now_us;
    if (c->state == DOOR_BOOT || c->state == DOOR_SEALED)
        c->state = DOOR_SYNC;
    *ret = m;
    return 0;
}

void door_core_unlinked(struct door_core *c)
{
    c->linked = false;
    c->synced = false;
    c->resync = false;
    c->ack_due = false;
    c->ack_cut = 0;
}

static void ack_note(struct door_core *c, int64_t cut, int64_t now_us)
{
    if (!c->ack_due)
        c->ack_from_us = now_us;
    c->ack_due = true;
    c->ack_cut += cut;
}

static void time_set(struct door_core *c, int64_t gateway_ms, int64_t now_us)
{
    c->offset_us = gateway_ms * US_PER_MS - now_us;
    c->has_time = true;
}

static struct keyset *keys_make(const struct list *list, struct err *e)
{
    const struct key_public *keys = list->items;
    struct keyset *ks = keyset_new();

    if (!ks) {
        err_set(e, ERR_INTERNAL, "no memory for keys");
        return NULL;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (keyset_add_public(ks, &keys[i], e)) {
            keyset_free(ks);
            return NULL;
        }
    }
    return ks;
}

static int keys_swap(struct door_core *c, const struct list *list, struct err *e)
{
    struct keyset *ks = keys_make(list, e);

    if (!ks)
        return -1;
    keyset_free(c->keys);
    c->keys = ks;
    token_memo_forget(c->memo);
    return 0;
}

/* Withdraws what the snapshot did not name and cuts its connections. */
static int64_t unlisted_cut(struct door_core *c, int64_t now_us)
{
    struct door_lease *lease, *next;
    int64_t cut = 0;

    HASH_ITER (hh, c->leases, lease, next) {
        if (lease->allowed)
            continue;
        cut += core_lease_cut(c, lease, CLOSE_REVOKED);
        core_lease_drop_if_dead(c, lease, now_us);
    }
    return cut;
}

/* Whichever door or gateway has seen it: a lease that let in once does so no more. */
static void consumed_take(struct door_core *c, const struct list *consumed)
{
    const struct id *ids = consumed->items;

    for (size_t i = 0; i < consumed->n; i++) {
        struct door_lease *lease = core_lease_find(c, &ids[i]);

        if (lease && lease->consumed_until < lease->exp)
            lease->consumed_until = lease->exp;
    }
}

static int snapshot_apply(struct door_core *c, const struct door_msg *m, int64_t now_us,
                          struct err *e)
{
    const struct door_allow *allow = m->allow.items;
    struct door_lease *lease, *next;

    if (m->seq < c->applied)
        return err_set(e, ERR_CONFLICT, "the snapshot is older than what was applied");
    if (keys_swap(c, &m->keys, e))
        return -1;
    c->damaged = true;
    HASH_ITER (hh, c->leases, lease, next)
        lease->allowed = false;
    for (size_t i = 0; i < m->allow.n; i++) {
        if (lease_allow(c, &allow[i], e)) {
            c->state = DOOR_STALE; /* half a set admits nobody */
            return -1;
        }
    }
    c->damaged = false;
    consumed_take(c, &m->consumed);
    time_set(c, m->now, now_us);
    c->config.stale_s = m->stale_s;
    c->config.seal_s = m->seal_s;
    c->applied = m->seq;
    c->synced = true;
    c->live_at = m->seq;
    c->state = DOOR_LIVE;
    ack_note(c, unlisted_cut(c, now_us), now_us);
    return 0;
}

/* The gateway still knows what this door has missed; the operations follow one by one. */
static int delta_begin(struct door_core *c, const struct door_msg *m, int64_t now_us, struct err *e)
{
    if (m->from != c->applied || m->seq < m->from || !c->has_time || c->damaged) {
        c->damaged = true; /* the same HELLO would bring the same delta */
        return err_set(e, ERR_CONFLICT, "the delta does not begin where this door stands");
    }
    time_set(c, m->now, now_us);
    c->config.stale_s = m->stale_s;
    c->config.seal_s = m->seal_s;
    c->synced = true;
    c->live_at = m->seq;
    if (c->applied >= c->live_at)
        c->state = DOOR_LIVE;
    ack_note(c, 0, now_us);
    return 0;
}

static int64_t revoke_one(struct door_core *c, const struct id *jti, int code, int64_t now_us)
{
    struct door_lease *lease = core_lease_find(c, jti);
    int64_t cut;

    if (!lease)
        return 0;
    lease->allowed = false;
    cut = core_lease_cut(c, lease, code);
    core_lease_drop_if_dead(c, lease, now_us);
    return cut;
}

static int64_t op_revoke_list(struct door_core *c, const struct door_msg *m, int64_t now_us)
{
    const struct id *jtis = m->jtis.items;
    int64_t cut = 0;

    for (size_t i = 0; i < m->jtis.n; i++)
        cut += revoke_one(c, &jtis[i], (int)m->code, now_us);
    return cut;
}

static int64_t op_revoke_all(struct door_core *c, const struct door_msg *m, int64_t now_us)
{
    struct door_lease *lease, *next;
    struct door_peer *peer;
    int64_t cut;

    HASH_ITER (hh, c->leases, lease, next) {
        lease->allowed = false;
        DL_FOREACH (lease->peers, peer)
            peer->revoked = true;
    }
    cut = core_cut_all(c, (int)m->code);
    HASH_ITER (hh, c->leases, lease, next)
        core_lease_drop_if_dead(c, lease, now_us);
    return cut;
}

static void op_extend(struct door_core *c, const struct door_msg *m)
{
    struct door_lease *lease = core_lease_find(c, &m->jti);

    if (lease && lease->allowed)
        lease->exp = m->exp;
}

static int op_run(struct door_core *c, const struct door_msg *m, int64_t now_us, int64_t *ret_cut,
                  struct err *e)
{
    struct door_allow allow = {
        .jti = m->jti, .exp = m->exp, .scope = m->scope, .mc = m->mc, .use = m->use};

    switch ((enum door_op)m->op) {
    case DOOR_OP_GRANT:
        return lease_allow(c, &allow, e);
    case DOOR_OP_EXTEND:
        op_extend(c, m);
        return 0;
    case DOOR_OP_REVOKE:
        *ret_cut = revoke_one(c, &m->jti, (int)m->code, now_us);
        return 0;
    case DOOR_OP_REVOKE_LIST:
        *ret_cut = op_revoke_list(c, m, now_us);
        return 0;
    case DOOR_OP_REVOKE_ALL:
        *ret_cut = op_revoke_all(c, m, now_us);
        return 0;
    case DOOR_OP_KEYS:
        return keys_swap(c, &m->keys, e);
    }
    return err_set(e, ERR_MALFORMED_REQUEST, "unknown operation");
}

/* Not to be trusted any further before a new snapshot: nobody new is admitted. */
static void lose_sync(struct door_core *c)
{
    c->synced = false;
    if (c->state == DOOR_LIVE)
        c->state = DOOR_STALE;
}

static int op_apply(struct door_core *c, const struct door_msg *m, int64_t now_us, struct err *e)
{
    int64_t cut = 0;

    if (!c->synced)
        return err_set(e, ERR_CONFLICT, "an operation before the snapshot");
    if (m->seq <= c->applied) {
        ack_note(c, 0, now_us);
        return 0;
    }
    if (m->seq != c->applied + 1) {
        lose_sync(c);
        return err_set(e, ERR_CONFLICT, "a gap in the log");
    }
    if (op_run(c, m, now_us, &cut, e)) {
        lose_sync(c);
        return -1;
    }
    c->applied = m->seq;
    if (c->applied >= c->live_at && !c->resync)
        c->state = DOOR_LIVE;
    ack_note(c, cut, now_us);
    return 0;
}

/* So that the gateway knows which leases this door takes for over. */
static void ping_answer(struct door_core *c, int64_t now_us)
{
    const struct door_msg m = {.t = DOOR_PING, .now = door_core_gateway_ms(c, now_us)};

    if (c->synced)
        c->io.send(c->io.ctx, &m);
}

int door_core_receive(struct door_core *c, const struct door_msg *m, int64_t now_us, struct err *e)
{
    int r = 0;

    /* What is read behind a silence may have been sent before it, with a revocation still behind: it does
     * not make up for the silence, whether the timer has seen that or not. */
    if (c->done)
        return 0;
    core_link_tick(c, now_us);
    switch ((enum door_msg_type)m->t) {
    case DOOR_SNAPSHOT:
        r = snapshot_apply(c, m, now_us, e);
        break;
    case DOOR_DELTA:
        r = delta_begin(c, m, now_us, e);
        break;
    case DOOR_OP:
        r = op_apply(c, m, now_us, e);
        break;
    case DOOR_PING:
        if (c->synced)
            time_set(c, m->now, now_us);
        ping_answer(c, now_us);
        break;
    case DOOR_RETIRE:
        c->done = true;
        c->state = DOOR_SEALED;
        core_cut_all(c, CLOSE_REVOKED);
        break;
    default:
        return err_set(e, ERR_MALFORMED_REQUEST, "not a message for a door");
    }
    /* What an unsynced gateway says does not keep the door alive: its set may be an old one. */
    if (r == 0 && c->synced && !c->resync)
        c->heard_us = now_us;
    core_waiting_judge(c, now_us);
    return r;
}

void door_core_flush(struct door_core *c, int64_t now_us)
{
    struct door_msg m = {.t = DOOR_ACK, .seq = c->applied, .cut = c->ack_cut};

    if (!c->ack_due)
        return;
    m.latency_us = now_us - c->ack_from_us;
    c->ack_due = false;
    c->ack_cut = 0;
    c->io.send(c->io.ctx, &m);
}
