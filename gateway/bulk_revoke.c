#include "bulk_revoke.h"

#include <stdlib.h>
#include <string.h>

#include "leasehold/door_proto.h"

/* Named at most in one answer. */
#define UNCONFIRMED_MAX 100000

static void bulk_drop(struct call *c)
{
    struct bulk *b = c->state;

    free(b->ids);
    free(b->doors);
    free(b->answers);
}

struct bulk *bulk_new(struct call *c, const char *reason)
{
    struct bulk *b = call_alloc(c, sizeof *b);

    if (!b)
        return NULL;
    b->call = c;
    b->how = (struct lease_ending){.code = CLOSE_REVOKED, .reason = reason, .caller = &c->caller};
    c->state = b;
    c->drop = bulk_drop;
    return b;
}

/* --- what is to end -------------------------------------------------------------------------- */

static int no_memory(struct err *e)
{
    return err_set(e, ERR_INTERNAL, "no memory for what is to be revoked");
}

static int door_add(struct bulk *b, const struct id *session_id, struct err *e)
{
    if (b->doors_n == b->doors_size) {
        size_t size = b->doors_size ? b->doors_size * 2 : 4;
        struct bulk_door *doors = reallocarray(b->doors, size, sizeof *doors);

        if (!doors)
            return no_memory(e);
        b->doors = doors;
        b->doors_size = size;
    }
    b->doors[b->doors_n++] = (struct bulk_door){.bulk = b, .session_id = *session_id};
    return 0;
}

int bulk_add(struct bulk *b, const struct lease *l, struct err *e)
{
    if (b->n == b->size) {
        size_t size = b->size ? b->size * 2 : 32;
        struct id *ids = reallocarray(b->ids, size, sizeof *ids);

        if (!ids)
            return no_memory(e);
        b->ids = ids;
        b->size = size;
    }
    if ((!b->doors_n || !id_equal(&b->doors[b->doors_n - 1].session_id, &l->session_id)) &&
        door_add(b, &l->session_id, e))
        return -1;
    b->ids[b->n++] = l->lease_id;
    b->doors[b->doors_n - 1].end = b->n;
    return 0;
}

static int add_each(void *ctx, const struct lease *l, struct err *e)
{
    return bulk_add(ctx, l, e);
}

int bulk_collect(struct bulk *b, const struct store_match *m, struct err *e)
{
    return store_lease_each_match(b->call->tx, m, &b->call->caller, add_each, b, e);
}

/* --- ending ---------------------------------------------------------------------------------- */

static size_t door_begin(const struct bulk *b, const struct bulk_door *d)
{
    return d == b->doors ? 0 : d[-1].end;
}

/* In the write that collected: nothing can have come or gone in between. */
static int end_session(struct bulk *b, struct bulk_door *d, struct err *e)
{
    struct sandbox session;

    if (store_sandbox_get(b->call->tx, &d->session_id, &session, e) ||
        lease_end_session(b->call->tx, &session, &b->how, &d->revoked, e))
        return -1;
    b->revoked += d->revoked;
    b->next = d->end;
    b->next_door++;
    return 0;
}

/* NULL: it is not there any more. */
static int end_lease(struct bulk *b, const struct lease *lease, struct err *e)
{
    struct bulk_door *d = &b->doors[b->next_door];
    bool changed = false;

    if (lease && lease_end_one(b->call->tx, lease, &b->how, &changed, e))
        return -1;
    if (changed) {
        b->ids[door_begin(b, d) + d->revoked++] = lease->lease_id;
        b->revoked++;
    }
    if (++b->next == d->end)
        b->next_door++;
    return 0;
}

/* It may have ended by itself since it was collected, its chat may have been deleted. */
static int end_next(struct bulk *b, struct err *e)
{
    struct lease lease;
    struct err why;

    if (!store_lease_get(b->call->tx, &b->ids[b->next], &lease, &why))
        return end_lease(b, &lease, e);
    if (why.code == ERR_NOT_FOUND)
        return end_lease(b, NULL, e);
    *e = why;
    return -1;
}

int bulk_write_one(struct bulk *b, const struct lease *lease, struct err *e)
{
    return bulk_add(b, lease, e) || end_lease(b, lease, e) ? -1 : 0;
}

int bulk_write(struct bulk *b, struct err *e)
{
    size_t until = b->n - b->next > BULK_BATCH ? b->next + BULK_BATCH : b->n;
    bool whole = b->whole_sessions && b->next == 0 && until == b->n;

    while (b->next < until)
        if (whole ? end_session(b, &b->doors[b->next_door], e) : end_next(b, e))
            return -1;
    return 0;
}

bool bulk_continue(struct bulk *b)
{
    if (b->next == b->n)
        return true;
    b->call->deadline_us = INT64_MAX; /* what has begun comes to its end */
    call_again(b->call);
    return false;
}

/* --- the doors ------------------------------------------------------------------------------- */

/* The ids of leases that wait for a door move to the front. */
static size_t gather_unconfirmed(struct bulk *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->doors_n; i++) {
        const struct bulk_door *d = &b->doors[i];

        if (d->wait.acked)
            continue;
        memmove(&b->ids[n], &b->ids[door_begin(b, d)], d->revoked * sizeof *b->ids);
        n += d->revoked;
    }
    return n < UNCONFIRMED_MAX ? n : UNCONFIRMED_MAX;
}

void bulk_answer(struct bulk *b, struct lease_revoked *ret)
{
    size_t n = 0;

    ret->matched = (int64_t)b->n;
    ret->revoked = (int64_t)b->revoked;
    b->answers = b->doors_n ? calloc(b->doors_n, sizeof *b->answers) : NULL;
    if (b->answers) /* without memory the counts alone are answered */
        for (size_t i = 0; i < b->doors_n; i++)
            if (b->doors[i].revoked)
                b->answers[n++] = (struct revoke_door){.session_id = b->doors[i].session_id,
                                                       .acked = b->doors[i].wait.acked,
                                                       .cut = b->doors[i].wait.cut,
                                                       .latency_us = b->doors[i].wait.latency_us};
    ret->doors = (struct list){b->answers, n};
    ret->unconfirmed = (struct list){b->ids, gather_unconfirmed(b)};
}

static void answer_waited(struct bulk *b)
{
    struct lease_revoked *ret = b->call->result;

    bulk_answer(b, ret);
    b->call->status = ret->unconfirmed.n ? 202 : 200;
}

static void door_waited(struct broker_wait *w)
{
    struct bulk_door *d = (struct bulk_door *)((char *)w - offsetof(struct bulk_door, wait));
    struct bulk *b = d->bulk;

    if (--b->waiting)
        return;
    answer_waited(b);
    call_finish(b->call);
}

bool bulk_wait(struct bulk *b, int64_t timeout_ms)
{
    b->waiting = 1; /* ours, so that no answer comes before the last door is asked */
    for (size_t i = 0; i < b->doors_n; i++) {
        struct bulk_door *d = &b->doors[i];

        d->wait = (struct broker_wait){
            .session_id = d->session_id, .timeout_ms = timeout_ms, .done = door_waited};
        d->wait.acked = !d->revoked;
        if (!d->revoked)
            continue;
        b->waiting++;
        broker_wait(b->call->s->broker, &d->wait);
    }
    if (--b->waiting)
        return false;
    answer_waited(b);
    return true;
}
