#include "bot_ws.h"

#include <stdlib.h>
#include <string.h>

#include "bot_message.h"
#include "bot_ws_state.h"
#include "leasehold/door_proto.h"
#include "leasehold/json.h"
#include "limits.h"
#include "pipeline.h"
#include "problem.h"

#define TICK_MS     1000
#define PLACES_LEFT 10 /* one in so many connections is out of reach of any one key */
#define ANSWER_CAP  (8u * 1024 * 1024)
#define ERROR_CAP   8192

enum {
    CLOSE_GOING_AWAY = 1001,
    CLOSE_NOT_UTF8 = 1007,
    CLOSE_NO_MEMORY = 1013,
    CLOSE_LATER = 1013,
};

static void tick(void *ctx);

struct bot_ws *bot_ws_new(struct services *s)
{
    struct bot_ws *b = calloc(1, sizeof *b);

    if (!b)
        return NULL;
    b->s = s;
    b->timer = server_timer_new(s->server, tick, b);
    if (!b->timer) {
        free(b);
        return NULL;
    }
    return b;
}

void bot_ws_free(struct bot_ws *b)
{
    struct bot *bot, *next;

    if (!b)
        return;
    HASH_ITER (hh, b->bots, bot, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(b->bots, bot);
        free(bot);
    }
    server_timer_free(b->timer);
    free(b);
}

struct bot *bot_find(const struct bot_ws *b, uint64_t conn)
{
    struct bot *bot;

    HASH_FIND(hh, b->bots, &conn, sizeof conn, bot);
    return bot;
}

static void close_unauthenticated(struct bot_ws *b, const struct bot *bot, const char *why)
{
    server_ws_close(b->s->server, bot->conn, CLOSE_UNAUTHENTICATED, why);
}

/* --- answers --------------------------------------------------------------------------------- */

static void answer_begin(struct buf *out, const struct call *c, bool ok)
{
    buf_add_str(out, "{\"id\":");
    if (c->message_id)
        json_add_string(out, c->message_id, strlen(c->message_id));
    else
        buf_add_str(out, "null");
    buf_add_str(out, ok ? ",\"ok\":true,\"result\":" : ",\"ok\":false,\"error\":");
}

static void send_taken(const struct call *c, struct buf *out)
{
    (void)server_ws_send(c->s->server, c->conn, out->data, out->len); /* a failure closes */
    explicit_bzero(out->data, out->len);                              /* it may hold a token */
    buf_done(out);
}

static void send_error(const struct call *c, const struct err *e)
{
    struct buf out;

    buf_init(&out, ERROR_CAP);
    answer_begin(&out, c, false);
    problem_write(e, c->request_id, c->op && c->op->plain_detail, &out);
    buf_add_char(&out, '}');
    if (buf_ok(&out)) {
        send_taken(c, &out);
        return;
    }
    buf_done(&out);
    server_ws_close(c->s->server, c->conn, CLOSE_NO_MEMORY, "no memory");
}

/* `fields` NULL: there is nothing to say but that it is done. */
static void send_result(const struct call *c, const struct field *fields, const void *result)
{
    struct buf out;
    struct err e;

    buf_init(&out, ANSWER_CAP);
    answer_begin(&out, c, true);
    if (fields)
        json_encode(fields, result, &out);
    else
        buf_add_str(&out, "null");
    buf_add_char(&out, '}');
    if (buf_ok(&out)) {
        send_taken(c, &out);
        return;
    }
    buf_done(&out);
    err_set(&e, ERR_INTERNAL, "the answer is too long");
    send_error(c, &e);
}

void bot_reply(struct call *c)
{
    struct bot_ws *b = c->s->bots;
    struct bot *bot = bot_find(b, c->conn);

    if (!bot) /* it has gone: nobody is there for the answer */
        return;
    bot->calls--;
    if (server_ws_waiting(c->s->server, c->conn) == SIZE_MAX)
        return; /* it is being closed: what is written for nobody would only keep the close waiting */
    if (c->rc)
        send_error(c, &c->e);
    else
        send_result(c, c->op->out, c->result);
    if (c->s->draining && !bot->calls)
        server_ws_close(c->s->server, bot->conn, CLOSE_GOING_AWAY, "the gateway is stopping");
}

/* --- authentication -------------------------------------------------------------------------- */

struct auth_args {
    char *token;
};
static const struct field auth_in[] = {
    FIELD_STR(struct auth_args, token, .flags = FIELD_REQUIRED, .max = CREDENTIAL_MAX),
    {0},
};

struct auth_result {
    struct id key_id;
    int role;
};
static const struct field auth_out[] = {
    FIELD_ID(struct auth_result, key_id),
    FIELD_ENUM(struct auth_result, role, .names = role_names),
    {0},
};

static int authenticate(struct bot_ws *b, struct bot *bot, struct call *c,
                        const struct auth_proof *proof, struct err *e)
{
    size_t places = server_connections_max(b->s->server);

    if (call_authenticate(c, proof, e) ||
        auth_connect(b->s->auth, &c->caller.key_id, places - places / PLACES_LEFT, e))
        return -1;
    bot->authenticated = true;
    bot->expires_at = c->caller.expires_at;
    bot->key_id = c->caller.key_id;
    log_event(b->s->log, LOG_INFO, "bot_connected", LF_ID("key_id", &bot->key_id),
              LF_STR("address", bot->peer), LF_STR("request_id", c->request_id));
    return 0;
}

static int auth_message(struct bot_ws *b, struct bot *bot, struct call *c,
                        const struct bot_message *m, struct err *e)
{
    struct auth_args args = {0};
    int rc;

    if (json_decode_args(m->args, strlen(m->args), auth_in, &args, c->arena, e))
        return -1;
    rc = authenticate(b, bot, c, &(struct auth_proof){args.token, ""}, e);
    explicit_bzero(args.token, strlen(args.token));
    explicit_bzero(m->args, strlen(m->args));
    return rc;
}

/* The first message of a connection that has not proved its key: anything but that ends it. It is
 * no row of the table, because it is about the connection, and REST has no such thing. */
static void first_message(struct bot_ws *b, struct bot *bot, struct call *c,
                          const struct bot_message *m)
{
    struct err e = {.code = ERR_UNAUTHENTICATED};

    if (m->op && !strcmp(m->op, "auth") && !auth_message(b, bot, c, m, &e)) {
        const struct auth_result result = {c->caller.key_id, (int)c->caller.role};
        send_result(c, auth_out, &result);
    } else if (e.code == ERR_BUSY || e.code == ERR_RATE_LIMITED) {
        server_ws_close(b->s->server, bot->conn, CLOSE_LATER, "not now");
    } else {
        close_unauthenticated(b, bot, "the first message must prove a key");
    }
    bot->calls--;
    call_free(c);
}

static int open_authenticated(struct bot_ws *b, struct bot *bot, const struct http_request *r,
                              struct err *e)
{
    const struct auth_proof proof = {request_credential(r), r->certificate};
    struct call *c;
    int rc;

    if (!*proof.credential && !*proof.certificate)
        return 0; /* the first message will bring it */
    c = call_begin(b->s, bot->conn, bot->peer, "", bot_reply);
    if (!c)
        return err_set(e, ERR_BUSY, "no memory for the connection");
    rc = authenticate(b, bot, c, &proof, e);
    call_free(c);
    return rc;
}

int bot_ws_open(struct bot_ws *b, uint64_t conn, const struct http_request *r, struct err *e)
{
    struct bot *bot;

    if (b->s->draining)
        return err_set(e, ERR_BUSY, "the gateway is stopping");
    bot = calloc(1, sizeof *bot);
    if (!bot)
        return err_set(e, ERR_BUSY, "no memory for the connection");
    bot->conn = conn;
    memcpy(bot->peer, r->peer, sizeof bot->peer);
    bot->auth_until_us = clock_boot_us(b->s->clock) + (int64_t)BOT_WS_AUTH_MS * 1000;
    if (open_authenticated(b, bot, r, e)) {
        free(bot);
        return -1;
    }
    if (!b->bots)
        server_timer_arm(b->timer, TICK_MS);
    HASH_ADD(hh, b->bots, conn, sizeof bot->conn, bot);
    return 0;
}

bool bot_ws_closed(struct bot_ws *b, uint64_t conn)
{
    struct bot *bot = bot_find(b, conn);

    if (!bot)
        return false;
    event_feed_drop(b->s->events, conn);
    if (bot->authenticated)
        auth_disconnect(b->s->auth, &bot->key_id);
    HASH_DEL(b->bots, bot); /* its calls end by themselves, their answers are dropped */
    free(bot);
    return true;
}

/* The key itself is asked for anew each time; a token ends when it said it would. */
static bool holds(const struct bot_ws *b, const struct bot *bot, int64_t now_ms)
{
    return auth_usable(b->s->auth, &bot->key_id, now_ms) &&
           (!bot->expires_at || bot->expires_at > now_ms);
}

static void check(struct bot_ws *b, const struct bot *bot)
{
    if (!bot->authenticated && clock_boot_us(b->s->clock) > bot->auth_until_us)
        close_unauthenticated(b, bot, "no key in time");
    else if (bot->authenticated && !holds(b, bot, clock_wall_ms(b->s->clock)))
        close_unauthenticated(b, bot, "the key does not hold any more");
}

static void tick(void *ctx)
{
    struct bot_ws *b = ctx;
    struct bot *bot, *next;

    HASH_ITER (hh, b->bots, bot, next)
        check(b, bot);
    if (b->bots)
        server_timer_arm(b->timer, TICK_MS);
}

void bot_ws_key_changed(struct bot_ws *b, const struct id *key_id)
{
    struct bot *bot, *next;

    HASH_ITER (hh, b->bots, bot, next) {
        if (!bot->authenticated || !id_equal(&bot->key_id, key_id))
            continue;
        check(b, bot);
        bot_subscribe_again(b, bot);
    }
}

/* --- calls ----------------------------------------------------------------------------------- */

static int decode_args(struct call *c, const struct bot_message *m, struct err *e)
{
    static const struct field none[] = {{0}};
    const struct field *in = c->op->in ? c->op->in : none;

    return call_args_new(c, e) ||
                   json_decode_args(m->args, strlen(m->args), in, c->args, c->arena, e)
               ? -1
               : 0;
}

static int route(struct call *c, const struct bot *bot, const struct bot_message *m, struct err *e)
{
    struct err unread;

    if (limits_call(c->s->limits, &bot->key_id, clock_boot_us(c->s->clock), &c->retry_s, e))
        return -1;
    if (!strcmp(m->op, "auth"))
        return err_set(e, ERR_CONFLICT, "the connection is authenticated");
    if (!strcmp(m->op, "subscribe"))
        bot_subscribe_take(c);
    else if (bot_op_find(ops_table, m->op, &c->op, e))
        return -1;
    if (bot->calls > BOT_WS_CALLS_MAX)
        return err_set(e, ERR_BUSY, "a connection may have %d calls in flight", BOT_WS_CALLS_MAX);
    if (!call_admit(c, e))
        return decode_args(c, m, e);
    if (decode_args(c, m, &unread)) /* for the trail */
        c->args = NULL;
    return -1;
}

static int rights_now(const struct bot_ws *b, const struct bot *bot, struct call *c, struct err *e)
{
    int64_t now = clock_wall_ms(b->s->clock);

    if (!holds(b, bot, now))
        return err_set(e, ERR_UNAUTHENTICATED, "the key does not hold any more");
    if (auth_caller(b->s->auth, &bot->key_id, now, c->arena, &c->caller, e))
        return -1;
    if (bot->expires_at && (!c->caller.expires_at || bot->expires_at < c->caller.expires_at))
        c->caller.expires_at = bot->expires_at;
    return 0;
}

static void message(struct bot_ws *b, struct bot *bot, struct call *c, const char *data, size_t len)
{
    struct bot_message m = {0};
    struct err bad, e;
    int rc = bot_message_decode(data, len, c->arena, &m, &bad);

    c->message_id = m.id;
    if (!bot->authenticated) {
        first_message(b, bot, c, &m);
        return;
    }
    /* Never from what was true at the last message: the key may have been revoked since. */
    if (rights_now(b, bot, c, &e)) {
        bot->calls--;
        call_free(c);
        close_unauthenticated(b, bot, "the key does not hold any more");
    } else if (rc) {
        call_fail(c, &bad);
    } else if (route(c, bot, &m, &e)) {
        call_fail(c, &e);
    } else {
        call_start(c);
    }
}

bool bot_ws_message(struct bot_ws *b, uint64_t conn, const char *data, size_t len)
{
    struct bot *bot = bot_find(b, conn);
    struct call *c;

    if (!bot)
        return false;
    if (!utf8_valid(data, len)) {
        server_ws_close(b->s->server, conn, CLOSE_NOT_UTF8, "not UTF-8");
        return true;
    }
    c = call_begin(b->s, conn, bot->peer, "", bot_reply);
    if (!c) {
        server_ws_close(b->s->server, conn, CLOSE_NO_MEMORY, "no memory");
        return true;
    }
    bot->calls++;
    message(b, bot, c, data, len);
    return true;
}

/* --- the end --------------------------------------------------------------------------------- */

size_t bot_ws_open_calls(const struct bot_ws *b)
{
    size_t n = 0;

    for (const struct bot *bot = b->bots; bot; bot = bot->hh.next)
        n += bot->calls;
    return n;
}

void bot_ws_drain(struct bot_ws *b)
{
    struct bot *bot, *next;

    HASH_ITER (hh, b->bots, bot, next)
        if (!bot->calls)
            server_ws_close(b->s->server, bot->conn, CLOSE_GOING_AWAY, "the gateway is stopping");
}
