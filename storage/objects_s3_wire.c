#include "objects_s3_wire.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "leasehold/arena.h"

#define ARENA_MAX    (256u * 1024)
#define HEADERS_MAX  32
#define SIGNED_OWN_N 2 /* host, x-amz-content-sha256 */
#define EXPECT_FROM  (1024 * 1024)
#define STALLS_MAX   10 /* in one exchange … */
#define LEAST_PER_MS 16 /* … beside this many bytes of a body a millisecond */
#define EMPTY_HASH   "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define URL_MAX      16384

/* --- endpoints -------------------------------------------------------------------------------- */

static bool is_host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr(".-:[]_", c) != NULL;
}

/* Lower case and without the scheme's own port: as curl says it in Host. */
static int put_host(struct s3_endpoint *ret, const char *host, size_t len, const char *bucket,
                    struct err *e)
{
    const char *own_port = strcmp(ret->scheme, "https") == 0 ? ":443" : ":80";
    size_t port_len = strlen(own_port);
    if (len >= port_len && memcmp(host + len - port_len, own_port, port_len) == 0) {
        len -= port_len;
    }
    int n = snprintf(ret->host, sizeof(ret->host), "%s%s%.*s", bucket != NULL ? bucket : "",
                     bucket != NULL ? "." : "", (int)len, host);
    if (len == 0 || *host == ':' || n < 0 || (size_t)n >= sizeof(ret->host)) {
        return err_set(e, ERR_INVALID_REQUEST, "the endpoint of the object store has no host");
    }
    for (char *c = ret->host; *c != '\0'; c++) {
        *c = s3_lower(*c);
        if (!is_host_char(*c)) {
            return err_set(e, ERR_INVALID_REQUEST, "the endpoint of the object store has no host");
        }
    }
    return 0;
}

int s3_endpoint_parse(const char *url, const char *bucket, struct s3_endpoint *ret, struct err *e)
{
    bool tls = strncasecmp(url, "https://", 8) == 0;
    if (!tls && strncasecmp(url, "http://", 7) != 0) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "the endpoint of the object store must start with http:// or https://");
    }
    const char *host = url + (tls ? 8 : 7);
    size_t len = strcspn(host, "/?#");
    if (host[len] != '\0' && strcmp(host + len, "/") != 0) {
        return err_set(e, ERR_INVALID_REQUEST, "the endpoint of the object store has a path");
    }
    snprintf(ret->scheme, sizeof(ret->scheme), "%s", tls ? "https" : "http");
    return put_host(ret, host, len, bucket, e);
}

/* --- the request ------------------------------------------------------------------------------ */

struct sending {
    struct objects_s3 *s;
    const struct s3_call *c;
    struct arena *arena;
    struct s3_signed sig;
    const char *lines[HEADERS_MAX + 1];
    size_t lines_n;
    struct buf url;
};

static int add_line(struct sending *g, const char *name, const char *value, struct err *e)
{
    size_t size = strlen(name) + strlen(value) + 3;
    char *line = g->lines_n < HEADERS_MAX ? arena_alloc(g->arena, size) : NULL;
    if (line == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for a request");
    }
    snprintf(line, size, "%s: %s", name, value);
    g->lines[g->lines_n++] = line;
    return 0;
}

static int64_t length_of(const struct s3_call *c)
{
    return c->range != NULL ? c->range->len : (int64_t)c->body_len;
}

static const char *hash_of(const struct s3_call *c)
{
    return c->hash != NULL ? c->hash : length_of(c) > 0 ? S3_UNSIGNED_PAYLOAD : EMPTY_HASH;
}

static int sign(struct sending *g, const struct s3_target *t, struct err *e)
{
    const struct s3_call *c = g->c;
    struct s3_pair *headers =
        arena_alloc(g->arena, (c->headers_n + SIGNED_OWN_N) * sizeof(*headers));
    if (headers == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for a request");
    }
    if (c->headers_n > 0) {
        memcpy(headers, c->headers, c->headers_n * sizeof(*headers));
    }
    headers[c->headers_n] = (struct s3_pair){"host", t->endpoint.host};
    headers[c->headers_n + 1] = (struct s3_pair){"x-amz-content-sha256", hash_of(c)};
    const struct s3_to_sign r = {.method = c->method,
                                 .path = t->path.data,
                                 .query = c->query,
                                 .query_n = c->query_n,
                                 .headers = headers,
                                 .headers_n = c->headers_n + SIGNED_OWN_N,
                                 .payload_hash = hash_of(c),
                                 .at_s = (int64_t)time(NULL) + atomic_load(&g->s->skew_s)};
    return s3_sign(g->s->signer, &r, &g->sig, e);
}

/* What was signed goes on the wire as it is. */
static int write_lines(struct sending *g, const struct s3_target *t, struct err *e)
{
    const struct s3_call *c = g->c;
    const char *token = g->s->o.session_token;
    bool ok = add_line(g, "x-amz-content-sha256", hash_of(c), e) == 0 &&
              add_line(g, "x-amz-date", g->sig.date, e) == 0 &&
              add_line(g, "Authorization", g->sig.authorization.data, e) == 0 &&
              (token == NULL || add_line(g, "x-amz-security-token", token, e) == 0);
    for (size_t i = 0; ok && i < c->headers_n; i++) {
        ok = add_line(g, c->headers[i].name, c->headers[i].value, e) == 0;
    }
    for (size_t i = 0; ok && c->plain != NULL && c->plain[i] != NULL; i++) {
        ok = g->lines_n < HEADERS_MAX;
        g->lines[g->lines_n] = c->plain[i];
        g->lines_n += ok;
    }
    if (!ok) {
        return -1;
    }
    buf_printf(&g->url, "%s://%s%s%s%s", t->endpoint.scheme, t->endpoint.host, g->sig.path.data,
               g->sig.query.len > 0 ? "?" : "", g->sig.query.len > 0 ? g->sig.query.data : "");
    return buf_ok(&g->url) ? 0 : err_set(e, ERR_INTERNAL, "no memory for a request");
}

/* --- the answer ------------------------------------------------------------------------------- */

int64_t s3_http_date(const char *text)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm tm = {0};
    char month[4] = "";
    if (sscanf(text, "%*3s, %2d %3s %4d %2d:%2d:%2d GMT", &tm.tm_mday, month, &tm.tm_year,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6) {
        return -1;
    }
    const char *at = strstr(months, month);
    if (at == NULL || (at - months) % 3 != 0) {
        return -1;
    }
    tm.tm_mon = (int)(at - months) / 3;
    tm.tm_year -= 1900;
    return (int64_t)timegm(&tm);
}

static void copy_header(const struct http_client *client, const char *name, char *ret, size_t size)
{
    const char *value = http_client_header(client, name);
    bool fits = value != NULL && strlen(value) < size;
    snprintf(ret, size, "%s", fits ? value : "");
}

/* Shown to people and compared: letters and digits alone. */
static void read_code(struct s3_answer *a)
{
    if (!s3_xml_text(s3_answer_slice(a), "Code", a->code, sizeof(a->code))) {
        return;
    }
    for (const char *c = a->code; *c != '\0'; c++) {
        if (!((*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9'))) {
            a->code[0] = '\0';
            return;
        }
    }
}

static void read_answer(const struct http_client *client, struct s3_answer *a,
                        struct s3_reply *reply)
{
    const char *date = http_client_header(client, "Date");
    const char *after = http_client_header(client, "Retry-After");
    const char *length = http_client_header(client, "Content-Length");
    int64_t at = date != NULL ? s3_http_date(date) : -1;
    reply->date_s = at > 0 ? at : 0;
    reply->retry_after_s = after != NULL ? strtoll(after, NULL, 10) : 0;
    a->length = length != NULL ? strtoll(length, NULL, 10) : -1;
    a->versioned = http_client_header(client, "x-amz-version-id") != NULL ||
                   http_client_header(client, "x-amz-delete-marker") != NULL;
    copy_header(client, "ETag", a->etag, sizeof(a->etag));
    copy_header(client, S3_TOKEN_HEADER, a->token, sizeof(a->token));
    copy_header(client, S3_MAKER_HEADER, a->maker, sizeof(a->maker));
    copy_header(client, "Location", reply->location, sizeof(reply->location));
    read_code(a);
}

/* An answer that drips never stalls: it has an end all the same, but for what somebody reads on. */
static long deadline_ms(const struct sending *g)
{
    const struct s3_call *c = g->c;
    if (c->sink != NULL) {
        return HTTP_CLIENT_NO_DEADLINE;
    }
    return c->stall_ms > 0 ? (long)c->stall_ms
                           : (long)(g->s->o.stall_ms * STALLS_MAX + length_of(c) / LEAST_PER_MS);
}

/* --- both ------------------------------------------------------------------------------------- */

static int run(struct sending *g, struct s3_call *c, const struct s3_target *t, bool fresh,
               struct s3_answer *ret, struct s3_reply *reply, struct err *e)
{
    struct s3_reading reading = {0};
    if (sign(g, t, e) != 0 || write_lines(g, t, e) != 0) {
        return -1;
    }
    if (c->range != NULL) {
        s3_reading_begin(&reading, c->range);
    }
    const struct http_client_request req = {
        .method = c->method,
        .url = g->url.data,
        .headers = g->lines,
        .body = c->body,
        .body_len = c->body_len,
        .source = c->range != NULL ? &reading.source : NULL,
        .sink = c->sink,
        .ca_file = g->s->o.ca_file,
        .timeout_ms = deadline_ms(g),
        .stall_timeout_ms = (long)(c->stall_ms > 0 ? c->stall_ms : g->s->o.stall_ms),
        .fresh_connection = fresh,
        .expect_continue = length_of(c) >= EXPECT_FROM && (!c->trusted || fresh),
        .cancel = c->cancel,
    };
    struct http_client_response res = {.body = ret->body};
    int rc = http_client_run(c->client, &req, &res, e);
    if (reading.failed) {
        *e = reading.e;
    }
    ret->body = res.body;
    ret->status = res.status;
    if (rc == 0) {
        read_answer(c->client, ret, reply);
    }
    return rc;
}

int s3_exchange(struct objects_s3 *s, struct s3_call *c, const struct s3_target *t, bool fresh,
                struct s3_answer *ret, struct s3_reply *ret_reply, struct err *e)
{
    struct sending g = {.s = s, .c = c, .arena = arena_new(ARENA_MAX)};
    *ret_reply = (struct s3_reply){0};
    ret->code[0] = '\0';
    if (g.arena == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for a request");
    }
    s3_signed_init(&g.sig);
    buf_init(&g.url, URL_MAX);
    int rc = run(&g, c, t, fresh, ret, ret_reply, e);
    buf_done(&g.url);
    s3_signed_done(&g.sig);
    arena_free(g.arena);
    return rc;
}
