/*
 * A bot's message on hostile bytes, as far as the gateway reads it before anything runs: envelope,
 * operation, arguments. Held against each input: what is accepted has an id, an operation and an
 * object of arguments; what is refused is refused with a client's error; an id that is echoed is one
 * that may be.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../gateway/bot_message.h"
#include "leasehold/json.h"

#define ARENA_CAP (4u * 1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void require_clients_fault(const struct err *e)
{
    require(e->code == ERR_MALFORMED_JSON || e->code == ERR_INVALID_REQUEST ||
            e->code == ERR_TOO_LARGE);
    require(e->msg[0] != '\0' && utf8_valid(e->msg, strlen(e->msg)));
}

static void require_id(const char *id)
{
    size_t len = strlen(id);
    require(len >= 1 && len <= BOT_MESSAGE_ID_MAX && utf8_valid(id, len));
}

static void try_args(const struct op *op, const struct bot_message *m, struct arena *arena)
{
    static const struct field none[] = {{0}};
    const struct field *in = op->in != NULL ? op->in : none;
    void *args = arena_alloc(arena, op->in_size + 1);
    struct err e;
    if (args != NULL && json_decode_args(m->args, strlen(m->args), in, args, arena, &e) != 0) {
        require_clients_fault(&e);
    }
}

static void try_message(const char *text, size_t len, struct arena *arena)
{
    struct bot_message m = {0};
    struct err e;
    if (bot_message_decode(text, len, arena, &m, &e) != 0) {
        require_clients_fault(&e);
        require(m.op == NULL && m.args == NULL);
        if (m.id != NULL) {
            require_id(m.id);
        }
        return;
    }
    require_id(m.id);
    require(m.op[0] != '\0');
    require(json_check(m.args, strlen(m.args), true, &e) == 0);
    const struct op *op = NULL;
    if (bot_op_find(ops_table, m.op, &op, &e) == 0) {
        require(strcmp(op->name, m.op) == 0 && op_has_message(op));
        try_args(op, &m, arena);
    } else {
        require(e.code == ERR_UNKNOWN_OP || e.code == ERR_UNSUPPORTED_OP);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *arena = arena_new(ARENA_CAP);
    if (arena != NULL) {
        try_message((const char *)data, size, arena);
    }
    arena_free(arena);
    return 0;
}
