/* The upgrade: a head read strictly, and the answer to it. */
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "shake.h"

#define BEARER "Bearer "
#define LAST   "Connection: close\r\nContent-Length: 0\r\n\r\n"

static const char bad_request[] = "HTTP/1.1 400 Bad Request\r\n" LAST;
static const char not_found[] = "HTTP/1.1 404 Not Found\r\n" LAST;
static const char not_allowed[] = "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\n" LAST;
static const char too_large[] = "HTTP/1.1 431 Request Header Fields Too Large\r\n" LAST;
static const char need_upgrade[] =
    "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n"
    "Sec-WebSocket-Version: 13\r\nContent-Length: 0\r\n\r\n";

/* --- whoever does not become a WebSocket ------------------------------------------------------ */

static void answer(struct client *cl, const char *text)
{
    wire_put(&cl->wire, text, strlen(text));
    client_over(cl);
}

/* Clients made of libwebsockets ask for "//" where the URL ends in a slash. */
static bool path_is_root(const struct http_head *head)
{
    return head->path[strspn(head->path, "/")] == '\0';
}

/* NULL: it is the start of a WebSocket. */
static const char *fault_of(const struct http_head *head)
{
    bool wanted = head->connection_upgrade && http_list_has(head->field[HDR_UPGRADE], "websocket");

    if (head->method != HTTP_GET)
        return not_allowed;
    if (!wanted && !path_is_root(head))
        return not_found;
    if (!wanted || head->minor != 1 || strcmp(head->field[HDR_WS_VERSION], "13") != 0)
        return need_upgrade;
    return head->body_len == 0 && ws_key_valid(head->field[HDR_WS_KEY]) ? NULL : bad_request;
}

/* --- the answer ------------------------------------------------------------------------------ */

/*
 * A browser takes an answer without a subprotocol for a failure when it has offered some, and would
 * show 1006 then and not our code. So of foreign ones the first is answered, and the close follows.
 */
static void protocol_choose(const char *offer, char out[static CLIENT_NAME_MAX])
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *first = offer + strspn(offer, ", \t");
    size_t len = strspn(first, token);

    out[0] = '\0';
    if (http_list_has(offer, CLIENT_PROTOCOL))
        snprintf(out, CLIENT_NAME_MAX, "%s", CLIENT_PROTOCOL);
    else if (len < CLIENT_NAME_MAX && strchr(", \t", first[len]))
        snprintf(out, CLIENT_NAME_MAX, "%.*s", (int)len, first);
}

static void accept_put(struct client *cl, const struct http_head *head)
{
    char text[256 + CLIENT_NAME_MAX], proof[SHAKE_ACCEPT_TEXT + 1], name[CLIENT_NAME_MAX];
    int len;

    shake_accept(head->field[HDR_WS_KEY], proof);
    protocol_choose(head->field[HDR_WS_PROTOCOL], name);
    len = snprintf(text, sizeof(text),
                   "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                   "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s%s%s\r\n",
                   proof, name[0] ? "Sec-WebSocket-Protocol: " : "", name, name[0] ? "\r\n" : "");
    wire_put(&cl->wire, text, (size_t)len);
}

/* --- what it wants --------------------------------------------------------------------------- */

/* What is wrong with a complete upgrade, told behind it by 4401; NULL: nothing. */
static const char *objection(const struct client *cl, const struct http_head *head)
{
    const char *offer = head->field[HDR_WS_PROTOCOL], *origin = head->field[HDR_ORIGIN];
    const char *authorization = head->field[HDR_AUTHORIZATION];
    size_t skip = strlen(BEARER);

    if (offer[0] != '\0' && !http_list_has(offer, CLIENT_PROTOCOL))
        return "subprotocol";
    if (!path_is_root(head))
        return "path";
    if (origin[0] != '\0' && !server_origin_allowed(cl->server, origin))
        return "origin";
    if (authorization[0] != '\0' &&
        (strncasecmp(authorization, BEARER, skip) != 0 || strlen(authorization + skip) > TOKEN_MAX))
        return "authorization";
    return NULL;
}

static void upgrade(struct client *cl, const struct http_head *head)
{
    const char *token = head->field[HDR_AUTHORIZATION];
    const char *why = objection(cl, head);

    accept_put(cl, head);
    cl->upgraded = true;
    cl->reader = (struct ws_reader){.sender = WS_FROM_CLIENT, .message_max = INT64_MAX};
    if (why)
        client_refuse(cl, CLOSE_UNAUTHENTICATED, why);
    else if (token[0] != '\0')
        client_token_present(cl, token + strlen(BEARER), strlen(token + strlen(BEARER)));
}

/* A whole head; its text is cut into pieces. */
static void head_take(struct client *cl, char *text, size_t len)
{
    struct http_head head;
    struct err e;
    const char *fault;

    server_dirty(cl->server, cl); /* the answer */
    if (http_head_parse(text, len, "", &head, &e)) {
        answer(cl, bad_request);
        return;
    }
    fault = fault_of(&head);
    if (fault)
        answer(cl, fault);
    else
        upgrade(cl, &head);
}

static void head_take_gathered(struct client *cl, size_t len)
{
    struct buf text = cl->in;

    buf_init(&cl->in, CLIENT_AUTH_MAX);
    head_take(cl, text.data, len);
    client_buf_wipe(&text);
}

/* Mostly it comes in one piece, and is read where it lies. */
size_t client_head_take(struct client *cl, char *data, size_t len)
{
    size_t before = cl->in.len;
    long end = 0;

    if (before == 0) {
        end = http_head_end(data, len, 0);
        if (end > 0 && end <= (long)HTTP_HEAD_MAX) {
            buf_init(&cl->in, CLIENT_AUTH_MAX);
            head_take(cl, data, (size_t)end);
            return (size_t)end;
        }
    }
    len = len < HTTP_HEAD_MAX - before ? len : HTTP_HEAD_MAX - before;
    buf_add(&cl->in, data, len);
    if (buf_ok(&cl->in))
        end = http_head_end(cl->in.data, cl->in.len, before);
    if (!buf_ok(&cl->in) || (end == 0 && cl->in.len == HTTP_HEAD_MAX)) {
        answer(cl, too_large);
    } else if (end < 0) {
        answer(cl, bad_request);
    } else if (end > 0) {
        head_take_gathered(cl, (size_t)end);
        return (size_t)end - before;
    }
    return len;
}
