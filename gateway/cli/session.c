#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "leasehold/clock.h"
#include "leasehold/door_proto.h"

#define READY_TIMEOUT_MS  10000
#define LEAVE_TIMEOUT_MS  2000  /* a person waits */
#define FINISH_TIMEOUT_MS 30000 /* what was sent may have to pass a slow agent first */
#define STABLE_MS         5000  /* so long a connection counts as a success */
#define RETRY_S           60
#define RECONNECT_BASE_MS 250
#define RECONNECT_DOUBLES 4 /* up to 4 s */
#define HELLO_MAX         65536
#define CLOSE_NORMAL      1000
#define LINGER_MS         500

struct closing {
    int code;
    int exit_code;
    bool retry;
    bool lease_ended;
    const char *reason; /* if the door gives none */
};

/* libwebsockets 4.1 reports 1012 and 1013, which are younger than it, as 1002 with their reason. */
static const struct closing closings[] = {
    {.code = CLOSE_NORMAL, .exit_code = EXIT_OK, .reason = ""},
    {.code = 1001, .retry = true, .reason = "it goes away"},
    {.code = 1012, .retry = true, .reason = "it starts again"},
    {.code = CLOSE_UNSUPPORTED, .exit_code = EXIT_FAILED, .reason = "not for this agent"},
    {.code = CLOSE_SLOW_READER, .exit_code = EXIT_FAILED, .reason = "read too slowly"},
    {.code = CLOSE_UNAUTHENTICATED,
     .exit_code = EXIT_DENIED,
     .lease_ended = true,
     .reason = "the lease was refused or has expired"},
    {.code = CLOSE_REVOKED,
     .exit_code = EXIT_DENIED,
     .lease_ended = true,
     .reason = "the lease was revoked"},
    {.code = CLOSE_IDLE, .exit_code = EXIT_FAILED, .reason = "idle for too long"},
    {.code = CLOSE_LIMIT, .exit_code = EXIT_FAILED, .reason = "too many connections"},
    {.code = CLOSE_OLD_GENERATION, .retry = true, .reason = "the sandbox was replaced"},
    {.code = CLOSE_AGENT_ENDED, .exit_code = EXIT_OK, .reason = "the agent has ended"},
    {.code = CLOSE_SCOPE, .exit_code = EXIT_DENIED, .reason = "the lease does not allow to write"},
    {.code = CLOSE_NOT_LIVE, .retry = true, .reason = "it is not ready"},
};

static const struct closing *closing_of(int code)
{
    static const struct closing lost = {.retry = true, .reason = "the connection was lost"};
    static const struct closing other = {.exit_code = EXIT_FAILED, .reason = ""};
    if (code == 0) {
        return &lost;
    }
    for (size_t i = 0; i < sizeof(closings) / sizeof(closings[0]); i++) {
        if (closings[i].code == code) {
            return &closings[i];
        }
    }
    return &other;
}

void session_end(struct session *s, int exit_code)
{
    s->state = SESSION_OVER;
    s->exit_code = exit_code;
}

void session_fail(struct session *s, const struct err *e)
{
    if (s->state != SESSION_OVER) {
        events_error(s->events, e);
        session_end(s, api_exit_code_of_err(e));
    }
}

/* A connection given up may have left messages that nobody shall take for the next one's. */
static void drop_door(struct session *s)
{
    struct message *m;
    door_client_free(s->door);
    s->door = NULL;
    s->looking = false;
    buf_reset(&s->hello);
    while ((m = message_queue_pop(&s->in)) != NULL) {
        free(m);
    }
}

void session_connect(struct session *s, int64_t now_ms)
{
    const struct endpoint_view *to = s->grant.view->endpoint;
    struct door_client_spec spec = {
        .url = to->url,
        .protocol = to->protocol != NULL ? to->protocol : "leasehold.door.v1",
        .token = s->grant.view->token,
        .ca_pem = to->ca_pem,
        .cert_sha256 = to->cert_sha256,
        .in = &s->in,
        .out = &s->out,
        .wake_fd = s->wake_fd,
    };
    struct err e;
    s->door = door_client_start(&spec, &e);
    if (s->door == NULL) {
        session_fail(s, &e);
        return;
    }
    s->state = SESSION_CONNECTING;
    s->deadline_ms = now_ms + READY_TIMEOUT_MS;
}

/* Half of the wait is chance, so that many clients of one door do not come back together. */
static int64_t backoff_ms(int attempt)
{
    int doubles = attempt - 1 < RECONNECT_DOUBLES ? attempt - 1 : RECONNECT_DOUBLES;
    uint32_t full = (uint32_t)RECONNECT_BASE_MS << doubles;
    return full / 2 + arc4random_uniform(full / 2 + 1);
}

/* A connection that held for a while makes all before it forgotten. */
static void note_loss(struct session *s, int64_t now_ms)
{
    bool held = s->live_since_ms != 0 && now_ms - s->live_since_ms >= STABLE_MS;
    if (held || s->lost_at_ms == 0) {
        s->attempt = 0;
        s->lost_at_ms = now_ms;
    }
    s->live_since_ms = 0;
}

void session_lost(struct session *s, enum session_away who, const char *reason, int64_t now_ms)
{
    static const char *const names[] = {"the door", "the gateway", "the session"};
    drop_door(s);
    line_writer_break(&s->writer);
    note_loss(s, now_ms);
    int64_t left_ms = s->lost_at_ms + s->retry_ms - now_ms;
    if (left_ms <= 0) {
        struct err e;
        err_set(&e, ERR_ENGINE_UNAVAILABLE, "%s cannot be reached (tried for %lld s): %.110s",
                names[who], (long long)(s->retry_ms / 1000), reason);
        session_fail(s, &e);
        return;
    }
    s->attempt++;
    events_reconnecting(s->events, names[who], reason, s->attempt,
                        s->attempt > 1 && s->away == who);
    s->away = who;
    s->state = SESSION_WAITING;
    int64_t wait_ms = backoff_ms(s->attempt);
    s->deadline_ms = now_ms + (wait_ms < left_ms ? wait_ms : left_ms);
}

static void on_end(struct session *s, const struct door_client_end *end, int64_t now_ms)
{
    const struct closing *c = closing_of(end->code);
    const char *reason = end->reason[0] != '\0' ? end->reason : c->reason;
    if (s->state == SESSION_CLOSING && (c->retry || end->code == CLOSE_NORMAL)) {
        events_closed(s->events, CLOSE_NORMAL, "");
        session_end(s, s->exit_code);
    } else if (c->retry) {
        session_lost(s, AWAY_DOOR, reason, now_ms);
    } else {
        s->lease_ended = c->lease_ended;
        events_closed(s->events, end->code, reason);
        session_end(s, c->exit_code);
    }
}

struct hello {
    char *type;
};

static const struct field hello_fields[] = {FIELD_STR(struct hello, type), {0}};

/* The first message must say that the door is ready. */
static void on_hello(struct session *s, int64_t now_ms)
{
    struct err e;
    struct hello h = {0};
    struct arena *arena = arena_new(HELLO_MAX * 16UL);
    bool ready =
        arena != NULL && buf_ok(&s->hello) && s->hello.len > 0 &&
        json_decode_lenient(s->hello.data, s->hello.len, hello_fields, &h, arena, &e) == 0 &&
        h.type != NULL && strcmp(h.type, "ready") == 0;
    arena_free(arena);
    if (!ready) {
        err_set(&e, ERR_INTERNAL, "what answers at the door's address is not a door");
        session_fail(s, &e);
        return;
    }
    s->state = SESSION_LIVE;
    s->live_since_ms = now_ms;
    s->last_traffic_ms = now_ms;
    door_client_allow_sending(s->door);
    events_ready(s->events, s->grant.view->lease);
}

static void on_message(struct session *s, const struct message *m, int64_t now_ms)
{
    struct err e;
    s->last_traffic_ms = now_ms;
    if (s->state == SESSION_CONNECTING) {
        buf_add(&s->hello, m->data, m->len);
        if (m->final || !buf_ok(&s->hello)) {
            on_hello(s, now_ms);
        }
    } else if (line_writer_add(&s->writer, m, &e) < 0) {
        session_fail(s, &e);
    }
}

static void take_messages(struct session *s, int64_t now_ms)
{
    bool any = false;
    while (s->state != SESSION_OVER && !line_writer_full(&s->writer)) {
        struct message *m = message_queue_pop(&s->in);
        if (m == NULL) {
            break;
        }
        on_message(s, m, now_ms);
        free(m);
        any = true;
    }
    if (any) {
        door_client_notify(s->door);
    }
}

static bool lingers(struct session *s)
{
    return s->state == SESSION_LIVE && s->reader.ended && !s->out_pending &&
           message_queue_bytes(&s->in) == 0;
}

static void watch_output(struct session *s, int64_t now_ms)
{
    bool pending = message_queue_bytes(&s->out) > 0;
    if (pending || s->out_pending) {
        s->last_traffic_ms = now_ms;
    }
    s->out_pending = pending;
}

static void begin_close(struct session *s, int exit_code, int64_t deadline_ms)
{
    door_client_close(s->door);
    s->state = SESSION_CLOSING;
    s->exit_code = exit_code;
    s->deadline_ms = deadline_ms;
}

static void on_no_close(struct session *s)
{
    if (s->exit_code == EXIT_OK) {
        struct err e;
        err_set(&e, ERR_ENGINE_UNAVAILABLE, "the door did not take all that was sent");
        session_fail(s, &e);
    } else {
        session_end(s, s->exit_code);
    }
}

static bool linger_is_over(struct session *s, int64_t now_ms)
{
    return lingers(s) && now_ms >= s->last_traffic_ms + s->linger_ms;
}

/* Stopped (Ctrl-Z) or kept from the processor for longer than that, we know the time before we know
 * what has come meanwhile: so it counts only once somebody has looked. */
static void end_linger(struct session *s, bool looked, int64_t now_ms)
{
    if (looked) {
        begin_close(s, EXIT_OK, now_ms + FINISH_TIMEOUT_MS);
    } else if (!s->looking) {
        s->looking = true;
        door_client_look(s->door);
    }
}

static void step_connection(struct session *s, int64_t now_ms)
{
    struct door_client_end end;
    /* Asked first: what had come before the end or the look is in the queue by then. */
    bool ended = door_client_ended(s->door, &end);
    bool looked = door_client_looked(s->door);
    s->looking = s->looking && !looked;
    take_messages(s, now_ms);
    watch_output(s, now_ms);
    if (s->state == SESSION_OVER) {
        return;
    }
    if (ended) {
        if (message_queue_bytes(&s->in) == 0) {
            on_end(s, &end, now_ms);
        }
    } else if (s->state == SESSION_CONNECTING && now_ms >= s->deadline_ms) {
        session_lost(s, AWAY_DOOR, "it does not answer", now_ms);
    } else if (s->state == SESSION_CLOSING && now_ms >= s->deadline_ms) {
        on_no_close(s);
    } else if (linger_is_over(s, now_ms)) {
        end_linger(s, looked, now_ms);
    }
}

void session_leave(struct session *s, int64_t now_ms)
{
    if (s->door == NULL) {
        session_end(s, EXIT_FAILED);
    } else if (s->state != SESSION_OVER) {
        begin_close(s, EXIT_FAILED, now_ms + LEAVE_TIMEOUT_MS);
    }
}

void session_step(struct session *s, int64_t now_ms)
{
    session_lease_step(s, now_ms);
    if (s->state == SESSION_CONNECTING || s->state == SESSION_LIVE || s->state == SESSION_CLOSING) {
        step_connection(s, now_ms);
    }
}

static int64_t earlier(int64_t a, int64_t b)
{
    if (a < 0 || b < 0) {
        return a < 0 ? b : a;
    }
    return a < b ? a : b;
}

int64_t session_next_ms(struct session *s)
{
    int64_t next = session_lease_next_ms(s);
    if (s->state == SESSION_CONNECTING || s->state == SESSION_CLOSING) {
        next = earlier(next, s->deadline_ms);
    } else if (lingers(s) && !s->looking) {
        next = earlier(next, s->last_traffic_ms + s->linger_ms);
    }
    return next;
}

bool session_wants_input(struct session *s)
{
    return !s->reader.ended && s->state != SESSION_CLOSING && s->state != SESSION_OVER &&
           message_queue_bytes(&s->out) < DOOR_CLIENT_QUEUE_MAX;
}

int session_init(struct session *s, const struct api_access *access, const struct options *options,
                 const struct events *events, struct grant *grant, int wake_fd, int64_t now_ms,
                 struct err *e)
{
    *s = (struct session){
        .options = options,
        .events = events,
        .wake_fd = wake_fd,
        .retry_ms = options_int(options, "--retry", RETRY_S) * 1000,
        .linger_ms = options_int(options, "--linger", LINGER_MS),
        .grant = *grant,
    };
    grant_init(grant);
    message_queue_init(&s->in);
    message_queue_init(&s->out);
    line_reader_init(&s->reader, 0);
    line_writer_init(&s->writer, 1);
    buf_init(&s->hello, HELLO_MAX);
    s->caller = caller_new(access, wake_fd);
    if (s->caller == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    session_lease_started(s, now_ms);
    session_connect(s, now_ms);
    return 0;
}

void session_done(struct session *s)
{
    drop_door(s);
    caller_free(s->caller);
    message_queue_done(&s->in);
    message_queue_done(&s->out);
    line_reader_done(&s->reader);
    line_writer_done(&s->writer);
    buf_done(&s->hello);
    grant_done(&s->grant);
}
