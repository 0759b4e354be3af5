/*
 * What an agent's WebSocket server may send to leaseinit and the door, on hostile bytes. The first byte chooses:
 *   even: an answer to the handshake;
 *   odd:  frames; the second byte says in which steps they arrive, the third how long a piece may be.
 * Held against each input: nothing outside of it is touched; how the bytes arrive makes no
 * difference; pieces keep their limit, messages their order of first and last; after an end nothing
 * follows.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/ws_reader.h"
#include "../../runtime/init/init_ws_shake.h"

#define MESSAGE_MAX 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void try_answer(const uint8_t *data, size_t size)
{
    long end = wsc_answer_end(data, size);
    require(end <= (long)size && end <= (long)WSC_ANSWER_MAX);
    if (end <= 0)
        return;
    require(memcmp(data + end - 4, "\r\n\r\n", 4) == 0);
    uint8_t *head = malloc((size_t)end);
    memcpy(head, data, (size_t)end);
    if (wsc_answer_accepts(head, (size_t)end, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="))
        require(memmem(head, (size_t)end, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", 28) != NULL);
    free(head);
}

/* A digest of what was read that does not know of pieces. */
struct reading {
    struct ws_reader reader;
    bool in_message, text, over;
    size_t message;
    uint64_t digest;
};

static void note(struct reading *x, uint64_t value)
{
    x->digest = (x->digest ^ value) * 0x100000001b3;
}

static void note_bytes(struct reading *x, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        note(x, data[i]);
}

static void note_piece(struct reading *x, const struct ws_event *e, size_t piece_max)
{
    require(e->len <= piece_max && e->first != x->in_message);
    require(e->first || e->text == x->text);
    x->message = e->first ? e->len : x->message + e->len;
    require(x->message <= MESSAGE_MAX);
    x->text = e->text;
    x->in_message = !e->fin;
    note_bytes(x, e->data, e->len);
    if (e->fin)
        note(x, 0x100u + e->text);
}

static void note_event(struct reading *x, const struct ws_event *e, size_t piece_max)
{
    require(!x->over);
    if (e->kind == WS_GOT_PIECE) {
        note_piece(x, e, piece_max);
        return;
    }
    require(e->len <= WS_CONTROL_MAX);
    note(x, 0x200u + e->kind);
    note(x, e->code);
    note_bytes(x, e->data, e->len);
    x->over = e->kind == WS_GOT_CLOSE || e->kind == WS_GOT_FAULT;
    if (e->kind == WS_GOT_CLOSE)
        require(e->code == WS_CODE_NONE || ws_close_code_valid(e->code));
}

static uint64_t read_all(const uint8_t *data, size_t size, size_t step, size_t piece_max)
{
    struct reading x = {.reader = {.message_max = MESSAGE_MAX}};
    size_t at = 0, end = 0;
    while (end < size) {
        struct ws_event e;
        end = size - end < step ? size : end + step;
        do {
            /* A copy of what has arrived and is not read, and not a byte more. */
            size_t len = end - at;
            uint8_t *seen = malloc(len + 1);
            memcpy(seen, data + at, len);
            size_t used = ws_reader_next(&x.reader, seen, len, piece_max, &e);
            require(used <= len);
            if (e.kind != WS_GOT_MORE)
                note_event(&x, &e, piece_max);
            free(seen);
            at += used;
        } while (e.kind != WS_GOT_MORE);
    }
    return x.digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    if (data[0] % 2 == 0) {
        try_answer(data + 1, size - 1);
        return 0;
    }
    uint64_t whole = read_all(data + 3, size - 3, size, 65536);
    require(whole == read_all(data + 3, size - 3, data[1] + 1u, data[2] + 1u));
    return 0;
}
