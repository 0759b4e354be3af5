/*
 * A program on gateway/server.h alone, for the tests of the server: it answers what it was asked.
 *
 *   echo_server RUN_DIR PORT [CERT KEY]        prints its URL, then serves until SIGTERM
 *
 *   /r/…     {method, path, query, n, h, conn} of the request: its body's length and hash; answered
 *            from a timer after 0–4 ms, or `?delay=MS`; `?size=N` answers N bytes; `?now` at once
 *   /lane/…  the same by way of a lane and the inbox
 *   /child/… the same when a process that was started for it has ended
 *   /stat    {open, refused, closed, gone}
 *   /in/…    a body in pieces: the same answer at its end; `?early` before the first piece, `?stop=N`
 *            behind N of them; `?lazy=MS` between two
 *   /out/…   `?out=N` bytes in pieces; `?unknown` without saying how many, `?cut=N` breaks off,
 *            `?pipe` by way of one
 *   WebSocket: echoes; "close CODE" closes; "flood N" sends N messages of 64 KiB; path /refuse: 403
 *   SIGHUP   stops accepting, drains, ends
 *   ECHO_PING_MS in the environment: how often WebSockets of bots are pinged
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server.h"

#define FLOOD_MESSAGE (64 * 1024)
#define OUT_PIECE     100000

struct app;

/* A request whose answer is due. */
struct due {
    struct job job;
    struct app *app;
    struct http_request *request;
    struct server_timer *timer;
    struct server_watch *watch;
    pid_t child;
    int pidfd;
    struct due *next, **at;
};

struct app {
    struct server *server;
    struct server_timer *drained;
    struct lane *lane;
    struct due *dues;
    struct body *bodies;
    unsigned random;
    unsigned refused, closed, gone;
};

/* A body that comes, or goes, in pieces. */
struct body {
    struct app *app;
    struct http_request *request;
    struct server_timer *timer;
    size_t n; /* so far */
    unsigned h, pieces;
    size_t out; /* to be sent; 0: it comes */
    int pipe[2];
    struct body *next, **at;
};

static long param(const struct http_request *r, const char *name, long otherwise)
{
    const char *at = strstr(r->query, name);
    return at == NULL ? otherwise : strtol(at + strlen(name), NULL, 10);
}

static unsigned hash(unsigned h, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        h = h * 33 + (unsigned char)data[i];
    }
    return h;
}

static void fill(struct buf *b, size_t size)
{
    char block[26 * 1000];
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] = (char)('a' + i % 26);
    }
    while (b->len < size && buf_ok(b)) {
        size_t left = size - b->len;
        buf_add(b, block, left < sizeof block ? left : sizeof block);
    }
}

static void reply(struct app *app, struct http_request *r)
{
    struct http_reply answer = {.status = 200, .content_type = "application/json"};
    long size = param(r, "size=", 0);
    buf_init(&answer.body, 256u * 1024 * 1024);
    if (strcmp(r->path, "/stat") == 0) {
        buf_printf(&answer.body, "{\"open\":%zu,\"refused\":%u,\"closed\":%u,\"gone\":%u}",
                   server_open_requests(app->server), app->refused, app->closed, app->gone);
    } else if (size > 0) {
        fill(&answer.body, (size_t)size);
    } else {
        buf_printf(&answer.body,
                   "{\"method\":%d,\"path\":\"%s\",\"query\":\"%s\",\"n\":%zu,\"h\":%u,"
                   "\"conn\":%llu,\"peer\":\"%s\"}",
                   (int)r->method, r->path, r->query, r->body_len, hash(5381, r->body, r->body_len),
                   (unsigned long long)r->conn, r->peer);
    }
    if (strstr(r->query, "empty") != NULL) {
        answer.status = 204;
        answer.content_type = NULL;
    }
    server_reply(app->server, r->conn, &answer);
    http_request_free(r);
}

static void due_end(struct due *d)
{
    *d->at = d->next;
    if (d->next != NULL) {
        d->next->at = d->at;
    }
    server_timer_free(d->timer);
    free(d);
}

static void due_fire(void *ctx)
{
    struct due *d = ctx;
    reply(d->app, d->request);
    due_end(d);
}

static void job_run(struct job *job)
{
    (void)job;
    usleep(500);
}

static void job_done(struct job *job)
{
    struct due *d = (struct due *)job;
    reply(d->app, d->request);
    free(d);
}

static void by_lane(struct app *app, struct http_request *r)
{
    struct due *d = calloc(1, sizeof *d);
    struct err e;
    d->app = app;
    d->request = r;
    d->job.run = job_run;
    d->job.done = job_done;
    if (lane_submit(app->lane, &d->job, &e) != 0) {
        job_done(&d->job);
    }
}

static void by_timer(struct app *app, struct http_request *r)
{
    struct due *d = calloc(1, sizeof *d);
    d->app = app;
    d->request = r;
    d->timer = server_timer_new(app->server, due_fire, d);
    d->next = app->dues;
    d->at = &app->dues;
    if (d->next != NULL) {
        d->next->at = &d->next;
    }
    app->dues = d;
    app->random = app->random * 1103515245u + 12345u;
    server_timer_arm(d->timer, param(r, "delay=", (long)(app->random >> 16) % 5));
}

static void child_ended(void *ctx)
{
    struct due *d = ctx;
    (void)waitpid(d->child, NULL, 0);
    server_watch_free(d->watch);
    (void)close(d->pidfd);
    reply(d->app, d->request);
    free(d);
}

static void by_child(struct app *app, struct http_request *r)
{
    struct due *d = calloc(1, sizeof *d);
    d->app = app;
    d->request = r;
    d->child = fork();
    if (d->child == 0) {
        usleep(2000);
        _exit(0);
    }
    d->pidfd = (int)syscall(SYS_pidfd_open, d->child, 0);
    d->watch = server_watch_new(app->server, d->pidfd, child_ended, d);
}

/* --- bodies in pieces ------------------------------------------------------------------------ */

static struct body *body_new(struct app *app, struct http_request *r)
{
    struct body *b = calloc(1, sizeof *b);
    b->app = app;
    b->request = r;
    b->h = 5381;
    b->next = app->bodies;
    b->at = &app->bodies;
    if (b->next != NULL) {
        b->next->at = &b->next;
    }
    app->bodies = b;
    return b;
}

static void body_free(struct body *b)
{
    *b->at = b->next;
    if (b->next != NULL) {
        b->next->at = b->at;
    }
    if (b->pipe[0] != 0) {
        (void)close(b->pipe[0]);
        (void)close(b->pipe[1]);
    }
    server_timer_free(b->timer);
    http_request_free(b->request);
    free(b);
}

static struct body *body_find(const struct app *app, uint64_t conn)
{
    struct body *b = app->bodies;
    while (b != NULL && b->request->conn != conn) {
        b = b->next;
    }
    return b;
}

static void body_answer(struct body *b)
{
    struct http_reply answer = {.status = 200, .content_type = "application/json"};
    buf_init(&answer.body, 1000);
    buf_printf(&answer.body, "{\"n\":%zu,\"h\":%u,\"pieces\":%u}", b->n, b->h, b->pieces);
    uint64_t conn = b->request->conn;
    struct server *server = b->app->server;
    body_free(b);
    server_reply(server, conn, &answer);
}

static void body_want(void *ctx)
{
    const struct body *b = ctx;
    (void)server_body_want(b->app->server, b->request->conn, NULL);
}

static void on_body(void *ctx, uint64_t conn, struct buf *piece, bool last)
{
    struct body *b = body_find(ctx, conn);
    b->n += piece->len;
    b->h = hash(b->h, piece->data, piece->len);
    b->pieces++;
    long stop = param(b->request, "stop=", 0), lazy = param(b->request, "lazy=", 0);
    if (last || (stop > 0 && b->pieces >= (unsigned)stop)) {
        buf_done(piece);
        body_answer(b);
    } else if (lazy > 0) {
        buf_done(piece);
        server_timer_arm(b->timer, lazy);
    } else {
        (void)server_body_want(b->app->server, conn, piece);
    }
}

static void out_next(struct body *b)
{
    struct server *server = b->app->server;
    size_t left = b->out - b->n, len = left < OUT_PIECE ? left : OUT_PIECE;
    long cut = param(b->request, "cut=", 0);
    if (cut > 0 && b->n >= (size_t)cut) {
        server_cut(server, b->request->conn);
        return;
    }
    struct buf piece;
    buf_init(&piece, OUT_PIECE);
    fill(&piece, len);
    b->n += len;
    if (strstr(b->request->query, "pipe") == NULL) {
        server_send(server, b->request->conn, &piece, len == left);
        return;
    }
    bool whole = write(b->pipe[1], piece.data, len) == (ssize_t)len;
    buf_done(&piece);
    if (!whole) {
        abort();
    }
    server_send_pipe(server, b->request->conn, b->pipe[0], len, len == left);
}

static void on_sent(void *ctx, uint64_t conn)
{
    struct body *b = body_find(ctx, conn);
    if (b->n < b->out) {
        server_timer_arm(b->timer, 0);
    } else {
        body_free(b);
    }
}

static void out_due(void *ctx)
{
    out_next(ctx);
}

static void on_gone(void *ctx, uint64_t conn)
{
    struct app *app = ctx;
    struct body *b = body_find(app, conn);
    if (b != NULL) {
        app->gone++;
        body_free(b);
    }
}

static bool on_streams(void *ctx, const struct http_request *r)
{
    (void)ctx;
    return strncmp(r->path, "/in/", 4) == 0;
}

static void body_out(struct app *app, struct http_request *r)
{
    struct body *b = body_new(app, r);
    struct http_reply answer = {.status = 200, .content_type = "text/plain", .streams = true};
    b->timer = server_timer_new(app->server, out_due, b);
    b->out = (size_t)param(r, "out=", 0);
    answer.len = strstr(r->query, "unknown") == NULL ? (int64_t)b->out : -1;
    if (strstr(r->query, "pipe") != NULL &&
        (pipe(b->pipe) != 0 || fcntl(b->pipe[1], F_SETPIPE_SZ, 4 * OUT_PIECE) < OUT_PIECE)) {
        abort();
    }
    bool head = r->method == HTTP_HEAD;
    server_reply(app->server, r->conn, &answer);
    if (head) {
        body_free(b);
    } else {
        out_next(b);
    }
}

static void body_in(struct app *app, struct http_request *r)
{
    struct body *b = body_new(app, r);
    b->timer = server_timer_new(app->server, body_want, b);
    if (strstr(r->query, "early") != NULL) {
        body_answer(b);
    } else {
        server_timer_arm(b->timer, param(r, "lazy=", 0));
    }
}

static void on_http(void *ctx, struct http_request *r)
{
    struct app *app = ctx;
    if (r->streams) {
        body_in(app, r);
    } else if (strncmp(r->path, "/out/", 5) == 0) {
        body_out(app, r);
    } else if (strcmp(r->path, "/stat") == 0 || strstr(r->query, "now") != NULL) {
        reply(app, r);
    } else if (strncmp(r->path, "/lane/", 6) == 0) {
        by_lane(app, r);
    } else if (strncmp(r->path, "/child/", 7) == 0) {
        by_child(app, r);
    } else {
        by_timer(app, r);
    }
}

static void on_refused(void *ctx, struct http_request *r, const struct err *e)
{
    struct app *app = ctx;
    struct http_reply answer = {.status = err_code_http(e->code),
                                .content_type = "application/problem+json"};
    app->refused++;
    buf_init(&answer.body, 4096);
    buf_printf(&answer.body, "{\"code\":\"%s\",\"detail\":\"%s\",\"path\":\"%s\"}",
               err_code_name(e->code), e->msg, r->path);
    server_reply(app->server, r->conn, &answer);
    http_request_free(r);
}

static int on_ws_open(void *ctx, uint64_t conn, const char *protocol, const struct http_request *r,
                      struct err *e)
{
    const struct app *app = ctx;
    if (strcmp(r->path, "/refuse") == 0) {
        return err_set(e, ERR_FORBIDDEN, "refused as asked");
    }
    if (server_ws_send(app->server, conn, protocol, strlen(protocol)) != 0) {
        return err_set(e, ERR_INTERNAL, "gone at once");
    }
    return 0;
}

static void on_ws_message(void *ctx, uint64_t conn, const char *data, size_t len)
{
    const struct app *app = ctx;
    static char filler[FLOOD_MESSAGE];
    if (len > 6 && memcmp(data, "close ", 6) == 0) {
        server_ws_close(app->server, conn, atoi(data + 6), "as asked");
    } else if (len > 6 && memcmp(data, "flood ", 6) == 0) {
        for (int n = atoi(data + 6); n > 0; n--) {
            (void)server_ws_send(app->server, conn, memset(filler, 'x', sizeof filler),
                                 sizeof filler);
        }
    } else {
        (void)server_ws_send(app->server, conn, data, len);
    }
}

static void on_ws_closed(void *ctx, uint64_t conn)
{
    struct app *app = ctx;
    (void)conn;
    app->closed++;
}

static void on_term(void *ctx)
{
    const struct app *app = ctx;
    server_stop(app->server);
}

static void drain(void *ctx)
{
    const struct app *app = ctx;
    if (server_open_requests(app->server) + server_lingering(app->server) == 0) {
        server_stop(app->server);
    } else {
        server_timer_arm(app->drained, 10);
    }
}

static void on_hup(void *ctx)
{
    const struct app *app = ctx;
    server_stop_accepting(app->server);
    drain(ctx);
}

static int serve(struct app *app, const struct config *cfg, struct log *log, struct err *e)
{
    const char *ping = getenv("ECHO_PING_MS");
    const struct server_handler handler = {.ctx = app,
                                           .http = on_http,
                                           .http_refused = on_refused,
                                           .streams = on_streams,
                                           .body = on_body,
                                           .sent = on_sent,
                                           .gone = on_gone,
                                           .ws_open = on_ws_open,
                                           .ws_message = on_ws_message,
                                           .ws_closed = on_ws_closed,
                                           .ws_ping_ms = ping == NULL ? 0 : (unsigned)atoi(ping)};
    const struct server_signals signals = {.ctx = app, .on_term = on_term, .on_hup = on_hup};
    if (server_new(cfg, log, &handler, &app->server, e) != 0) {
        return -1;
    }
    app->drained = server_timer_new(app->server, drain, app);
    app->lane = lane_new("echo", 2, 100, server_inbox(app->server), e);
    printf("%s\n", server_url(app->server));
    (void)fflush(stdout);
    int r = app->lane == NULL ? -1 : server_run(app->server, &signals, e);
    lane_free(app->lane);
    (void)inbox_drain(server_inbox(app->server), 1000);
    while (app->dues != NULL) {
        http_request_free(app->dues->request);
        due_end(app->dues);
    }
    while (app->bodies != NULL) {
        body_free(app->bodies);
    }
    server_timer_free(app->drained);
    server_free(app->server);
    return r;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 5) {
        (void)fprintf(stderr, "usage: echo_server RUN_DIR PORT [CERT KEY]\n");
        return 2;
    }
    char none[] = "", host[] = "127.0.0.1", header[] = "X-API-Token";
    struct config cfg = {.run_dir = argv[1],
                         .http = {.host = host,
                                  .port = atoi(argv[2]),
                                  .max_body_bytes = 1024 * 1024,
                                  .tls = {none, none, none, none}},
                         .door.gid = getegid(),
                         .security.token_header = header};
    if (argc == 5) {
        cfg.http.tls.cert_file = argv[3];
        cfg.http.tls.key_file = argv[4];
    }
    struct app app = {.random = 1};
    struct log *log = log_new(STDERR_FILENO, LOG_INFO, LOG_TEXT);
    struct err e;
    int r = serve(&app, &cfg, log, &e);
    if (r != 0) {
        (void)fprintf(stderr, "echo_server: %s\n", e.msg);
    }
    log_free(log);
    return r == 0 ? 0 : 1;
}
