#include "page.h"

#include <endian.h>
#include <string.h>

#include "leasehold/token.h"

/* Kind, time (big endian), id. */
#define CURSOR_BYTES (1 + sizeof(uint64_t) + sizeof(struct id))

void cursor_write(char kind, const struct store_place *place, char ret[static CURSOR_TEXT])
{
    uint8_t raw[CURSOR_BYTES] = {(uint8_t)kind};
    uint64_t at = htobe64((uint64_t)place->created_at);

    memcpy(raw + 1, &at, sizeof at);
    memcpy(raw + 1 + sizeof at, &place->id, sizeof place->id);
    base64url_encode(raw, sizeof raw, ret);
}

bool cursor_read(char kind, const char *text, struct store_place *ret)
{
    uint8_t raw[CURSOR_BYTES];
    uint64_t at;
    size_t n;

    if (base64url_decode(text, strlen(text), raw, sizeof raw, &n) || n != sizeof raw ||
        raw[0] != (uint8_t)kind)
        return false;
    memcpy(&at, raw + 1, sizeof at);
    ret->created_at = (int64_t)be64toh(at);
    memcpy(&ret->id, raw + 1 + sizeof at, sizeof ret->id);
    return ret->created_at >= 0;
}

int page_begin(struct page_build *p, struct call *c, const struct page_args *a, char kind,
               size_t elem, struct store_list *ret_list, struct err *e)
{
    struct store_place after = {0};

    if (a->cursor && !cursor_read(kind, a->cursor, &after))
        return err_field(e, "/cursor", "cursor is not one of this list");
    *p = (struct page_build){
        .c = c, .kind = kind, .elem = elem, .limit = (size_t)a->limit, .last = after};
    p->items = call_alloc(c, p->limit * elem);
    if (!p->items)
        return err_set(e, ERR_INTERNAL, "no memory for a list");
    *ret_list = (struct store_list){.after = after, .limit = a->limit + 1, .caller = &c->caller};
    return 0;
}

void *page_add(struct page_build *p, int64_t created_at, const struct id *id)
{
    if (p->n == p->limit) {
        p->more = true;
        return NULL;
    }
    p->last = (struct store_place){created_at, *id};
    return p->items + p->n++ * p->elem;
}

int page_end(struct page_build *p, struct page *ret, struct err *e)
{
    char *cursor = NULL;

    if (p->more) {
        cursor = call_alloc(p->c, CURSOR_TEXT);
        if (!cursor)
            return err_set(e, ERR_INTERNAL, "no memory for a list");
        cursor_write(p->kind, &p->last, cursor);
    }
    ret->items = (struct list){p->items, p->n};
    ret->next_cursor = cursor;
    return 0;
}
