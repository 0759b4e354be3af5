#include "audit.h"

#include <string.h>

#include "stmt.h"
#include "tx.h"

#define BLOCK_CAP      (64u * 1024 * 1024)
#define BLOCK_KEPT_MAX (4 * AUDIT_BLOCK_BYTES) /* one that was longer gives its memory back */

/* --- the end of what is written ------------------------------------------------------------- */

/* A block that cannot be read is for the verification to tell: the chain goes on from its end. */
static void head_of_block(struct stmt *st, struct audit_head *ret)
{
    size_t len;
    ret->n = column_int(st);
    const uint8_t *block = column_blob(st, &len);
    if (len >= AUDIT_HASH) {
        memcpy(ret->hash, block + len - AUDIT_HASH, AUDIT_HASH);
    }
}

static int head_load(struct conn *c, struct audit_head *ret, struct err *e)
{
    struct stmt st;
    struct audit_head head = {0};
    bool row;
    if (stmt_open(&st, c, "audit block",
                  "SELECT last_n, entries FROM audit_blocks ORDER BY first_n DESC LIMIT 1",
                  e) != 0) {
        return -1;
    }
    int rc = stmt_next(&st, &row, e);
    if (rc == 0 && row) {
        head_of_block(&st, &head);
    }
    if (stmt_end(&st, rc, e) != 0) {
        return -1;
    }
    *ret = head;
    return 0;
}

int audit_trail_load(struct audit_trail *t, struct conn *c, struct err *e)
{
    *t = (struct audit_trail){.hasher = audit_hasher_new(e)};
    buf_init(&t->block, BLOCK_CAP);
    return t->hasher != NULL ? head_load(c, &t->head, e) : -1;
}

void audit_trail_done(struct audit_trail *t)
{
    audit_hasher_free(t->hasher);
    t->hasher = NULL;
    buf_done(&t->block);
}

/* --- appending ------------------------------------------------------------------------------ */

int audit_trail_add(struct audit_trail *t, struct audit_record *r, struct err *e)
{
    struct audit_mark before = audit_trail_mark(t);
    bool first = t->block.len == 0;
    r->n = t->head.n + 1;
    if (first) {
        buf_add(&t->block, t->head.hash, AUDIT_HASH);
        t->first_n = r->n;
    }
    if (audit_block_add(t->hasher, &t->block, r, t->head.hash, e) != 0) {
        audit_trail_undo(t, &before);
        return -1;
    }
    t->head.n = r->n;
    t->min_at = first || r->at < t->min_at ? r->at : t->min_at;
    t->max_at = first || r->at > t->max_at ? r->at : t->max_at;
    return 0;
}

struct audit_mark audit_trail_mark(const struct audit_trail *t)
{
    return (struct audit_mark){.head = t->head,
                               .len = t->block.len,
                               .first_n = t->first_n,
                               .min_at = t->min_at,
                               .max_at = t->max_at};
}

void audit_trail_undo(struct audit_trail *t, const struct audit_mark *mark)
{
    t->head = mark->head;
    t->block.len = mark->len;
    t->block.failed = false;
    t->first_n = mark->first_n;
    t->min_at = mark->min_at;
    t->max_at = mark->max_at;
}

static void block_reset(struct buf *block)
{
    buf_reset(block);
    if (block->size > BLOCK_KEPT_MAX) {
        buf_done(block);
        buf_init(block, BLOCK_CAP);
    }
}

int audit_trail_write(struct audit_trail *t, struct conn *c, struct err *e)
{
    struct stmt st;
    if (t->block.len == 0) {
        return 0;
    }
    if (stmt_open(&st, c, "audit block",
                  "INSERT INTO audit_blocks (first_n, last_n, min_at, max_at, entries)"
                  " VALUES (?, ?, ?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, t->first_n);
    bind_int(&st, t->head.n);
    bind_int(&st, t->min_at);
    bind_int(&st, t->max_at);
    bind_blob(&st, t->block.data, t->block.len);
    int rc = stmt_run(&st, e);
    if (rc == 0) {
        block_reset(&t->block);
    }
    return rc;
}

int audit_trail_write_long(struct audit_trail *t, struct conn *c, struct err *e)
{
    return t->block.len >= AUDIT_BLOCK_BYTES ? audit_trail_write(t, c, e) : 0;
}

int store_audit(struct store_tx *tx, const struct audit_entry *a, struct err *e)
{
    if (tx->audit == NULL) {
        return err_set(e, ERR_INTERNAL, "audit entry in a read");
    }
    struct audit_record r = {
        .at = a->at,
        .texts = {a->actor, a->action, a->object, a->outcome, a->address, a->request_id, a->detail},
    };
    for (int i = 0; i < AUDIT_TEXTS; i++) {
        r.texts[i] = r.texts[i] != NULL ? r.texts[i] : "";
        r.lens[i] = strlen(r.texts[i]);
    }
    return audit_trail_add(tx->audit, &r, e);
}
