#include "sock.h"

#include <errno.h>
#include <libwebsockets.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "conn.h"
#include "server_state.h"

#define SOCK_PROTOCOL "leasehold"

/* A socket of our own. It outlives its connection by libuv's last look at it. */
struct plain {
    uv_poll_t uv;
    struct conn *c;
    int fd;
    int watched; /* of UV_READABLE and UV_WRITABLE */
    bool wants_room;
    bool full;     /* has not taken all of the last write */
    bool has_more; /* input has come that was not to be read */
    bool ending;   /* stands in server.ending */
};

/* --- without TLS ------------------------------------------------------------------------------ */

static void on_plain(uv_poll_t *uv, int status, int events);

static void watch(struct plain *p)
{
    int want =
        (p->c->reading || !p->has_more ? UV_READABLE : 0) | (p->wants_room ? UV_WRITABLE : 0);
    if (want == p->watched) {
        return;
    }
    int rc = want == 0 ? uv_poll_stop(&p->uv) : uv_poll_start(&p->uv, want, on_plain);
    p->watched = want;
    if (rc != 0) {
        conn_kill(p->c);
    }
}

static void plain_free(uv_handle_t *uv)
{
    free(uv->data);
}

static void plain_close(struct plain *p)
{
    struct conn *c = p->c;
    if (p->ending) {
        DL_DELETE2(c->server->ending, c, ending_prev, ending_next);
    }
    c->sock.plain = NULL;
    p->c = NULL;
    uv_close((uv_handle_t *)&p->uv, plain_free);
    (void)close(p->fd);
    conn_closed(c);
}

/* The end of the input is that of the connection: an answer that is owed has been written before, for
 * meanwhile nothing is read. Returns whether there was some. */
static bool plain_read(struct plain *p)
{
    struct conn *c = p->c;
    struct server *s = c->server;
    ssize_t n = recv(p->fd, s->input, SERVER_READ_MAX, 0);
    if (n > 0) {
        conn_bytes(c, s->input, (size_t)n);
        explicit_bzero(s->input, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        c->dead = true;
    }
    return n > 0;
}

/* A peer that closes with unread input, as a door may that ends, resets the connection behind what it
 * has sent: that is still here, and nothing more comes. */
static void plain_broken(struct plain *p)
{
    struct conn *c = p->c;
    p->watched = 0; /* libuv looks no more */
    c->held = true; /* a write fails, and would be the end before all is read */
    while (!c->dead && c->reading && plain_read(p)) {
    }
    c->dead = true;
}

static void on_plain(uv_poll_t *uv, int status, int events)
{
    struct plain *p = uv->data;
    struct conn *c = p->c;
    c->in_call = true;
    if (status < 0) {
        plain_broken(p);
    }
    if (!c->dead && (events & UV_WRITABLE) != 0) {
        p->wants_room = p->full = false;
        conn_writable(c);
    }
    if (!c->dead && (events & UV_READABLE) != 0) {
        if (c->reading) {
            plain_read(p);
        } else {
            p->has_more = true;
        }
    }
    c->in_call = false;
    if (!c->dead) {
        watch(p);
    }
    if (c->dead) {
        plain_close(p);
    }
}

static int plain_open(struct conn *c, int fd)
{
    struct server *s = c->server;
    struct plain *p = calloc(1, sizeof *p);
    if (p == NULL || uv_poll_init(&s->loop, &p->uv, fd) != 0) {
        free(p);
        (void)close(fd);
        return -1;
    }
    p->uv.data = p;
    p->c = c;
    p->fd = fd;
    c->sock.plain = p;
    watch(p);
    return 0;
}

static ssize_t plain_write(struct plain *p, const void *data, size_t len)
{
    ssize_t n = send(p->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        return -1;
    }
    n = n < 0 ? 0 : n;
    p->full = (size_t)n < len;
    return n;
}

/* --- libwebsockets ---------------------------------------------------------------------------- */

static int on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                  size_t len)
{
    struct conn *c;
    switch (reason) {
    case LWS_CALLBACK_RAW_RX:
    case LWS_CALLBACK_RAW_WRITEABLE:
        c = lws_get_opaque_user_data(wsi);
        if (!c->dead) {
            c->in_call = true;
            if (reason == LWS_CALLBACK_RAW_RX) {
                conn_bytes(c, in, len);
            } else {
                conn_writable(c);
            }
            c->in_call = false;
        }
        return c->dead ? -1 : 0;
    case LWS_CALLBACK_RAW_CLOSE:
        c = lws_get_opaque_user_data(wsi);
        if (c != NULL) {
            c->sock.wsi = NULL;
            conn_closed(c);
        }
        return 0;
    case LWS_CALLBACK_OPENSSL_LOAD_EXTRA_SERVER_VERIFY_CERTS:
        ((struct server *)lws_context_user(lws_get_context(wsi)))->tls_ctx = user;
        return 0;
    default:
        return 0;
    }
}

const struct lws_protocols *sock_protocols(void)
{
    static const struct lws_protocols protocols[] = {
        {.name = SOCK_PROTOCOL, .callback = on_lws},
        {0},
    };
    return protocols;
}

static int adopt_by_lws(struct conn *c, int fd)
{
    lws_adopt_desc_t desc = {
        .vh = c->listener->vhost,
        .type = (lws_adoption_type)(LWS_ADOPT_SOCKET | LWS_ADOPT_ALLOW_SSL),
        .fd.sockfd = fd,
        .vh_prot_name = SOCK_PROTOCOL,
        .opaque = c,
    };
    c->sock.wsi = lws_adopt_descriptor_vhost_via_info(&desc); /* takes fd, also when it fails */
    return c->sock.wsi != NULL ? 0 : -1;
}

/* --- either ----------------------------------------------------------------------------------- */

int sock_open(struct conn *c, int fd)
{
    return c->tls ? adopt_by_lws(c, fd) : plain_open(c, fd);
}

bool sock_is_open(const struct conn *c)
{
    return c->sock.plain != NULL || c->sock.wsi != NULL;
}

int sock_fd(const struct conn *c)
{
    return c->sock.plain != NULL ? c->sock.plain->fd : lws_get_socket_fd(c->sock.wsi);
}

void *sock_ssl(const struct conn *c)
{
    return c->sock.wsi != NULL ? lws_get_ssl(c->sock.wsi) : NULL;
}

bool sock_has_input(const struct conn *c)
{
    int n = 0;
    return sock_is_open(c) && ioctl(sock_fd(c), FIONREAD, &n) == 0 && n > 0;
}

ssize_t sock_write(struct conn *c, void *data, size_t len)
{
    if (c->sock.plain != NULL) {
        return plain_write(c->sock.plain, data, len);
    }
    return lws_write(c->sock.wsi, data, len, LWS_WRITE_RAW) < 0 ? -1 : (ssize_t)len;
}

/* libwebsockets keeps what the socket did not take. */
bool sock_is_full(const struct conn *c)
{
    return c->sock.plain != NULL ? c->sock.plain->full : lws_partial_buffered(c->sock.wsi);
}

void sock_ask_writable(struct conn *c)
{
    struct plain *p = c->sock.plain;
    if (p == NULL) {
        lws_callback_on_writable(c->sock.wsi);
        return;
    }
    p->wants_room = true;
    watch(p);
}

void sock_read(struct conn *c, bool want)
{
    struct plain *p = c->sock.plain;
    if (p == NULL) {
        lws_rx_flow_control(c->sock.wsi, want);
        return;
    }
    p->has_more = p->has_more && !want;
    watch(p);
}

void sock_handshaken(struct conn *c)
{
    if (c->sock.wsi != NULL) {
        lws_set_timeout(c->sock.wsi, NO_PENDING_TIMEOUT, 0);
    }
}

/* libwebsockets leaves the end of TLS out in its raw role. */
void sock_shutdown(struct conn *c)
{
    if (c->sock.plain != NULL) {
        (void)shutdown(c->sock.plain->fd, SHUT_WR);
    } else {
        (void)SSL_shutdown(lws_get_ssl(c->sock.wsi));
    }
}

void sock_close_soon(struct conn *c)
{
    struct server *s = c->server;
    if (c->sock.plain != NULL) {
        c->sock.plain->ending = true;
        DL_APPEND2(s->ending, c, ending_prev, ending_next);
    } else {
        lws_set_timeout(c->sock.wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
        lws_cancel_service(s->lws);
    }
}

void sock_close_dead(struct server *s)
{
    while (s->ending != NULL) {
        plain_close(s->ending->sock.plain);
    }
}

void sock_close_all(struct server *s)
{
    struct conn *c, *next;
    sock_close_dead(s);
    HASH_ITER (hh, s->conns, c, next) {
        if (c->sock.plain != NULL) {
            plain_close(c->sock.plain);
        }
    }
}
