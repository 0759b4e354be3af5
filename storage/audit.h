/*
 * The growing end of the audit trail, which the writer keeps in memory: entries stand in a block
 * until the commit they belong to, whose last statement writes it.
 */
#ifndef STORAGE_AUDIT_H
#define STORAGE_AUDIT_H

#include "audit_block.h"
#include "conn.h"

/* In a detail, before the chat that the thing is of. */
#define AUDIT_OF_CHAT "chat="

struct audit_trail {
    struct audit_head head; /* the last entry, of those in the block too */
    struct audit_hasher *hasher;
    struct buf block; /* empty: no entries wait */
    int64_t first_n;  /* of the block */
    int64_t min_at, max_at;
};

/* What a failed write puts back. */
struct audit_mark {
    struct audit_head head;
    size_t len;
    int64_t first_n, min_at, max_at;
};

int audit_trail_load(struct audit_trail *t, struct conn *c, struct err *e) MUST_CHECK;
void audit_trail_done(struct audit_trail *t);

/* An entry with a number and a hash given to it. */
int audit_trail_add(struct audit_trail *t, struct audit_record *r, struct err *e) MUST_CHECK;

struct audit_mark audit_trail_mark(const struct audit_trail *t);

/* Forgets what came after the mark; none of it may have been written, or that is rolled back. */
void audit_trail_undo(struct audit_trail *t, const struct audit_mark *mark);

/* Writes the block inside the open transaction. */
int audit_trail_write(struct audit_trail *t, struct conn *c, struct err *e) MUST_CHECK;

/* The same, when it is long enough. */
int audit_trail_write_long(struct audit_trail *t, struct conn *c, struct err *e) MUST_CHECK;

/* Migration: the rows of the table `audit`, one for each entry, become blocks, hashes and all. */
int audit_rows_convert(struct conn *c, struct err *e) MUST_CHECK;

#endif
