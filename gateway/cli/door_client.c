#include "door_client.h"

#include <errno.h>
#include <libwebsockets.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_S 10
#define BUFFER_BYTES      65536

_Static_assert(MESSAGE_HEADROOM >= LWS_PRE, "a frame's header must fit before its data");

struct door_client {
    pthread_t thread;
    struct lws_context *context;
    struct lws_protocols protocols[2]; /* the context does not copy them */
    struct lws *wsi;                   /* thread only, as `paused` */
    bool paused;
    struct message_queue *in, *out;
    int wake_fd;
    char *url; /* lws_parse_uri writes into it, so it is ours */
    char *protocol;
    char *authorization;
    char *ca_pem;
    char *cert_sha256;
    pthread_mutex_t lock;
    bool sending; /* under the lock, as all below */
    bool closing;
    bool stopping;
    bool look; /* a turn that begins now reads what stands unread */
    bool looked;
    bool ended;
    struct door_client_end end;
};

static void wake_user(const struct door_client *c)
{
    uint64_t one = 1;
    ssize_t n = write(c->wake_fd, &one, sizeof(one));
    (void)n; /* a full counter wakes as well */
}

/* The first cause counts: what follows a Close frame is only its consequence. */
static void set_cause(struct door_client *c, int code, const char *reason, size_t len)
{
    pthread_mutex_lock(&c->lock);
    if (c->end.code == 0 && c->end.reason[0] == '\0') {
        c->end.code = code;
        snprintf(c->end.reason, sizeof(c->end.reason), "%.*s", (int)(len > 127 ? 127 : len),
                 reason);
    }
    pthread_mutex_unlock(&c->lock);
}

static void set_ended(struct door_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    pthread_mutex_unlock(&c->lock);
    wake_user(c);
}

static bool is_set(struct door_client *c, const bool *flag)
{
    pthread_mutex_lock(&c->lock);
    bool v = *flag;
    pthread_mutex_unlock(&c->lock);
    return v;
}

/* A door's certificate is made for it alone, so its fingerprint says more than a host name. */
static bool certificate_fits(const struct door_client *c, struct lws *wsi)
{
    if (c->cert_sha256 == NULL || lws_get_ssl(wsi) == NULL) {
        return true;
    }
    unsigned char digest[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE + 1] = "";
    unsigned len = 0;
    X509 *cert = SSL_get1_peer_certificate(lws_get_ssl(wsi));
    bool got = cert != NULL && X509_digest(cert, EVP_sha256(), digest, &len) == 1;
    X509_free(cert);
    for (unsigned i = 0; got && i < len; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    return got && strcasecmp(hex, c->cert_sha256) == 0;
}

static int add_authorization(struct door_client *c, struct lws *wsi, void *in, size_t len)
{
    if (!certificate_fits(c, wsi)) {
        static const char why[] = "the door shows another certificate than the gateway named";
        set_cause(c, 0, why, sizeof(why) - 1);
        set_ended(c); /* lws may only notice at its next timeout */
        return -1;
    }
    unsigned char **at = in;
    return lws_add_http_header_by_name(
        wsi, (const unsigned char *)"authorization:", (const unsigned char *)c->authorization,
        (int)strlen(c->authorization), at, *at + len);
}

static int receive(struct door_client *c, struct lws *wsi, const void *data, size_t len)
{
    bool final = lws_is_final_fragment(wsi) != 0 && lws_remaining_packet_payload(wsi) == 0;
    if (message_queue_push(c->in, data, len, lws_frame_is_binary(wsi) == 0, final) < 0) {
        return -1;
    }
    if (!c->paused && message_queue_bytes(c->in) > DOOR_CLIENT_QUEUE_MAX) {
        c->paused = true;
        lws_rx_flow_control(wsi, 0);
    }
    wake_user(c);
    return 0;
}

static int send_close(struct lws *wsi)
{
    lws_close_reason(wsi, LWS_CLOSE_STATUS_NORMAL, NULL, 0);
    return -1;
}

static int send_next(struct door_client *c, struct lws *wsi)
{
    struct message *m = is_set(c, &c->sending) ? message_queue_pop(c->out) : NULL;
    if (m == NULL) {
        return is_set(c, &c->closing) ? send_close(wsi) : 0;
    }
    enum lws_write_protocol how = m->text ? LWS_WRITE_TEXT : LWS_WRITE_BINARY;
    int n = lws_write(wsi, m->data, m->len, how);
    bool sent = n >= (int)m->len;
    free(m);
    if (!sent) {
        return -1;
    }
    if (message_queue_bytes(c->out) < DOOR_CLIENT_QUEUE_MAX / 2) {
        wake_user(c);
    }
    lws_callback_on_writable(wsi);
    return 0;
}

/* The user has changed something: a queue or a flag. */
static void look_around(struct door_client *c)
{
    if (c->wsi == NULL) {
        return;
    }
    if (c->paused && message_queue_bytes(c->in) < DOOR_CLIENT_QUEUE_MAX / 2) {
        c->paused = false;
        lws_rx_flow_control(c->wsi, 1);
    }
    bool waiting = is_set(c, &c->sending) && message_queue_bytes(c->out) > 0;
    if (waiting || is_set(c, &c->closing)) {
        lws_callback_on_writable(c->wsi);
    }
}

static void peer_closes(struct door_client *c, const unsigned char *in, size_t len)
{
    if (len >= 2) {
        set_cause(c, in[0] << 8 | in[1], (const char *)in + 2, len - 2);
    }
}

/* libwebsockets takes only the first of several certificates that stand in memory. */
static int trust_all(SSL_CTX *ctx, const char *pem)
{
    BIO *in = BIO_new_mem_buf(pem, -1);
    X509 *cert = NULL;
    bool good = in != NULL;
    while (good && (cert = PEM_read_bio_X509(in, NULL, NULL, NULL)) != NULL) {
        good = X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), cert) == 1;
        X509_free(cert);
    }
    BIO_free(in);
    ERR_clear_error(); /* the end of the text is an error, too */
    return good ? 0 : -1;
}

static const char *fault_of_certificate(const struct door_client *c, int error)
{
    switch (error) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return "the door's certificate is for another name";
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return "the door's certificate has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return "the door's certificate is not valid yet";
    default:
        return c->ca_pem != NULL ? "the door's certificate is not of the CA in the grant"
                                 : "the door's certificate is of no CA that is trusted here";
    }
}

/* libwebsockets fails the handshake by itself, but then names only a number. */
static void note_certificate(struct door_client *c, X509_STORE_CTX *checked, bool good)
{
    if (!good) {
        const char *why = fault_of_certificate(c, X509_STORE_CTX_get_error(checked));
        set_cause(c, 0, why, strlen(why));
    }
}

static void connection_fails(struct door_client *c, const char *why, size_t len)
{
    static const char ours[] = "the TLS handshake failed: is it a door with TLS?";
    static const char theirs[] = "connect SSL err";
    if (why == NULL) {
        why = "no connection";
        len = strlen(why);
    } else if (len >= strlen(theirs) && memcmp(why, theirs, strlen(theirs)) == 0) {
        why = ours;
        len = strlen(ours);
    }
    set_cause(c, 0, why, len);
    set_ended(c);
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len)
{
    struct door_client *c = lws_context_user(lws_get_context(wsi));
    switch (reason) {
    case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
        return add_authorization(c, wsi, in, len);
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        c->wsi = wsi;
        look_around(c);
        return 0;
    case LWS_CALLBACK_CLIENT_RECEIVE:
        return receive(c, wsi, in, len);
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        return send_next(c, wsi);
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
        look_around(c);
        return 0;
    case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
        peer_closes(c, in, len);
        return 0;
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        connection_fails(c, in, len);
        return 0;
    case LWS_CALLBACK_OPENSSL_PERFORM_SERVER_CERT_VERIFICATION:
        note_certificate(c, user, len != 0);
        return 0;
    case LWS_CALLBACK_OPENSSL_LOAD_EXTRA_CLIENT_VERIFY_CERTS:
        return c->ca_pem != NULL ? trust_all(user, c->ca_pem) : 0;
    case LWS_CALLBACK_CLIENT_CLOSED:
        c->wsi = NULL;
        set_ended(c);
        return 0;
    default:
        return 0;
    }
}

static int begin(struct door_client *c)
{
    const char *scheme = NULL;
    const char *host = NULL;
    const char *path = NULL;
    char slash_path[256];
    char host_header[256];
    int port = 0;
    if (lws_parse_uri(c->url, &scheme, &host, &port, &path) != 0) {
        return -1;
    }
    bool tls = strcmp(scheme, "wss") == 0 || strcmp(scheme, "https") == 0;
    /* Of a URL without one it makes "/", of others it leaves the first slash out. */
    snprintf(slash_path, sizeof(slash_path), "%s%s", path[0] == '/' ? "" : "/", path);
    snprintf(host_header, sizeof(host_header), "%s:%d", host, port);
    struct lws_client_connect_info info = {
        .context = c->context,
        .address = host,
        .port = port,
        .path = slash_path,
        .host = tls ? host : host_header, /* of wss it is also the name in the certificate */
        .protocol = c->protocol,
        .local_protocol_name = c->protocol,
        .ietf_version_or_minus_one = -1,
        .alpn = "http/1.1",
    };
    if (tls) {
        info.ssl_connection = LCCSCF_USE_SSL;
        if (c->cert_sha256 != NULL) {
            info.ssl_connection |= LCCSCF_SKIP_SERVER_CERT_HOSTNAME_CHECK;
        }
    }
    return lws_client_connect_via_info(&info) != NULL ? 0 : -1;
}

static void set_looked(struct door_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->look = false;
    c->looked = true;
    pthread_mutex_unlock(&c->lock);
    wake_user(c);
}

/* Without a wait when somebody asks to look: a turn reads from all that is ready when it begins. */
static void serve_turn(struct door_client *c)
{
    bool look = is_set(c, &c->look);
    if (lws_service(c->context, look ? -1 : 0) < 0) {
        set_ended(c);
    }
    if (look) {
        set_looked(c);
    }
}

static void *serve(void *arg)
{
    struct door_client *c = arg;
    if (begin(c) < 0) {
        static const char why[] = "no connection";
        set_cause(c, 0, why, sizeof(why) - 1);
        set_ended(c);
    }
    while (!is_set(c, &c->stopping) && !is_set(c, &c->ended)) {
        serve_turn(c);
    }
    return NULL;
}

static struct lws_context *make_context(struct door_client *c)
{
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .protocols = c->protocols,
        .user = c,
        .options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
        .pt_serv_buf_size = BUFFER_BYTES,
        .timeout_secs = CONNECT_TIMEOUT_S,
        .fd_limit_per_thread = 16,
        /* Not WebSocket pings: while the user reads slowly, their answers would not be seen. */
        .ka_time = 15,
        .ka_probes = 3,
        .ka_interval = 5,
    };
    if (c->ca_pem != NULL) {
        info.options |= LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS;
        info.client_ssl_ca_mem = c->ca_pem;
        info.client_ssl_ca_mem_len = (unsigned)strlen(c->ca_pem) + 1;
    }
    lws_set_log_level(0, NULL);
    return lws_create_context(&info);
}

static char *copy_or_null(const char *s)
{
    return s != NULL && s[0] != '\0' ? strdup(s) : NULL;
}

static void free_secret(char *s)
{
    if (s != NULL) {
        explicit_bzero(s, strlen(s));
        free(s);
    }
}

static void release(struct door_client *c)
{
    lws_context_destroy(c->context);
    pthread_mutex_destroy(&c->lock);
    free_secret(c->authorization);
    free(c->url);
    free(c->protocol);
    free(c->ca_pem);
    free(c->cert_sha256);
    free(c);
}

static struct door_client *allocate(const struct door_client_spec *spec)
{
    struct door_client *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    c->in = spec->in;
    c->out = spec->out;
    c->wake_fd = spec->wake_fd;
    c->url = strdup(spec->url);
    c->protocol = strdup(spec->protocol);
    c->ca_pem = copy_or_null(spec->ca_pem);
    c->cert_sha256 = copy_or_null(spec->cert_sha256);
    if (asprintf(&c->authorization, "Bearer %s", spec->token) < 0) {
        c->authorization = NULL;
    }
    if (c->url == NULL || c->protocol == NULL || c->authorization == NULL) {
        release(c);
        return NULL;
    }
    return c;
}

static int check_url(const char *url, struct err *e)
{
    if (strncmp(url, "ws://", 5) != 0 && strncmp(url, "wss://", 6) != 0) {
        return err_set(e, ERR_INTERNAL, "the gateway named no address of a door");
    }
    return 0;
}

struct door_client *door_client_start(const struct door_client_spec *spec, struct err *e)
{
    if (check_url(spec->url, e) < 0) {
        return NULL;
    }
    struct door_client *c = allocate(spec);
    if (c == NULL) {
        err_set(e, ERR_INTERNAL, "no memory");
        return NULL;
    }
    c->protocols[0] = (struct lws_protocols){
        .name = c->protocol, .callback = on_event, .rx_buffer_size = BUFFER_BYTES};
    c->context = make_context(c);
    if (c->context == NULL) {
        err_set(e, ERR_INTERNAL, "the certificates of the door cannot be used");
        release(c);
        return NULL;
    }
    int rc = pthread_create(&c->thread, NULL, serve, c);
    if (rc != 0) {
        err_sys(e, ERR_INTERNAL, rc, "no thread");
        release(c);
        return NULL;
    }
    return c;
}

static void set_and_notify(struct door_client *c, bool *flag)
{
    pthread_mutex_lock(&c->lock);
    *flag = true;
    pthread_mutex_unlock(&c->lock);
    lws_cancel_service(c->context);
}

void door_client_free(struct door_client *c)
{
    if (c == NULL) {
        return;
    }
    set_and_notify(c, &c->stopping);
    pthread_join(c->thread, NULL);
    release(c);
}

void door_client_notify(struct door_client *c)
{
    lws_cancel_service(c->context);
}

void door_client_allow_sending(struct door_client *c)
{
    set_and_notify(c, &c->sending);
}

void door_client_close(struct door_client *c)
{
    set_and_notify(c, &c->closing);
}

void door_client_look(struct door_client *c)
{
    set_and_notify(c, &c->look);
}

bool door_client_looked(struct door_client *c)
{
    pthread_mutex_lock(&c->lock);
    bool looked = c->looked;
    c->looked = false;
    pthread_mutex_unlock(&c->lock);
    return looked;
}

bool door_client_ended(struct door_client *c, struct door_client_end *ret)
{
    pthread_mutex_lock(&c->lock);
    bool ended = c->ended;
    if (ended) {
        *ret = c->end;
    }
    pthread_mutex_unlock(&c->lock);
    return ended;
}
