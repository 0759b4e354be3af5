/* A door's process: its core, its control connection and its timers. */
#include <stdlib.h>
#include <string.h>

#include "leasehold/arena.h"
#include "invariants.h"
#include "sim.h"

#define RETRY_FIRST_US (50 * MS)
#define RETRY_MOST_US  SEC
#define PING_US        SEC
#define LATE_MOST_US   (2 * SEC)
#define ARENA_MAX      (4 << 20)

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- what its core asks for -------------------------------------------------------------------- */

static void io_random(void *ctx, void *to, size_t len)
{
    const struct sim_door *d = ctx;
    uint8_t *bytes = to;

    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)rng_next(&d->sim->rng);
}

static void io_send(void *ctx, const struct door_msg *m)
{
    struct sim_door *d = ctx;

    net_send_to_gateway(d->sim, d, m);
}

/* --- life -------------------------------------------------------------------------------------- */

void door_start(struct sim *s, int session, bool zombie)
{
    struct session_sim *x = &s->sessions[session];
    struct sim_door *d = zombie ? &x->zombie : &x->door;
    struct door_core_config config = {.session_id = x->row.session_id,
                                      .ep = x->row.generation - zombie,
                                      .issuer = s->policy.issuer,
                                      .node = s->policy.node,
                                      .leeway_s = s->policy.skew_s,
                                      .ttl_max_s = s->policy.ttl_max_s,
                                      .stale_s = s->limits.stale_after_seconds,
                                      .seal_s = s->limits.seal_after_seconds};
    struct door_core_io io = {.ctx = d,
                              .admitted = client_admitted,
                              .challenge = client_challenged,
                              .random = io_random,
                              .close = client_closed,
                              .send = io_send};

    *d = (struct sim_door){.sim = s,
                           .alive = true,
                           .zombie = zombie,
                           .session = session,
                           .link = -1,
                           .retry_at_us = s->boot_us,
                           .retry_us = RETRY_FIRST_US,
                           .ping_at_us = NEVER,
                           .agent_at_us = s->boot_us + rng_range(&s->rng, 0, 100 * MS),
                           .break_at_us = NEVER,
                           .calm_since_us = s->boot_us,
                           .heard_us = s->boot_us,
                           .heal_at_us = NEVER};
    for (size_t i = 0; i < sizeof config.boot_id.b; i++)
        config.boot_id.b[i] = (uint8_t)rng_next(&s->rng);
    d->boot_id = config.boot_id;
    d->core = door_core_new(&config, &io, s->boot_us);
    if (!d->core)
        abort();
    sim_trace(s, "door of %s starts, generation %lld", SHORT(&config.session_id),
              (long long)config.ep);
}

void door_die(struct sim *s, struct sim_door *d)
{
    if (!d->alive)
        return;
    sim_trace(s, "door of %s ends", SHORT(&s->sessions[d->session].row.session_id));
    net_door_closes(s, d);
    for (int i = 0; i < SIM_SOCKETS; i++)
        if (d->clients[i].used)
            client_gone(s, d, &d->clients[i]);
    door_core_free(d->core);
    d->core = NULL;
    d->alive = false;
}

/* --- the control connection -------------------------------------------------------------------- */

void door_link_gone(struct sim *s, struct sim_door *d)
{
    d->in_step = false;
    d->ping_at_us = NEVER;
    d->retry_at_us = s->boot_us + rng_range(&s->rng, d->retry_us / 2, d->retry_us);
    d->retry_us = earlier(2 * d->retry_us, RETRY_MOST_US);
    door_core_unlinked(d->core);
    sim_trace(s, "door of %s unlinked", SHORT(&s->sessions[d->session].row.session_id));
}

static void reconnect(struct sim *s, struct sim_door *d)
{
    net_door_closes(s, d);
    door_link_gone(s, d);
}

void door_break_link(struct sim *s, struct sim_door *d)
{
    d->break_at_us = NEVER;
    d->calm_since_us = s->boot_us;
    if (d->link >= 0)
        reconnect(s, d);
}

static void connect_to_gateway(struct sim *s, struct sim_door *d)
{
    char secret[DOOR_SECRET_TEXT];
    struct door_msg m;
    struct err e;

    if (!s->gw.up || d->cut_off) {
        d->retry_at_us = s->boot_us + rng_range(&s->rng, d->retry_us / 2, d->retry_us);
        d->retry_us = earlier(2 * d->retry_us, RETRY_MOST_US);
        return;
    }
    d->retry_at_us = NEVER;
    net_connect(s, d);
    if (door_core_hello(d->core, s->boot_us, &m, &e))
        abort();
    memcpy(secret, s->sessions[d->session].secret, sizeof secret);
    if (!s->quiet && !s->resting && rng_one_in(&s->rng, 25)) {
        secret[rng_index(&s->rng, DOOR_SECRET_TEXT - 1)] ^= 1;
        s->links[d->link].impostor = true;
        d->calm_since_us = s->boot_us;
        s->seen[SEEN_IMPOSTOR]++;
    }
    m.secret = secret;
    sim_trace(s, "door of %s says hello, applied %lld",
              SHORT(&s->sessions[d->session].row.session_id), (long long)m.applied);
    net_send_to_gateway(s, d, &m);
    free(m.conns.items);
    free(m.consumed.items);
    d->ping_at_us = s->boot_us + PING_US;
    if (!s->quiet && !s->resting && rng_one_in(&s->rng, 6))
        d->break_at_us = s->boot_us + rng_range(&s->rng, 0, 3 * MS);
}

static void took(struct sim *s, struct sim_door *d, const struct door_msg *m)
{
    if (m->t == DOOR_SNAPSHOT || m->t == DOOR_DELTA)
        d->in_step = true;
    if (m->t == DOOR_SNAPSHOT)
        s->seen[SEEN_SNAPSHOT]++;
    if (m->t == DOOR_DELTA)
        s->seen[SEEN_DELTA]++;
    if (d->in_step)
        d->heard_us = s->boot_us;
    d->retry_us = RETRY_FIRST_US;
}

void door_receive(struct sim *s, struct sim_door *d, const char *text, size_t len)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct door_msg m;
    struct err e;
    int rc;

    if (!arena || door_msg_decode(text, len, arena, &m, &e)) {
        sim_fail(s, "protocol", "the gateway's word cannot be read: %.100s", text);
        arena_free(arena);
        return;
    }
    invariants_before_receive(s, d, &m);
    rc = door_core_receive(d->core, &m, s->boot_us, &e);
    if (m.t != DOOR_PING || rc)
        sim_trace(s, "door of %s takes %d op %d seq %lld: %d",
                  SHORT(&s->sessions[d->session].row.session_id), m.t, m.op, (long long)m.seq, rc);
    if (!rc)
        took(s, d, &m);
    invariants_after_receive(s, d, &m, rc);
    arena_free(arena);
    if (rc) {
        s->seen[SEEN_RESYNC]++;
        reconnect(s, d);
    }
    door_settle(s, d);
}

void door_settle(struct sim *s, struct sim_door *d)
{
    if (!d->alive)
        return;
    door_core_flush(d->core, s->boot_us);
    if (door_core_wants_resync(d->core) && d->link >= 0) {
        s->seen[SEEN_RESYNC]++;
        reconnect(s, d);
    }
    if (door_core_state(d->core) == DOOR_SEALED)
        s->seen[SEEN_SEALED]++;
    if (!door_core_done(d->core))
        return;
    if (!d->zombie && !s->sessions[d->session].ended) /* the gateway looks after its sandboxes */
        s->sessions[d->session].stop_at_us = s->boot_us + SEC;
    door_die(s, d);
}

/* --- time -------------------------------------------------------------------------------------- */

static int64_t client_due_us(const struct client *c)
{
    int64_t due = NEVER;

    if (!c->used)
        return NEVER;
    if (c->prove_at_us)
        due = c->prove_at_us;
    if (c->gone_at_us)
        due = earlier(due, c->gone_at_us);
    return due;
}

/* The core's own timer, as its loop comes to it. */
static int64_t timer_due_us(const struct sim_door *d)
{
    int64_t at = door_core_deadline_us(d->core);

    return at == INT64_MAX ? NEVER : at + d->late_us;
}

int64_t door_due_us(const struct sim *s, const struct sim_door *d)
{
    int64_t due = earlier(d->retry_at_us, d->ping_at_us);

    (void)s;
    due = earlier(earlier(due, d->agent_at_us), d->break_at_us);
    if (d->cut_off)
        due = earlier(due, d->heal_at_us);
    due = earlier(due, timer_due_us(d));
    for (int i = 0; i < SIM_SOCKETS; i++)
        due = earlier(due, client_due_us(&d->clients[i]));
    return due;
}

static void clients_event(struct sim *s, struct sim_door *d)
{
    for (int i = 0; i < SIM_SOCKETS && d->alive; i++) {
        struct client *c = &d->clients[i];

        if (client_due_us(c) > s->boot_us)
            continue;
        if (c->gone_at_us && c->gone_at_us <= s->boot_us)
            client_gone(s, d, c);
        else
            client_prove(s, d, c);
    }
}

static void heal(struct sim *s, struct sim_door *d)
{
    d->cut_off = false;
    d->calm_since_us = s->boot_us;
    d->heal_at_us = NEVER;
    if (d->link >= 0)
        s->links[d->link].clean_since_us = s->boot_us;
    sim_trace(s, "door of %s is reached again", SHORT(&s->sessions[d->session].row.session_id));
}

void door_event(struct sim *s, struct sim_door *d)
{
    int64_t now = s->boot_us;

    if (d->cut_off && d->heal_at_us <= now)
        heal(s, d);
    if (d->agent_at_us <= now) {
        d->agent_at_us = NEVER;
        door_core_agent(d->core, DOOR_AGENT_UP, now);
    }
    if (d->retry_at_us <= now)
        connect_to_gateway(s, d);
    if (d->ping_at_us <= now) {
        d->ping_at_us = now + PING_US;
        net_send_to_gateway(
            s, d, &(struct door_msg){.t = DOOR_PING, .now = door_core_gateway_ms(d->core, now)});
    }
    if (d->break_at_us <= now)
        door_break_link(s, d);
    if (timer_due_us(d) <= now) {
        door_core_tick(d->core, now);
        d->late_us = rng_one_in(&s->rng, 4) ? rng_range(&s->rng, 0, LATE_MOST_US) : 0;
    }
    door_settle(s, d);
    if (d->alive)
        clients_event(s, d);
    door_settle(s, d);
}
