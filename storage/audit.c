#include "audit.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "stmt.h"
#include "tx.h"

#define TEXTS 7 /* actor … detail */

struct audit_row {
    int64_t n, at;
    const char *texts[TEXTS];
    size_t lens[TEXTS];
};

/* --- the hash of a row: docs/audit.md ------------------------------------------------------- */

static int digest_field(EVP_MD_CTX *md, const char *s, size_t len)
{
    const uint8_t prefix[4] = {(uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                               (uint8_t)len};
    return EVP_DigestUpdate(md, prefix, sizeof(prefix)) == 1 && EVP_DigestUpdate(md, s, len) == 1;
}

static int digest_number(EVP_MD_CTX *md, int64_t v)
{
    char text[24];
    int len = snprintf(text, sizeof(text), "%" PRId64, v);
    return digest_field(md, text, (size_t)len);
}

static int row_hash(EVP_MD_CTX *md, const uint8_t prev[static 32], const struct audit_row *row,
                    uint8_t ret[static 32], struct err *e)
{
    int ok = EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 &&
             EVP_DigestUpdate(md, prev, 32) == 1 && digest_number(md, row->n) &&
             digest_number(md, row->at);
    for (int i = 0; ok && i < TEXTS; i++) {
        ok = digest_field(md, row->texts[i], row->lens[i]);
    }
    if (!ok || EVP_DigestFinal_ex(md, ret, NULL) != 1) {
        return err_set(e, ERR_INTERNAL, "the audit hash cannot be computed");
    }
    return 0;
}

static int row_hash_once(const uint8_t prev[static 32], const struct audit_row *row,
                         uint8_t ret[static 32], struct err *e)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (md == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory for the audit hash");
    }
    int rc = row_hash(md, prev, row, ret, e);
    EVP_MD_CTX_free(md);
    return rc;
}

/* --- appending ------------------------------------------------------------------------------ */

int audit_head_load(struct conn *c, struct audit_head *ret, struct err *e)
{
    struct stmt st;
    struct audit_head head = {0};
    bool row;
    if (stmt_open(&st, c, "audit entry", "SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1", e) !=
        0) {
        return -1;
    }
    int rc = stmt_next(&st, &row, e);
    if (rc == 0 && row) {
        head.n = column_int(&st);
        column_hash(&st, head.hash);
    }
    if (stmt_end(&st, rc, e) != 0) {
        return -1;
    }
    *ret = head;
    return 0;
}

static int row_insert(struct conn *c, const struct audit_row *row, const uint8_t prev[static 32],
                      const uint8_t hash[static 32], struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, c, "audit entry",
                  "INSERT INTO audit (n, at, actor, action, object, outcome, address, request_id,"
                  " detail, prev, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  e) != 0) {
        return -1;
    }
    bind_int(&st, row->n);
    bind_int(&st, row->at);
    for (int i = 0; i < TEXTS; i++) {
        bind_text(&st, row->texts[i]);
    }
    bind_hash(&st, prev);
    bind_hash(&st, hash);
    return stmt_run(&st, e);
}

int store_audit(struct store_tx *tx, const struct audit_entry *a, struct err *e)
{
    if (tx->audit == NULL) {
        return err_set(e, ERR_INTERNAL, "audit entry in a read");
    }
    struct audit_row row = {
        .n = tx->audit->n + 1,
        .at = a->at,
        .texts = {a->actor, a->action, a->object, a->outcome, a->address, a->request_id, a->detail},
    };
    for (int i = 0; i < TEXTS; i++) {
        row.texts[i] = row.texts[i] != NULL ? row.texts[i] : "";
        row.lens[i] = strlen(row.texts[i]);
    }
    struct audit_head next = {.n = row.n};
    if (row_hash_once(tx->audit->hash, &row, next.hash, e) != 0 ||
        row_insert(tx->conn, &row, tx->audit->hash, next.hash, e) != 0) {
        return -1;
    }
    *tx->audit = next;
    return 0;
}

/* --- verifying ------------------------------------------------------------------------------ */

/* Is this row the one that follows `head`? Then head moves on to it. */
static int row_check(EVP_MD_CTX *md, struct stmt *st, struct audit_head *head, bool *ret_whole,
                     struct err *e)
{
    struct audit_row row = {.n = column_int(st), .at = column_int(st)};
    for (int i = 0; i < TEXTS; i++) {
        int len;
        row.texts[i] = column_borrow(st, &len);
        row.lens[i] = (size_t)len;
    }
    uint8_t prev[32], hash[32], expected[32];
    column_hash(st, prev);
    column_hash(st, hash);
    if (row_hash(md, head->hash, &row, expected, e) != 0) {
        return -1;
    }
    *ret_whole = st->bad_read == NULL && row.n == head->n + 1 &&
                 memcmp(prev, head->hash, sizeof(prev)) == 0 &&
                 memcmp(hash, expected, sizeof(hash)) == 0;
    st->bad_read = NULL; /* a hash that is none breaks the chain, not the walk */
    if (*ret_whole) {
        head->n = row.n;
        memcpy(head->hash, hash, sizeof(hash));
    }
    return 0;
}

static int walk(struct stmt *st, EVP_MD_CTX *md, int64_t *ret_checked, int64_t *ret_first_broken,
                struct err *e)
{
    struct audit_head head = {0};
    bool row, whole = true;
    do {
        if (stmt_next(st, &row, e) != 0 || (row && row_check(md, st, &head, &whole, e) != 0)) {
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
    if (stmt_open(&st, tx->conn, "audit entry",
                  "SELECT n, at, actor, action, object, outcome, address, request_id, detail, prev,"
                  " hash FROM audit ORDER BY n",
                  e) != 0) {
        return -1;
    }
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    int rc = md != NULL ? walk(&st, md, ret_checked, ret_first_broken, e)
                        : err_set(e, ERR_INTERNAL, "no memory for the audit hash");
    EVP_MD_CTX_free(md);
    return stmt_end(&st, rc, e);
}
