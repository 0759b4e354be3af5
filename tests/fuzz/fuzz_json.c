/*
 * What json_check accepts, the decoder must take or refuse with a reason, and what the encoder then
 * writes must be accepted again and decode to the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/json.h"

struct inner {
    int64_t n;
    int color;
    unsigned colors;
};

struct outer {
    char *text;
    struct id id;
    double real;
    int64_t at;
    bool flag;
    char *raw;
    struct inner inner;
    struct inner *ptr;
    struct list texts, ids, inners;
};

static const char *const colors[] = {"red", "green", "blue", NULL};

static const struct field inner_fields[] = {
    FIELD_INT(struct inner, n, .min = -10, .max = 1000),
    FIELD_ENUM(struct inner, color, .names = colors),
    FIELD_SET(struct inner, colors, .names = colors, .flags = FIELD_EMPTY_OK),
    {0},
};

/* Short names, so that the fuzzer finds them. */
static const struct field outer_fields[] = {
    FIELD_STR(struct outer, text),
    FIELD_ID(struct outer, id, .flags = FIELD_NULL_ZERO),
    FIELD_REAL(struct outer, real),
    FIELD_TIME(struct outer, at),
    FIELD_BOOL(struct outer, flag),
    FIELD_RAW(struct outer, raw, .max = 1 << 20),
    FIELD_OBJECT(struct outer, inner, inner_fields),
    FIELD_OBJPTR(struct outer, ptr, inner_fields, struct inner),
    FIELD_STRLIST(struct outer, texts),
    FIELD_IDLIST(struct outer, ids),
    FIELD_OBJLIST(struct outer, inners, inner_fields, struct inner),
    {0},
};

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void encode(const struct outer *o, struct buf *out)
{
    struct err e;
    buf_init(out, 64 << 20);
    json_encode(outer_fields, o, out);
    require(buf_ok(out));
    require(json_check(out->data, out->len, true, &e) == 0);
}

/* A time outside the years that have a text is written as the nearest that has one. */
static void round_trip(const struct outer *o)
{
    struct arena *arena = arena_new(64 << 20);
    struct outer again = {0};
    struct buf once, twice;
    struct err e;
    require(arena != NULL);
    encode(o, &once);
    require(json_decode(once.data, once.len, outer_fields, &again, arena, &e) == 0);
    if (o->at > 0) {
        encode(&again, &twice);
        require(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
        buf_done(&twice);
    }
    buf_done(&once);
    arena_free(arena);
}

/* The short way takes nothing that the long one does not, and the same of it. */
static void short_way(const char *text, size_t size, struct arena *arena)
{
    struct inner taken = {0}, decoded = {0};
    struct err e;
    if (json_decode_written(text, size, inner_fields, &taken)) {
        require(json_decode(text, size, inner_fields, &decoded, arena, &e) == 0);
        require(taken.n == decoded.n && taken.color == decoded.color &&
                taken.colors == decoded.colors);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct arena *arena = arena_new(64 << 20);
    struct outer o = {0}, lenient = {0};
    struct err e = {.code = ERR_NONE};
    require(arena != NULL);
    bool valid = json_check(text, size, true, &e) == 0;
    require(valid || e.code != ERR_NONE);
    bool decoded = json_decode(text, size, outer_fields, &o, arena, &e) == 0;
    require(decoded || utf8_valid(e.msg, strlen(e.msg)));
    require(decoded || utf8_valid(e.pointer, strlen(e.pointer)));
    require(!decoded || valid || size == 0);
    short_way(text, size, arena);
    if (decoded) {
        round_trip(&o);
        require(json_decode_lenient(text, size, outer_fields, &lenient, arena, &e) == 0);
    }
    arena_free(arena);
    return 0;
}
