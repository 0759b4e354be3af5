#include "wire.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "leasehold/door_proto.h"
#include "leasehold/tcp_reserve.h"

/* A frame, of which messages to the gateway are the longest, and the small ones beside it. */
#define KEPT_MAX (DOOR_CONTROL_MAX + 64u * 1024u)

#define TLS_RECORDS_A_TURN 64 /* a record may carry a single byte; then others get their turn */

/* --- TLS ------------------------------------------------------------------------------------- */

static int protocol_choose(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;

    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof(ours) - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* Instead of OpenSSL's own, which asks at the terminal. */
static int no_password(char *to, int size, int writing, void *arg)
{
    (void)to, (void)size, (void)writing, (void)arg;
    return 0;
}

static bool cert_use(SSL_CTX *tls, const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, no_password, NULL) : NULL;
    bool ok = cert && SSL_CTX_use_certificate(tls, cert) == 1;

    while (ok) {
        X509_free(cert);
        cert = PEM_read_bio_X509(bio, NULL, no_password, NULL);
        if (!cert)
            break;
        ok = SSL_CTX_add1_chain_cert(tls, cert) == 1;
    }
    X509_free(cert);
    BIO_free(bio);
    return ok;
}

static bool key_use(SSL_CTX *tls, const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    bool ok = key && SSL_CTX_use_PrivateKey(tls, key) == 1 && SSL_CTX_check_private_key(tls) == 1;

    EVP_PKEY_free(key);
    BIO_free(bio);
    return ok;
}

/* No tickets and no session cache: nothing of one connection is good for another. No retries: OpenSSL
 * would go on reading for as long as a peer sends what is no data, and all others would wait. */
static bool tls_tune(SSL_CTX *tls)
{
    SSL_CTX_clear_mode(tls, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(tls, protocol_choose, NULL);
    return SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_num_tickets(tls, 0) == 1;
}

struct ssl_ctx_st *wire_tls_new(const char *cert_pem, const char *key_pem, struct err *e)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());

    if (tls && tls_tune(tls) && cert_use(tls, cert_pem) && key_use(tls, key_pem)) {
        ERR_clear_error();
        return tls;
    }
    ERR_clear_error();
    SSL_CTX_free(tls);
    err_set(e, ERR_INTERNAL, "the certificate of the clients' side or its key cannot be used");
    return NULL;
}

/* --- in -------------------------------------------------------------------------------------- */

static ssize_t plain_read(struct wire *w, void *to, size_t size)
{
    ssize_t n = recv(loop_fd_get(w->watch), to, size, MSG_DONTWAIT);

    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EINTR ? -1 : 0;
}

/* Why it did not go on. Returns -1 when that passes, 0 when it was the end. */
static int tls_stopped(struct wire *w, int r)
{
    switch (SSL_get_error(w->ssl, r)) {
    case SSL_ERROR_WANT_READ:
        return -1;
    case SSL_ERROR_WANT_WRITE:
        loop_fd_write(w->watch);
        return -1;
    default:
        ERR_clear_error();
        return 0;
    }
}

/* A record at a time; what OpenSSL holds beyond `size` makes no descriptor readable. */
static ssize_t tls_read(struct wire *w, char *to, size_t size)
{
    size_t n = 0;
    int r = 1;

    for (int i = 0; i < TLS_RECORDS_A_TURN && n < size && r > 0; i++) {
        ERR_clear_error();
        r = SSL_read(w->ssl, to + n, (int)(size - n < INT_MAX ? size - n : INT_MAX));
        n += r > 0 ? (size_t)r : 0;
    }
    if (r > 0 && SSL_has_pending(w->ssl))
        loop_fd_write(w->watch);
    if (n > 0)
        return (ssize_t)n;
    return tls_stopped(w, r);
}

ssize_t wire_read(struct wire *w, void *to, size_t size)
{
    if (w->broken)
        return 0;
    return w->ssl ? tls_read(w, to, size) : plain_read(w, to, size);
}

void wire_reading(struct wire *w, bool on)
{
    if (w->reading == on)
        return;
    w->reading = on;
    loop_fd_read(w->watch, on);
    if (on && w->ssl && SSL_has_pending(w->ssl))
        loop_fd_write(w->watch);
}

/* --- out ------------------------------------------------------------------------------------- */

size_t wire_kept(const struct wire *w)
{
    return w->kept.len - w->kept_at;
}

static void kept_sent(struct wire *w, size_t n)
{
    w->kept_at += n;
    if (w->kept_at < w->kept.len)
        return;
    w->kept_at = 0;
    if (w->kept.data)
        explicit_bzero(w->kept.data, w->kept.size); /* the door's secret may have been in it */
    buf_done(&w->kept);
}

static int broke(struct wire *w)
{
    w->broken = true;
    kept_sent(w, wire_kept(w));
    loop_fd_close(w->watch);
    return -1;
}

void wire_put(struct wire *w, const void *data, size_t len)
{
    if (w->broken)
        return;
    buf_add(&w->kept, data, len);
    if (!buf_ok(&w->kept))
        broke(w);
}

/* How many bytes went out; -1: it is broken. */
static ssize_t plain_write(struct wire *w, const struct iovec *iov, size_t n)
{
    const struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = n};
    ssize_t r = sendmsg(loop_fd_get(w->watch), &m, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (r >= 0)
        return r;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

static ssize_t tls_write(struct wire *w, const struct iovec *iov, size_t n)
{
    ssize_t all = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < iov[i].iov_len;) {
            size_t left = iov[i].iov_len - at;
            int r;

            ERR_clear_error();
            r = SSL_write(w->ssl, (const char *)iov[i].iov_base + at,
                          (int)(left < INT_MAX ? left : INT_MAX));
            /* It wants to read only in the middle of a message of the handshake: no peer has a reason
             * to cut one just there, and to wait for its rest would keep what waits here for ever. */
            if (r <= 0)
                return tls_stopped(w, r) < 0 && !SSL_want_read(w->ssl) ? all : -1;
            at += (size_t)r;
            all += r;
        }
    return all;
}

/* Keeps the rest of the frame in which the socket stopped, so that the first is always taken; with TLS
 * also one that was only looked at: OpenSSL wants to see it again. Returns how many are taken. */
static int frames_taken(struct wire *w, const struct iovec *frames, int n, size_t sent)
{
    int i = 0;

    while (i < n && sent >= frames[i].iov_len)
        sent -= frames[i++].iov_len;
    if (i == n)
        return n;
    w->blocked = true;
    loop_fd_write(w->watch);
    if (sent == 0 && i > 0 && !w->ssl)
        return i;
    wire_put(w, (const char *)frames[i].iov_base + sent, frames[i].iov_len - sent);
    return w->broken ? -1 : i + 1;
}

int wire_send(struct wire *w, const struct iovec *frames, int n)
{
    struct iovec all[1 + WIRE_FRAMES_MAX], *iov = all;
    size_t kept = wire_kept(w);
    ssize_t sent;

    if (w->broken)
        return -1;
    if (w->blocked)
        return 0;
    if (kept > 0)
        *iov++ = (struct iovec){w->kept.data + w->kept_at, kept};
    for (int i = 0; i < n; i++)
        *iov++ = frames[i];
    sent =
        w->ssl ? tls_write(w, all, (size_t)(iov - all)) : plain_write(w, all, (size_t)(iov - all));
    if (sent < 0)
        return broke(w);
    if (kept > 0)
        kept_sent(w, (size_t)sent < kept ? (size_t)sent : kept);
    if ((size_t)sent >= kept)
        return frames_taken(w, frames, n, (size_t)sent - kept);
    w->blocked = true;
    loop_fd_write(w->watch);
    return 0;
}

int wire_flush(struct wire *w)
{
    return wire_kept(w) > 0 ? wire_send(w, NULL, 0) : 0;
}

void wire_last(struct wire *w)
{
    if (!w->blocked || w->broken)
        return;
    tcp_reserve_use(loop_fd_get(w->watch));
    w->blocked = false;
    (void)wire_flush(w);
}

void wire_want(struct wire *w)
{
    w->wants_write = true;
    loop_fd_write(w->watch);
}

/* --- on the loop ----------------------------------------------------------------------------- */

static void fd_readable(void *ctx)
{
    struct wire *w = ctx;

    w->ops->readable(w->ctx);
}

static void fd_writable(void *ctx)
{
    struct wire *w = ctx;

    w->blocked = false;
    if (wire_flush(w) < 0)
        return;
    if (w->reading && w->ssl) /* it may have waited for this, or holds what it has read */
        w->ops->readable(w->ctx);
    if (w->wants_write && !w->blocked && !w->broken) {
        w->wants_write = false;
        w->ops->writable(w->ctx);
    }
}

static void fd_ended(void *ctx)
{
    struct wire *w = ctx;

    SSL_free(w->ssl);
    w->ssl = NULL;
    w->broken = true;
    buf_done(&w->kept);
    w->ops->ended(w->ctx);
}

int wire_open(struct wire *w, struct loop *l, int fd, struct ssl_ctx_st *tls,
              const struct wire_ops *ops, void *ctx)
{
    static const struct loop_fd_ops fd_ops = {fd_readable, fd_writable, fd_ended};

    *w = (struct wire){.ops = ops, .ctx = ctx, .reading = true};
    buf_init(&w->kept, KEPT_MAX);
    if (tls) {
        w->ssl = SSL_new(tls);
        if (w->ssl && SSL_set_fd(w->ssl, fd) == 1) {
            SSL_set_accept_state(w->ssl);
        } else {
            SSL_free(w->ssl);
            close(fd);
            return -1;
        }
    }
    w->watch = loop_fd_add(l, fd, &fd_ops, w);
    if (w->watch)
        return 0;
    SSL_free(w->ssl);
    close(fd);
    return -1;
}

static void tls_finish(struct wire *w)
{
    ERR_clear_error();
    (void)SSL_shutdown(w->ssl);
    ERR_clear_error();
}

void wire_finish(struct wire *w)
{
    if (w->broken)
        return;
    if (w->ssl)
        tls_finish(w);
    else
        (void)shutdown(loop_fd_get(w->watch), SHUT_WR);
}

void wire_close(struct wire *w, bool reset)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    int fd = loop_fd_get(w->watch), queued = 0;

    if (reset && ioctl(fd, TIOCOUTQ, &queued) == 0 && queued > 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    } else if (w->ssl && !w->blocked && !w->broken) {
        tls_finish(w);
    }
    w->broken = true;
    loop_fd_close(w->watch);
}
