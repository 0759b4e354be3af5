/* Control connections: each direction keeps its order, takes its time, and ends. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "invariants.h"
#include "sim.h"

#define LIST     "\"REVOKE_LIST\""
#define SNAPSHOT "\"SNAPSHOT\""
#define DELTA    "\"DELTA\""
#define OP       "\"OP\""

struct link *net_link(struct sim *s, uint64_t conn)
{
    for (int i = 0; i < SIM_LINKS; i++)
        if (s->links[i].conn == conn && conn)
            return &s->links[i];
    return NULL;
}

static struct sim_door *door_of(struct sim *s, const struct link *l)
{
    struct session_sim *x = &s->sessions[l->door / 2];

    return l->door % 2 ? &x->zombie : &x->door;
}

static int64_t delay_us(struct sim *s)
{
    return rng_one_in(&s->rng, 8) ? rng_range(&s->rng, 0, DELAY_MOST_US)
                                  : rng_range(&s->rng, 20, 400);
}

static void queue(struct sim *s, struct wire_message **to, int64_t *last_us, const char *data,
                  size_t len)
{
    struct wire_message *m = calloc(1, sizeof *m);

    if (!m)
        abort();
    m->at_us = s->boot_us + delay_us(s);
    if (m->at_us < *last_us)
        m->at_us = *last_us;
    *last_us = m->at_us;
    if (data) {
        m->text = malloc(len + 1);
        if (!m->text)
            abort();
        memcpy(m->text, data, len);
        m->text[len] = '\0';
        m->len = len;
    }
    DL_APPEND(*to, m);
}

static void message_free(struct wire_message **from, struct wire_message *m)
{
    DL_DELETE(*from, m);
    free(m->text);
    free(m);
}

static void drop_all(struct wire_message **from)
{
    while (*from)
        message_free(from, *from);
}

void net_free(struct sim *s)
{
    for (int i = 0; i < SIM_LINKS; i++) {
        drop_all(&s->links[i].to_gateway);
        drop_all(&s->links[i].to_door);
    }
}

static void forget_if_over(struct link *l)
{
    if (!l->door_open && !l->gateway_open && !l->to_gateway && !l->to_door)
        l->conn = 0;
}

/* --- both ends --------------------------------------------------------------------------------- */

void net_connect(struct sim *s, struct sim_door *d)
{
    for (int i = 0; i < SIM_LINKS; i++) {
        struct link *l = &s->links[i];

        if (l->conn)
            continue;
        *l = (struct link){.conn = ++s->conns,
                           .door = d->session * 2 + (d == &s->sessions[d->session].zombie),
                           .door_open = true,
                           .gateway_open = true,
                           .clean_since_us = s->boot_us};
        d->link = i;
        return;
    }
    abort();
}

void net_send_to_gateway(struct sim *s, struct sim_door *d, const struct door_msg *m)
{
    struct link *l = d->link < 0 ? NULL : &s->links[d->link];
    struct buf text;

    if (!l || !l->door_open)
        return;
    buf_init(&text, DOOR_CONTROL_MAX);
    door_msg_encode(m, &text);
    if (!buf_ok(&text))
        abort();
    if (l->gateway_open)
        queue(s, &l->to_gateway, &l->last_to_gateway_us, text.data, text.len);
    buf_done(&text);
}

/* What must be taken whole or not at all. */
static bool is_long(const char *text, const char *what)
{
    return text && strstr(text, what);
}

/* Now and then the connection breaks while a list is on its way; with a snapshot it may do so by what
 * follows a HELLO (sim_door.c). */
static void break_within(struct sim *s, struct sim_door *d, const char *text)
{
    if (is_long(text, LIST) && !s->quiet && !s->resting && rng_one_in(&s->rng, 2))
        d->break_at_us = s->boot_us + rng_range(&s->rng, 0, MS);
}

/* A snapshot once more, behind what has followed it. */
static void say_again(struct sim *s, struct link *l)
{
    const struct wire_message *m = l->to_door;

    if (s->quiet || s->resting || !is_long(m->text, SNAPSHOT) || !is_long(m->prev->text, OP) ||
        !rng_one_in(&s->rng, 4))
        return;
    s->seen[SEEN_TWICE]++;
    door_of(s, l)->calm_since_us = s->boot_us;
    queue(s, &l->to_door, &l->last_to_door_us, m->text, m->len);
}

static void note_lost(struct sim *s, const struct wire_message *m)
{
    s->seen[SEEN_LIST_LOST] += is_long(m->text, LIST);
    s->seen[SEEN_SNAPSHOT_LOST] += is_long(m->text, SNAPSHOT);
}

void net_send_to_door(struct sim *s, uint64_t conn, const char *data, size_t len)
{
    struct link *l = net_link(s, conn);

    if (!l || !l->gateway_open)
        return;
    invariants_said(s, door_of(s, l), data, len);
    if (l->door_open)
        queue(s, &l->to_door, &l->last_to_door_us, data, len);
    if (l->impostor &&
        (memmem(data, len, SNAPSHOT, strlen(SNAPSHOT)) || memmem(data, len, DELTA, strlen(DELTA)) ||
         memmem(data, len, OP, strlen(OP))))
        sim_fail(s, "invariant_23", "who does not know a door's secret is told what it is told");
    if (!l->door_open || !door_of(s, l)->alive)
        return;
    break_within(s, door_of(s, l), l->to_door->prev->text);
    say_again(s, l);
}

void net_gateway_closes(struct sim *s, uint64_t conn)
{
    struct link *l = net_link(s, conn);

    if (!l || !l->gateway_open)
        return;
    l->gateway_open = false;
    drop_all(&l->to_gateway);
    if (l->door_open)
        queue(s, &l->to_door, &l->last_to_door_us, NULL, 0);
    forget_if_over(l);
}

/* What it had handed to the kernel still arrives, what it had not does not. */
void net_gateway_dead(struct sim *s)
{
    for (int i = 0; i < SIM_LINKS; i++) {
        struct link *l = &s->links[i];

        if (!l->conn || !l->gateway_open)
            continue;
        while (l->to_door && rng_one_in(&s->rng, 2))
            message_free(&l->to_door, l->to_door->prev);
        net_gateway_closes(s, l->conn);
    }
}

/* What is on its way to the gateway still arrives, also behind the HELLO of a newer connection. */
void net_door_closes(struct sim *s, struct sim_door *d)
{
    struct link *l = d->link < 0 ? NULL : &s->links[d->link];
    const struct wire_message *m;

    if (!l || !l->door_open)
        return;
    DL_FOREACH (l->to_door, m)
        note_lost(s, m);
    d->link = -1;
    l->door_open = false;
    drop_all(&l->to_door);
    if (l->gateway_open)
        queue(s, &l->to_gateway, &l->last_to_gateway_us, NULL, 0);
    forget_if_over(l);
}

/* A gateway that had no memory for an operation goes on with the next; one that says something twice. */
void net_damage(struct sim *s, struct sim_door *d)
{
    struct link *l = d->link < 0 ? NULL : &s->links[d->link];
    struct wire_message *m;

    if (!l || !l->to_door || !l->to_door->text)
        return;
    m = l->to_door;
    d->calm_since_us = s->boot_us;
    if (is_long(m->text, OP) && m->next && is_long(m->next->text, OP) && rng_one_in(&s->rng, 2)) {
        s->seen[SEEN_GAP]++;
        message_free(&l->to_door, m);
    } else if (is_long(m->text, OP) || is_long(m->text, SNAPSHOT)) {
        s->seen[SEEN_TWICE]++;
        queue(s, &l->to_door, &l->last_to_door_us, m->text, m->len);
    }
}

/* --- time -------------------------------------------------------------------------------------- */

/* A partition holds everything; so does, for what goes to it, a gateway that is not there. */
static int64_t due_of(struct sim *s, struct link *l)
{
    const struct sim_door *d = door_of(s, l);
    int64_t due = NEVER;

    if (!l->conn || (l->door_open && d->cut_off))
        return NEVER;
    if (l->to_gateway)
        due = l->to_gateway->at_us;
    if (l->to_door && l->to_door->at_us < due)
        due = l->to_door->at_us;
    return due;
}

int64_t net_due_us(const struct sim *s)
{
    int64_t due = NEVER;

    for (int i = 0; i < SIM_LINKS; i++) {
        int64_t of = due_of((struct sim *)s, (struct link *)&s->links[i]);

        if (of < due)
            due = of;
    }
    return due;
}

bool net_quiet(const struct sim *s)
{
    for (int i = 0; i < SIM_LINKS; i++)
        if (s->links[i].conn && (s->links[i].to_gateway || s->links[i].to_door))
            return false;
    return true;
}

static void arrive_at_gateway(struct sim *s, struct link *l)
{
    struct wire_message *m = l->to_gateway;
    uint64_t conn = l->conn;

    DL_DELETE(l->to_gateway, m);
    if (s->gw.up && l->gateway_open) {
        if (!l->announced && m->text) {
            l->announced = true;
            broker_door_open(s->gw.broker, conn);
        }
        if (m->text && l->gateway_open)
            broker_door_message(s->gw.broker, conn, m->text, m->len);
        else if (!m->text) {
            l->gateway_open = false;
            broker_door_closed(s->gw.broker, conn);
        }
    }
    free(m->text);
    free(m);
    if (s->gw.up)
        invariants_heard(s, l->door / 2);
    forget_if_over(l);
}

static void arrive_at_door(struct sim *s, struct link *l)
{
    struct wire_message *m = l->to_door;
    struct sim_door *d = door_of(s, l);

    DL_DELETE(l->to_door, m);
    if (l->door_open && d->alive) {
        if (m->text)
            door_receive(s, d, m->text, m->len);
        else {
            l->door_open = false;
            d->link = -1;
            door_link_gone(s, d);
        }
    }
    free(m->text);
    free(m);
    forget_if_over(l);
}

void net_event(struct sim *s)
{
    int64_t due = net_due_us(s);

    for (int i = 0; i < SIM_LINKS; i++) {
        struct link *l = &s->links[i];

        if (due_of(s, l) != due)
            continue;
        if (s->boot_us - due > DELAY_MOST_US)
            l->clean_since_us = s->boot_us;
        if (l->to_door && l->to_door->at_us == due)
            arrive_at_door(s, l);
        else
            arrive_at_gateway(s, l);
        return;
    }
}
