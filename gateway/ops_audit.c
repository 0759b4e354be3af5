/* The audit trail, for admins. */
#include <string.h>

#include "ops.h"
#include "trail.h"

#define CURSOR_KIND 'a'
#define HASH_HEX    65

const struct field audit_list_in[] = {
    PAGE_IN(struct audit_list_args),
    FIELD_STR(struct audit_list_args, actor, .flags = FIELD_QUERY, .max = 128,
              .doc = "only what this key, door or part of the gateway did"),
    FIELD_STR(struct audit_list_args, object, .flags = FIELD_QUERY, .max = 256,
              .doc = "only what was done to this; chat:ID: and to its files"),
    FIELD_STR(struct audit_list_args, action, .flags = FIELD_QUERY, .max = 64,
              .doc = "only this operation or event"),
    FIELD_TIME(struct audit_list_args, since, .flags = FIELD_QUERY,
               .doc = "only entries of this time and later"),
    FIELD_TIME(struct audit_list_args, until, .flags = FIELD_QUERY,
               .doc = "only entries before this time"),
    FIELD_INT(struct audit_list_args, after, .flags = FIELD_QUERY,
              .doc = "only entries with a higher n"),
    {0},
};

static const struct field entry_fields[] = {
    FIELD_INT(struct audit_view, n, .doc = "1, 2, 3 … without gaps"),
    FIELD_TIME(struct audit_view, at, .doc = "when it was"),
    FIELD_STR(struct audit_view, actor,
              .doc = "the id of a key, door:<session_id>, gateway, "
                     "stranger"),
    FIELD_STR(struct audit_view, action, .doc = "the operation or event"),
    FIELD_STR(struct audit_view, object, .doc = "kind:id of what it was done to"),
    FIELD_STR(struct audit_view, outcome, .doc = "allowed, denied, ok or failed"),
    FIELD_STR(struct audit_view, address, .flags = FIELD_NULL_ZERO, .doc = "where it came from"),
    FIELD_STR(struct audit_view, request_id, .flags = FIELD_NULL_ZERO, .doc = "of its request"),
    FIELD_STR(struct audit_view, detail, .flags = FIELD_NULL_ZERO, .doc = "more, in short"),
    FIELD_CHARS(struct audit_view, prev, .doc = "the hash of the entry before"),
    FIELD_CHARS(struct audit_view, hash, .doc = "of prev and this entry"),
    {0},
};

const struct field audit_list_out[] = {
    PAGE_OUT(entry_fields, struct audit_view),
    {0},
};

/* What was answered before this call is in the trail for it. */
void op_audit_prepare(struct call *c)
{
    trail_flush(c->s->trail);
}

static int nothing(struct store_tx *tx, void *arg, struct err *e)
{
    (void)tx;
    (void)arg;
    (void)e;
    return 0;
}

/* A full disk is no reason to show nothing. */
static int catch_up(struct call *c, struct err *e)
{
    return store_write_end(c->s->store, nothing, NULL, e);
}

/* --- list ------------------------------------------------------------------------------------- */

struct listing {
    struct call *c;
    struct store_audit_list wanted;
    struct store_audit_seen seen;
    struct audit_view *items;
    size_t n;
};

static char *copy(struct call *c, const char *text, bool *no_memory)
{
    char *s = arena_strndup(c->arena, text, strlen(text));

    *no_memory |= !s;
    return s;
}

static void hex(const uint8_t hash[static 32], char ret[static HASH_HEX])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < 32; i++) {
        ret[2 * i] = digits[hash[i] >> 4];
        ret[2 * i + 1] = digits[hash[i] & 15];
    }
    ret[HASH_HEX - 1] = '\0';
}

static int list_each(void *ctx, const struct audit_row *row, struct err *e)
{
    struct listing *l = ctx;
    struct audit_view *v = &l->items[l->n++];
    const struct audit_entry *a = &row->entry;
    bool no_memory = false;

    *v = (struct audit_view){.n = row->n,
                             .at = a->at,
                             .actor = copy(l->c, a->actor, &no_memory),
                             .action = copy(l->c, a->action, &no_memory),
                             .object = copy(l->c, a->object, &no_memory),
                             .outcome = copy(l->c, a->outcome, &no_memory),
                             .address = copy(l->c, a->address, &no_memory),
                             .request_id = copy(l->c, a->request_id, &no_memory),
                             .detail = copy(l->c, a->detail, &no_memory)};
    hex(row->prev, v->prev);
    hex(row->hash, v->hash);
    return no_memory ? err_set(e, ERR_INTERNAL, "no memory for a list") : 0;
}

static int list_rows(struct store_tx *tx, void *arg, struct err *e)
{
    struct listing *l = arg;

    return store_audit_list(tx, &l->wanted, list_each, l, &l->seen, e);
}

int op_audit_list(struct call *c, struct err *e)
{
    const struct audit_list_args *a = c->args;
    struct page *page = c->result;
    struct store_place after = {.created_at = a->after};
    struct listing l = {.c = c};

    if (a->page.cursor && (a->after || !cursor_read(CURSOR_KIND, a->page.cursor, &after)))
        return err_field(e, "/cursor", "cursor is not one of this list");
    l.wanted = (struct store_audit_list){.after = after.created_at,
                                         .limit = a->page.limit,
                                         .actor = a->actor,
                                         .action = a->action,
                                         .object = a->object,
                                         .since = a->since,
                                         .until = a->until};
    l.items = call_alloc(c, (size_t)a->page.limit * sizeof *l.items);
    page->next_cursor = call_alloc(c, CURSOR_TEXT);
    if (!l.items || !page->next_cursor)
        return err_set(e, ERR_INTERNAL, "no memory for a list");
    if (catch_up(c, e) || store_read(c->s->store, list_rows, &l, e))
        return -1;
    cursor_write(CURSOR_KIND, &(struct store_place){.created_at = l.seen.n}, page->next_cursor);
    if (!l.seen.more)
        page->next_cursor = NULL;
    page->items = (struct list){l.items, l.n};
    return 0;
}

/* --- verify ----------------------------------------------------------------------------------- */

const struct field audit_verify_out[] = {
    FIELD_BOOL(struct audit_verified, ok, .doc = "is the chain whole?"),
    FIELD_INT(struct audit_verified, checked, .doc = "entries that are"),
    FIELD_INT(struct audit_verified, first_broken, .flags = FIELD_NULL_ZERO,
              .doc = "the first that is changed, missing or out of order"),
    {0},
};

/* One at a time: it reads all there is. */
void op_audit_verify_key(struct call *c, struct id *ret)
{
    (void)c;
    *ret = (struct id){{'a', 'u', 'd', 'i', 't'}};
}

static int verify(struct store_tx *tx, void *arg, struct err *e)
{
    struct audit_verified *v = arg;

    return store_audit_verify(tx, &v->checked, &v->first_broken, e);
}

int op_audit_verify(struct call *c, struct err *e)
{
    struct audit_verified *v = c->result;

    if (catch_up(c, e) || store_read(c->s->store, verify, v, e))
        return -1;
    v->ok = v->first_broken == 0;
    return 0;
}
