#include "bot_message.h"

#include <string.h>

#include "leasehold/json.h"

#define ARGS_MAX (1024 * 1024) /* above any message: what is decoded and written again may grow */

static const struct field message_in[] = {
    FIELD_STR(struct bot_message, id, .flags = FIELD_REQUIRED, .min = 1, .max = BOT_MESSAGE_ID_MAX),
    FIELD_STR(struct bot_message, op, .flags = FIELD_REQUIRED, .min = 1, .max = 64),
    FIELD_RAW(struct bot_message, args, .max = ARGS_MAX),
    {0},
};

/* The id alone, of a message whose other members are wrong. */
static const struct field id_in[] = {
    FIELD_STR(struct bot_message, id, .min = 1, .max = BOT_MESSAGE_ID_MAX),
    {0},
};

int bot_message_decode(const char *data, size_t len, struct arena *arena, struct bot_message *ret,
                       struct err *e)
{
    struct bot_message m = {0};
    struct err ignored;

    if (!len)
        return err_set(e, ERR_MALFORMED_JSON, "the message is empty");
    if (json_decode(data, len, message_in, &m, arena, e)) {
        struct bot_message with_id = {0};
        if (!json_decode_lenient(data, len, id_in, &with_id, arena, &ignored))
            ret->id = with_id.id;
        return -1;
    }
    if (!m.args && !(m.args = arena_strndup(arena, "{}", 2)))
        return err_set(e, ERR_INTERNAL, "no memory for the message");
    *ret = m;
    return 0;
}

int bot_op_find(const struct op *table, const char *name, const struct op **ret, struct err *e)
{
    bool known = false;

    for (const struct op *op = table; op->name; op++) {
        if (strcmp(op->name, name) != 0)
            continue;
        if (op_has_message(op)) {
            *ret = op;
            return 0;
        }
        known = true;
    }
    return known ? err_set(e, ERR_UNSUPPORTED_OP, "%s is for REST only", name)
                 : err_set(e, ERR_UNKNOWN_OP, "there is no operation of this name");
}
