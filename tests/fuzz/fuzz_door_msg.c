/* What one end of the control connection makes of any text that the other sends. A message as it was
 * written is taken without a tree; the same one with a space before it is not, and has to mean the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/arena.h"
#include "leasehold/buf.h"
#include "leasehold/door_proto.h"

#define ARENA_CAP (64u << 20)

static void require(bool holds)
{
    if (!holds)
        abort();
}

struct decoded {
    struct arena *arena;
    struct door_msg m;
    struct err e;
    int rc;
    struct buf text; /* written again, of what has been taken */
};

static void decode(struct decoded *d, const char *text, size_t len)
{
    *d = (struct decoded){.arena = arena_new(ARENA_CAP)};
    buf_init(&d->text, ARENA_CAP);
    require(d->arena != NULL);
    d->rc = door_msg_decode(text, len, d->arena, &d->m, &d->e);
    if (d->rc == 0)
        door_msg_encode(&d->m, &d->text);
    require(d->rc != 0 || buf_ok(&d->text));
}

static void done(struct decoded *d)
{
    buf_done(&d->text);
    arena_free(d->arena);
}

static void require_same(const struct decoded *a, const struct decoded *b)
{
    require(a->rc == b->rc);
    require(a->text.len == b->text.len);
    require(a->text.len == 0 || memcmp(a->text.data, b->text.data, a->text.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct decoded written, spaced, again;
    char *text = malloc(size + 1);
    require(text != NULL);
    text[0] = ' ';
    if (size > 0)
        memcpy(text + 1, data, size);
    decode(&written, text + 1, size);
    decode(&spaced, text, size + 1);
    require_same(&written, &spaced);
    if (written.rc == 0) {
        decode(&again, written.text.data, written.text.len);
        require_same(&written, &again);
        done(&again);
    }
    done(&written);
    done(&spaced);
    free(text);
    return 0;
}
