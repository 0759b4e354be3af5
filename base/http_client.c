#include "leasehold/http_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "leasehold/clock.h"

#define CONNECT_TIMEOUT_MS 10000L
#define TURN_MS            1000 /* a cancel that nobody woke us for is seen after it */
#define KEPT_CONNECTIONS   4L
#define HEADERS_MAX        32768
#define DOWNLOAD_PIECE     (128L * 1024) /* to a sink at a time; curl's own is 16 KiB */
#define UPLOAD_PIECE       (256L * 1024) /* of a long body; curl's own is 64 KiB */
#define LONG_BODY          (1024 * 1024)

/* What the callbacks of the exchange that runs need. */
struct exchange {
    struct http_client *c;
    const struct http_client_request *req;
    struct http_client_response *ret;
    bool judged; /* the sink has seen the head */
    enum http_client_body body;
    bool source_failed;
    bool timed_out, cancelled; /* ended by us and not by curl */
};

struct http_client {
    CURL *curl;
    CURLM *multi;                  /* holds the kept connections */
    struct buf headers;            /* lines of the last answer, each with a NUL behind it */
    char problem[CURL_ERROR_SIZE]; /* curl's own words for the last failure */
};

/* curl_easy_init would do it, too, but not safely from two threads in every build of curl. */
static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

struct http_client *http_client_new(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_curl);
    struct http_client *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return NULL;
    }
    buf_init(&c->headers, HEADERS_MAX);
    c->curl = curl_easy_init();
    c->multi = curl_multi_init();
    if (c->curl == NULL || c->multi == NULL) {
        http_client_free(c);
        return NULL;
    }
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, KEPT_CONNECTIONS);
    return c;
}

void http_client_free(struct http_client *c)
{
    if (c != NULL) {
        curl_easy_cleanup(c->curl);
        curl_multi_cleanup(c->multi);
        buf_done(&c->headers);
        free(c);
    }
}

void http_client_wake(struct http_client *c)
{
    curl_multi_wakeup(c->multi);
}

/* --- request headers ------------------------------------------------------------------------- */

/* Headers may carry credentials. */
static void headers_free(struct curl_slist *list)
{
    for (struct curl_slist *h = list; h != NULL; h = h->next) {
        explicit_bzero(h->data, strlen(h->data));
    }
    curl_slist_free_all(list);
}

static int headers_add(struct curl_slist **list, const char *line, struct err *e)
{
    if (strpbrk(line, "\r\n") != NULL) {
        return err_set(e, ERR_INVALID_REQUEST, "a request header must be one line");
    }
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for request headers");
    }
    *list = longer;
    return 0;
}

static bool headers_have(const char *const *headers, const char *name)
{
    size_t len = strlen(name);
    for (; headers != NULL && *headers != NULL; headers++) {
        if (strncasecmp(*headers, name, len) == 0 && (*headers)[len] == ':') {
            return true;
        }
    }
    return false;
}

static int headers_make(const struct http_client_request *req, struct curl_slist **ret,
                        struct err *e)
{
    /* An empty value takes away what curl would add: a round trip, and a type that is a guess. */
    const char *expect = req->expect_continue ? "Expect: 100-continue" : "Expect:";
    if (headers_add(ret, expect, e) != 0 || (!headers_have(req->headers, "Content-Type") &&
                                             headers_add(ret, "Content-Type:", e) != 0)) {
        return -1;
    }
    for (const char *const *h = req->headers; h != NULL && *h != NULL; h++) {
        if (headers_add(ret, *h, e) != 0) {
            return -1;
        }
    }
    return 0;
}

/* --- the request's body ---------------------------------------------------------------------- */

static size_t on_read(char *data, size_t size, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    const struct http_client_source *source = x->req->source;
    ssize_t got = source->read(source->ctx, data, size * n);
    x->source_failed = got < 0;
    return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

static int on_seek(void *ctx, curl_off_t offset, int origin)
{
    struct exchange *x = ctx;
    const struct http_client_source *source = x->req->source;
    bool can = source->rewind != NULL && offset == 0 && origin == SEEK_SET;
    return can && source->rewind(source->ctx) == 0 ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
}

/* --- the answer ------------------------------------------------------------------------------ */

/* Lets the sink decide once, when all headers of the final answer are there. */
static void judge(struct exchange *x)
{
    const struct http_client_sink *sink = x->req->sink;
    if (!x->judged && sink != NULL) {
        curl_easy_getinfo(x->c->curl, CURLINFO_RESPONSE_CODE, &x->ret->status);
        x->body = sink->head(sink->ctx, x->ret->status);
        x->ret->stopped = x->body == HTTP_CLIENT_STOP;
    }
    x->judged = true;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    size_t len = size * n;
    judge(x);
    if (x->body == HTTP_CLIENT_STREAM) {
        x->ret->stopped = !x->req->sink->data(x->req->sink->ctx, data, len);
    } else if (x->body == HTTP_CLIENT_COLLECT) {
        buf_add(&x->ret->body, data, len);
    }
    return x->ret->stopped || !buf_ok(&x->ret->body) ? 0 : len;
}

/* Keeps the id if it is one that may be shown: 1 to 64 visible ASCII characters. */
static void keep_request_id(struct http_client_response *ret, const char *value)
{
    size_t len = value != NULL ? strlen(value) : 0;
    if (len == 0 || len >= sizeof(ret->request_id)) {
        return;
    }
    for (size_t i = 0; i < len; i++) {
        if (value[i] <= 0x20 || value[i] >= 0x7f) {
            return;
        }
    }
    memcpy(ret->request_id, value, len + 1);
}

static bool is_final(const struct exchange *x)
{
    long status = 0;
    curl_easy_getinfo(x->c->curl, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200;
}

/* An interim answer's headers (100 Continue) give way to those of the next. */
static size_t on_header(char *data, size_t size, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    size_t len = size * n, kept = len;
    bool is_end = len <= 2 && (data[0] == '\r' || data[0] == '\n');
    if (kept >= 5 && memcmp(data, "HTTP/", 5) == 0) {
        buf_reset(&x->c->headers);
    }
    while (kept > 0 && strchr(" \t\r\n", data[kept - 1]) != NULL) {
        kept--;
    }
    if (kept > 0 && memchr(data, '\0', kept) == NULL) {
        buf_add(&x->c->headers, data, kept);
        buf_add_char(&x->c->headers, '\0');
    }
    if (is_end && is_final(x)) {
        judge(x); /* a body may be long in coming */
    }
    return buf_ok(&x->c->headers) && !x->ret->stopped ? len : 0;
}

const char *http_client_header(const struct http_client *c, const char *name)
{
    size_t name_len = strlen(name);
    const char *end = c->headers.data + c->headers.len;
    for (const char *line = c->headers.data; line != NULL && line < end; line += strlen(line) + 1) {
        if (strncasecmp(line, name, name_len) == 0 && line[name_len] == ':') {
            return line + name_len + 1 + strspn(line + name_len + 1, " \t");
        }
    }
    return NULL;
}

/* --- options --------------------------------------------------------------------------------- */

static void set_times(CURL *curl, const struct http_client_request *req)
{
    long connect_ms = req->connect_timeout_ms > 0 ? req->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    if (req->timeout_ms != HTTP_CLIENT_NO_DEADLINE) {
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, req->timeout_ms);
        connect_ms = req->timeout_ms < connect_ms ? req->timeout_ms : connect_ms;
    }
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, connect_ms);
}

/* Paths of files are only taken down here; a missing file is the handshake's failure. */
static CURLcode set_files(CURL *curl, const struct http_client_request *req)
{
    CURLcode rc = CURLE_OK;
    if (req->unix_socket != NULL) {
        rc = curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, req->unix_socket);
    }
    if (rc == CURLE_OK && req->ca_file != NULL) {
        rc = curl_easy_setopt(curl, CURLOPT_CAINFO, req->ca_file);
    }
    if (rc == CURLE_OK && req->cert_file != NULL) {
        rc = curl_easy_setopt(curl, CURLOPT_SSLCERT, req->cert_file);
    }
    if (rc == CURLE_OK && req->key_file != NULL) {
        rc = curl_easy_setopt(curl, CURLOPT_SSLKEY, req->key_file);
    }
    return rc;
}

static CURLcode set_transport(CURL *curl, const struct http_client_request *req)
{
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, (long)req->fresh_connection);
    set_times(curl, req);
    CURLcode rc = curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    /* Empty, not absent: http_proxy of the environment is not for us. */
    if (rc == CURLE_OK) {
        rc = curl_easy_setopt(curl, CURLOPT_PROXY, "");
    }
    return rc == CURLE_OK ? set_files(curl, req) : rc;
}

static void set_body(CURL *curl, struct exchange *x)
{
    const struct http_client_request *req = x->req;
    bool wants_body = strcmp(req->method, "POST") == 0 || strcmp(req->method, "PUT") == 0 ||
                      strcmp(req->method, "PATCH") == 0;
    if (req->source != NULL) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(curl, CURLOPT_READDATA, x);
        curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, on_seek);
        curl_easy_setopt(curl, CURLOPT_SEEKDATA, x);
        curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)req->source->len);
    } else if (req->body != NULL || wants_body) {
        /* Also without a body: these methods then say Content-Length: 0. */
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, req->body != NULL ? req->body : "");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                         (curl_off_t)(req->body != NULL ? req->body_len : 0));
    }
}

/* The method goes last: setting a body, or none, chooses one of its own. */
static CURLcode set_request(CURL *curl, struct exchange *x, struct curl_slist *headers)
{
    const struct http_client_request *req = x->req;
    bool is_head = strcmp(req->method, "HEAD") == 0;
    set_body(curl, x);
    if (is_head) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    }
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    CURLcode rc = curl_easy_setopt(curl, CURLOPT_USERAGENT, "leasehold/" LEASEHOLD_VERSION);
    if (rc == CURLE_OK) {
        rc = curl_easy_setopt(curl, CURLOPT_URL, req->url);
    }
    if (rc == CURLE_OK && !is_head) {
        rc = curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, req->method);
    }
    return rc;
}

/* A turn of the loop moves one piece: what is long goes in few of them. */
static void set_pieces(CURL *curl, const struct http_client_request *req)
{
    if (req->body_len >= LONG_BODY || (req->source != NULL && req->source->len >= LONG_BODY)) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_PIECE);
    }
    if (req->sink != NULL) {
        curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, DOWNLOAD_PIECE);
    }
}

static void set_response(struct exchange *x)
{
    set_pieces(x->c->curl, x->req);
    curl_easy_setopt(x->c->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(x->c->curl, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(x->c->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(x->c->curl, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(x->c->curl, CURLOPT_ERRORBUFFER, x->c->problem);
}

/* --- one exchange ---------------------------------------------------------------------------- */

static int fail(const struct exchange *x, CURLcode rc, struct err *e)
{
    const char *problem = *x->c->problem != '\0' ? x->c->problem : curl_easy_strerror(rc);
    long sys = 0;
    switch (rc) {
    case CURLE_WRITE_ERROR:
        if (!buf_ok(&x->ret->body)) {
            return err_set(e, ERR_TOO_LARGE, "the answer is longer than %zu bytes",
                           x->ret->body.cap);
        }
        if (!buf_ok(&x->c->headers)) {
            return err_set(e, ERR_TOO_LARGE, "the answer's headers are too long");
        }
        break;
    case CURLE_OUT_OF_MEMORY:
        return err_set(e, ERR_INTERNAL, "no memory for a request");
    case CURLE_URL_MALFORMAT:
    case CURLE_BAD_FUNCTION_ARGUMENT:
        return err_set(e, ERR_INVALID_REQUEST, "%s", problem);
    default:
        break;
    }
    curl_easy_getinfo(x->c->curl, CURLINFO_OS_ERRNO, &sys);
    if (rc == CURLE_COULDNT_CONNECT && x->req->unix_socket != NULL) {
        /* curl would name the URL's host and port, which nobody connects to. */
        return err_sys(e, ERR_ENGINE_UNAVAILABLE, sys != 0 ? (int)sys : ECONNREFUSED,
                       "connect to the unix socket %s", x->req->unix_socket);
    }
    err_fill_code(e, ERR_ENGINE_UNAVAILABLE, "%s", problem);
    e->sys = rc == CURLE_OPERATION_TIMEDOUT ? ETIMEDOUT : (int)sys;
    return -1;
}

/* Bytes that have passed, in either direction. */
static curl_off_t moved(CURL *curl)
{
    curl_off_t up = 0, down = 0;
    long head_up = 0, head_down = 0;
    curl_easy_getinfo(curl, CURLINFO_SIZE_UPLOAD_T, &up);
    curl_easy_getinfo(curl, CURLINFO_SIZE_DOWNLOAD_T, &down);
    curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &head_up);
    curl_easy_getinfo(curl, CURLINFO_HEADER_SIZE, &head_down);
    return up + down + head_up + head_down;
}

/* curl's own low-speed limit counts a rate over whole seconds; this is time without any progress. */
struct stall {
    curl_off_t seen;
    int64_t since_ms, limit_ms;
};

static bool is_stalled(struct stall *s, CURL *curl)
{
    curl_off_t now = moved(curl);
    int64_t now_ms = clock_boot_us(&clock_system) / 1000;
    if (now != s->seen) {
        s->seen = now;
        s->since_ms = now_ms;
    }
    return s->limit_ms > 0 && now_ms - s->since_ms >= s->limit_ms;
}

/* curl's verdict, CURLE_OK also when it was we who ended it. */
static CURLcode drive(struct exchange *x)
{
    CURLM *multi = x->c->multi;
    struct stall stall = {.since_ms = clock_boot_us(&clock_system) / 1000,
                          .limit_ms = x->req->stall_timeout_ms};
    int running, left;
    int turn_ms = stall.limit_ms > 0 && stall.limit_ms < TURN_MS ? (int)stall.limit_ms : TURN_MS;
    for (;;) {
        if (curl_multi_perform(multi, &running) != CURLM_OK) {
            return CURLE_OUT_OF_MEMORY;
        }
        const CURLMsg *msg = curl_multi_info_read(multi, &left);
        if (msg != NULL) {
            return msg->data.result;
        }
        x->cancelled = x->req->cancel != NULL && atomic_load(x->req->cancel);
        x->timed_out = is_stalled(&stall, x->c->curl);
        if (x->cancelled || x->timed_out) {
            return CURLE_OK;
        }
        curl_multi_poll(multi, NULL, 0, turn_ms, NULL);
    }
}

static int verdict(struct exchange *x, CURLcode rc, struct err *e)
{
    if (x->cancelled) {
        return err_set(e, ERR_BUSY, "the exchange was cancelled");
    }
    if (x->timed_out) {
        err_fill_code(e, ERR_ENGINE_UNAVAILABLE, "nothing moved for %ld ms",
                      x->req->stall_timeout_ms);
        e->sys = ETIMEDOUT;
        return -1;
    }
    if (x->source_failed) {
        return err_set(e, ERR_INTERNAL, "the request's body could not be read");
    }
    if (rc != CURLE_OK && !x->ret->stopped) {
        return fail(x, rc, e);
    }
    curl_easy_getinfo(x->c->curl, CURLINFO_RESPONSE_CODE, &x->ret->status);
    keep_request_id(x->ret, http_client_header(x->c, "X-Request-Id"));
    judge(x);
    return 0;
}

static int perform(struct exchange *x, struct curl_slist *headers, struct err *e)
{
    CURL *curl = x->c->curl;
    CURLcode rc = set_transport(curl, x->req);
    if (rc == CURLE_OK) {
        rc = set_request(curl, x, headers);
    }
    if (rc != CURLE_OK) {
        return fail(x, rc, e);
    }
    set_response(x);
    if (curl_multi_add_handle(x->c->multi, curl) != CURLM_OK) {
        return err_set(e, ERR_INTERNAL, "no memory for a request");
    }
    rc = drive(x);
    int r = verdict(x, rc, e);
    curl_multi_remove_handle(x->c->multi, curl);
    return r;
}

/* curl would guess a scheme where there is none, by the host's name. */
static bool is_http_url(const char *url)
{
    return strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
}

int http_client_run(struct http_client *c, const struct http_client_request *req,
                    struct http_client_response *ret, struct err *e)
{
    struct curl_slist *headers = NULL;
    struct exchange x = {.c = c, .req = req, .ret = ret};
    if (req->timeout_ms <= 0 && req->timeout_ms != HTTP_CLIENT_NO_DEADLINE) {
        return err_set(e, ERR_INTERNAL, "a request without a deadline");
    }
    if (!is_http_url(req->url)) {
        return err_set(e, ERR_INVALID_REQUEST, "the URL must start with http:// or https://");
    }
    ret->request_id[0] = '\0';
    ret->stopped = false;
    buf_reset(&ret->body);
    buf_reset(&c->headers);
    *c->problem = '\0';
    int rc = headers_make(req, &headers, e);
    if (rc == 0) {
        rc = perform(&x, headers, e);
    }
    /* Forgets options and pointers into the request; connections stay open. */
    curl_easy_reset(c->curl);
    headers_free(headers);
    return rc;
}
