/* Reading the audit trail: is it whole, and what is in it. */
#include <stdio.h>
#include <string.h>

#include "audit.h"
#include "stmt.h"
#include "tx.h"

#define LIST_SCAN_MAX 200000 /* entries looked at by one list */

struct block {
    int64_t first_n, last_n, min_at, max_at;
    struct audit_cursor entries;
};

#define BLOCK_COLUMNS "first_n, last_n, min_at, max_at, entries"

static void read_block(struct stmt *st, struct block *ret)
{
    *ret = (struct block){.first_n = column_int(st),
                          .last_n = column_int(st),
                          .min_at = column_int(st),
                          .max_at = column_int(st)};
    ret->entries.data = column_blob(st, &ret->entries.len);
}

/* --- verifying ------------------------------------------------------------------------------ */

/* What a row says of its block is what lists go by. */
static bool is_next(const struct block *b, const struct audit_record *r,
                    const struct audit_head *before)
{
    return r->n == before->n + 1 && r->at >= b->min_at && r->at <= b->max_at;
}

/* Do the entries of this block follow `head`? Then head moves on over those that do. */
static int block_check(struct audit_hasher *h, struct block *b, struct audit_head *head,
                       bool *ret_whole, struct err *e)
{
    struct audit_cursor *c = &b->entries;
    struct audit_record r;
    const uint8_t *entry;
    size_t len;
    *ret_whole = b->first_n == head->n + 1 && c->len > AUDIT_HASH &&
                 memcmp(c->data, head->hash, AUDIT_HASH) == 0;
    while (*ret_whole && audit_cursor_next(c, &r, &entry, &len)) {
        if (audit_entry_check(h, entry, len, ret_whole, e) != 0) {
            return -1;
        }
        *ret_whole = *ret_whole && is_next(b, &r, head);
        if (*ret_whole) {
            head->n = r.n;
            memcpy(head->hash, entry + len, AUDIT_HASH);
        }
    }
    *ret_whole = *ret_whole && c->at == c->len && head->n == b->last_n;
    return 0;
}

static int walk(struct stmt *st, struct audit_hasher *h, int64_t *ret_checked,
                int64_t *ret_first_broken, struct err *e)
{
    struct audit_head head = {0};
    bool row, whole = true;
    do {
        struct block b;
        if (stmt_next(st, &row, e) != 0) {
            return -1;
        }
        if (row) {
            read_block(st, &b);
        }
        if (row && block_check(h, &b, &head, &whole, e) != 0) {
            return -1;
        }
    } while (row && whole);
    *ret_checked = head.n;
    *ret_first_broken = whole ? 0 : head.n + 1;
    return 0;
}

int store_audit_verify(struct store_tx *tx, int64_t *ret_checked, int64_t *ret_first_broken,
                       struct err *e)
{
    struct stmt st;
    struct audit_hasher *h = audit_hasher_new(e);
    if (h == NULL) {
        return -1;
    }
    int rc = stmt_open(&st, tx->conn, "audit block",
                       "SELECT " BLOCK_COLUMNS " FROM audit_blocks ORDER BY first_n", e);
    if (rc == 0) {
        rc = walk(&st, h, ret_checked, ret_first_broken, e);
        rc = stmt_end(&st, rc, e);
    }
    audit_hasher_free(h);
    return rc;
}

/* --- listing -------------------------------------------------------------------------------- */

enum { ACTOR, ACTION, OBJECT, OUTCOME, ADDRESS, REQUEST_ID, DETAIL };

struct listing {
    const struct store_audit_list *l;
    int (*each)(void *ctx, const struct audit_row *row, struct err *e);
    void *ctx;
    struct buf texts; /* terminated, of one row */
    int64_t found, seen;
    int64_t last_n; /* looked at */
    bool full;
};

static bool is_asked(const struct audit_record *r, int which, const char *wanted)
{
    return wanted == NULL || wanted[0] == '\0' ||
           (strlen(wanted) == r->lens[which] &&
            memcmp(wanted, r->texts[which], r->lens[which]) == 0);
}

/* Asked for a chat: is it an entry of a thing of that chat? */
static bool is_of_chat(const struct audit_record *r, const char *object)
{
    const char *detail = r->texts[DETAIL], *at;
    char word[sizeof(AUDIT_OF_CHAT) + ID_TEXT];
    if (object == NULL || strncmp(object, "chat:", 5) != 0 || strlen(object + 5) != ID_TEXT - 1) {
        return false;
    }
    size_t len = (size_t)snprintf(word, sizeof(word), "%s%s", AUDIT_OF_CHAT, object + 5);
    at = memmem(detail, r->lens[DETAIL], word, len);
    return at != NULL && (at == detail || at[-1] == ' ') &&
           (at + len == detail + r->lens[DETAIL] || at[len] == ' ');
}

static bool matches(const struct store_audit_list *l, const struct audit_record *r)
{
    return (l->since == 0 || r->at >= l->since) && (l->until == 0 || r->at < l->until) &&
           is_asked(r, ACTOR, l->actor) && is_asked(r, ACTION, l->action) &&
           (is_asked(r, OBJECT, l->object) || is_of_chat(r, l->object));
}

static int hand_out(struct listing *s, const struct audit_record *r, const uint8_t *entry,
                    size_t len, struct err *e)
{
    const char *texts[AUDIT_TEXTS];
    size_t starts[AUDIT_TEXTS];
    buf_reset(&s->texts);
    for (int i = 0; i < AUDIT_TEXTS; i++) {
        starts[i] = s->texts.len;
        buf_add(&s->texts, r->texts[i], r->lens[i]);
        buf_add_char(&s->texts, '\0');
    }
    if (!buf_ok(&s->texts)) {
        return err_set(e, ERR_INTERNAL, "no memory for an audit entry");
    }
    for (int i = 0; i < AUDIT_TEXTS; i++) {
        texts[i] = s->texts.data + starts[i];
    }
    struct audit_row row = {.n = r->n,
                            .entry = {.at = r->at,
                                      .actor = texts[ACTOR],
                                      .action = texts[ACTION],
                                      .object = texts[OBJECT],
                                      .outcome = texts[OUTCOME],
                                      .address = texts[ADDRESS],
                                      .request_id = texts[REQUEST_ID],
                                      .detail = texts[DETAIL]}};
    memcpy(row.prev, entry - AUDIT_HASH, AUDIT_HASH);
    memcpy(row.hash, entry + len, AUDIT_HASH);
    s->found++;
    return s->each(s->ctx, &row, e);
}

static int list_block(struct listing *s, struct block *b, struct err *e)
{
    struct audit_record r;
    const uint8_t *entry;
    size_t len;
    while (!s->full && audit_cursor_next(&b->entries, &r, &entry, &len)) {
        if (r.n <= s->l->after) {
            continue;
        }
        if (matches(s->l, &r) && hand_out(s, &r, entry, len, e) != 0) {
            return -1;
        }
        s->seen++;
        s->last_n = r.n;
        s->full = s->found >= s->l->limit || s->seen >= LIST_SCAN_MAX;
    }
    return 0;
}

static bool may_match(const struct store_audit_list *l, const struct block *b)
{
    return (l->since == 0 || b->max_at >= l->since) && (l->until == 0 || b->min_at < l->until);
}

static int list_rows(struct listing *s, struct stmt *st, struct err *e)
{
    bool row = true;
    while (!s->full && row) {
        struct block b;
        if (stmt_next(st, &row, e) != 0) {
            return -1;
        }
        if (!row) {
            break;
        }
        read_block(st, &b);
        if (!may_match(s->l, &b)) {
            s->last_n = b.last_n;
        } else if (list_block(s, &b, e) != 0) {
            return -1;
        }
    }
    return 0;
}

int store_audit_list(struct store_tx *tx, const struct store_audit_list *l,
                     int (*each)(void *ctx, const struct audit_row *row, struct err *e), void *ctx,
                     struct store_audit_seen *ret, struct err *e)
{
    struct listing s = {.l = l, .each = each, .ctx = ctx, .last_n = l->after};
    struct stmt st;
    if (stmt_open(&st, tx->conn, "audit block",
                  "SELECT " BLOCK_COLUMNS " FROM audit_blocks WHERE first_n >="
                  " (SELECT COALESCE(MAX(first_n), 0) FROM audit_blocks WHERE first_n <= ?)"
                  " ORDER BY first_n",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, l->after + 1);
    buf_init(&s.texts, 64u * 1024 * 1024);
    int rc = list_rows(&s, &st, e);
    buf_done(&s.texts);
    if (stmt_end(&st, rc, e) != 0) {
        return -1;
    }
    *ret = (struct store_audit_seen){.n = s.last_n, .more = s.full};
    return 0;
}
