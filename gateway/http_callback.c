/*
 * One HTTP request at a time on a connection: head, body up to the cap, the handler, the answer.
 * Bytes that come while a request is answered are stashed and looked at afterwards.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "leasehold/clock.h"
#include "server_state.h"

#define REPLY_HEAD_MAX   (32u * 1024)
#define REPLY_HEAD_USUAL 300          /* without the operation's own headers */
#define ONE_WRITE_MAX    (32u * 1024) /* of a body that is sent in one write with its head */

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {409, "Conflict"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {500, "Internal Server Error"},
    {503, "Service Unavailable"},
    {507, "Insufficient Storage"},
};

/* --- requests -------------------------------------------------------------------------------- */

/* The strings of a request stand behind it, in one allocation with it. */
struct request_block {
    struct http_request request;
    size_t text_len;
    char text[];
};

void http_request_free(struct http_request *r)
{
    if (r == NULL) {
        return;
    }
    struct request_block *block = (struct request_block *)r;
    if (r->body != NULL) {
        explicit_bzero(r->body, r->body_len);
        free(r->body);
    }
    explicit_bzero(block->text, block->text_len);
    free(block);
}

static char *text_put(char **at, const char *s)
{
    char *start = *at;
    size_t size = strlen(s) + 1;
    memcpy(start, s, size);
    *at += size;
    return start;
}

static struct http_request *request_new(struct conn *c, const struct http_head *head)
{
    const char *certificate = conn_certificate(c);
    size_t len = strlen(head->path) + strlen(head->query) + strlen(certificate) + 3;
    for (size_t i = 0; i < HDR_COUNT; i++) {
        len += strlen(head->field[i]) + 1;
    }
    struct request_block *block = calloc(1, sizeof *block + len);
    if (block == NULL) {
        return NULL;
    }
    char *at = block->text;
    block->text_len = len;
    struct http_request *r = &block->request;
    r->conn = c->id;
    r->local = c->local;
    r->method = head->method;
    memcpy(r->peer, c->peer, sizeof r->peer);
    r->path = text_put(&at, head->path);
    r->query = text_put(&at, head->query);
    r->certificate = text_put(&at, certificate);
    r->authorization = text_put(&at, head->field[HDR_AUTHORIZATION]);
    r->token_header = text_put(&at, head->field[HDR_TOKEN]);
    r->content_type = text_put(&at, head->field[HDR_CONTENT_TYPE]);
    r->idempotency_key = text_put(&at, head->field[HDR_IDEMPOTENCY_KEY]);
    r->request_id = text_put(&at, head->field[HDR_REQUEST_ID]);
    r->traceparent = text_put(&at, head->field[HDR_TRACEPARENT]);
    r->accept = text_put(&at, head->field[HDR_ACCEPT]);
    r->range = text_put(&at, head->field[HDR_RANGE]);
    r->if_range = text_put(&at, head->field[HDR_IF_RANGE]);
    r->if_match = text_put(&at, head->field[HDR_IF_MATCH]);
    r->if_none_match = text_put(&at, head->field[HDR_IF_NONE_MATCH]);
    r->if_modified_since = text_put(&at, head->field[HDR_IF_MODIFIED_SINCE]);
    r->if_unmodified_since = text_put(&at, head->field[HDR_IF_UNMODIFIED_SINCE]);
    r->has_length = head->has_length;
    r->declared_len = head->body_len;
    return r;
}

/* Hands the request up. From here on the handler owes an answer. */
void http_pending(struct conn *c, struct http_request *r)
{
    r->at_us = clock_boot_us(&clock_system);
    c->state = CONN_PENDING;
    c->served = true;
    c->server->open_requests++;
    conn_deadline(c, 0);
}

static void deliver(struct conn *c)
{
    struct http_request *r = c->http.request;
    c->http.request = NULL;
    if (!buf_ok(&c->http.body)) {
        http_request_free(r);
        conn_kill(c);
        return;
    }
    r->body_len = c->http.body.len;
    r->body = c->http.body.data;
    c->http.body = (struct buf){0};
    http_pending(c, r);
    c->server->handler.http(c->server->handler.ctx, r);
}

/* The connection ends behind a refusal: what the peer sends after it cannot be told apart. */
void http_refuse(struct conn *c, struct http_request *r, const struct err *e)
{
    if (r == NULL) {
        conn_kill(c);
        return;
    }
    c->http.close = true;
    c->http.discard = true;
    http_pending(c, r);
    c->server->handler.http_refused(c->server->handler.ctx, r, e);
}

/* --- head and body --------------------------------------------------------------------------- */

static bool takes_body(enum http_method method)
{
    return method == HTTP_POST || method == HTTP_PUT || method == HTTP_PATCH;
}

static bool is_streamed(const struct conn *c, const struct http_request *r)
{
    const struct server_handler *h = &c->server->handler;
    return h->streams != NULL && takes_body(r->method) && h->streams(h->ctx, r);
}

/* `more`: bytes of the body have come with the head. */
static void body_begin(struct conn *c, const struct http_head *head, struct http_request *r,
                       bool more)
{
    bool expects = !more && strcasecmp(head->field[HDR_EXPECT], "100-continue") == 0;
    /* More than any count of bytes can say is no length to reckon with. */
    if (head->body_len <= INT64_MAX && is_streamed(c, r)) {
        http_stream_begin(c, r, expects);
        return;
    }
    uint64_t cap = (uint64_t)c->server->cfg->http.max_body_bytes;
    if (head->body_len > cap) {
        struct err e;
        err_set(&e, ERR_TOO_LARGE, "the body is over %llu bytes", (unsigned long long)cap);
        http_refuse(c, r, &e);
        return;
    }
    c->http.request = r;
    c->http.body_len = (size_t)head->body_len;
    buf_init(&c->http.body, c->http.body_len);
    buf_add(&c->http.body, "", 0); /* the NUL behind an empty body, too */
    c->state = CONN_BODY;
    conn_deadline(c, CONN_BODY_MS + (int64_t)(c->http.body_len / CONN_BODY_RATE) * 1000);
    if (c->http.body_len == 0) {
        deliver(c);
    } else if (expects) {
        struct buf b;
        buf_init(&b, 64);
        buf_add_str(&b, "HTTP/1.1 100 Continue\r\n\r\n");
        conn_queue(c, &b);
        conn_flush(c);
    }
}

static void refuse_address(struct conn *c, struct http_request *r)
{
    struct err e;
    c->server->refused_addresses++;
    err_set(&e, ERR_RATE_LIMITED, "too many connections from one address at a time");
    http_refuse(c, r, &e);
}

static void head_done(struct conn *c, bool more)
{
    struct http_head head;
    struct err e;
    int bad = http_head_parse(c->http.head.data, c->http.head.len,
                              c->server->cfg->security.token_header, &head, &e);
    struct http_request *r = request_new(c, &head);
    c->http.no_body = head.method == HTTP_HEAD;
    c->http.old = head.minor == 0;
    c->http.close = head.minor == 0 || head.connection_close || c->server->draining;
    if (bad != 0 || r == NULL) {
        http_refuse(c, r, &e);
    } else if (conn_is_beyond(c)) {
        refuse_address(c, r);
    } else if (head.connection_upgrade && strcasecmp(head.field[HDR_UPGRADE], "websocket") == 0) {
        ws_upgrade(c, &head, r);
    } else {
        body_begin(c, &head, r, more);
    }
    explicit_bzero(c->http.head.data, c->http.head.len);
    buf_reset(&c->http.head);
}

static void head_refuse(struct conn *c, enum err_code code, const char *msg)
{
    char none[] = "";
    struct http_head head = {.method = HTTP_OTHER, .path = none, .query = none};
    for (size_t i = 0; i < HDR_COUNT; i++) {
        head.field[i] = none;
    }
    struct err e;
    err_set(&e, code, "%s", msg);
    buf_reset(&c->http.head);
    http_refuse(c, request_new(c, &head), &e);
}

static size_t feed_head(struct conn *c, const char *data, size_t len)
{
    struct buf *head = &c->http.head;
    if (head->len == 0) {
        if (*data == '\r' || *data == '\n') {
            return 1; /* an empty line before a request is allowed */
        }
        conn_deadline(c, c->beyond ? CONN_BEYOND_MS : CONN_HEAD_MS);
    }
    size_t seen = head->len;
    size_t take = len < HTTP_HEAD_MAX - seen ? len : HTTP_HEAD_MAX - seen;
    buf_add(head, data, take);
    if (!buf_ok(head)) {
        conn_kill(c);
        return len;
    }
    long end = http_head_end(head->data, head->len, seen);
    if (end > 0) {
        size_t used = (size_t)end - seen;
        head->len = (size_t)end;
        head->data[end] = '\0';
        head_done(c, used < len);
        return used;
    }
    if (end < 0) {
        head_refuse(c, ERR_MALFORMED_REQUEST, "the request has a control character");
    } else if (head->len == HTTP_HEAD_MAX) {
        head_refuse(c, ERR_TOO_LARGE, "request line and headers are over 16 KiB");
    }
    return take;
}

static size_t feed_body(struct conn *c, const char *data, size_t len)
{
    size_t missing = c->http.body_len - c->http.body.len;
    size_t take = len < missing ? len : missing;
    buf_add(&c->http.body, data, take);
    if (take == missing || !buf_ok(&c->http.body)) {
        deliver(c);
    }
    return take;
}

size_t http_feed(struct conn *c, const char *data, size_t len)
{
    switch (c->state) {
    case CONN_HEAD:
        return feed_head(c, data, len);
    case CONN_BODY:
        return feed_body(c, data, len);
    case CONN_PENDING:
    case CONN_SENDING:
        if (c->http.in.left > 0 && !c->http.discard) {
            return http_stream_feed(c, data, len);
        }
        if (!c->http.discard) {
            buf_add(&c->http.stash, data, len);
        }
        return len;
    case CONN_LINGER:
        conn_drop(c, len);
        return len;
    default:
        return len;
    }
}

/* --- answers --------------------------------------------------------------------------------- */

static const char *reason_of(int status)
{
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Status";
}

static void date_add(struct buf *b)
{
    time_t now = (time_t)(clock_wall_ms(&clock_system) / 1000);
    struct tm tm;
    char text[64];
    gmtime_r(&now, &tm);
    size_t len = strftime(text, sizeof text, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
    buf_add(b, text, len);
}

static void length_add(struct buf *b, const struct conn *c, const struct http_reply *reply)
{
    if (!reply->streams) {
        buf_printf(b, "Content-Length: %zu\r\n", reply->content_type == NULL ? 0 : reply->body.len);
    } else if (reply->len >= 0) {
        buf_printf(b, "Content-Length: %lld\r\n", (long long)reply->len);
    } else if (c->http.out.chunked) {
        buf_add_str(b, "Transfer-Encoding: chunked\r\n");
    }
}

static void reply_head(struct buf *b, const struct conn *c, const struct http_reply *reply)
{
    buf_printf(b, "HTTP/1.1 %d %s\r\n", reply->status, reason_of(reply->status));
    date_add(b);
    if (reply->status != 204 && reply->status != 304) {
        length_add(b, c, reply);
    }
    if (reply->content_type != NULL) {
        buf_printf(b, "Content-Type: %s\r\n", reply->content_type);
    }
    if (reply->request_id != NULL) {
        buf_printf(b, "X-Request-Id: %s\r\n", reply->request_id);
    }
    if (reply->extra != NULL) {
        buf_add_str(b, reply->extra);
    }
    buf_add_str(b, c->http.close ? "Connection: close\r\n\r\n" : "Connection: keep-alive\r\n\r\n");
}

/* Of the first write: a short body goes with the head, one that comes in pieces as well. */
static size_t room_for(const struct http_reply *reply, bool body)
{
    size_t with = body                               ? reply->body.len
                  : reply->streams && reply->len > 0 ? (size_t)reply->len
                                                     : 0;
    return REPLY_HEAD_USUAL + (reply->extra != NULL ? strlen(reply->extra) : 0) +
           (with <= ONE_WRITE_MAX ? with : 0);
}

void server_reply(struct server *s, uint64_t conn, struct http_reply *reply)
{
    struct conn *c = conn_find(s, conn);
    if (c == NULL || c->state != CONN_PENDING) {
        buf_done(&reply->body);
        return;
    }
    c->state = CONN_SENDING;
    c->http.close |= reply->close || s->draining;
    if (c->http.in.left > 0) { /* answered in the middle of its body, which is not read any more */
        c->http.close = c->http.discard = true;
    }
    c->http.in.open = false;
    bool streams = reply->streams && !c->http.no_body;
    if (streams) {
        bool unknown = reply->len < 0;
        c->http.streams = true;
        c->http.out = (struct http_out){true, unknown, unknown && !c->http.old};
        c->http.close |= unknown && c->http.old;
    }
    bool body = reply->content_type != NULL && reply->status != 204 && reply->status != 304 &&
                !c->http.no_body && reply->body.len > 0;
    struct buf out;
    buf_init(&out, REPLY_HEAD_MAX + ONE_WRITE_MAX);
    buf_reserve(&out, room_for(reply, body));
    reply_head(&out, c, reply);
    if (body && reply->body.len <= ONE_WRITE_MAX) {
        buf_add(&out, reply->body.data, reply->body.len);
        body = false;
    }
    conn_queue(c, &out);
    if (body) {
        conn_queue(c, &reply->body);
    } else {
        buf_done(&reply->body);
    }
    if (!streams) {
        conn_flush_gathered(c);
    }
}

/* Looks at what came while the last request was answered. */
static void next_request(struct conn *c)
{
    c->state = CONN_HEAD;
    c->silent_us = clock_boot_us(&clock_system);
    c->http.no_body = c->http.streams = false;
    conn_deadline(c, CONN_IDLE_MS);
    struct buf stash = c->http.stash;
    buf_init(&c->http.stash, stash.cap);
    conn_feed(c, stash.data, stash.len);
    buf_done(&stash);
}

void http_written(struct conn *c)
{
    if (c->state != CONN_SENDING || c->http.out.open) {
        return;
    }
    c->server->open_requests--;
    http_stream_end(c);
    if (c->http.close || c->server->draining) {
        conn_linger(c);
    } else {
        next_request(c);
    }
}

void http_forget(struct conn *c)
{
    if (c->state == CONN_PENDING || c->state == CONN_SENDING) {
        c->server->open_requests--;
    }
    http_stream_end(c);
    http_request_free(c->http.request);
    c->http.request = NULL;
    if (c->http.head.data != NULL) {
        explicit_bzero(c->http.head.data, c->http.head.size);
    }
    buf_done(&c->http.head);
    buf_done(&c->http.stash);
    buf_done(&c->http.body);
}
