/* Snapshots: what a door is told at first. One of many leases is written in parts, one a turn, as the loop must
 * not stop for it. It is what its session is at one entry of the log all the same: before a lease changes that has not
 * been looked at yet, it is written as it was. What the log says meanwhile is sent behind the snapshot, in order.
 *
 * One is written at a time, so that there is one text in memory. Whose turn has not come gets what its session is
 * then: there is nothing to hold for it. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "broker_state.h"

#define SESSION_COST 16 /* leases that take as long as all the rest of a snapshot */

/* --- one --------------------------------------------------------------------------------------- */

static void begin(struct broker *b)
{
    struct snapshot *p = &b->snapshot;
    const struct session *s = b->snapshots;

    free(p->keys);
    p->keys = broker_keys_list(b, &p->key_list);
    p->begun = true;
    p->failed = !p->keys;
    p->number++;
    p->seq = s->seq;
    p->next = s->leases;
    p->allowed = p->consumed_n = 0;
    buf_reset(&p->text);
    buf_reset(&p->held);
    door_snapshot_begin(&p->text);
}

static void add_consumed(struct snapshot *p, const struct id *id)
{
    size_t size = p->consumed_size ? 2 * p->consumed_size : 64;
    struct id *more = p->consumed;

    if (p->consumed_n == p->consumed_size) {
        more = reallocarray(p->consumed, size, sizeof *more);
        if (more)
            p->consumed_size = size;
        else
            p->failed = true;
    }
    if (!more)
        return;
    p->consumed = more;
    p->consumed[p->consumed_n++] = *id;
}

static void show(struct snapshot *p, struct lease_node *n)
{
    if (n->shown == p->number)
        return;
    n->shown = p->number;
    if (n->l.consumed_at)
        add_consumed(p, &n->l.lease_id);
    if (n->ending_seq)
        return;
    door_snapshot_allow(&(struct door_allow){.jti = n->l.lease_id,
                                             .exp = n->l.expires_at / 1000,
                                             .scope = n->l.scope,
                                             .mc = n->l.max_connections,
                                             .use = n->l.use},
                        p->allowed++ == 0, &p->text);
}

/* Each of them, should the door still be there. */
static void send_held(struct broker *b, const struct session *s)
{
    const struct buf *held = &b->snapshot.held;
    size_t at = 0;

    while (s->door && at < held->len) {
        const char *text = held->data + at;
        const char *end = memchr(text, '\n', held->len - at);

        b->hooks.send(b->hooks.ctx, s->door->conn, text, (size_t)(end - text));
        at += (size_t)(end - text) + 1;
    }
}

/* Without memory the door hears nothing, and comes again. */
static void finish(struct broker *b)
{
    struct snapshot *p = &b->snapshot;
    struct session *s = b->snapshots;

    door_snapshot_end(&(struct door_msg){.t = DOOR_SNAPSHOT,
                                         .seq = p->seq,
                                         .now = clock_wall_ms(b->clock),
                                         .stale_s = b->limits->stale_after_seconds,
                                         .seal_s = b->limits->seal_after_seconds,
                                         .consumed = {p->consumed, p->consumed_n},
                                         .keys = p->key_list},
                      &p->text);
    broker_snapshot_drop(b, s);
    if (p->failed || !buf_ok(&p->text))
        return;
    s->boot_id = s->door->boot_id;
    b->hooks.send(b->hooks.ctx, s->door->conn, p->text.data, p->text.len);
    send_held(b, s);
}

/* --- all --------------------------------------------------------------------------------------- */

/* How many leases it has looked at, of `most`. */
static size_t write_some(struct broker *b, size_t most)
{
    struct snapshot *p = &b->snapshot;
    size_t n = 0;

    if (!p->begun)
        begin(b);
    for (; p->next && n < most; n++) {
        struct lease_node *lease = p->next;

        p->next = lease->next;
        show(p, lease);
    }
    if (!p->next)
        finish(b);
    return n;
}

void broker_snapshot_tick(struct broker *b)
{
    size_t left = b->slice;

    while (b->snapshots && left > 0) {
        size_t cost = write_some(b, left) + SESSION_COST;

        left -= cost < left ? cost : left;
    }
}

void broker_snapshot_want(struct broker *b, struct session *s)
{
    bool alone = !b->snapshots;

    s->snapshot_due = true;
    DL_APPEND2(b->snapshots, s, snapshot_prev, snapshot_next);
    if (alone)
        broker_snapshot_tick(b);
    broker_rearm(b);
}

void broker_snapshot_drop(struct broker *b, struct session *s)
{
    if (!s->snapshot_due)
        return;
    if (s == b->snapshots)
        b->snapshot.begun = false;
    s->snapshot_due = false;
    DL_DELETE2(b->snapshots, s, snapshot_prev, snapshot_next);
}

void broker_snapshot_keep(struct broker *b, struct lease_node *n)
{
    if (b->snapshot.begun && n->session == b->snapshots)
        show(&b->snapshot, n);
}

void broker_snapshot_forget(struct broker *b, struct lease_node *n)
{
    broker_snapshot_keep(b, n);
    if (b->snapshot.begun && b->snapshot.next == n)
        b->snapshot.next = n->next;
}

/* What ends all leases would have all of them written as they were, in one turn: the snapshot begins anew
 * behind it, with none of them. It also does when there is too much to hold. */
bool broker_snapshot_holds(struct broker *b, struct session *s, const struct door_msg *op)
{
    struct snapshot *p = &b->snapshot;

    if (!s->snapshot_due)
        return false;
    if (s != b->snapshots || !p->begun)
        return true;
    if (op->op == DOOR_OP_REVOKE_ALL) {
        p->begun = false;
        return true;
    }
    door_msg_encode(op, &p->held);
    buf_add_char(&p->held, '\n');
    if (!buf_ok(&p->held))
        p->begun = false;
    return true;
}

void broker_set_slice(struct broker *b, size_t leases)
{
    b->slice = leases;
}

void broker_snapshot_done(struct broker *b)
{
    buf_done(&b->snapshot.text);
    buf_done(&b->snapshot.held);
    free(b->snapshot.consumed);
    free(b->snapshot.keys);
}
