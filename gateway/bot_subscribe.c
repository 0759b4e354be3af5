/* Subscriptions: {"op": "subscribe", "args": {"topics": […], "since": N}}. No row of the table,
 * because it is about the connection, and REST has no such thing; but a call like any other. */
#include <stdio.h>
#include <string.h>

#include "bot_ws_state.h"
#include "ops.h"

#define ARENA_CAP 65536

struct subscribe_args {
    struct list topics; /* char * */
    bool has_since;
    int64_t since;
};

static const struct field subscribe_in[] = {
    FIELD_STRLIST(struct subscribe_args, topics, .flags = FIELD_REQUIRED, .max = EVENT_TOPICS_MAX),
    FIELD_INT(struct subscribe_args, since, .has = offsetof(struct subscribe_args, has_since)),
    {0},
};

struct subscribed {
    struct topic *topics;
    struct list texts; /* as asked for */
    int64_t seq;
};

static const struct field subscribe_out[] = {
    {.name = "topics",
     .kind = FIELD_KIND_LIST,
     .elem_kind = FIELD_KIND_STR,
     .elem = sizeof(char *),
     .offset = offsetof(struct subscribed, texts)},
    FIELD_INT(struct subscribed, seq),
    {0},
};

static bool topic_parse(const char *text, struct topic *ret)
{
    static const char *const prefixes[] = {
        [TOPIC_USER] = "user:", [TOPIC_CHAT] = "chat:", [TOPIC_SESSION] = "session:"};

    *ret = (struct topic){.kind = TOPIC_ALL};
    if (!strcmp(text, "all"))
        return true;
    for (enum topic_kind kind = TOPIC_USER; kind <= TOPIC_SESSION; kind++) {
        size_t len = strlen(prefixes[kind]);

        ret->kind = kind;
        if (!strncmp(text, prefixes[kind], len))
            return id_parse(text + len, strlen(text + len), &ret->id) && !id_is_zero(&ret->id);
    }
    return false;
}

/* Missing and invisible are answered alike. */
static int topic_check(struct call *c, const struct topic *t, struct err *e)
{
    struct sandbox s;
    struct chat chat;

    switch (t->kind) {
    case TOPIC_ALL:
        return 0;
    case TOPIC_USER:
        return caller_may_see(&c->caller, &t->id) ? 0 : err_set(e, ERR_NOT_FOUND, "no such user");
    case TOPIC_CHAT:
        return chat_visible(c->tx, &c->caller, &t->id, c->arena, &chat, e);
    case TOPIC_SESSION:
        if (store_sandbox_get(c->tx, &t->id, &s, e))
            return -1;
        return caller_may_see(&c->caller, &s.user_id)
                   ? 0
                   : err_set(e, ERR_NOT_FOUND, "no such sandbox");
    }
    return err_set(e, ERR_INTERNAL, "a topic of no kind");
}

static int subscribe_run(struct call *c, struct err *e)
{
    const struct subscribe_args *a = c->args;
    struct subscribed *r = c->result;
    char pointer[32];

    r->texts = a->topics;
    r->topics = call_alloc(c, (a->topics.n + 1) * sizeof *r->topics);
    if (!r->topics)
        return err_set(e, ERR_INTERNAL, "no memory for the topics");
    for (size_t i = 0; i < a->topics.n; i++) {
        snprintf(pointer, sizeof pointer, "/topics/%zu", i);
        if (!topic_parse(((char **)a->topics.items)[i], &r->topics[i]))
            return err_field(e, pointer, "a topic is all, user:ID, chat:ID or session:ID");
        if (topic_check(c, &r->topics[i], e))
            return -1;
    }
    return 0;
}

/* The answer goes before the first event. */
static void subscribe_reply(struct call *c)
{
    const struct subscribe_args *a = c->args;
    struct subscribed *r = c->result;
    bool begins = !c->rc && bot_find(c->s->bots, c->conn);

    if (begins)
        r->seq = a->has_since ? a->since : event_feed_newest(c->s->events, c->conn);
    bot_reply(c);
    if (begins)
        event_feed_subscribe(c->s->events, &(struct event_subscription){.conn = c->conn,
                                                                        .topics = r->topics,
                                                                        .topics_n = r->texts.n,
                                                                        .since = r->seq,
                                                                        .caller = &c->caller});
}

static const struct op subscribe_op = {
    .name = "subscribe",
    .role = ROLE_VIEWER,
    .lane = ON_READ,
    .status = 200,
    .in = subscribe_in,
    .out = subscribe_out,
    .in_size = sizeof(struct subscribe_args),
    .out_size = sizeof(struct subscribed),
    .run = subscribe_run,
    .audit = {OP_ANY("event")},
};

void bot_subscribe_take(struct call *c)
{
    c->op = &subscribe_op;
    c->reply = subscribe_reply;
}

void bot_subscribe_again(struct bot_ws *b, const struct bot *bot)
{
    struct arena *arena = arena_new(ARENA_CAP);
    struct caller caller = {0};
    struct err e;

    if (arena &&
        !auth_caller(b->s->auth, &bot->key_id, clock_wall_ms(b->s->clock), arena, &caller, &e))
        event_feed_rights_changed(b->s->events, bot->conn, &caller);
    arena_free(arena);
}
