/*
 * The spool on hostile bytes, as the gateway reads it. Held against each input: however the file
 * grew, the same records are whole; what is whole is written back to the same bytes; nothing beyond
 * the input is looked at (ASan). What content says in history.md never begins a heading that could
 * be an entry's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../storage/history_text.h"
#include "leasehold/spool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void try_entry(const struct spool_record *r)
{
    struct buf text, md;
    buf_init(&text, 1 << 24);
    buf_init(&md, 1 << 25);
    history_text_clean(r->text, r->len, &text);
    require(history_text_is_clean(text.data, text.len));
    history_text_entry(&(struct history_message){.at = r->at,
                                                 .role = HISTORY_AGENT,
                                                 .author = "",
                                                 .content = text.data,
                                                 .content_len = text.len},
                       &md);
    require(buf_ok(&md) && md.data[0] == '\n' && md.data[md.len - 1] == '\n');
    for (size_t i = 1; i + 1 < md.len; i++) {
        bool starts = md.data[i] == '\n' || md.data[i] == '\r';
        require(!starts || md.len - i < 4 || memcmp(md.data + i + 1, "## ", 3) != 0);
    }
    buf_done(&text);
    buf_done(&md);
}

static void try_whole(const uint8_t *from, const struct spool_record *r, size_t size)
{
    uint8_t *copy = malloc(size), *part;
    struct spool_record again;
    size_t ignored;
    require(r->n > 0 && r->at >= 0 && size == SPOOL_OVERHEAD + r->len);
    spool_record_write(r, copy);
    require(memcmp(copy, from, size) == 0);
    for (size_t n = 0; n < size; n += 1 + size / 16) {
        part = malloc(n + (n == 0));
        memcpy(part, from, n);
        require(spool_record_read(part, n, &again, &ignored) == SPOOL_TORN);
        free(part);
    }
    free(copy);
    try_entry(r);
}

/* Gives what the fuzzer cannot guess: a check that holds. */
static void try_made(const uint8_t *data, size_t size)
{
    struct spool_record r = {.n = 1, .at = 1, .role = SPOOL_AGENT, .text = (const char *)data}, got;
    uint8_t *raw = malloc(SPOOL_OVERHEAD + size);
    size_t len;
    r.len = size;
    spool_record_write(&r, raw);
    require(spool_record_read(raw, SPOOL_OVERHEAD + size, &got, &len) == SPOOL_WHOLE);
    try_whole(raw, &got, len);
    free(raw);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct spool_record r;
    size_t done = 0, len;
    int64_t taken;
    if (size >= SPOOL_MARK && spool_mark_read(data, &taken)) {
        uint8_t mark[SPOOL_MARK];
        spool_mark_write(taken, mark);
        require(taken >= SPOOL_START && memcmp(mark, data, SPOOL_MARK) == 0);
    }
    while (spool_record_read(data + done, size - done, &r, &len) == SPOOL_WHOLE) {
        try_whole(data + done, &r, len);
        done += len;
    }
    if (size <= 65536) {
        try_made(data, size);
    }
    return 0;
}
