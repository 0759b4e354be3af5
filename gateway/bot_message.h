/* One message of a bot, read. Any thread. */
#ifndef GATEWAY_BOT_MESSAGE_H
#define GATEWAY_BOT_MESSAGE_H

#include "op.h"

#define BOT_MESSAGE_ID_MAX 64

struct bot_message {
    char *id; /* NULL: it could not be read */
    char *op;
    char *args; /* a JSON object */
};

/* Strings stand in the arena. On failure ret->id is set all the same if there is one. */
int bot_message_decode(const char *data, size_t len, struct arena *arena, struct bot_message *ret,
                       struct err *e) MUST_CHECK;

/* The row of that name which has a WebSocket form. ERR_UNKNOWN_OP, ERR_UNSUPPORTED_OP. */
int bot_op_find(const struct op *table, const char *name, const struct op **ret,
                struct err *e) MUST_CHECK;

#endif
