#include "leasehold/http_client.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONNECT_TIMEOUT_MS 10000L

struct http_client {
    CURL *curl;
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
    if (c != NULL && (c->curl = curl_easy_init()) == NULL) {
        free(c);
        c = NULL;
    }
    return c;
}

void http_client_free(struct http_client *c)
{
    if (c != NULL) {
        curl_easy_cleanup(c->curl);
        free(c);
    }
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
    if (headers_add(ret, "Expect:", e) != 0 || (!headers_have(req->headers, "Content-Type") &&
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

/* --- the answer ------------------------------------------------------------------------------ */

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    struct http_client_response *ret = ctx;
    buf_add(&ret->body, data, size * n);
    return buf_ok(&ret->body) ? size * n : 0;
}

/* Keeps the id if it is one that may be shown: 1 to 64 visible ASCII characters. */
static void keep_request_id(struct http_client_response *ret, const char *value, size_t len)
{
    while (len > 0 && (*value == ' ' || *value == '\t')) {
        value++;
        len--;
    }
    while (len > 0 && strchr(" \t\r\n", value[len - 1]) != NULL) {
        len--;
    }
    if (len >= sizeof(ret->request_id)) {
        return;
    }
    for (size_t i = 0; i < len; i++) {
        if (value[i] <= 0x20 || value[i] >= 0x7f) {
            return;
        }
    }
    memcpy(ret->request_id, value, len);
    ret->request_id[len] = '\0';
}

static size_t on_header(char *data, size_t size, size_t n, void *ctx)
{
    static const char name[] = "X-Request-Id:";
    size_t len = size * n;
    if (len > sizeof(name) - 1 && strncasecmp(data, name, sizeof(name) - 1) == 0) {
        keep_request_id(ctx, data + sizeof(name) - 1, len - (sizeof(name) - 1));
    }
    return len;
}

/* --- one exchange ---------------------------------------------------------------------------- */

static CURLcode set_transport(CURL *curl, const struct http_client_request *req)
{
    long connect_ms = req->timeout_ms < CONNECT_TIMEOUT_MS ? req->timeout_ms : CONNECT_TIMEOUT_MS;
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, req->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, connect_ms);
    CURLcode rc = curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    /* Empty, not absent: http_proxy of the environment is not for us. */
    if (rc == CURLE_OK) {
        rc = curl_easy_setopt(curl, CURLOPT_PROXY, "");
    }
    if (rc == CURLE_OK && req->unix_socket != NULL) {
        rc = curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, req->unix_socket);
    }
    if (rc == CURLE_OK && req->ca_file != NULL) {
        rc = curl_easy_setopt(curl, CURLOPT_CAINFO, req->ca_file);
    }
    return rc;
}

/* The method goes last: setting a body, or none, chooses one of its own. */
static CURLcode set_request(CURL *curl, const struct http_client_request *req,
                            struct curl_slist *headers)
{
    bool is_head = strcmp(req->method, "HEAD") == 0;
    bool wants_body = strcmp(req->method, "POST") == 0 || strcmp(req->method, "PUT") == 0 ||
                      strcmp(req->method, "PATCH") == 0;
    if (req->body != NULL || wants_body) {
        /* Also without a body: these methods then say Content-Length: 0. */
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, req->body != NULL ? req->body : "");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                         (curl_off_t)(req->body != NULL ? req->body_len : 0));
    }
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

static void set_response(struct http_client *c, struct http_client_response *ret)
{
    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, ret);
    curl_easy_setopt(c->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c->curl, CURLOPT_HEADERDATA, ret);
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->problem);
}

static int fail(const struct http_client *c, CURLcode rc, const struct buf *body, struct err *e)
{
    const char *problem = *c->problem != '\0' ? c->problem : curl_easy_strerror(rc);
    switch (rc) {
    case CURLE_WRITE_ERROR:
        if (!buf_ok(body)) {
            return err_set(e, ERR_TOO_LARGE, "the answer is longer than %zu bytes", body->cap);
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
    return err_set(e, ERR_ENGINE_UNAVAILABLE, "%s", problem);
}

static int perform(struct http_client *c, const struct http_client_request *req,
                   struct curl_slist *headers, struct http_client_response *ret, struct err *e)
{
    CURLcode rc = set_transport(c->curl, req);
    if (rc == CURLE_OK) {
        rc = set_request(c->curl, req, headers);
    }
    if (rc == CURLE_OK) {
        set_response(c, ret);
        rc = curl_easy_perform(c->curl);
    }
    if (rc != CURLE_OK) {
        return fail(c, rc, &ret->body, e);
    }
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &ret->status);
    return 0;
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
    if (req->timeout_ms <= 0) {
        return err_set(e, ERR_INTERNAL, "a request without a deadline");
    }
    if (!is_http_url(req->url)) {
        return err_set(e, ERR_INVALID_REQUEST, "the URL must start with http:// or https://");
    }
    ret->request_id[0] = '\0';
    buf_reset(&ret->body);
    *c->problem = '\0';
    int rc = headers_make(req, &headers, e);
    if (rc == 0) {
        rc = perform(c, req, headers, ret, e);
    }
    /* Forgets options and pointers into the request; connections stay open. */
    curl_easy_reset(c->curl);
    headers_free(headers);
    return rc;
}
