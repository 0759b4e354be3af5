/* What happens in a step: by chance, some of it often. */
#include <stdlib.h>
#include <string.h>

#include "invariants.h"
#include "sim.h"

/* --- choosing ---------------------------------------------------------------------------------- */

static int session_choose(struct sim *s)
{
    int start = s->sessions_n ? rng_index(&s->rng, s->sessions_n) : 0;

    for (int i = 0; i < s->sessions_n; i++) {
        int at = (start + i) % s->sessions_n;

        if (!s->sessions[at].ended)
            return at;
    }
    return -1;
}

static struct sim_door *door_choose(struct sim *s)
{
    struct sim_door *d, *chosen = NULL;
    int n = 0;

    for (int at = 0; (d = door_next(s, &at));)
        if (rng_one_in(&s->rng, ++n))
            chosen = d;
    return chosen;
}

static int lease_choose(struct sim *s)
{
    int start;

    if (!s->leases_n)
        return -1;
    start = rng_index(&s->rng, s->leases_n);
    for (int i = 0; i < s->leases_n; i++)
        if (facts_open(&s->leases[(start + i) % s->leases_n]) || rng_one_in(&s->rng, 30))
            return (start + i) % s->leases_n;
    return start;
}

static int api_choose(struct sim *s)
{
    return rng_one_in(&s->rng, 2) ? 0 : rng_index(&s->rng, SIM_APIS);
}

/* --- sessions ---------------------------------------------------------------------------------- */

static void begin(struct sim *s, int chat)
{
    static const char hex[] = "0123456789abcdef";
    struct op *op;

    if (s->sessions_n > SIM_SESSIONS - 8)
        return;
    op = op_new(s, OP_SESSION_BEGIN, 0);
    op->chat = chat;
    id_random(&op->sandbox.session_id);
    for (int i = 0; i < DOOR_SECRET_TEXT - 1; i++)
        op->secret[i] = hex[rng_index(&s->rng, 16)];
    gateway_submit(s, op);
}

static void act_session(struct sim *s)
{
    int chat = rng_index(&s->rng, SIM_CHATS), active = -1;

    for (int i = 0; i < s->sessions_n; i++)
        if (s->sessions[i].chat == chat && !s->sessions[i].ended)
            active = i;
    if (active < 0)
        begin(s, chat);
    else if (rng_one_in(&s->rng, 8) || s->sessions[active].n > SIM_LOG / 2)
        session_stop(s, active);
}

static void act_zombie(struct sim *s)
{
    int at = session_choose(s);

    if (at < 0 || s->sessions[at].zombie.alive || !s->gw.up)
        return;
    s->seen[SEEN_ZOMBIE]++;
    door_start(s, at, true);
}

/* --- leases ------------------------------------------------------------------------------------ */

void sim_grant(struct sim *s, int session, int api, int64_t ttl_s)
{
    struct op *op;

    if (s->leases_n > SIM_LEASES - 128 || s->sessions[session].n > SIM_LOG - 256)
        return;
    op = op_new(s, OP_GRANT, api);
    op->session = session;
    op->request.ttl_s = ttl_s;
    op->request.max_connections = rng_range(&s->rng, 0, 3);
    op->request.scope = (unsigned)rng_range(&s->rng, 0, 3);
    if (rng_one_in(&s->rng, 4))
        op->request.use = USE_ONCE;
    if (rng_one_in(&s->rng, 5))
        op->request.cnf_jkt = s->proof_jkt;
    gateway_submit(s, op);
}

static void act_grant(struct sim *s)
{
    int session = session_choose(s);
    int64_t ttl_s = rng_one_in(&s->rng, 3) ? rng_range(&s->rng, 1, 60) : 0;

    if (session >= 0)
        sim_grant(s, session, api_choose(s), ttl_s);
}

/* Many that end in the same second. */
static void act_burst(struct sim *s)
{
    int64_t ttl_s = rng_range(&s->rng, 2, 10);

    s->seen[SEEN_BURST]++;
    for (int i = 0; i < 20; i++) {
        int session = session_choose(s);

        if (session >= 0)
            sim_grant(s, session, rng_index(&s->rng, 2), ttl_s);
    }
}

static void act_on_lease(struct sim *s, enum op_kind kind)
{
    int lease = lease_choose(s);
    struct op *op;

    if (lease < 0 || s->sessions[s->leases[lease].session].n > SIM_LOG - 64)
        return;
    op = op_new(s, kind, api_choose(s));
    op->lease_id = s->leases[lease].l.lease_id;
    if (rng_one_in(&s->rng, 10))
        id_random(&op->lease_id); /* none */
    if (kind == OP_RENEW)
        op->request.ttl_s = rng_one_in(&s->rng, 2) ? rng_range(&s->rng, 1, 60) : 0;
    gateway_submit(s, op);
}

static void act_revoke_by(struct sim *s)
{
    struct op *op = op_new(s, OP_REVOKE_BY, api_choose(s));
    int lease = lease_choose(s);
    const struct lease *l = &s->leases[lease < 0 ? 0 : lease].l;

    switch (rng_index(&s->rng, 9)) {
    case 0:
        op->match = (struct store_match){.by = MATCH_ALL};
        break;
    case 5:
        op->match = (struct store_match){.by = MATCH_KID, .kid = l->kid};
        break;
    case 1:
    case 2:
        op->match = (struct store_match){.by = MATCH_SESSION, .id = l->session_id};
        break;
    case 3:
        op->match = (struct store_match){.by = MATCH_CHAT, .id = l->chat_id};
        break;
    case 4:
        op->match = (struct store_match){.by = MATCH_USER, .id = l->user_id};
        break;
    default:
        op->match = (struct store_match){.by = MATCH_API_KEY, .id = l->api_key_id};
        break;
    }
    gateway_submit(s, op);
}

/* --- keys -------------------------------------------------------------------------------------- */

static void act_api(struct sim *s)
{
    int at = 1 + rng_index(&s->rng, SIM_APIS - 1);
    const struct api *a = &s->apis[at];
    struct op *op = op_new(s, OP_KEY_UPDATE, 0);

    op->api_row = a->row;
    memcpy(op->api_users, a->users, sizeof op->api_users);
    if (at == 1) {
        op->api_row.expires_at =
            rng_one_in(&s->rng, 2) ? sim_wall_ms(s) + rng_range(&s->rng, 1, 100) * 1000 : 0;
    } else if (rng_one_in(&s->rng, 12)) {
        op->api_row.revoked_at = 1; /* the write says when */
    } else if (rng_one_in(&s->rng, 4)) {
        op->api_row.role = a->row.role == ROLE_BOT ? ROLE_VIEWER : ROLE_BOT;
    } else {
        op->api_row.allowed_users.n = (size_t)rng_range(&s->rng, 0, 2);
        for (size_t i = 0; i < op->api_row.allowed_users.n; i++)
            op->api_users[i] = s->users[(at + (int)i + rng_index(&s->rng, 2)) % SIM_USERS];
        if (op->api_row.allowed_users.n == 2 && id_equal(&op->api_users[0], &op->api_users[1]))
            op->api_row.allowed_users.n = 1;
    }
    if (a->row.revoked_at)
        op_free(op);
    else
        gateway_submit(s, op);
}

static void act_signing_key(struct sim *s)
{
    int what = rng_index(&s->rng, 4);
    struct op *op = op_new(s, what < 2 ? OP_ROTATE : what == 2 ? OP_KILL : OP_GONE, 0);

    op->signer = rng_index(&s->rng, SIM_SIGNERS);
    for (int i = 0; i < SIM_SIGNERS && !s->signers[op->signer].used; i++)
        op->signer = (op->signer + 1) % SIM_SIGNERS;
    gateway_submit(s, op);
}

/* --- trouble ----------------------------------------------------------------------------------- */

static void partition(struct sim *s, struct sim_door *d)
{
    if (d->cut_off)
        return;
    d->cut_off = true;
    d->heal_at_us = s->boot_us + (rng_one_in(&s->rng, 2) ? rng_range(&s->rng, SEC, 25 * SEC)
                                                         : rng_range(&s->rng, MS, 2 * SEC));
    sim_trace(s, "door of %s is cut off", SHORT(&s->sessions[d->session].row.session_id));
}

static void act_door(struct sim *s)
{
    struct sim_door *d = door_choose(s);

    if (!d)
        return;
    switch (rng_index(&s->rng, 10)) {
    case 0:
        s->seen[SEEN_DOOR_DEAD]++;
        if (!d->zombie && s->sessions[d->session].kill_at_us == NEVER)
            session_stop(s, d->session);
        door_die(s, d);
        break;
    case 1:
        door_core_agent(d->core, DOOR_AGENT_ENDED, s->boot_us);
        door_settle(s, d);
        break;
    case 2:
    case 3:
    case 4:
        door_break_link(s, d);
        break;
    default:
        partition(s, d);
        break;
    }
}

static void act_clock(struct sim *s)
{
    int64_t us;

    if (rng_one_in(&s->rng, 2)) {
        sim_step_wall(s, rng_range(&s->rng, -30000, 30000));
        return;
    }
    us = rng_range(&s->rng, MS, 30 * SEC);
    sim_trace(s, "asleep for %lld us", (long long)us);
    s->seen[SEEN_SUSPEND]++;
    s->boot_us += us;
    for (int i = 0; i < SIM_LINKS; i++)
        s->links[i].clean_since_us = s->boot_us;
    s->slept_us = s->boot_us;
}

/* Nothing is issued when it has come back, until it is reset. */
void sim_clock_far(struct sim *s, int64_t ms)
{
    if (ms)
        s->seen[SEEN_FAR]++;
    sim_step_wall(s, ms ? ms : -s->far_ms);
    s->far_ms = ms;
}

/* By minutes or by a year. In some seeds: little else happens until it is over. */
static void act_clock_far(struct sim *s)
{
    bool behind = s->gw.operator_at_us != NEVER || s->gw.reset_due;

    if (s->seed % 3)
        return;
    if (s->far_ms) {
        sim_clock_far(s, 0);
        s->gw.operator_at_us = s->boot_us + rng_range(&s->rng, 0, 20 * SEC);
    } else if (!behind) {
        sim_clock_far(s, rng_one_in(&s->rng, 2) ? rng_range(&s->rng, 60, SIM_SESSION_IDLE_S) * 1000
                                                : rng_range(&s->rng, 1, 365) * 86400000);
    }
}

static void act_crash(struct sim *s)
{
    if (!s->gw.up)
        return;
    if (rng_one_in(&s->rng, 4)) {
        s->seen[SEEN_CRASH]++;
        gateway_end(s, DISK_KILLED);
    } else {
        sim_disk_end_at(s->disk, rng_range(&s->rng, 1, 24));
    }
}

static void act_full(struct sim *s)
{
    s->full_until_us = s->boot_us + rng_range(&s->rng, 10 * MS, 4 * SEC);
    sim_trace(s, "the disk is full");
}

/* --- a step ------------------------------------------------------------------------------------ */

static void act_clients(struct sim *s, struct sim_door *d)
{
    switch (rng_index(&s->rng, 8)) {
    case 0:
        client_leave(s, d);
        break;
    case 1:
    case 2:
    case 3:
        client_talk(s, d);
        break;
    default:
        client_connect(s, d);
        break;
    }
}

static void act_any_door(struct sim *s)
{
    struct sim_door *d = door_choose(s);

    if (d)
        act_clients(s, d);
}

static void act_renew(struct sim *s)
{
    act_on_lease(s, OP_RENEW);
}

/* One that ends within seconds, if there is one. */
static void act_renew_late(struct sim *s)
{
    int64_t now_ms = sim_wall_ms(s);
    struct op *op = NULL;

    for (int i = 0; i < s->leases_n && !op; i++) {
        const struct lease *l = &s->leases[i].l;

        if (facts_open(&s->leases[i]) && l->expires_at < now_ms + 1500 &&
            s->sessions[s->leases[i].session].n < SIM_LOG - 64) {
            op = op_new(s, OP_RENEW, 0);
            op->lease_id = l->lease_id;
        }
    }
    if (op)
        gateway_submit(s, op);
}

static void act_damage(struct sim *s)
{
    struct sim_door *d;

    for (int at = 0; (d = door_next(s, &at));)
        net_damage(s, d);
}

static void act_revoke(struct sim *s)
{
    act_on_lease(s, OP_REVOKE);
}

static void act_look(struct sim *s)
{
    act_on_lease(s, OP_LOOK);
}

/* Trouble comes more or less often, as the seed has it. */
static const struct {
    int weight;
    bool trouble;
    void (*act)(struct sim *s);
} acts[] = {
    {500, false, act_any_door},  {120, false, act_grant},   {80, false, act_renew},
    {30, false, act_revoke},     {20, false, act_look},     {14, false, act_revoke_by},
    {14, false, act_api},        {24, false, act_session},  {12, false, act_signing_key},
    {6, false, act_burst},       {40, true, act_door},      {12, true, act_session},
    {6, true, act_zombie},       {20, true, act_clock},     {20, true, act_crash},
    {5, true, act_full},         {14, true, act_clock_far}, {40, true, act_damage},
    {40, false, act_renew_late},
};
#define ACTS (sizeof acts / sizeof acts[0])

static void act_once(struct sim *s)
{
    int sum = 0, at;

    for (size_t i = 0; i < ACTS; i++)
        sum += acts[i].weight;
    at = rng_index(&s->rng, sum);
    for (size_t i = 0; i < ACTS; at -= acts[i++].weight)
        if (at < acts[i].weight) {
            if (!acts[i].trouble || (!s->quiet && rng_index(&s->rng, 4) <= (int)(s->seed % 4)))
                acts[i].act(s);
            return;
        }
}

void sim_act_first(struct sim *s)
{
    for (int i = 0; i < SIM_CHATS - 1; i++)
        begin(s, i);
    sim_advance(s, SEC);
}

void sim_act(struct sim *s)
{
    int n = rng_one_in(&s->rng, 3) ? 1 + rng_index(&s->rng, 5) : 1;
    struct sim_door *d;

    for (int i = 0; i < n && !s->failed; i++)
        act_once(s);
    for (int at = 0; (d = door_next(s, &at)) && !s->failed;)
        if (rng_one_in(&s->rng, 2))
            client_talk(s, d);
}
