#include "lease_blocks.h"

#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "list.h"
#include "stmt.h"

#define STEPS_KEPT_MAX 4096 /* a list that was longer gives its memory back */

struct open_block {
    int64_t block;
    int64_t open;
    UT_hash_handle hh;
};

struct block_step {
    int64_t block;
    int64_t delta;
};

/* --- counts ----------------------------------------------------------------------------------- */

static struct open_block *block_find(const struct lease_blocks *b, int64_t block)
{
    struct open_block *o;
    HASH_FIND(hh, b->open, &block, sizeof(block), o);
    return o;
}

/* NULL without memory. */
static struct open_block *block_get(struct lease_blocks *b, int64_t block)
{
    struct open_block *o = block_find(b, block);
    if (o != NULL) {
        return o;
    }
    o = calloc(1, sizeof(*o));
    if (o == NULL) {
        return NULL;
    }
    o->block = block;
    HASH_ADD(hh, b->open, block, sizeof(o->block), o);
    if (o->hh.tbl == NULL) {
        free(o);
        return NULL;
    }
    return o;
}

static void block_drop_empty(struct lease_blocks *b, int64_t block)
{
    struct open_block *o = block_find(b, block);
    if (o != NULL && o->open == 0) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what is found is in the table */
        HASH_DEL(b->open, o);
        free(o);
    }
}

static void drop_all_empty(struct lease_blocks *b)
{
    struct open_block *o, *next;
    HASH_ITER (hh, b->open, o, next) {
        block_drop_empty(b, o->block);
    }
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_INTERNAL, "no memory to count leases");
}

static int steps_grow(struct lease_blocks *b)
{
    size_t size = b->size == 0 ? 64 : b->size * 2;
    struct block_step *steps = reallocarray(b->steps, size, sizeof(*steps));
    if (steps == NULL) {
        return -1;
    }
    b->steps = steps;
    b->size = size;
    return 0;
}

static int step(struct lease_blocks *b, int64_t n, int64_t delta, struct err *e)
{
    struct open_block *o = block_get(b, n / LEASE_BLOCK);
    if (o == NULL || (b->n == b->size && steps_grow(b) != 0)) {
        return no_memory(e);
    }
    o->open += delta;
    b->steps[b->n++] = (struct block_step){.block = o->block, .delta = delta};
    return 0;
}

/* --- names ------------------------------------------------------------------------------------ */

void lease_blocks_forget(struct lease_blocks *b)
{
    b->newest_is_open = false;
    b->owners_n = 0;
}

static bool is_named(const struct lease_blocks *b, const struct id *owner)
{
    for (size_t i = b->owners_n; i > 0; i--) {
        if (id_equal(&b->owners[i - 1], owner)) {
            return true;
        }
    }
    return false;
}

static int name_owner(struct lease_blocks *b, struct conn *conn, const struct id *owner,
                      struct err *e)
{
    struct stmt st;
    if (id_is_zero(owner) || is_named(b, owner)) {
        return 0;
    }
    if (stmt_open(&st, conn, "lease",
                  "INSERT INTO lease_blocks (owner_id, block) VALUES (?, ?) ON CONFLICT DO NOTHING",
                  e) != 0) {
        return -1;
    }
    bind_id(&st, owner);
    bind_int(&st, b->newest);
    if (stmt_run(&st, e) != 0) {
        return -1;
    }
    if (b->owners_n < sizeof(b->owners) / sizeof(b->owners[0])) {
        b->owners[b->owners_n++] = *owner;
    }
    return 0;
}

static int name_open(struct lease_blocks *b, struct conn *conn, struct err *e)
{
    struct stmt st;
    if (b->newest_is_open) {
        return 0;
    }
    if (stmt_open(&st, conn, "lease",
                  "INSERT INTO lease_open_blocks (block) VALUES (?) ON CONFLICT DO NOTHING",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, b->newest);
    b->newest_is_open = stmt_run(&st, e) == 0;
    return b->newest_is_open ? 0 : -1;
}

static int unname_open(struct lease_blocks *b, struct conn *conn, int64_t block, struct err *e)
{
    struct stmt st;
    if (block == b->newest) {
        b->newest_is_open = false;
    }
    if (stmt_open(&st, conn, "lease", "DELETE FROM lease_open_blocks WHERE block = ?", e) != 0) {
        return -1;
    }
    bind_int(&st, block);
    return stmt_run(&st, e);
}

/* --- what the writes do ----------------------------------------------------------------------- */

int lease_blocks_add(struct lease_blocks *b, struct conn *conn, const struct lease *l,
                     struct err *e)
{
    if (l->n / LEASE_BLOCK != b->newest) {
        lease_blocks_forget(b);
        b->newest = l->n / LEASE_BLOCK;
    }
    if (name_owner(b, conn, &l->session_id, e) != 0 || name_owner(b, conn, &l->user_id, e) != 0 ||
        name_owner(b, conn, &l->api_key_id, e) != 0) {
        return -1;
    }
    if (l->state == LEASE_CLOSED) {
        return 0;
    }
    return name_open(b, conn, e) == 0 ? step(b, l->n, 1, e) : -1;
}

int lease_blocks_close(struct lease_blocks *b, int64_t n, struct err *e)
{
    return step(b, n, -1, e);
}

/* The blocks of the steps are there until the group is over, so this needs no memory. */
void lease_blocks_undo(struct lease_blocks *b, size_t kept)
{
    while (b->n > kept) {
        const struct block_step *s = &b->steps[--b->n];
        struct open_block *o = block_find(b, s->block);
        if (o == NULL) {
            abort();
        }
        o->open -= s->delta;
        b->undone = true;
    }
    lease_blocks_forget(b);
}

int lease_blocks_write(struct lease_blocks *b, struct conn *conn, struct err *e)
{
    for (size_t i = 0; i < b->n; i++) {
        if (b->steps[i].delta > 0) {
            continue;
        }
        const struct open_block *o = block_find(b, b->steps[i].block);
        if (o == NULL || o->open != 0) {
            continue;
        }
        if (unname_open(b, conn, b->steps[i].block, e) != 0) {
            return -1;
        }
    }
    return 0;
}

void lease_blocks_settle(struct lease_blocks *b)
{
    for (size_t i = 0; i < b->n; i++) {
        block_drop_empty(b, b->steps[i].block);
    }
    b->n = 0;
    if (b->undone) {
        drop_all_empty(b);
        b->undone = false;
    }
    if (b->size > STEPS_KEPT_MAX) {
        free(b->steps);
        b->steps = NULL;
        b->size = 0;
    }
}

/* --- life ------------------------------------------------------------------------------------- */

static int load_block(struct stmt *st, void *arg, struct err *e)
{
    struct lease_blocks *b = arg;
    struct open_block *o = block_get(b, column_int(st));
    if (o == NULL) {
        return no_memory(e);
    }
    o->open = column_int(st);
    return 0;
}

int lease_blocks_load(struct lease_blocks *b, struct conn *conn, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, conn, "lease",
                  "SELECT block, COUNT(*) FROM lease_open_blocks CROSS JOIN leases"
                  " WHERE " LEASE_IN_BLOCK "AND closed = 0 GROUP BY block",
                  e) != 0) {
        return -1;
    }
    return list_walk(&st, load_block, b, e);
}

void lease_blocks_free(struct lease_blocks *b)
{
    struct open_block *o, *next;
    HASH_ITER (hh, b->open, o, next) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the first has no predecessor */
        HASH_DEL(b->open, o);
        free(o);
    }
    free(b->steps);
    *b = (struct lease_blocks){0};
}
