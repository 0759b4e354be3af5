#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "leasehold/http_client.h"

#define REQUEST_MAX 8192

/* Answers every request of every connection with the same text, and keeps the last request. */
struct server {
    int listener;
    pthread_t thread;
    const char *answer; /* NULL: none, the client has to give up */
    bool close_after;
    pthread_mutex_t lock;
    char request[REQUEST_MAX]; /* guarded by lock */
    int connections, requests; /* read when the thread has ended */
    char url[64];
    char path[108];
};

static struct server server;
static struct http_client *client;
static struct http_client_response answer;
static struct err e;

/* How long the whole request at `text` is, 0 while its head is not complete. */
static size_t request_len(const char *text)
{
    const char *end = strstr(text, "\r\n\r\n");
    if (end == NULL) {
        return 0;
    }
    const char *length = strcasestr(text, "\r\nContent-Length:");
    size_t body = length != NULL && length < end ? (size_t)strtoul(length + 17, NULL, 10) : 0;
    return (size_t)(end + 4 - text) + body;
}

/* Reads one request. Returns false when the client has gone. */
static bool read_request(struct server *s, int fd)
{
    char text[REQUEST_MAX] = "";
    size_t len = 0;
    while (request_len(text) == 0 || len < request_len(text)) {
        ssize_t n = read(fd, text + len, sizeof(text) - 1 - len);
        if (n <= 0) {
            return false;
        }
        len += (size_t)n;
    }
    pthread_mutex_lock(&s->lock);
    memcpy(s->request, text, sizeof(text));
    pthread_mutex_unlock(&s->lock);
    return true;
}

static void *serve(void *arg)
{
    struct server *s = arg;
    int fd;
    while ((fd = accept(s->listener, NULL, NULL)) >= 0) {
        s->connections++;
        while (read_request(s, fd)) {
            s->requests++;
            if (s->answer != NULL && send(fd, s->answer, strlen(s->answer), MSG_NOSIGNAL) !=
                                         (ssize_t)strlen(s->answer)) {
                break;
            }
            if (s->close_after) {
                break;
            }
        }
        close(fd);
    }
    return NULL;
}

/* The last request that was answered. */
static const char *request(void)
{
    static char copy[REQUEST_MAX];
    pthread_mutex_lock(&server.lock);
    memcpy(copy, server.request, sizeof(copy));
    pthread_mutex_unlock(&server.lock);
    return copy;
}

static void server_start(const char *text, bool close_after)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    server.answer = text;
    server.close_after = close_after;
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(server.listener, 4), 0);
    assert_int_equal(getsockname(server.listener, (struct sockaddr *)&at, &len), 0);
    snprintf(server.url, sizeof(server.url), "http://127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&server.thread, NULL, serve, &server), 0);
}

static void server_start_unix(const char *text)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(server.path, sizeof(server.path), "/tmp/leasehold-http-%ld.sock", (long)getpid());
    memcpy(at.sun_path, server.path, sizeof(server.path));
    unlink(server.path);
    server.answer = text;
    server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(server.listener, 4), 0);
    assert_int_equal(pthread_create(&server.thread, NULL, serve, &server), 0);
}

/* Closes the client's connections first: the server reads them to their end. */
static void server_stop(void)
{
    http_client_free(client);
    client = NULL;
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
    if (server.path[0] != '\0') {
        unlink(server.path);
    }
}

static int set_up(void **state)
{
    (void)state;
    memset(&server, 0, sizeof(server));
    pthread_mutex_init(&server.lock, NULL);
    memset(&answer, 0, sizeof(answer));
    buf_init(&answer.body, 1000);
    client = http_client_new();
    return client == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    http_client_free(client);
    client = NULL;
    pthread_mutex_destroy(&server.lock);
    buf_done(&answer.body);
    return 0;
}

static int ask(const struct http_client_request *what, const char *path)
{
    char url[200];
    struct http_client_request req = *what;
    snprintf(url, sizeof(url), "%s%s", server.url, path);
    req.url = url;
    if (req.timeout_ms == 0) {
        req.timeout_ms = 10000;
    }
    return http_client_run(client, &req, &answer, &e);
}

static void assert_answered(const struct http_client_request *what, const char *path)
{
    if (ask(what, path) != 0) {
        fail_msg("%s", e.msg);
    }
}

static void a_get_is_answered(void **state)
{
    (void)state;
    static const char *const headers[] = {"Authorization: Bearer t", "X-Extra: 1", NULL};
    server_start("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nx-request-id:  r-1 \r\n\r\nhello",
                 false);
    assert_answered(&(struct http_client_request){.method = "GET", .headers = headers},
                    "/a/../b?c");
    server_stop();
    assert_int_equal(answer.status, 404);
    assert_string_equal(answer.body.data, "hello");
    assert_string_equal(answer.request_id, "r-1");
    assert_memory_equal(request(), "GET /a/../b?c HTTP/1.1\r\n", 24);
    assert_non_null(strstr(request(), "\r\nAuthorization: Bearer t\r\n"));
    assert_non_null(strstr(request(), "\r\nX-Extra: 1\r\n"));
    assert_null(strstr(request(), "Content-Length"));
    assert_null(strstr(request(), "Content-Type"));
}

static void bodies_go_out_with_their_length_and_no_guessed_type(void **state)
{
    (void)state;
    static const char *const json[] = {"content-type: application/json", NULL};
    server_start("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", false);
    struct http_client_request req = {
        .method = "POST", .body = "a\0b", .body_len = 3, .headers = json};
    assert_answered(&req, "/");
    assert_non_null(strstr(request(), "\r\nContent-Length: 3\r\n"));
    assert_non_null(strstr(request(), "\r\ncontent-type: application/json\r\n"));
    assert_memory_equal(strstr(request(), "\r\n\r\n") + 4, "a\0b", 4);
    assert_null(strcasestr(request(), "expect"));
    req.headers = NULL;
    static const char *const methods[] = {"PUT", "PATCH", "DELETE", "GET", "PURGE"};
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        req.method = methods[i];
        assert_answered(&req, "/");
        assert_memory_equal(request(), methods[i], strlen(methods[i]));
        assert_non_null(strstr(request(), "\r\nContent-Length: 3\r\n"));
        assert_null(strcasestr(request(), "content-type"));
    }
    server_stop();
    assert_int_equal(answer.status, 201);
    assert_int_equal(answer.body.len, 0);
}

static void a_post_without_a_body_says_length_zero(void **state)
{
    (void)state;
    server_start("HTTP/1.1 204 No Content\r\n\r\n", false);
    assert_answered(&(struct http_client_request){.method = "POST"}, "/");
    assert_non_null(strstr(request(), "\r\nContent-Length: 0\r\n"));
    assert_answered(&(struct http_client_request){.method = "DELETE"}, "/");
    assert_memory_equal(request(), "DELETE / ", 9);
    assert_null(strstr(request(), "Content-Length"));
    server_stop();
}

static void head_waits_for_no_body(void **state)
{
    (void)state;
    server_start("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n", false);
    assert_answered(&(struct http_client_request){.method = "HEAD"}, "/");
    assert_memory_equal(request(), "HEAD / ", 7);
    assert_answered(&(struct http_client_request){.method = "HEAD"}, "/");
    server_stop();
    assert_int_equal(server.connections, 1);
}

static void a_connection_is_kept_for_the_next_request(void **state)
{
    (void)state;
    server_start("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", false);
    for (int i = 0; i < 5; i++) {
        assert_answered(&(struct http_client_request){.method = i % 2 == 0 ? "GET" : "POST"}, "/");
        assert_string_equal(answer.body.data, "x");
    }
    server_stop();
    assert_int_equal(server.requests, 5);
    assert_int_equal(server.connections, 1);
}

static void a_closed_connection_is_opened_again(void **state)
{
    (void)state;
    server_start("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", true);
    for (int i = 0; i < 3; i++) {
        assert_answered(&(struct http_client_request){.method = "GET"}, "/");
    }
    server_stop();
    assert_int_equal(server.connections, 3);
}

static void a_unix_socket_works_and_is_forgotten_after(void **state)
{
    (void)state;
    server_start_unix("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    strcpy(server.url, "http://docker");
    assert_answered(&(struct http_client_request){.method = "GET", .unix_socket = server.path},
                    "/v1/info");
    assert_string_equal(answer.body.data, "ok");
    assert_non_null(strstr(request(), "\r\nHost: docker\r\n"));
    strcpy(server.url, "http://127.0.0.1:1");
    assert_int_equal(ask(&(struct http_client_request){.method = "GET"}, "/"), -1);
    assert_int_equal(e.code, ERR_ENGINE_UNAVAILABLE);
    server_stop();
}

static void an_answer_over_the_cap_is_an_error(void **state)
{
    (void)state;
    char text[2200] = "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n";
    size_t head = strlen(text);
    memset(text + head, 'x', 2000);
    server_start(text, false);
    assert_int_equal(ask(&(struct http_client_request){.method = "GET"}, "/"), -1);
    server_stop();
    assert_int_equal(e.code, ERR_TOO_LARGE);
    assert_false(buf_ok(&answer.body));
    assert_in_range(answer.body.len, 0, 1000);
}

static void nobody_there_is_unavailable(void **state)
{
    (void)state;
    strcpy(server.url, "http://127.0.0.1:1");
    answer.status = 7;
    assert_int_equal(ask(&(struct http_client_request){.method = "GET"}, "/"), -1);
    assert_int_equal(e.code, ERR_ENGINE_UNAVAILABLE);
    assert_int_equal(answer.status, 7);
    assert_int_equal(
        ask(&(struct http_client_request){.method = "GET", .unix_socket = "/nonexistent"}, "/"),
        -1);
    assert_int_equal(e.code, ERR_ENGINE_UNAVAILABLE);
    assert_string_equal(e.msg,
                        "connect to the unix socket /nonexistent: No such file or directory");
}

static void silence_ends_at_the_deadline(void **state)
{
    (void)state;
    server_start(NULL, false);
    assert_int_equal(ask(&(struct http_client_request){.method = "GET", .timeout_ms = 100}, "/"),
                     -1);
    server_stop();
    assert_int_equal(e.code, ERR_ENGINE_UNAVAILABLE);
}

static void what_is_not_http_is_unavailable(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (client == NULL) {
            client = http_client_new();
        }
        server_start(texts[i], true);
        assert_int_equal(ask(&(struct http_client_request){.method = "GET"}, "/"), -1);
        assert_string_equal(err_code_name(e.code), "engine_unavailable");
        server_stop();
    }
}

static void redirects_are_answers(void **state)
{
    (void)state;
    server_start("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                 false);
    assert_answered(&(struct http_client_request){.method = "GET"}, "/");
    server_stop();
    assert_int_equal(answer.status, 302);
    assert_int_equal(server.requests, 1);
}

static void proxies_of_the_environment_are_ignored(void **state)
{
    (void)state;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    server_start("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false);
    assert_answered(&(struct http_client_request){.method = "GET"}, "/");
    server_stop();
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
}

static void bad_requests_are_refused_before_they_leave(void **state)
{
    (void)state;
    static const char *const urls[] = {"ftp://127.0.0.1/", "file:///etc/passwd", "127.0.0.1", "",
                                       "http://"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        struct http_client_request req = {.method = "GET", .url = urls[i], .timeout_ms = 1000};
        assert_int_equal(http_client_run(client, &req, &answer, &e), -1);
        assert_int_equal(e.code, ERR_INVALID_REQUEST);
    }
    static const char *const headers[] = {"X-A: 1\r\nX-B: 2", NULL};
    struct http_client_request req = {
        .method = "GET", .url = "http://127.0.0.1:1/", .headers = headers, .timeout_ms = 1000};
    assert_int_equal(http_client_run(client, &req, &answer, &e), -1);
    assert_int_equal(e.code, ERR_INVALID_REQUEST);
    req = (struct http_client_request){.method = "GET", .url = "http://127.0.0.1:1/"};
    assert_int_equal(http_client_run(client, &req, &answer, &e), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
}

static void strange_request_ids_are_left_out(void **state)
{
    (void)state;
    static char text[300];
    snprintf(text, sizeof(text),
             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Request-Id: %065d\r\n\r\n", 1);
    server_start(text, false);
    assert_answered(&(struct http_client_request){.method = "GET"}, "/");
    assert_string_equal(answer.request_id, "");
    server_stop();
}

static void free_takes_null(void **state)
{
    (void)state;
    http_client_free(NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_get_is_answered),
        TEST(bodies_go_out_with_their_length_and_no_guessed_type),
        TEST(a_post_without_a_body_says_length_zero),
        TEST(head_waits_for_no_body),
        TEST(a_connection_is_kept_for_the_next_request),
        TEST(a_closed_connection_is_opened_again),
        TEST(a_unix_socket_works_and_is_forgotten_after),
        TEST(an_answer_over_the_cap_is_an_error),
        TEST(nobody_there_is_unavailable),
        TEST(silence_ends_at_the_deadline),
        TEST(what_is_not_http_is_unavailable),
        TEST(redirects_are_answers),
        TEST(proxies_of_the_environment_are_ignored),
        TEST(bad_requests_are_refused_before_they_leave),
        TEST(strange_request_ids_are_left_out),
        TEST(free_takes_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
