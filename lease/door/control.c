#include "control.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <utlist.h>

#include "leasehold/arena.h"
#include "leasehold/buf.h"
#include "loop_lws.h"

#define RETRY_FIRST_US 50000
#define RETRY_MOST_US  1000000
#define PING_US        1000000
#define OUT_MAX        (1024 * 1024) /* of a gateway that does not read */
#define ARENA_MAX      (8 * DOOR_CONTROL_MAX)
#define PIECE          65536

/* A message to be sent, masked in place on the way. */
struct control_out {
    int type; /* enum door_msg_type */
    size_t len;
    struct control_out *prev, *next;
    unsigned char data[]; /* LWS_PRE bytes, then the text */
};

struct control {
    struct loop *loop;
    struct log *log;
    struct control_events events;
    struct lws_vhost *vhost;
    struct lws *wsi;
    bool open, dropping;
    struct control_out *out;
    size_t out_bytes;
    struct buf in;
    int64_t retry_us;
    unsigned seed; /* of the jitter: doors must not come back all at once */
    struct loop_timer *retry_timer, *ping_timer;
};

/* --- out ------------------------------------------------------------------------------------- */

static void out_free(struct control *c, struct control_out *o)
{
    DL_DELETE(c->out, o);
    c->out_bytes -= o->len;
    explicit_bzero(o->data, LWS_PRE + o->len); /* a HELLO holds the secret */
    free(o);
}

static void out_clear(struct control *c, int type)
{
    struct control_out *o, *next;

    DL_FOREACH_SAFE (c->out, o, next)
        if (type < 0 || o->type == type)
            out_free(c, o);
}

/* A gateway that reads too slowly first misses activity, then has to take a snapshot. */
static bool out_has_room(struct control *c, size_t len)
{
    if (c->out_bytes + len > OUT_MAX)
        out_clear(c, DOOR_ACTIVITY);
    return !c->out || c->out_bytes + len <= OUT_MAX;
}

static int out_add(struct control *c, int type, const struct buf *text)
{
    struct control_out *o;

    if (!out_has_room(c, text->len))
        return -1;
    o = malloc(sizeof(*o) + LWS_PRE + text->len);
    if (!o)
        return -1;
    *o = (struct control_out){.type = type, .len = text->len};
    memcpy(o->data + LWS_PRE, text->data, text->len);
    DL_APPEND(c->out, o);
    c->out_bytes += o->len;
    lws_callback_on_writable(c->wsi);
    return 0;
}

void control_send(struct control *c, const struct door_msg *m)
{
    struct buf text;

    if (!c->open || c->dropping)
        return;
    buf_init(&text, DOOR_CONTROL_MAX);
    door_msg_encode(m, &text);
    if (!buf_ok(&text) || out_add(c, m->t, &text)) {
        log_event(c->log, LOG_WARNING, "control_queue_full");
        control_reconnect(c);
    }
    if (text.data)
        explicit_bzero(text.data, text.size);
    buf_done(&text);
}

bool control_is_idle(const struct control *c)
{
    return !c->open || (!c->out && !lws_partial_buffered(c->wsi));
}

static int writable(struct control *c)
{
    struct control_out *o = c->out;
    int n;

    if (c->dropping)
        return -1;
    if (!o)
        return 0;
    n = lws_write(c->wsi, o->data + LWS_PRE, o->len, LWS_WRITE_TEXT);
    out_free(c, o);
    if (c->out)
        lws_callback_on_writable(c->wsi);
    return n < 0 ? -1 : 0;
}

/* --- in -------------------------------------------------------------------------------------- */

static int message_take(struct control *c)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct err e = {0};
    struct door_msg m;
    int r;

    if (!arena)
        return -1;
    r = door_msg_decode(c->in.data, c->in.len, arena, &m, &e);
    if (r == 0)
        r = c->events.message(c->events.ctx, &m, &e);
    if (r)
        log_error(c->log, "control_message_refused", &e);
    else
        c->retry_us = RETRY_FIRST_US;
    arena_free(arena);
    return r;
}

static int received(struct control *c, const char *in, size_t len)
{
    int r = 0;

    if (c->dropping)
        return -1;
    buf_add(&c->in, in, len);
    if (!buf_ok(&c->in)) {
        log_event(c->log, LOG_ERROR, "control_message_too_long");
        return -1;
    }
    if (!lws_is_final_fragment(c->wsi))
        return 0;
    r = message_take(c);
    if (c->in.size > PIECE)
        buf_done(&c->in);
    else
        buf_reset(&c->in);
    return r || c->dropping ? -1 : 0;
}

/* --- the connection --------------------------------------------------------------------------- */

static void retry_later(struct control *c)
{
    int64_t spread = c->retry_us / 2;

    if (loop_timer_is_set(c->retry_timer))
        return;
    loop_timer_set(c->retry_timer, c->retry_us - spread + rand_r(&c->seed) % (spread + 1));
    c->retry_us = c->retry_us * 2 < RETRY_MOST_US ? c->retry_us * 2 : RETRY_MOST_US;
}

static void ended(struct control *c)
{
    bool was_open = c->open;

    c->wsi = NULL;
    c->open = false;
    c->dropping = false;
    out_clear(c, -1);
    buf_done(&c->in);
    loop_timer_stop(c->ping_timer);
    if (was_open)
        c->events.ended(c->events.ctx);
    retry_later(c);
}

static void connect_now(void *ctx)
{
    struct control *c = ctx;
    struct lws_client_connect_info info = {
        .context = loop_context(c->loop),
        .vhost = c->vhost,
        .address = "+" DOOR_CONTROL_SOCKET,
        .path = DOOR_CONTROL_PATH,
        .host = "localhost",
        .protocol = DOOR_CONTROL_PROTOCOL,
        .local_protocol_name = DOOR_CONTROL_PROTOCOL,
        .ietf_version_or_minus_one = -1,
        .opaque_user_data = c,
        .pwsi = &c->wsi,
    };

    /* A failure may have been told by CLIENT_CONNECTION_ERROR already. */
    if (!lws_client_connect_via_info(&info))
        retry_later(c);
}

static int established(struct control *c)
{
    struct door_msg m = {0};
    struct err e = {0};

    c->open = true;
    if (c->events.hello(c->events.ctx, &m, &e)) {
        log_error(c->log, "hello_failed", &e);
        return -1;
    }
    control_send(c, &m);
    c->events.hello_sent(c->events.ctx, &m);
    loop_timer_set(c->ping_timer, PING_US);
    log_event(c->log, LOG_INFO, "gateway_connected");
    return 0;
}

static void ping(void *ctx)
{
    struct control *c = ctx;
    struct door_msg m = {.t = DOOR_PING, .now = c->events.gateway_ms(c->events.ctx)};

    control_send(c, &m);
    loop_timer_set(c->ping_timer, PING_US);
}

void control_reconnect(struct control *c)
{
    if (!c->open || c->dropping)
        return;
    c->dropping = true;
    lws_set_timeout(c->wsi, 1, LWS_TO_KILL_ASYNC);
}

static int control_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                            size_t len)
{
    struct control *c;

    (void)user;
    switch ((int)reason) {
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
    case LWS_CALLBACK_CLIENT_RECEIVE:
    case LWS_CALLBACK_CLIENT_WRITEABLE:
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
    case LWS_CALLBACK_CLIENT_CLOSED:
    case LWS_CALLBACK_WSI_DESTROY: /* alone when the handshake was not answered in time */
        c = lws_get_opaque_user_data(wsi);
        break;
    default:
        return 0;
    }
    if (!c)
        return 0;
    switch ((int)reason) {
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        c->wsi = wsi;
        return established(c);
    case LWS_CALLBACK_CLIENT_RECEIVE:
        return received(c, in, len);
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        return writable(c);
    default:
        lws_set_opaque_user_data(wsi, NULL);
        ended(c);
        return 0;
    }
}

static const struct lws_protocols protocols[] = {{.name = DOOR_CONTROL_PROTOCOL,
                                                  .callback = control_callback,
                                                  .rx_buffer_size = PIECE,
                                                  .tx_packet_size = PIECE},
                                                 {0}};

static void control_free(struct control *c)
{
    if (!c)
        return;
    loop_timer_free(c->retry_timer);
    loop_timer_free(c->ping_timer);
    free(c);
}

struct control *control_new(struct loop *l, struct log *log, const struct control_events *events,
                            struct err *e)
{
    struct control *c = calloc(1, sizeof(*c));

    if (!c) {
        err_set(e, ERR_INTERNAL, "no memory for the control connection");
        return NULL;
    }
    *c = (struct control){.loop = l, .log = log, .events = *events, .retry_us = RETRY_FIRST_US};
    buf_init(&c->in, DOOR_CONTROL_MAX);
    if (getrandom(&c->seed, sizeof(c->seed), 0) < 0)
        c->seed = (unsigned)loop_now_us();
    c->retry_timer = loop_timer_new(l, connect_now, c);
    c->ping_timer = loop_timer_new(l, ping, c);
    if (c->retry_timer && c->ping_timer)
        c->vhost = loop_vhost_new(
            l, &(struct loop_vhost){.name = "control", .protocols = protocols, .user = c}, e);
    if (!c->vhost) {
        err_set(e, ERR_INTERNAL, "cannot make the control connection");
        control_free(c);
        return NULL;
    }
    loop_timer_set(c->retry_timer, 0);
    return c;
}
