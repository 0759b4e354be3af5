/* Shared by the files of bot_ws.h: bot_ws.c (connections, calls), bot_subscribe.c (events). */
#ifndef GATEWAY_BOT_WS_STATE_H
#define GATEWAY_BOT_WS_STATE_H

#include <uthash.h>

#include "bot_ws.h"
#include "event_feed.h"
#include "op.h"

struct bot {
    UT_hash_handle hh;
    uint64_t conn;
    char peer[sizeof(((struct http_request *)0)->peer)];
    bool authenticated;
    struct id key_id;
    int64_t expires_at; /* of what it proved itself with, ms; 0: by the key alone */
    int64_t auth_until_us;
    size_t calls; /* in flight */
};

struct bot_ws {
    struct services *s;
    struct bot *bots;
    struct server_timer *timer; /* armed while there are bots */
};

struct bot *bot_find(const struct bot_ws *b, uint64_t conn); /* NULL: it has gone */
void bot_reply(struct call *c);                              /* struct call's reply */

/* Makes a subscription of the call: its op and what follows the answer. */
void bot_subscribe_take(struct call *c);

/* The rights of its key have changed. */
void bot_subscribe_again(struct bot_ws *b, const struct bot *bot);

#endif
