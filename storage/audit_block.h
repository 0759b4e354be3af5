/*
 * How audit entries stand in the file: those of one commit (or a part of them) in one row of
 * audit_blocks, whose `entries` are
 *
 *     block = hash of the entry before ‖ { entry ‖ hash }…        hashes of 32 bytes
 *     entry = field(n) ‖ field(at) ‖ field(actor) ‖ … ‖ field(detail)
 *     field(x) = length of x, 4 bytes big-endian ‖ x
 *
 * so that what an entry's hash is taken of stands in one piece before it: docs/audit.md.
 */
#ifndef STORAGE_AUDIT_BLOCK_H
#define STORAGE_AUDIT_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "leasehold/buf.h"
#include "leasehold/err.h"

#define AUDIT_HASH  32
#define AUDIT_TEXTS 7 /* actor, action, object, outcome, address, request_id, detail */

/* A block is closed when it is as long as this. */
#define AUDIT_BLOCK_BYTES (64u * 1024)

struct audit_record {
    int64_t n, at;
    const char *texts[AUDIT_TEXTS]; /* not terminated where it was taken from a block */
    size_t lens[AUDIT_TEXTS];
};

struct audit_head {
    int64_t n; /* of the last entry; 0: none yet */
    uint8_t hash[AUDIT_HASH];
};

/* SHA-256, made once for many entries. */
struct audit_hasher;
struct audit_hasher *audit_hasher_new(struct err *e);
void audit_hasher_free(struct audit_hasher *h);

/* Appends an entry and its hash to a block that ends with the hash before. Room that is missing
 * shows by buf_ok. */
int audit_block_add(struct audit_hasher *h, struct buf *block, const struct audit_record *r,
                    uint8_t ret_hash[static AUDIT_HASH], struct err *e) MUST_CHECK;

/* A walk over the entries of a block. */
struct audit_cursor {
    const uint8_t *data;
    size_t len, at;
};

/* Takes the next entry: false when there is none, or what is there is not one (at < len). */
bool audit_cursor_next(struct audit_cursor *c, struct audit_record *ret_record,
                       const uint8_t **ret_entry, size_t *ret_len);

/* Is the hash behind the entry, of *ret_len bytes, the one of what stands before it? */
int audit_entry_check(struct audit_hasher *h, const uint8_t *entry, size_t len, bool *ret_whole,
                      struct err *e) MUST_CHECK;

#endif
