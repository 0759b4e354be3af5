#include "door.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent.h"
#include "control.h"
#include "core.h"
#include "errand.h"
#include "leasehold/log.h"
#include "loop.h"
#include "server.h"
#include "spec.h"
#include "spool.h"

#define FINISH_US 500000 /* for the last Close frames and messages before the end */

struct door {
    struct door_spec spec;
    struct log *log;
    struct loop *loop;
    struct door_core *core;
    struct server *server;
    struct spool *spool; /* NULL: nothing is recorded */
    struct agent *agent;
    struct errands *errands;
    struct control *control;
    bool gateway_there;
    struct loop_timer *timer;
    struct loop_fd *signals;
    enum door_state logged_state;
    int64_t finish_us; /* when to end at the latest; 0: not ending */
    int status;
};

/* --- between core and gateway ----------------------------------------------------------------- */

static void send_to_gateway(void *ctx, const struct door_msg *m)
{
    struct door *d = ctx;
    struct door_msg more = *m;

    if (m->t == DOOR_ACTIVITY)
        more.unrecorded = spool_unrecorded(d->spool);
    control_send(d->control, &more);
}

static void admitted(void *ctx, struct door_peer *peer)
{
    struct door *d = ctx;

    log_event(d->log, LOG_INFO, "admitted", LF_ID("jti", &peer->claims.lease_id));
    server_admitted(d->server, peer);
}

static void challenge(void *ctx, struct door_peer *peer)
{
    struct door *d = ctx;

    server_challenge(d->server, peer);
}

static void random_bytes(void *ctx, void *to, size_t len)
{
    struct door *d = ctx;

    /* Up to 256 bytes come whole once the kernel's pool is ready, and it was for our boot id. */
    if (getrandom(to, len, 0) == (ssize_t)len)
        return;
    log_event(d->log, LOG_ERROR, "no_randomness");
    _exit(EXIT_FAILURE);
}

static void close_peer(void *ctx, struct door_peer *peer, int code)
{
    struct door *d = ctx;

    if (peer->state == PEER_ADMITTED)
        log_event(d->log, LOG_INFO, "closed", LF_ID("jti", &peer->claims.lease_id),
                  LF_INT("code", code));
    server_close(d->server, peer, code);
}

static int hello(void *ctx, struct door_msg *ret, struct err *e)
{
    struct door *d = ctx;

    if (door_core_hello(d->core, loop_now_us(), ret, e))
        return -1;
    ret->secret = d->spec.secret;
    return 0;
}

static void hello_sent(void *ctx, struct door_msg *m)
{
    struct door *d = ctx;

    d->gateway_there = true;
    free(m->conns.items);
    free(m->consumed.items);
}

static int message(void *ctx, const struct door_msg *m, struct err *e)
{
    struct door *d = ctx;

    if (m->t == DOOR_PUT_DONE) {
        errands_done(d->errands, m->n, m->artifact, m->fault);
        return 0;
    }
    return door_core_receive(d->core, m, loop_now_us(), e);
}

static void gateway_ended(void *ctx)
{
    struct door *d = ctx;

    log_event(d->log, LOG_INFO, "gateway_lost");
    d->gateway_there = false;
    errands_lost(d->errands);
    door_core_unlinked(d->core);
}

static int64_t gateway_ms(void *ctx)
{
    struct door *d = ctx;

    return door_core_gateway_ms(d->core, loop_now_us());
}

/* --- between agent and clients ----------------------------------------------------------------- */

static void agent_up(void *ctx)
{
    struct door *d = ctx;

    log_event(d->log, LOG_INFO, "agent_up");
    door_core_agent(d->core, DOOR_AGENT_UP, loop_now_us());
}

static void agent_ended(void *ctx, const char *why)
{
    struct door *d = ctx;

    log_event(d->log, LOG_INFO, "agent_ended", LF_STR("why", why));
    door_core_agent(d->core, DOOR_AGENT_ENDED, loop_now_us());
}

static void agent_said(void *ctx, const char *text, size_t len)
{
    struct door *d = ctx;

    spool_message(d->spool, NULL, text, len);
    server_line(d->server, text, len);
}

static void agent_visitor(void *ctx, int fd)
{
    struct door *d = ctx;

    errands_take(d->errands, fd);
}

static bool errand_ask(void *ctx, int64_t n, const char *path, const char *name)
{
    struct door *d = ctx;

    if (d->gateway_there)
        control_send(d->control, &(struct door_msg){.t = DOOR_PUT,
                                                    .n = n,
                                                    .path = (char *)(uintptr_t)path,
                                                    .name = (char *)(uintptr_t)name});
    return d->gateway_there;
}

static void agent_drained(void *ctx)
{
    struct door *d = ctx;

    server_flow(d->server);
}

/* --- the loop ---------------------------------------------------------------------------------- */

static void signals_readable(void *ctx)
{
    struct door *d = ctx;
    struct signalfd_siginfo info;

    if (read(loop_fd_get(d->signals), &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    log_event(d->log, LOG_INFO, "signal", LF_INT("number", info.ssi_signo));
    loop_stop(d->loop);
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void state_log(struct door *d)
{
    enum door_state state = door_core_state(d->core);

    if (state == d->logged_state)
        return;
    d->logged_state = state;
    log_event(d->log, LOG_INFO, "state", LF_STR("state", door_state_name(state)),
              LF_INT("applied", door_core_applied(d->core)));
}

/* Everything is closed or closing: lets the last bytes out, then ends. */
static int64_t finish(struct door *d, int64_t now_us)
{
    if (!door_core_done(d->core))
        return INT64_MAX;
    if (d->finish_us == 0)
        d->finish_us = now_us + FINISH_US;
    if ((server_count(d->server) == 0 && control_is_idle(d->control)) || now_us >= d->finish_us) {
        d->status = EXIT_SUCCESS;
        loop_stop(d->loop);
    }
    return d->finish_us;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void after_round(void *ctx)
{
    struct door *d = ctx;
    int64_t now_us = loop_now_us(), next_us;

    if (door_core_deadline_us(d->core) <= now_us)
        door_core_tick(d->core, now_us);
    control_flush(d->control); /* an ADMIT goes before its `ready` */
    next_us = server_step(d->server, now_us);
    door_core_flush(d->core, loop_now_us());
    control_flush(d->control);
    if (door_core_wants_resync(d->core))
        control_reconnect(d->control);
    state_log(d);
    next_us = earlier(next_us, finish(d, now_us));
    next_us = earlier(next_us, door_core_deadline_us(d->core));
    loop_timer_set(d->timer, next_us - now_us);
}

/* --- life -------------------------------------------------------------------------------------- */

static int signals_watch(struct door *d, struct err *e)
{
    static const struct loop_fd_ops ops = {signals_readable, nothing, nothing};
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd >= 0)
        d->signals = loop_fd_add(d->loop, fd, &ops, d);
    if (!d->signals)
        return err_set(e, ERR_INTERNAL, "cannot watch signals");
    return 0;
}

static struct door_core *core_make(struct door *d, struct err *e)
{
    struct door_core_config config = {
        .session_id = d->spec.session_id,
        .ep = d->spec.ep,
        .issuer = d->spec.issuer,
        .node = d->spec.node,
        .leeway_s = d->spec.leeway_s,
        .ttl_max_s = d->spec.ttl_max_s,
        .stale_s = d->spec.stale_s,
        .seal_s = d->spec.seal_s,
        .life_s = d->spec.life_s,
    };
    struct door_core_io io = {.ctx = d,
                              .admitted = admitted,
                              .challenge = challenge,
                              .random = random_bytes,
                              .close = close_peer,
                              .send = send_to_gateway};
    struct door_core *core;

    id_random(&config.boot_id);
    core = door_core_new(&config, &io, loop_now_us());
    if (!core)
        err_set(e, ERR_INTERNAL, "no memory for the core");
    return core;
}

static int door_make(struct door *d, int agent_fd, struct err *e)
{
    struct server_config server = {.log = d->log,
                                   .listen_fd = DOOR_LISTENER_FD,
                                   .session_id = d->spec.session_id,
                                   .origins = d->spec.origins,
                                   .cert_pem = d->spec.cert_pem,
                                   .key_pem = d->spec.key_pem};
    struct agent_events agent = {.ctx = d,
                                 .up = agent_up,
                                 .ended = agent_ended,
                                 .line = agent_said,
                                 .drained = agent_drained,
                                 .visitor = agent_visitor,
                                 .bridge = &client_bridge_ops};
    struct control_events control = {.ctx = d,
                                     .hello = hello,
                                     .hello_sent = hello_sent,
                                     .message = message,
                                     .ended = gateway_ended,
                                     .gateway_ms = gateway_ms};

    d->loop = loop_new(e);
    if (!d->loop || signals_watch(d, e))
        return -1;
    if (d->spec.record) {
        d->spool = spool_new(DOOR_SPOOL_FD, d->spec.record, d->log, e);
        if (!d->spool)
            return -1;
    }
    server.loop = d->loop;
    server.spool = d->spool;
    d->timer = loop_timer_new(d->loop, nothing, NULL);
    d->core = core_make(d, e);
    d->errands = errands_new(d->loop, errand_ask, d);
    d->agent = agent_new(d->loop, agent_fd, d->spec.transport, &agent, e);
    d->server = server_new(&server, e);
    d->control = control_new(d->loop, d->log, &control, e);
    if (!d->timer || !d->core || !d->errands || !d->agent || !d->server || !d->control)
        return -1;
    server_bind(d->server, d->core, d->agent);
    return 0;
}

static int door_serve(struct door *d, struct err *e)
{
    int agent_fd;

    if (sandbox_enter(&d->spec, d->log, &agent_fd, e) || door_make(d, agent_fd, e))
        return -1;
    log_event(d->log, LOG_INFO, "started", LF_ID("session_id", &d->spec.session_id),
              LF_INT("ep", d->spec.ep), LF_INT("uid", getuid()));
    loop_run(d->loop, after_round, d);
    spool_end(d->spool);
    return 0;
}

void door_run(void)
{
    struct door d = {.status = EXIT_FAILURE};
    struct arena *arena = arena_new(256 * 1024);
    struct err e = {0};

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    d.log = log_new(STDERR_FILENO, LOG_INFO, LOG_JSON);
    if (!d.log || !arena)
        _exit(EXIT_FAILURE);
    if (door_spec_read(DOOR_SPEC_FD, arena, &d.spec, &e) || door_serve(&d, &e))
        log_error(d.log, "door_failed", &e);
    else
        log_event(d.log, LOG_INFO, "ended", LF_INT("status", d.status));
    door_spec_wipe(&d.spec);
    /* Nothing is taken apart: the kernel takes sockets and memory back at once and in any order. */
    _exit(d.status);
}
