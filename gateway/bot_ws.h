/*
 * The WebSocket face of the op table: GET /api/v1/ws, subprotocol leasehold.v1.
 *
 *   → {"id": "7", "op": "chat.get", "args": {…}}
 *   ← {"id": "7", "ok": true, "result": {…}}  or  {"id": "7", "ok": false, "error": {problem}}
 *
 * `args` holds the members of path, query and body. A connection proves its key on the upgrade or
 * with its first message; what the key may is looked up anew for each message. Calls run beside each
 * other, at most BOT_WS_CALLS_MAX a connection, and are answered as they end. Loop thread.
 */
#ifndef GATEWAY_BOT_WS_H
#define GATEWAY_BOT_WS_H

#include "services.h"

#define BOT_WS_PATH      "/api/v1/ws"
#define BOT_WS_PROTOCOL  "leasehold.v1"
#define BOT_WS_PING_MS   20000
#define BOT_WS_AUTH_MS   5000 /* from the upgrade to a proved key */
#define BOT_WS_CALLS_MAX 64   /* in flight, a connection */

struct bot_ws *bot_ws_new(struct services *s);
void bot_ws_free(struct bot_ws *b); /* before the server */

/* Of the server's handler. The latter two answer whether the connection is a bot's. */
int bot_ws_open(struct bot_ws *b, uint64_t conn, const struct http_request *r,
                struct err *e) MUST_CHECK;
bool bot_ws_message(struct bot_ws *b, uint64_t conn, const char *data, size_t len);
bool bot_ws_closed(struct bot_ws *b, uint64_t conn);

/* After a change of the key in auth.h: connections of one that does not hold any more are closed
 * with 4401. What still holds needs nothing, roles and users are read at each message. */
void bot_ws_key_changed(struct bot_ws *b, const struct id *key_id);

/* SIGTERM: each connection is closed with 1001 once its calls are answered. */
void bot_ws_drain(struct bot_ws *b);
size_t bot_ws_open_calls(const struct bot_ws *b);

#endif
