#include "loop_lws.h"

#include <stdlib.h>
#include <utlist.h>

#include "leasehold/clock.h"

/* All of these are for the one connection to the gateway. */
#define HEADER_MAX      4096
#define HEADERS_AT_ONCE 2
#define SERV_BUF        16384 /* all of it is touched at the start */
#define HTTP_TIMEOUT_S  3

struct loop {
    struct lws_context *context;
    struct lws_vhost *fds; /* owner of the watched descriptors */
    struct loop_fd *again; /* asked to be writable from inside `writable` */
    bool stopped;
};

struct loop_fd {
    struct loop *loop;
    struct lws *wsi;
    const struct loop_fd_ops *ops;
    void *ctx;
    int fd;
    bool reading, closing, in_writable, again;
    struct loop_fd *prev, *next;
};

struct loop_timer {
    lws_sorted_usec_list_t sul;
    struct lws_context *context;
    void (*fire)(void *ctx);
    void *ctx;
    bool set;
};

static void fd_ended(struct loop_fd *w)
{
    if (w->again)
        DL_DELETE(w->loop->again, w);
    w->ops->ended(w->ctx);
    free(w);
}

static void fd_writable(struct loop_fd *w)
{
    w->in_writable = true;
    w->ops->writable(w->ctx);
    w->in_writable = false;
}

static int fd_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                       size_t len)
{
    struct loop_fd *w = reason == LWS_CALLBACK_RAW_RX_FILE ||
                                reason == LWS_CALLBACK_RAW_WRITEABLE_FILE ||
                                reason == LWS_CALLBACK_RAW_CLOSE_FILE
                            ? lws_get_opaque_user_data(wsi)
                            : NULL;

    (void)user;
    (void)in;
    (void)len;
    if (!w)
        return 0;
    if (reason == LWS_CALLBACK_RAW_CLOSE_FILE) {
        lws_set_opaque_user_data(wsi, NULL);
        fd_ended(w);
        return 0;
    }
    /* Both may be events of this round from before the watch was paused or closed. */
    if (reason == LWS_CALLBACK_RAW_RX_FILE && w->reading && !w->closing)
        w->ops->readable(w->ctx);
    if (reason == LWS_CALLBACK_RAW_WRITEABLE_FILE && !w->closing)
        fd_writable(w);
    return w->closing ? -1 : 0;
}

static const struct lws_protocols fd_protocols[] = {{.name = "fd", .callback = fd_callback}, {0}};

struct lws_vhost *loop_vhost_new(struct loop *l, const struct loop_vhost *v, struct err *e)
{
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .vhost_name = v->name,
        .protocols = v->protocols,
        .user = v->user,
        .timeout_secs = HTTP_TIMEOUT_S,
        .keepalive_timeout = HTTP_TIMEOUT_S,
    };
    struct lws_vhost *vhost = lws_create_vhost(l->context, &info);

    if (!vhost)
        err_set(e, ERR_INTERNAL, "no virtual host %s", v->name);
    return vhost;
}

struct loop *loop_new(struct err *e)
{
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
        .max_http_header_data = HEADER_MAX,
        .max_http_header_pool = HEADERS_AT_ONCE,
        .pt_serv_buf_size = SERV_BUF,
        .fd_limit_per_thread = LOOP_FD_MAX,
        .timeout_secs = HTTP_TIMEOUT_S,
    };
    struct loop *l = calloc(1, sizeof(*l));

    if (!l) {
        err_set(e, ERR_INTERNAL, "no memory for the loop");
        return NULL;
    }
    /* Its log quotes what strangers send; nothing of that may reach ours. */
    lws_set_log_level(0, NULL);
    l->context = lws_create_context(&info);
    if (!l->context)
        err_set(e, ERR_INTERNAL, "no libwebsockets context");
    else
        l->fds =
            loop_vhost_new(l, &(struct loop_vhost){.name = "fds", .protocols = fd_protocols}, e);
    if (l->fds)
        return l;
    loop_free(l);
    return NULL;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    lws_context_destroy(l->context);
    free(l);
}

/* libwebsockets 4.1 forgets a wish to write that is made inside the raw writable callback. */
static void again_arm(struct loop *l)
{
    struct loop_fd *w, *next;

    DL_FOREACH_SAFE (l->again, w, next) {
        DL_DELETE(l->again, w);
        w->again = false;
        lws_callback_on_writable(w->wsi);
    }
}

void loop_run(struct loop *l, void (*after)(void *ctx), void *ctx)
{
    after(ctx);
    while (!l->stopped && lws_service(l->context, 0) >= 0) {
        again_arm(l);
        after(ctx);
    }
}

void loop_stop(struct loop *l)
{
    l->stopped = true;
    lws_cancel_service(l->context);
}

int64_t loop_now_us(void)
{
    return clock_boot_us(&clock_system);
}

struct lws_context *loop_context(const struct loop *l)
{
    return l->context;
}

struct loop_fd *loop_fd_add(struct loop *l, int fd, const struct loop_fd_ops *ops, void *ctx)
{
    struct loop_fd *w = calloc(1, sizeof(*w));
    lws_adopt_desc_t info = {
        .vh = l->fds,
        .type = LWS_ADOPT_RAW_FILE_DESC,
        .fd.filefd = fd,
        .vh_prot_name = fd_protocols[0].name,
        .opaque = w,
    };

    if (!w)
        return NULL;
    *w = (struct loop_fd){.loop = l, .ops = ops, .ctx = ctx, .fd = fd, .reading = true};
    w->wsi = lws_adopt_descriptor_vhost_via_info(&info);
    if (w->wsi)
        return w;
    free(w);
    return NULL;
}

void loop_fd_read(struct loop_fd *w, bool on)
{
    if (w->reading == on || w->closing)
        return;
    w->reading = on;
    lws_rx_flow_control(w->wsi, on);
}

void loop_fd_write(struct loop_fd *w)
{
    if (w->closing || w->again)
        return;
    if (!w->in_writable) {
        lws_callback_on_writable(w->wsi);
        return;
    }
    w->again = true;
    DL_APPEND(w->loop->again, w);
}

void loop_fd_close(struct loop_fd *w)
{
    if (w->closing)
        return;
    w->closing = true;
    lws_set_timeout(w->wsi, 1, LWS_TO_KILL_ASYNC);
}

int loop_fd_get(const struct loop_fd *w)
{
    return w->fd;
}

static void timer_fired(lws_sorted_usec_list_t *sul)
{
    struct loop_timer *t = lws_container_of(sul, struct loop_timer, sul);

    t->set = false;
    t->fire(t->ctx);
}

struct loop_timer *loop_timer_new(struct loop *l, void (*fire)(void *ctx), void *ctx)
{
    struct loop_timer *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->context = l->context;
    t->fire = fire;
    t->ctx = ctx;
    return t;
}

void loop_timer_free(struct loop_timer *t)
{
    if (!t)
        return;
    loop_timer_stop(t);
    free(t);
}

void loop_timer_set(struct loop_timer *t, int64_t delay_us)
{
    /* libwebsockets takes 0 and below for "cancel". */
    lws_sul_schedule(t->context, 0, &t->sul, timer_fired, delay_us > 0 ? delay_us : 1);
    t->set = true;
}

void loop_timer_stop(struct loop_timer *t)
{
    if (t->set)
        lws_sul_schedule(t->context, 0, &t->sul, timer_fired, LWS_SET_TIMER_USEC_CANCEL);
    t->set = false;
}

bool loop_timer_is_set(const struct loop_timer *t)
{
    return t->set;
}
