#include <stdlib.h>
#include <utlist.h>

#include "core_state.h"

/* --- time ---------------------------------------------------------------------------------- */

static bool has_open_peer(const struct door_lease *lease)
{
    const struct door_peer *peer;

    DL_FOREACH (lease->peers, peer)
        if (!peer->revoked)
            return true;
    return false;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When nobody needs it any more, if no gateway says a word until then: the agent has ended, or has to
 * have ended. */
static int64_t abandoned_us(const struct door_core *c)
{
    int64_t sealed_us = c->heard_us + c->config.seal_s * US_PER_S;

    if (c->agent == DOOR_AGENT_ENDED)
        return sealed_us;
    return c->over_us > sealed_us ? c->over_us : sealed_us;
}

static int64_t link_deadline(const struct door_core *c)
{
    int64_t stale_us = c->config.stale_s * US_PER_S, seal_us = c->config.seal_s * US_PER_S;
    int64_t since = c->linked_us > c->heard_us ? c->linked_us : c->heard_us;
    int64_t at = INT64_MAX;

    if (c->state == DOOR_LIVE)
        at = c->heard_us + stale_us;
    if (c->state == DOOR_LIVE || c->state == DOOR_STALE)
        at = earlier(at, c->heard_us + seal_us);
    if (c->linked && !c->resync)
        at = earlier(at, since + stale_us);
    if (!c->done)
        at = earlier(at, abandoned_us(c));
    return at;
}

int64_t door_core_deadline_us(const struct door_core *c)
{
    int64_t at = earlier(link_deadline(c), c->prune_next_us);
    const struct door_lease *lease;
    const struct door_peer *peer;

    if (c->active && c->linked)
        at = earlier(at, c->activity_next_us);
    DL_FOREACH (c->waiting, peer)
        at = earlier(at, peer->wait_until_us);
    DL_FOREACH (c->busy, lease)
        if (has_open_peer(lease))
            at = earlier(at, lease->exp * US_PER_S - c->offset_us);
    return at;
}

void core_link_tick(struct door_core *c, int64_t now_us)
{
    int64_t quiet_us = now_us - c->heard_us;
    int64_t since = c->linked_us > c->heard_us ? c->linked_us : c->heard_us;

    if (c->state == DOOR_LIVE && quiet_us >= c->config.stale_s * US_PER_S)
        c->state = DOOR_STALE;
    if (c->linked && now_us - since >= c->config.stale_s * US_PER_S)
        c->resync = true;
    if (quiet_us < c->config.seal_s * US_PER_S)
        return;
    if (c->state == DOOR_LIVE || c->state == DOOR_STALE) {
        c->state = DOOR_SEALED;
        core_cut_all(c, CLOSE_NOT_LIVE);
    }
    if (now_us >= abandoned_us(c))
        c->done = true;
}

static void expiry_tick(struct door_core *c, int64_t now_us)
{
    int64_t now_s = core_gateway_s(c, now_us);
    struct door_lease *lease;

    DL_FOREACH (c->busy, lease)
        if (lease->exp <= now_s)
            core_lease_cut(c, lease, CLOSE_UNAUTHENTICATED);
}

static void prune_tick(struct door_core *c, int64_t now_us)
{
    struct door_lease *lease, *next;

    if (now_us < c->prune_next_us)
        return;
    c->prune_next_us = now_us + PRUNE_EVERY_US;
    HASH_ITER (hh, c->leases, lease, next)
        core_lease_drop_if_dead(c, lease, now_us);
}

static void activity_tick(struct door_core *c, int64_t now_us)
{
    struct door_msg m = {.t = DOOR_ACTIVITY,
                         .last_in = c->last_in_ms,
                         .last_out = c->last_out_ms,
                         .bytes_in = c->bytes_in,
                         .bytes_out = c->bytes_out};

    if (!c->active || !c->linked || now_us < c->activity_next_us)
        return;
    c->activity_next_us = now_us + US_PER_S;
    if (core_conns_list(c, &m.conns))
        return;
    c->active = false;
    c->io.send(c->io.ctx, &m);
    free(m.conns.items);
}

void door_core_tick(struct door_core *c, int64_t now_us)
{
    core_link_tick(c, now_us);
    expiry_tick(c, now_us);
    prune_tick(c, now_us);
    core_waiting_judge(c, now_us);
    activity_tick(c, now_us);
}

/* --- the agent ------------------------------------------------------------------------------ */

void door_core_agent(struct door_core *c, enum door_agent agent, int64_t now_us)
{
    struct door_msg m = {.t = DOOR_AGENT, .agent = agent};

    if (c->agent == agent || c->agent == DOOR_AGENT_ENDED)
        return;
    c->agent = agent;
    c->io.send(c->io.ctx, &m);
    if (agent != DOOR_AGENT_ENDED)
        return;
    core_cut_all(c, CLOSE_AGENT_ENDED);
    core_waiting_judge(c, now_us);
}

/* --- looking -------------------------------------------------------------------------------- */

enum door_state door_core_state(const struct door_core *c)
{
    return c->state;
}

const char *door_state_name(enum door_state s)
{
    static const char *const names[] = {"boot", "sync", "live", "stale", "sealed"};

    return names[s];
}

int64_t door_core_applied(const struct door_core *c)
{
    return c->applied;
}

int64_t door_core_gateway_ms(const struct door_core *c, int64_t now_us)
{
    return c->has_time ? (now_us + c->offset_us) / US_PER_MS : 0;
}

int64_t door_core_expires_ms(const struct door_peer *peer)
{
    return peer->lease ? peer->lease->exp * 1000 : 0;
}

size_t door_core_live(const struct door_core *c, const struct id *jti)
{
    const struct door_lease *lease = core_lease_find(c, jti);

    return lease ? (size_t)lease->live : 0;
}

bool door_core_wants_resync(const struct door_core *c)
{
    return c->resync;
}

bool door_core_done(const struct door_core *c)
{
    return c->done;
}
