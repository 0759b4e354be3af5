/* Transport `ws:PORT/path`: the opening handshake of a WebSocket connection to the agent, which is
 * handed over right behind it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "init_dial.h"
#include "init_ws_shake.h"

struct ws_target {
    char host[sizeof("127.0.0.1:65535")];
    char path[];
};

struct shake {
    char accept[WSC_ACCEPT_TEXT];
    size_t sent, request_len;
    char request[WSC_REQUEST_MAX];
    size_t answer_len;
    uint8_t answer[WSC_ANSWER_MAX];
};

static int ws_begin(struct conn *c, const void *ctx)
{
    const struct ws_target *target = ctx;
    uint8_t nonce[WSC_NONCE];
    char key[WSC_KEY_TEXT];
    struct shake *s = calloc(1, sizeof(*s));
    c->shake = s;
    if (s == NULL || getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
        return -1;
    wsc_key_make(nonce, key, s->accept);
    s->request_len =
        wsc_request_put(s->request, sizeof(s->request), target->host, target->path, key);
    return s->request_len > 0 ? 0 : -1;
}

static bool is_passing(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static int request_send(struct shake *s, int fd)
{
    ssize_t n =
        send(fd, s->request + s->sent, s->request_len - s->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return is_passing(n) ? 0 : -1;
    s->sent += (size_t)n;
    return s->sent == s->request_len ? 1 : 0;
}

/* Takes the head of the answer and not a byte behind it: that is the door's. */
static int answer_take(struct shake *s, int fd)
{
    uint8_t *at = s->answer + s->answer_len;
    ssize_t n = recv(fd, at, sizeof(s->answer) - s->answer_len, MSG_DONTWAIT | MSG_PEEK);
    if (n <= 0)
        return is_passing(n) ? 0 : -1;
    long end = wsc_answer_end(s->answer, s->answer_len + (size_t)n);
    if (end < 0)
        return -1;
    size_t take = end > 0 ? (size_t)end - s->answer_len : (size_t)n;
    n = recv(fd, at, take, MSG_DONTWAIT);
    if (n <= 0)
        return is_passing(n) ? 0 : -1;
    s->answer_len += (size_t)n;
    return end > 0 && s->answer_len == (size_t)end ? 1 : 0;
}

static int ws_step(struct conn *c)
{
    struct shake *s = c->shake;
    if (s->sent < s->request_len) {
        int r = request_send(s, c->agent_fd);
        if (r <= 0)
            return r;
    }
    int r = answer_take(s, c->agent_fd);
    if (r > 0 && !wsc_answer_accepts(s->answer, s->answer_len, s->accept))
        r = -1;
    if (r < 0)
        fprintf(stderr, "leaseinit: the agent does not take a WebSocket connection\n");
    return r;
}

static bool ws_wants_writable(const struct conn *c)
{
    const struct shake *s = c->shake;
    return s->sent < s->request_len;
}

static void ws_end(struct conn *c)
{
    free(c->shake);
    c->shake = NULL;
}

static const struct handshake ws_handshake = {
    .begin = ws_begin,
    .step = ws_step,
    .wants_writable = ws_wants_writable,
    .end = ws_end,
};

static struct transport *ws_new(const char *word)
{
    struct conn_address a;
    const char *port = word + strlen("ws:");
    size_t digits = dial_port(port, &a);
    const char *path = port + digits;
    if (digits == 0 || path[0] != '/' || strlen(path) > WSC_REQUEST_MAX / 2) {
        fprintf(stderr, "leaseinit: not a port and a path: %s\n", word);
        return NULL;
    }
    struct ws_target *target = calloc(1, sizeof(*target) + strlen(path) + 1);
    if (target == NULL) {
        perror("leaseinit");
        return NULL;
    }
    snprintf(target->host, sizeof(target->host), "127.0.0.1:%.*s", (int)digits, port);
    memcpy(target->path, path, strlen(path));
    return dial_new(&transport_ws, &a, &ws_handshake, target);
}

const struct transport_vtable transport_ws = DIAL_TRANSPORT("ws", ws_new);
