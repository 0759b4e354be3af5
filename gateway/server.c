#include "server.h"

#include <errno.h>
#include <libwebsockets.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "descriptors.h"
#include "server_state.h"
#include "tls_server.h"

#define SWEEP_MS         1000
#define FD_AIR           8 /* libwebsockets' own pipe, and some */
#define CONN_MAX         100000
#define MANY_DESCRIPTORS 16384
#define TLS_S            (CONN_FIRST_MS / 1000) /* of a handshake */
#define CPU_EVERY_NS     250000 /* a look at the CPU clock costs 1.4 us: not one for each turn */

/* libwebsockets' log has no context argument: the one place where a static has to stand in. Set
 * before its first use by the only server of the process, never changed while it lives. */
static struct log *lws_log;

static void on_lws_log(int level, const char *line)
{
    size_t len = strcspn(line, "\n");
    char text[256];
    (void)snprintf(text, sizeof text, "%.*s", (int)len, line);
    log_event(lws_log, level == LLL_ERR ? LOG_ERROR : LOG_WARNING, "lws", LF_STR("detail", text));
}

/* --- construction ---------------------------------------------------------------------------- */

static void wake(void *ctx)
{
    struct server *s = ctx;
    (void)uv_async_send(&s->wake);
}

static void on_wake(uv_async_t *wake)
{
    conn_serve_inbox(wake->data);
}

/* A quarter of the descriptors for doors, a quarter for all that is no connection (store, watches,
 * engine), or somewhat less where there are many; clients have what is left. */
static size_t descriptors_share(struct server *s) /* how many there are */
{
    struct rlimit limit = {0};
    size_t all = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (size_t)limit.rlim_cur : 1024;
    s->local.conns_max = all / 4 < CONN_MAX ? all / 4 : CONN_MAX;
    size_t clients = all / 2 + (all >= MANY_DESCRIPTORS ? all / 16 : 0);
    s->tcp.conns_max = clients < CONN_MAX ? clients : CONN_MAX;
    return all;
}

static int file_check(const char *key, const char *path, struct err *e)
{
    return access(path, R_OK) == 0 ? 0 : err_sys(e, ERR_INTERNAL, errno, "%s %s", key, path);
}

/* libwebsockets, for the sockets with TLS. */
static int context_open(struct server *s, size_t descriptors, struct err *e)
{
    void *loops[] = {&s->loop};
    struct lws_context_creation_info info = {
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS |
                   LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
        .foreign_loops = loops,
        .user = s,
        .pt_serv_buf_size = SERVER_READ_MAX,
        .timeout_secs = TLS_S,
        .pcontext = &s->lws, /* NULL again when it is gone */
    };
    /* With a limit libwebsockets searches its connections for each event; without one it keeps a place
     * for each descriptor there may be. We accept by ourselves, within conns_max. */
    if (descriptors > DESCRIPTORS_MOST) {
        info.fd_limit_per_thread = (unsigned)(s->tcp.conns_max + s->local.conns_max) + FD_AIR;
    }
    lws_log = s->log;
    lws_set_log_level(LLL_ERR | LLL_WARN, on_lws_log);
    s->lws = lws_create_context(&info);
    return s->lws != NULL ? 0 : err_set(e, ERR_INTERNAL, "libwebsockets does not start");
}

static int vhost_open(struct server *s, struct listener *l, struct err *e)
{
    const struct config_tls *tls = &s->cfg->http.tls;
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .vhost_name = "tcp",
        .protocols = sock_protocols(),
        .timeout_secs = TLS_S,
        .options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
        .ssl_cert_filepath = tls->cert_file,
        .ssl_private_key_filepath = tls->key_file,
        .alpn = "http/1.1",
    };
    if (file_check("http.tls.cert_file", tls->cert_file, e) != 0 ||
        file_check("http.tls.key_file", tls->key_file, e) != 0) {
        return -1;
    }
    l->vhost = lws_create_vhost(s->lws, &info);
    if (l->vhost != NULL) {
        return tls_server_setup(s->tls_ctx, tls, e);
    }
    return err_set(e, ERR_INTERNAL, "TLS: %s and %s do not serve as certificate and key",
                   tls->cert_file, tls->key_file);
}

static void on_sweep(uv_timer_t *t)
{
    struct server *s = t->data;
    conn_sweep(s);
    listener_check_local(s);
    conn_make_room(&s->tcp);
    conn_make_room(&s->local);
    listener_resume(&s->tcp);
    listener_resume(&s->local);
}

/* --- turns ----------------------------------------------------------------------------------- */

static uint64_t cpu_now_ns(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0
               ? (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec
               : 0;
}

/* What the thread has had of the CPU in a turn that ends now. The clock was read at its begin or shortly
 * before: what is counted too much is CPU_EVERY_NS at most. */
static int64_t long_turn_cpu_us(struct server *s, uint64_t now_ns, uint64_t busy_ns)
{
    uint64_t cpu_ns = cpu_now_ns(), had_ns = cpu_ns - s->cpu_ns;
    s->cpu_ns = cpu_ns;
    s->cpu_at_ns = now_ns;
    return (int64_t)((had_ns < busy_ns ? had_ns : busy_ns) / 1000);
}

static void turn_tell(struct server *s, uint64_t now_ns, uint64_t busy_ns)
{
    int64_t busy_us = (int64_t)(busy_ns / 1000);
    s->handler.turn(s->handler.ctx, busy_us,
                    busy_us > SERVER_TURN_LONG_US ? long_turn_cpu_us(s, now_ns, busy_ns) : -1);
}

/* What was not waiting was work; libuv runs most of it inside the wait's own phase. */
static void on_turn(uv_prepare_t *prepare)
{
    struct server *s = prepare->data;
    sock_close_dead(s);
    uint64_t now_ns = uv_hrtime(), idle_ns = uv_metrics_idle_time(&s->loop);
    if (s->turn_ns != 0 && s->handler.turn != NULL) {
        turn_tell(s, now_ns, now_ns - s->turn_ns - (idle_ns - s->idle_ns));
    }
    if (now_ns - s->cpu_at_ns >= CPU_EVERY_NS) {
        s->cpu_ns = cpu_now_ns();
        s->cpu_at_ns = now_ns;
    }
    s->turns++;
    s->turn_ns = now_ns;
    s->idle_ns = idle_ns;
}

/* It looks on: the loop ends without it. */
static void turns_watch(struct server *s)
{
    (void)uv_prepare_init(&s->loop, &s->turn);
    s->turn.data = s;
    (void)uv_prepare_start(&s->turn, on_turn);
    uv_unref((uv_handle_t *)&s->turn);
}

static int server_open(struct server *s, struct err *e)
{
    size_t descriptors = descriptors_share(s);
    if (s->tcp.tls && (context_open(s, descriptors, e) != 0 || vhost_open(s, &s->tcp, e) != 0)) {
        return -1;
    }
    s->inbox = inbox_new(wake, s);
    s->input = malloc(SERVER_READ_MAX);
    if (s->inbox == NULL || s->input == NULL) {
        return err_set(e, ERR_INTERNAL, "out of memory");
    }
    if (listener_open_tcp(s, e) != 0 || listener_open_local(s, e) != 0) {
        return -1;
    }
    return 0;
}

int server_new(const struct config *cfg, struct log *log, const struct server_handler *handler,
               struct server **ret, struct err *e)
{
    struct server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(e, ERR_INTERNAL, "out of memory");
    }
    s->cfg = cfg;
    s->log = log;
    s->handler = *handler;
    s->tcp.fd = s->local.fd = -1;
    s->local.local = true;
    s->tcp.tls = cfg->http.tls.cert_file != NULL && cfg->http.tls.cert_file[0] != '\0';
    (void)signal(SIGPIPE, SIG_IGN);
    if (uv_loop_init(&s->loop) != 0) {
        free(s);
        return err_set(e, ERR_INTERNAL, "libuv does not start");
    }
    (void)uv_loop_configure(&s->loop, UV_METRICS_IDLE_TIME);
    (void)uv_timer_init(&s->loop, &s->sweep);
    s->sweep.data = s;
    (void)uv_timer_start(&s->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    (void)uv_async_init(&s->loop, &s->wake, on_wake);
    s->wake.data = s;
    turns_watch(s);
    if (server_open(s, e) != 0) {
        server_free(s);
        return -1;
    }
    *ret = s;
    return 0;
}

/* --- the end --------------------------------------------------------------------------------- */

/* On a loop that is not its own libwebsockets closes in steps, with the loop turning in between:
 * sockets first, then what they stood on. */
static void context_close(struct server *s)
{
    for (int step = 0; s->lws != NULL && step < 3; step++) {
        lws_context_destroy(s->lws);
        (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    }
}

void server_free(struct server *s)
{
    if (s == NULL) {
        return;
    }
    s->draining = true;
    listener_close(&s->tcp);
    listener_close(&s->local);
    uv_close((uv_handle_t *)&s->sweep, NULL);
    uv_close((uv_handle_t *)&s->turn, NULL);
    uv_close((uv_handle_t *)&s->wake, NULL);
    sock_close_all(s);
    context_close(s);
    inbox_free(s->inbox);
    (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&s->loop);
    lws_set_log_level(0, NULL);
    free(s->input);
    free(s);
}

int server_reload_tls(struct server *s, struct err *e)
{
    return s->tcp.tls ? tls_server_reload(s->tls_ctx, &s->cfg->http.tls, e) : 0;
}

/* --- running --------------------------------------------------------------------------------- */

static void on_signal(uv_signal_t *h, int number)
{
    const struct server *s = h->data;
    const struct server_signals *on = &s->on;
    void (*fn)(void *) = number == SIGHUP    ? on->on_hup
                         : number == SIGCHLD ? on->on_child
                                             : on->on_term;
    if (fn != NULL) {
        fn(on->ctx);
    }
}

int server_run(struct server *s, const struct server_signals *signals, struct err *e)
{
    static const int numbers[SERVER_SIGNALS] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    int bad = 0, rc = 0;
    s->on = *signals;
    for (int i = 0; i < SERVER_SIGNALS; i++) {
        (void)uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        int r = uv_signal_start(&s->signals[i], on_signal, numbers[i]);
        bad = bad == 0 ? r : bad;
    }
    if (bad != 0) {
        rc = err_set(e, ERR_INTERNAL, "signals: %s", uv_strerror(bad));
    } else if (signals->on_watched != NULL) {
        rc = signals->on_watched(signals->ctx, e);
    }
    if (rc == 0) {
        (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    }
    for (int i = 0; i < SERVER_SIGNALS; i++) {
        uv_close((uv_handle_t *)&s->signals[i], NULL);
    }
    return rc;
}

void server_stop_accepting(struct server *s)
{
    s->draining = true;
    listener_close(&s->tcp);
    conn_close_idle(s);
}

void server_stop(struct server *s)
{
    uv_stop(&s->loop);
}

int server_port(const struct server *s)
{
    return s->port;
}

const char *server_url(const struct server *s)
{
    return s->url;
}

struct inbox *server_inbox(struct server *s)
{
    return s->inbox;
}

void server_counts(const struct server *s, struct server_counts *ret)
{
    *ret = (struct server_counts){.connections = HASH_COUNT(s->conns),
                                  .websockets = s->websockets,
                                  .refused_addresses = s->refused_addresses,
                                  .refused_processes = s->refused_processes};
}

bool server_control_socket_ok(const struct server *s)
{
    return !atomic_load(&s->socket_lost);
}

size_t server_connections_max(const struct server *s)
{
    return s->tcp.conns_max;
}

size_t server_open_requests(const struct server *s)
{
    return s->open_requests;
}

size_t server_lingering(const struct server *s)
{
    return conn_lingering(s);
}
