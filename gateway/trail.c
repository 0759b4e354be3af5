#include "trail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meters.h"
#include "services.h"

#define GATHER_MS   50
#define BATCH_MAX   512   /* entries of one write */
#define WAITING_MAX 20000 /* entries; more of them are counted, not written */

/* Of what is refused to requests without a valid key: anybody may send those. */
#define STRANGER_RATE  20 /* a second */
#define STRANGER_BURST 400

#define NAME_MAX_BYTES 255 /* of a thing without an id */

struct note {
    struct note *next;
    int64_t at;
    const char *action, *outcome; /* constants */
    char actor[ID_TEXT], object[320], address[64], request_id[65], detail[STORE_AUDIT_DETAIL];
};

struct batch {
    struct store_job job;
    struct trail *t;
    struct note *notes;
    size_t n;
};

struct trail {
    struct services *s;
    struct server_timer *timer;
    bool armed;
    struct note *notes, **tail; /* gathered */
    size_t gathered, waiting;   /* waiting: and of batches under way */
    bool closed;                /* the store is */
    int64_t dropped;            /* not yet told of in the trail */
    int64_t tokens, tokens_us;  /* of strangers */
};

static void gather_over(void *ctx)
{
    struct trail *t = ctx;

    t->armed = false;
    trail_flush(t);
}

struct trail *trail_new(struct services *s)
{
    struct trail *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->s = s;
    t->tail = &t->notes;
    t->tokens = STRANGER_BURST;
    t->tokens_us = clock_boot_us(s->clock);
    t->timer = server_timer_new(s->server, gather_over, t);
    if (!t->timer) {
        free(t);
        return NULL;
    }
    return t;
}

static void notes_free(struct note *n)
{
    while (n) {
        struct note *next = n->next;
        free(n);
        n = next;
    }
}

void trail_free(struct trail *t)
{
    if (!t)
        return;
    notes_free(t->notes);
    server_timer_free(t->timer);
    free(t);
}

/* --- writing ---------------------------------------------------------------------------------- */

static int write_note(struct store_tx *tx, const struct note *n, struct err *e)
{
    return store_audit(tx,
                       &(struct audit_entry){.at = n->at,
                                             .actor = n->actor,
                                             .action = n->action,
                                             .object = n->object,
                                             .outcome = n->outcome,
                                             .address = n->address,
                                             .request_id = n->request_id,
                                             .detail = n->detail},
                       e);
}

static int write_notes(struct store_tx *tx, void *arg, struct err *e)
{
    for (const struct note *n = arg; n; n = n->next)
        if (write_note(tx, n, e))
            return -1;
    return 0;
}

static int write_batch(struct store_tx *tx, void *arg, struct err *e)
{
    const struct batch *b = arg;

    return write_notes(tx, b->notes, e);
}

/* The log has each of them as a request. */
static void lost(struct trail *t, size_t n, const struct err *e)
{
    log_error(t->s->log, "audit_lost", e, LF_INT("n", (int64_t)n));
    metric_add(meter(t->s->meters, METER_AUDIT_FAILURES), 0, 0, (int64_t)n);
}

static void batch_done(struct job *job)
{
    struct batch *b = (struct batch *)((char *)job - offsetof(struct batch, job.job));

    if (b->job.rc)
        lost(b->t, b->n, &b->job.e);
    b->t->waiting -= b->n;
    notes_free(b->notes);
    free(b);
}

static struct batch *batch_take(struct trail *t)
{
    struct batch *b = calloc(1, sizeof *b);
    struct note **end = &t->notes;

    if (!b)
        return NULL;
    while (*end && b->n < BATCH_MAX) {
        end = &(*end)->next;
        b->n++;
    }
    b->t = t;
    b->notes = t->notes;
    t->notes = *end;
    *end = NULL;
    if (!t->notes)
        t->tail = &t->notes;
    t->gathered -= b->n;
    b->job = (struct store_job){.job.done = batch_done, .fn = write_batch, .arg = b};
    return b;
}

void trail_flush(struct trail *t)
{
    struct batch *b;
    struct err e;

    while (t->notes && (b = batch_take(t)))
        if (store_submit(t->s->store, &b->job, &e)) {
            b->job.rc = -1;
            b->job.e = e;
            batch_done(&b->job.job);
        }
}

void trail_close(struct trail *t)
{
    struct err e;

    if (!t)
        return;
    t->closed = true;
    if (!t->notes)
        return;
    if (store_write(t->s->store, write_notes, t->notes, &e))
        lost(t, t->gathered, &e);
    notes_free(t->notes);
    t->notes = NULL;
    t->tail = &t->notes;
    t->gathered = 0;
}

/* --- gathering -------------------------------------------------------------------------------- */

static void add(struct trail *t, struct note *n)
{
    *t->tail = n;
    t->tail = &n->next;
    t->gathered++;
    t->waiting++;
    if (t->gathered >= BATCH_MAX)
        trail_flush(t);
    if (!t->armed && t->notes) {
        t->armed = true;
        server_timer_arm(t->timer, GATHER_MS);
    }
}

static void drop(struct trail *t)
{
    t->dropped++;
    metric_add(meter(t->s->meters, METER_AUDIT_DROPPED), 0, 0, 1);
}

static struct note *note_new(struct trail *t)
{
    struct note *n = calloc(1, sizeof *n);

    if (n)
        n->at = clock_wall_ms(t->s->clock);
    return n;
}

/* That something is missing is part of the trail. */
static void tell_dropped(struct trail *t)
{
    struct note *n = t->dropped ? note_new(t) : NULL;

    if (!n)
        return;
    snprintf(n->actor, sizeof n->actor, "gateway");
    snprintf(n->object, sizeof n->object, "audit:%lld", (long long)t->dropped);
    n->action = "audit.dropped";
    n->outcome = "failed";
    t->dropped = 0;
    add(t, n);
}

static bool stranger_may(struct trail *t)
{
    int64_t now_us = clock_boot_us(t->s->clock);
    int64_t fresh = (now_us - t->tokens_us) * STRANGER_RATE / 1000000;

    if (fresh > 0) {
        t->tokens = t->tokens + fresh < STRANGER_BURST ? t->tokens + fresh : STRANGER_BURST;
        t->tokens_us = now_us;
    }
    return t->tokens > 0 && t->tokens-- > 0;
}

/* --- what a call is an access to -------------------------------------------------------------- */

static const struct field *find(const struct field *f, const char *name)
{
    while (f && f->name && strcmp(f->name, name) != 0)
        f++;
    return f && f->name ? f : NULL;
}

static const void *member_at(const struct field *f, const void *obj)
{
    return f && obj ? (const char *)obj + f->offset : NULL;
}

/* The thing that this member of *obj names. */
static bool names(const struct field *fields, const void *obj, const struct op_object *o, char *ret,
                  size_t size)
{
    const struct field *f = find(fields, o->member);
    const void *at = member_at(f, obj);
    char within[ID_TEXT + 1] = "";

    if (!at)
        return false;
    if (f->kind == FIELD_KIND_ID && !id_is_zero(at)) {
        snprintf(ret, size, "%s:%s", o->kind, ID_STR((const struct id *)at));
        return true;
    }
    if (f->kind != FIELD_KIND_STR || !*(char *const *)at)
        return false;
    if (o->within)
        snprintf(within, sizeof within, "%s/", ID_STR(member_at(find(fields, o->within), obj)));
    snprintf(ret, size, "%s:%s%.*s", o->kind, within, NAME_MAX_BYTES, *(char *const *)at);
    return true;
}

/* The first of the row's objects that the arguments name, else the answer; else any of the last. */
static void object_of(const struct call *c, char *ret, size_t size)
{
    const struct op_object *o = c->op->audit;

    for (; o < c->op->audit + OP_OBJECTS && o->member; o++)
        if (names(c->op->in, c->args, o, ret, size) ||
            (!c->rc && names(c->op->out, c->result, o, ret, size)))
            return;
    if (o == c->op->audit + OP_OBJECTS || !o->kind)
        o--;
    snprintf(ret, size, "%s:*", o->kind);
}

static bool known_chat(const struct field *fields, const void *obj, const struct id **ret)
{
    *ret = member_at(find(fields, "chat_id"), obj);
    return *ret && !id_is_zero(*ret);
}

bool trail_chat(const struct call *c, struct id *ret)
{
    const struct id *chat_id;

    if (!c->op || !c->op->audit[0].kind ||
        (!known_chat(c->op->in, c->args, &chat_id) &&
         (c->rc || !known_chat(c->op->out, c->result, &chat_id))))
        return false;
    *ret = *chat_id;
    return true;
}

static const char *known_name(const struct field *fields, const void *obj)
{
    const struct field *f = find(fields, "name");
    const void *at = member_at(f, obj);

    if (!at || (f->kind != FIELD_KIND_STR && f->kind != FIELD_KIND_CHARS))
        return NULL;
    return f->kind == FIELD_KIND_STR ? *(const char *const *)at : at;
}

/* Of a file or an artifact: which one of which chat, by the answer, else by what was asked for. */
static void detail_of(const struct call *c, struct note *n)
{
    bool of_chat = !strncmp(n->object, "file:", 5) || !strncmp(n->object, "artifact:", 9);
    const void *result = c->rc ? NULL : c->result;
    const struct id *chat_id = NULL;
    const char *name = NULL;

    if (of_chat && known_chat(c->op->out, result, &chat_id))
        name = known_name(c->op->out, result);
    else if (of_chat && known_chat(c->op->in, c->args, &chat_id))
        name = known_name(c->op->in, c->args);
    store_audit_detail(n->detail, c->rc ? err_code_name(c->e.code) : "", chat_id, name);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* What was put off or turned away for its number was no access. */
static bool is_access(const struct call *c)
{
    return c->op && c->op->audit[0].kind && (!c->rc || (c->status != 429 && c->status != 503));
}

static const char *outcome_of(const struct call *c)
{
    if (!c->rc)
        return "allowed";
    return c->status == 401 || c->status == 403 || c->status == 404 ? "denied" : "failed";
}

/* No flood of refusals keeps what a stranger was given, by a signed link, out of the trail. */
static bool has_room(struct trail *t, const struct call *c, bool stranger)
{
    return t->waiting < WAITING_MAX && (!stranger || !c->rc || stranger_may(t));
}

void trail_call(struct trail *t, const struct call *c)
{
    bool stranger = id_is_zero(&c->caller.key_id);
    struct note *n;

    if (!is_access(c) || (!c->rc && c->told) || t->closed)
        return;
    n = has_room(t, c, stranger) ? note_new(t) : NULL;
    if (!n) {
        drop(t);
        return;
    }
    tell_dropped(t);
    if (stranger)
        snprintf(n->actor, sizeof n->actor, "stranger");
    else
        id_format(&c->caller.key_id, n->actor);
    object_of(c, n->object, sizeof n->object);
    n->action = c->op->name;
    n->outcome = outcome_of(c);
    detail_of(c, n);
    snprintf(n->address, sizeof n->address, "%s", c->caller.address ? c->caller.address : "");
    snprintf(n->request_id, sizeof n->request_id, "%s", c->request_id);
    add(t, n);
}
