#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "leasehold/http_client.h"

#define ROOM (1 << 20)

/* Each connection is handed to the talk function of its number; the last one has all that follow. */
typedef void talk_fn(int fd);

struct server {
    int listener;
    pthread_t thread;
    talk_fn *talks[3];
    int left_open;
    int connections; /* read when the thread has ended */
    char url[64];
    char body[ROOM + 1]; /* what came behind the last head, as it came */
    size_t body_len;
    char head[4096]; /* of the last request */
};

static struct server server;
static struct http_client *client;
static struct http_client_response answer;
static struct err e;

static void say(int fd, const char *text)
{
    size_t len = strlen(text);
    assert_int_equal(send(fd, text, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Reads a head, byte by byte so that nothing of the body is taken. False: the client has gone. */
static bool read_head(int fd)
{
    size_t len = 0;
    while (len + 1 < sizeof(server.head) && recv(fd, server.head + len, 1, 0) == 1) {
        server.head[++len] = '\0';
        if (len >= 4 && memcmp(server.head + len - 4, "\r\n\r\n", 4) == 0) {
            return true;
        }
    }
    return false;
}

/* Reads until `until` bytes are there, or the text `end` ends them. */
static void read_body(int fd, size_t until, const char *end)
{
    size_t end_len = strlen(end);
    server.body_len = 0;
    while (server.body_len < until) {
        ssize_t n = recv(fd, server.body + server.body_len, until - server.body_len, 0);
        if (n <= 0) {
            return;
        }
        server.body_len += (size_t)n;
        server.body[server.body_len] = '\0';
        if (end_len > 0 && server.body_len >= end_len &&
            strcmp(server.body + server.body_len - end_len, end) == 0) {
            return;
        }
    }
}

static void wait_for_the_end(int fd)
{
    char c;
    while (recv(fd, &c, 1, 0) == 1) {
    }
}

static void *serve(void *arg)
{
    (void)arg;
    int fd;
    while ((fd = accept(server.listener, NULL, NULL)) >= 0) {
        int n = server.connections++;
        while (n > 0 && server.talks[n < 2 ? n : 2] == NULL) {
            n--;
        }
        server.talks[n < 2 ? n : 2](fd);
        close(fd);
    }
    return NULL;
}

static void server_start(talk_fn *first, talk_fn *second)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    server.talks[0] = first;
    server.talks[1] = second;
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(server.listener, 4), 0);
    assert_int_equal(getsockname(server.listener, (struct sockaddr *)&at, &len), 0);
    snprintf(server.url, sizeof(server.url), "http://127.0.0.1:%u/", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

/* Closes the client's connections first: the server reads them to their end. */
static void server_stop(void)
{
    http_client_free(client);
    client = NULL;
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
}

static int set_up(void **state)
{
    (void)state;
    memset(&server, 0, sizeof(server));
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
    buf_done(&answer.body);
    return 0;
}

static int ask(struct http_client_request req)
{
    req.url = server.url;
    req.timeout_ms = req.timeout_ms != 0 ? req.timeout_ms : 20000;
    return http_client_run(client, &req, &answer, &e);
}

/* --- a source of bytes that can be told from each other --------------------------------------- */

struct pattern {
    size_t at, end, fail_at;
    int rewinds;
};

static ssize_t pattern_read(void *ctx, char *ret, size_t size)
{
    struct pattern *p = ctx;
    size_t n = 0;
    if (p->fail_at > 0 && p->at >= p->fail_at) {
        return -1;
    }
    for (; n < size && p->at < p->end; n++, p->at++) {
        ret[n] = (char)('a' + p->at % 23);
    }
    return (ssize_t)n;
}

static int pattern_rewind(void *ctx)
{
    struct pattern *p = ctx;
    p->at = 0;
    p->rewinds++;
    return 0;
}

static void assert_pattern(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(data[i], 'a' + (char)(i % 23));
    }
}

static void talk_take_room(int fd)
{
    while (read_head(fd)) {
        read_body(fd, ROOM, "");
        say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: \"x\"\r\n\r\nok");
    }
}

static void a_body_of_known_length_is_streamed(void **state)
{
    (void)state;
    struct pattern p = {.end = ROOM};
    struct http_client_source source = {.ctx = &p, .read = pattern_read, .len = ROOM};
    server_start(talk_take_room, NULL);
    assert_int_equal(ask((struct http_client_request){.method = "PUT", .source = &source}), 0);
    assert_string_equal(http_client_header(client, "etag"), "\"x\"");
    assert_null(http_client_header(client, "eta"));
    server_stop();
    assert_int_equal(answer.status, 200);
    assert_memory_equal(server.head, "PUT / HTTP/1.1\r\n", 16);
    assert_non_null(strstr(server.head, "\r\nContent-Length: 1048576\r\n"));
    assert_null(strstr(server.head, "Expect"));
    assert_int_equal(server.body_len, ROOM);
    assert_pattern(server.body, ROOM);
}

static void talk_take_chunks(int fd)
{
    assert_true(read_head(fd));
    read_body(fd, ROOM, "\r\n0\r\n\r\n");
    say(fd, "HTTP/1.1 204 No Content\r\n\r\n");
    wait_for_the_end(fd);
}

static void a_body_of_unknown_length_goes_in_chunks(void **state)
{
    (void)state;
    struct pattern p = {.end = 10};
    struct http_client_source source = {.ctx = &p, .read = pattern_read, .len = -1};
    server_start(talk_take_chunks, NULL);
    assert_int_equal(ask((struct http_client_request){.method = "POST", .source = &source}), 0);
    server_stop();
    assert_int_equal(answer.status, 204);
    assert_memory_equal(server.head, "POST / HTTP/1.1\r\n", 17);
    assert_non_null(strstr(server.head, "\r\nTransfer-Encoding: chunked\r\n"));
    assert_string_equal(server.body, "a\r\nabcdefghij\r\n0\r\n\r\n");
}

static void a_source_that_fails_fails_the_exchange(void **state)
{
    (void)state;
    struct pattern p = {.end = ROOM, .fail_at = 100000};
    struct http_client_source source = {.ctx = &p, .read = pattern_read, .len = ROOM};
    server_start(talk_take_room, NULL);
    assert_int_equal(ask((struct http_client_request){.method = "PUT", .source = &source}), -1);
    assert_int_equal(e.code, ERR_INTERNAL);
    server_stop();
}

/* Answers one request; takes a second and goes. */
static void talk_once_and_a_half(int fd)
{
    assert_true(read_head(fd));
    say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    read_head(fd);
    read_body(fd, ROOM, "");
}

static void a_body_starts_again_on_a_new_connection(void **state)
{
    (void)state;
    struct pattern p = {.end = ROOM};
    struct http_client_source source = {
        .ctx = &p, .read = pattern_read, .rewind = pattern_rewind, .len = ROOM};
    server_start(talk_once_and_a_half, talk_take_room);
    assert_int_equal(ask((struct http_client_request){.method = "GET"}), 0);
    assert_int_equal(ask((struct http_client_request){.method = "PUT", .source = &source}), 0);
    server_stop();
    assert_int_equal(p.rewinds, 1);
    assert_int_equal(server.connections, 2);
    assert_int_equal(server.body_len, ROOM);
    assert_pattern(server.body, ROOM);
}

static void a_source_without_rewind_is_not_sent_twice(void **state)
{
    (void)state;
    struct pattern p = {.end = ROOM};
    struct http_client_source source = {.ctx = &p, .read = pattern_read, .len = ROOM};
    server_start(talk_once_and_a_half, talk_take_room);
    assert_int_equal(ask((struct http_client_request){.method = "GET"}), 0);
    assert_int_equal(ask((struct http_client_request){.method = "PUT", .source = &source}), -1);
    assert_int_equal(e.code, ERR_ENGINE_UNAVAILABLE);
    server_stop();
}

static void talk_expect(int fd)
{
    assert_true(read_head(fd));
    assert_non_null(strstr(server.head, "\r\nExpect: 100-continue\r\n"));
    say(fd, "HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\n");
    read_body(fd, 10, "");
    say(fd, "HTTP/1.1 201 Created\r\nX-Final:  2 \r\nContent-Length: 0\r\n\r\n");
    wait_for_the_end(fd);
}

static void the_body_waits_for_the_servers_word(void **state)
{
    (void)state;
    struct pattern p = {.end = 10};
    struct http_client_source source = {.ctx = &p, .read = pattern_read, .len = 10};
    server_start(talk_expect, NULL);
    assert_int_equal(ask((struct http_client_request){
                         .method = "PUT", .source = &source, .expect_continue = true}),
                     0);
    assert_int_equal(answer.status, 201);
    assert_null(http_client_header(client, "X-Interim"));
    assert_string_equal(http_client_header(client, "X-Final"), "2");
    server_stop();
    assert_int_equal(server.body_len, 10);
}

/* --- sinks ------------------------------------------------------------------------------------ */

struct taken {
    enum http_client_body choice;
    long status;
    size_t len, stop_at;
    int heads;
    char type[32];
    char data[ROOM];
};

static struct taken taken;

static enum http_client_body take_head(void *ctx, long status)
{
    struct taken *t = ctx;
    const char *type = http_client_header(client, "Content-Type");
    t->heads++;
    t->status = status;
    snprintf(t->type, sizeof(t->type), "%s", type != NULL ? type : "");
    return t->choice;
}

static bool take_data(void *ctx, const char *data, size_t len)
{
    struct taken *t = ctx;
    assert_true(t->len + len <= sizeof(t->data));
    memcpy(t->data + t->len, data, len);
    t->len += len;
    return t->stop_at == 0 || t->len < t->stop_at;
}

static const struct http_client_sink sink = {.ctx = &taken, .head = take_head, .data = take_data};

static void taken_reset(enum http_client_body choice, size_t stop_at)
{
    memset(&taken, 0, sizeof(taken));
    taken.choice = choice;
    taken.stop_at = stop_at;
}

/* 100,000 bytes, far over the cap of a collected answer. */
static void talk_long_answer(int fd)
{
    while (read_head(fd)) {
        struct pattern p = {.end = 100000};
        char piece[1000];
        ssize_t n;
        say(fd, "HTTP/1.1 203 Fine\r\nContent-Type: a/b\r\nContent-Length: 100000\r\n\r\n");
        while ((n = pattern_read(&p, piece, sizeof(piece))) > 0) {
            if (send(fd, piece, (size_t)n, MSG_NOSIGNAL) != n) {
                return;
            }
        }
    }
}

static void a_streamed_answer_comes_head_first_and_has_no_cap(void **state)
{
    (void)state;
    server_start(talk_long_answer, NULL);
    for (int i = 0; i < 2; i++) {
        taken_reset(HTTP_CLIENT_STREAM, 0);
        assert_int_equal(ask((struct http_client_request){.method = "GET", .sink = &sink}), 0);
        assert_int_equal(taken.heads, 1);
        assert_int_equal(taken.status, 203);
        assert_string_equal(taken.type, "a/b");
        assert_int_equal(taken.len, 100000);
        assert_pattern(taken.data, taken.len);
        assert_int_equal(answer.body.len, 0);
        assert_false(answer.stopped);
    }
    server_stop();
    assert_int_equal(server.connections, 1);
}

static void a_sink_stops_the_answer(void **state)
{
    (void)state;
    server_start(talk_long_answer, NULL);
    taken_reset(HTTP_CLIENT_STREAM, 5000);
    assert_int_equal(ask((struct http_client_request){.method = "GET", .sink = &sink}), 0);
    assert_true(answer.stopped);
    assert_in_range(taken.len, 5000, 99999);
    taken_reset(HTTP_CLIENT_STOP, 0);
    assert_int_equal(ask((struct http_client_request){.method = "GET", .sink = &sink}), 0);
    assert_true(answer.stopped);
    assert_int_equal(answer.status, 203);
    assert_int_equal(taken.len, 0);
    server_stop();
}

static void talk_error(int fd)
{
    while (read_head(fd)) {
        say(fd, "HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\nnope");
    }
}

static void a_sink_leaves_an_errors_text_to_be_collected(void **state)
{
    (void)state;
    server_start(talk_error, NULL);
    taken_reset(HTTP_CLIENT_COLLECT, 0);
    assert_int_equal(ask((struct http_client_request){.method = "GET", .sink = &sink}), 0);
    assert_int_equal(taken.status, 404);
    assert_int_equal(taken.len, 0);
    assert_string_equal(answer.body.data, "nope");
    server_stop();
}

static void an_answer_without_a_body_has_a_head(void **state)
{
    (void)state;
    server_start(talk_error, NULL);
    taken_reset(HTTP_CLIENT_STREAM, 0);
    assert_int_equal(ask((struct http_client_request){.method = "HEAD", .sink = &sink}), 0);
    assert_int_equal(taken.heads, 1);
    assert_int_equal(taken.status, 404);
    server_stop();
}

/* --- time ------------------------------------------------------------------------------------- */

static void talk_half(int fd)
{
    read_head(fd);
    say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    wait_for_the_end(fd);
}

static void an_answer_that_stands_still_is_given_up(void **state)
{
    (void)state;
    server_start(talk_half, NULL);
    assert_int_equal(ask((struct http_client_request){.method = "GET",
                                                      .stall_timeout_ms = 100,
                                                      .timeout_ms = HTTP_CLIENT_NO_DEADLINE}),
                     -1);
    assert_int_equal(e.code, ERR_ENGINE_UNAVAILABLE);
    assert_int_equal(e.sys, ETIMEDOUT);
    server_stop();
}

static void the_deadline_says_that_time_ran_out(void **state)
{
    (void)state;
    server_start(talk_half, NULL);
    assert_int_equal(ask((struct http_client_request){.method = "GET", .timeout_ms = 100}), -1);
    assert_int_equal(e.code, ERR_ENGINE_UNAVAILABLE);
    assert_int_equal(e.sys, ETIMEDOUT);
    server_stop();
}

/* Longer than the stall's limit as a whole, never between two bytes. */
static void talk_slowly(int fd)
{
    read_head(fd);
    say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
    for (int i = 0; i < 10; i++) {
        usleep(60000);
        say(fd, "x");
    }
}

static void a_slow_answer_is_not_a_stall(void **state)
{
    (void)state;
    server_start(talk_slowly, NULL);
    assert_int_equal(ask((struct http_client_request){.method = "GET", .stall_timeout_ms = 500}),
                     0);
    assert_string_equal(answer.body.data, "xxxxxxxxxx");
    server_stop();
}

static atomic_bool cancel;
static sem_t woken; /* who wakes a client is done with it before it is freed */

static void talk_cancel(int fd)
{
    read_head(fd);
    say(fd, "HTTP/1.1 200 OK\r\n\r\nendless");
    atomic_store(&cancel, true);
    http_client_wake(client);
    sem_post(&woken);
    wait_for_the_end(fd);
}

static void an_endless_answer_can_be_cancelled(void **state)
{
    (void)state;
    atomic_store(&cancel, false);
    sem_init(&woken, 0, 0);
    server_start(talk_cancel, NULL);
    taken_reset(HTTP_CLIENT_STREAM, 0);
    assert_int_equal(ask((struct http_client_request){.method = "GET",
                                                      .sink = &sink,
                                                      .cancel = &cancel,
                                                      .timeout_ms = HTTP_CLIENT_NO_DEADLINE}),
                     -1);
    assert_int_equal(e.code, ERR_BUSY);
    sem_wait(&woken);
    server_stop();
    sem_destroy(&woken);
}

static void talk_head_only(int fd)
{
    read_head(fd);
    say(fd, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\n");
    wait_for_the_end(fd);
}

static enum http_client_body cancel_at_head(void *ctx, long status)
{
    atomic_store(&cancel, true);
    return take_head(ctx, status);
}

static void the_head_is_told_before_a_body_comes(void **state)
{
    (void)state;
    struct http_client_sink at_head = {.ctx = &taken, .head = cancel_at_head, .data = take_data};
    atomic_store(&cancel, false);
    server_start(talk_head_only, NULL);
    taken_reset(HTTP_CLIENT_STREAM, 0);
    assert_int_equal(
        ask((struct http_client_request){.method = "GET", .sink = &at_head, .cancel = &cancel}),
        -1);
    assert_int_equal(e.code, ERR_BUSY);
    assert_int_equal(taken.heads, 1);
    assert_int_equal(taken.status, 200);
    assert_string_equal(taken.type, "a/b");
    server_stop();
}

/* The connection would do for a second request, but nobody answers one there. */
static void talk_one(int fd)
{
    read_head(fd);
    say(fd, "HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\nnope");
    server.left_open = dup(fd);
}

static void a_request_can_demand_a_fresh_connection(void **state)
{
    (void)state;
    server_start(talk_one, talk_error);
    assert_int_equal(ask((struct http_client_request){.method = "GET"}), 0);
    assert_int_equal(ask((struct http_client_request){.method = "GET", .fresh_connection = true}),
                     0);
    server_stop();
    close(server.left_open);
    assert_int_equal(server.connections, 2);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_body_of_known_length_is_streamed),
        TEST(a_body_of_unknown_length_goes_in_chunks),
        TEST(a_source_that_fails_fails_the_exchange),
        TEST(a_body_starts_again_on_a_new_connection),
        TEST(a_source_without_rewind_is_not_sent_twice),
        TEST(the_body_waits_for_the_servers_word),
        TEST(a_streamed_answer_comes_head_first_and_has_no_cap),
        TEST(a_sink_stops_the_answer),
        TEST(a_sink_leaves_an_errors_text_to_be_collected),
        TEST(an_answer_without_a_body_has_a_head),
        TEST(an_answer_that_stands_still_is_given_up),
        TEST(the_deadline_says_that_time_ran_out),
        TEST(a_slow_answer_is_not_a_stall),
        TEST(an_endless_answer_can_be_cancelled),
        TEST(the_head_is_told_before_a_body_comes),
        TEST(a_request_can_demand_a_fresh_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
