#include "docker_api.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API_LEAST    41 /* 1.x */
#define API_NEWEST   56
#define IDLE_MAX     16
#define ANSWER_MAX   (32u * 1024 * 1024)
#define ARENA_MAX    (64u * 1024)
#define PATH_ROOM    8192
#define NEGOTIATE_MS 10000 /* Podman asks the packager for each version that it tells: seconds */
#define URL_MAX      512

struct docker_api {
    char base[URL_MAX]; /* "http://docker", "https://host:port" */
    const char *socket; /* NULL: TCP */
    const struct config_tls *tls;
    pthread_mutex_t lock;
    struct http_client *idle[IDLE_MAX]; /* lock */
    unsigned idle_n;                    /* lock */
    int minor;                          /* lock; of the version 1.x, 0: not negotiated */
};

static bool has(const char *text)
{
    return text != NULL && *text != '\0';
}

int docker_api_new(const struct config_docker *cfg, struct docker_api **ret, struct err *e)
{
    struct docker_api *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return err_set(e, ERR_INTERNAL, "no memory for the engine's client");
    pthread_mutex_init(&a->lock, NULL);
    int n;
    if (strncmp(cfg->base_url, "unix://", 7) == 0) {
        a->socket = cfg->base_url + 7;
        n = snprintf(a->base, sizeof(a->base), "http://docker");
    } else {
        a->tls = has(cfg->tls.ca_file) || has(cfg->tls.cert_file) ? &cfg->tls : NULL;
        n = snprintf(a->base, sizeof(a->base), "http%s://%s", a->tls != NULL ? "s" : "",
                     cfg->base_url + strlen("tcp://"));
    }
    if (n < 0 || (size_t)n >= sizeof(a->base)) {
        docker_api_free(a);
        return err_set(e, ERR_ENGINE_UNAVAILABLE, "docker.base_url is too long");
    }
    *ret = a;
    return 0;
}

void docker_api_free(struct docker_api *a)
{
    if (a == NULL)
        return;
    for (unsigned i = 0; i < a->idle_n; i++)
        http_client_free(a->idle[i]);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

struct http_client *docker_api_client_take(struct docker_api *a, struct err *e)
{
    struct http_client *c = NULL;
    pthread_mutex_lock(&a->lock);
    if (a->idle_n > 0)
        c = a->idle[--a->idle_n];
    pthread_mutex_unlock(&a->lock);
    if (c == NULL)
        c = http_client_new();
    if (c == NULL)
        err_set(e, ERR_INTERNAL, "no memory for a connection to the engine");
    return c;
}

void docker_api_client_put(struct docker_api *a, struct http_client *c)
{
    pthread_mutex_lock(&a->lock);
    if (a->idle_n < IDLE_MAX) {
        a->idle[a->idle_n++] = c;
        c = NULL;
    }
    pthread_mutex_unlock(&a->lock);
    http_client_free(c);
}

/* --- answers --------------------------------------------------------------------------------- */

void docker_answer_init(struct docker_answer *a)
{
    a->status = 0;
    buf_init(&a->body, ANSWER_MAX);
}

void docker_answer_done(struct docker_answer *a)
{
    buf_done(&a->body);
}

static int garbled(struct err *e, const struct err *why)
{
    return err_set(e, ERR_ENGINE_UNAVAILABLE, "the engine's answer is not understood: %.70s %.40s",
                   why->msg, why->pointer);
}

int docker_answer_object(const struct docker_answer *a, const struct field *fields, void *obj,
                         struct arena *arena, struct err *e)
{
    struct err why;
    if (json_decode_foreign(a->body.data, a->body.len, fields, obj, arena, &why) == 0)
        return 0;
    return why.code == ERR_INTERNAL ? (*e = why, -1) : garbled(e, &why);
}

int docker_answer_items(struct docker_answer *a, const struct field *fields, void *obj,
                        struct arena *arena, struct err *e)
{
    static const char head[] = "{\"items\":";
    struct docker_answer whole;
    docker_answer_init(&whole);
    buf_add(&whole.body, head, sizeof(head) - 1);
    buf_add(&whole.body, a->body.data, a->body.len);
    buf_add_char(&whole.body, '}');
    int rc = buf_ok(&whole.body) ? docker_answer_object(&whole, fields, obj, arena, e)
                                 : err_set(e, ERR_INTERNAL, "no memory for the engine's answer");
    docker_answer_done(&whole);
    return rc;
}

struct refusal {
    char *message, *cause;
};

static const struct field refusal_fields[] = {
    DOCKER_STR("message", struct refusal, message),
    DOCKER_STR("cause", struct refusal, cause), /* Podman's */
    {0},
};

static void words_of(const struct docker_answer *a, struct arena *arena, struct refusal *ret)
{
    struct err ignored;
    *ret = (struct refusal){.message = (char *)"", .cause = (char *)""};
    if (arena == NULL || a->body.len == 0 ||
        json_decode_foreign(a->body.data, a->body.len, refusal_fields, ret, arena, &ignored) != 0)
        *ret = (struct refusal){.message = (char *)"", .cause = (char *)""};
}

/* What an engine puts before the cause: who told whom. */
static const char *cause_of(const char *message)
{
    static const char *const layers[] = {
        "failed to create shim task: ",        "failed to create task for container: ",
        "OCI runtime create failed: ",         "runc create failed: ",
        "unable to start container process: ", "error during container init: "};
    for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
        size_t len = strlen(layers[i]);
        if (strncmp(message, layers[i], len) == 0)
            message += len;
    }
    return message;
}

void docker_words_clean(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = ' ';
    }
}

/* The beginning says where, the end says why. */
void docker_words_cut(const char *message, char *ret, size_t size)
{
    size_t len = strlen(message);
    if (len < size)
        snprintf(ret, size, "%s", message);
    else
        snprintf(ret, size, "%.50s ... %s", message, message + len - (size - 60));
}

void docker_answer_words(const struct docker_answer *a, char *ret, size_t size)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct refusal r;
    words_of(a, arena, &r);
    docker_words_cut(cause_of(r.message), ret, size);
    docker_words_clean(ret);
    arena_free(arena);
}

int docker_answer_refused(const struct docker_answer *a, enum err_code code, const char *what,
                          struct err *e)
{
    char words[128];
    docker_answer_words(a, words, sizeof(words));
    if (words[0] != '\0')
        err_fill_code(e, code, "%s: %s", what, words);
    else
        err_fill_code(e, code, "%s: the engine answered %ld", what, a->status);
    return -1;
}

bool docker_answer_says(const struct docker_answer *a, const char *words)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct refusal r;
    words_of(a, arena, &r);
    bool says = strcasestr(r.message, words) != NULL || strcasestr(r.cause, words) != NULL;
    arena_free(arena);
    return says;
}

/* --- the version ----------------------------------------------------------------------------- */

static int minor_of(const char *version)
{
    int minor;
    return version != NULL && sscanf(version, "1.%d", &minor) == 1 ? minor : 0;
}

static int exchange(struct docker_api *a, struct http_client *client, const struct docker_call *c,
                    const char *prefix, struct docker_answer *ret, struct err *e)
{
    const char *headers[3] = {c->header, NULL, NULL};
    struct buf url;
    buf_init(&url, PATH_ROOM);
    buf_printf(&url, "%s%s%s", a->base, prefix, c->path);
    if (!buf_ok(&url)) {
        buf_done(&url);
        return err_set(e, ERR_INTERNAL, "a path for the engine is too long");
    }
    if (c->body != NULL)
        headers[c->header != NULL] = "Content-Type: application/json";
    struct http_client_request req = {.method = c->method,
                                      .url = url.data,
                                      .headers = headers,
                                      .body = c->body != NULL ? c->body->data : NULL,
                                      .body_len = c->body != NULL ? c->body->len : 0,
                                      .sink = c->sink,
                                      .cancel = c->cancel,
                                      .unix_socket = a->socket,
                                      .timeout_ms = (long)c->timeout_ms,
                                      .connect_timeout_ms = 5000,
                                      .stall_timeout_ms = (long)c->stall_ms};
    if (a->tls != NULL) {
        req.ca_file = has(a->tls->ca_file) ? a->tls->ca_file : NULL;
        req.cert_file = has(a->tls->cert_file) ? a->tls->cert_file : NULL;
        req.key_file = has(a->tls->key_file) ? a->tls->key_file : NULL;
    }
    struct http_client_response res = {.body = ret->body};
    int rc = http_client_run(client, &req, &res, e);
    ret->body = res.body;
    ret->status = res.status;
    buf_done(&url);
    if (rc != 0 && e->code != ERR_BUSY && e->code != ERR_INTERNAL) {
        struct err why = *e;
        err_fill_code(e, ERR_ENGINE_UNAVAILABLE, "the engine at %.60s: %.90s",
                      a->socket != NULL ? a->socket : a->base, why.msg);
        e->sys = why.sys;
    }
    return rc;
}

struct versions {
    char *most, *least;
};

static const struct field versions_fields[] = {
    DOCKER_STR("ApiVersion", struct versions, most),
    DOCKER_STR("MinAPIVersion", struct versions, least),
    {0},
};

static int negotiate(struct docker_api *a, struct http_client *client, int *ret_minor,
                     struct err *e)
{
    struct docker_call c = {.method = "GET", .path = "/version", .timeout_ms = NEGOTIATE_MS};
    struct arena *arena = arena_new(ARENA_MAX);
    struct docker_answer answer;
    struct versions v;
    docker_answer_init(&answer);
    int rc = exchange(a, client, &c, "", &answer, e);
    if (rc == 0 && answer.status != 200)
        rc = docker_answer_refused(&answer, ERR_ENGINE_UNAVAILABLE, "its version", e);
    if (rc == 0)
        rc = docker_answer_object(&answer, versions_fields, &v, arena, e);
    if (rc == 0 && (minor_of(v.most) < API_LEAST || minor_of(v.least) > API_NEWEST))
        rc = err_set(e, ERR_ENGINE_UNAVAILABLE,
                     "the engine speaks the API %.16s to %.16s; needed is one of 1.%d to 1.%d",
                     v.least, v.most, API_LEAST, API_NEWEST);
    if (rc == 0)
        *ret_minor = minor_of(v.most) < API_NEWEST ? minor_of(v.most) : API_NEWEST;
    docker_answer_done(&answer);
    arena_free(arena);
    return rc;
}

static int minor_get(struct docker_api *a)
{
    pthread_mutex_lock(&a->lock);
    int minor = a->minor;
    pthread_mutex_unlock(&a->lock);
    return minor;
}

static void minor_set(struct docker_api *a, int minor)
{
    pthread_mutex_lock(&a->lock);
    a->minor = minor;
    pthread_mutex_unlock(&a->lock);
}

void docker_api_version(struct docker_api *a, char ret[static 16])
{
    int minor = minor_get(a);
    ret[0] = '\0';
    if (minor != 0) {
        snprintf(ret, 16, "1.%d", minor);
    }
}

static int versioned(struct docker_api *a, struct http_client *client, const struct docker_call *c,
                     struct docker_answer *ret, struct err *e)
{
    char prefix[16];
    int minor = minor_get(a);
    if (minor == 0) {
        if (negotiate(a, client, &minor, e) < 0)
            return -1;
        minor_set(a, minor);
    }
    snprintf(prefix, sizeof(prefix), "/v1.%d", minor);
    return exchange(a, client, c, prefix, ret, e);
}

/* The engine was replaced under us by an older or a newer one. */
static bool is_other_version(const struct docker_answer *a)
{
    return a->status == 400 && docker_answer_says(a, "client version") &&
           (docker_answer_says(a, "too new") || docker_answer_says(a, "too old"));
}

int docker_api_call_on(struct docker_api *a, struct http_client *client,
                       const struct docker_call *c, struct docker_answer *ret, struct err *e)
{
    int rc = versioned(a, client, c, ret, e);
    if (rc == 0 && is_other_version(ret)) {
        minor_set(a, 0);
        rc = versioned(a, client, c, ret, e);
    }
    return rc;
}

int docker_api_call(struct docker_api *a, const struct docker_call *c, struct docker_answer *ret,
                    struct err *e)
{
    struct http_client *client = docker_api_client_take(a, e);
    if (client == NULL)
        return -1;
    int rc = docker_api_call_on(a, client, c, ret, e);
    docker_api_client_put(a, client);
    return rc;
}

void docker_url_add(struct buf *url, const char *text, bool in_path)
{
    const char *plain = in_path ? "-._~/:@" : "-._~";
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (is_word || strchr(plain, c) != NULL)
            buf_add_char(url, (char)c);
        else
            buf_printf(url, "%%%02X", c);
    }
}
