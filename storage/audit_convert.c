#include <string.h>

#include "audit.h"
#include "stmt.h"

/* A row whose place or hash is not what follows stays as it is, for the verification to find: its
 * entry goes into the block with the number and the hash that it had. */
static int convert_row(struct audit_trail *t, struct stmt *st, struct err *e)
{
    struct audit_record r = {.n = column_int(st), .at = column_int(st)};
    uint8_t hash[AUDIT_HASH];
    for (int i = 0; i < AUDIT_TEXTS; i++) {
        int len;
        r.texts[i] = column_borrow(st, &len);
        r.lens[i] = (size_t)len;
    }
    column_hash(st, hash);
    st->bad_read = NULL; /* a hash that is none breaks the chain, not the move */
    t->head.n = r.n - 1;
    if (audit_trail_add(t, &r, e) != 0) {
        return -1;
    }
    memcpy(t->head.hash, hash, sizeof(hash));
    memcpy(t->block.data + t->block.len - sizeof(hash), hash, sizeof(hash));
    return 0;
}

static int convert_rows(struct audit_trail *t, struct conn *c, struct err *e)
{
    struct stmt st;
    if (stmt_open(&st, c, "audit entry",
                  "SELECT n, at, actor, action, object, outcome, address, request_id, detail, hash"
                  " FROM audit ORDER BY n",
                  e) != 0) {
        return -1;
    }
    bool row = true;
    int rc = 0;
    while (rc == 0 && (rc = stmt_next(&st, &row, e)) == 0 && row) {
        rc = convert_row(t, &st, e) != 0 || audit_trail_write_long(t, c, e) != 0 ? -1 : 0;
    }
    rc = stmt_end(&st, rc, e);
    return rc == 0 ? audit_trail_write(t, c, e) : -1;
}

int audit_rows_convert(struct conn *c, struct err *e)
{
    struct audit_trail t;
    int rc = audit_trail_load(&t, c, e) == 0 ? convert_rows(&t, c, e) : -1;
    audit_trail_done(&t);
    return rc;
}
