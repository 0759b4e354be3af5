/*
 * Where the leases of a session, a user or an API key stand, without an entry of an index for each:
 * LEASE_BLOCK neighbours in the order of issue are a block, and table lease_blocks says in which blocks
 * an owner has leases, lease_open_blocks which have any that is not closed. Who looks for leases reads
 * the blocks named there, and takes what he looks for (docs/adr/0013-blocks-of-leases.md).
 *
 * A name in the tables may be left over (of a key, when a chat has gone), and costs the reading of a block;
 * it is never missing. An
 * owner is named by the first lease that he is given in a block, in the same write; a block is open
 * no more from the end of the group that closed its last lease. What is open is counted in memory,
 * from the rows at start. Writer thread only, but for the SQL.
 */
#ifndef STORAGE_LEASE_BLOCKS_H
#define STORAGE_LEASE_BLOCKS_H

#include "conn.h"
#include "leasehold/model.h"

#define LEASE_BLOCK     128
#define LEASE_BLOCK_SQL "128" /* the same */

/* The leases of the block at hand: `FROM lease_blocks CROSS JOIN leases WHERE owner_id = ? AND …` or
 * `FROM lease_open_blocks CROSS JOIN leases WHERE …`. */
#define LEASE_IN_BLOCK                                                                             \
    "n BETWEEN block * " LEASE_BLOCK_SQL " AND block * " LEASE_BLOCK_SQL " + " LEASE_BLOCK_SQL     \
    " - 1 "

/* Of an owner's blocks those that are open. */
#define LEASE_BLOCK_IS_OPEN                                                                        \
    "EXISTS (SELECT 1 FROM lease_open_blocks AS o WHERE o.block = lease_blocks.block) "

struct open_block;
struct block_step;

struct lease_blocks {
    struct open_block *open; /* by number: how many of its leases are not closed */
    struct block_step *steps;
    size_t n, size;
    bool undone; /* some, of this group */
    /* What the tables say of the newest block, as far as is known. */
    int64_t newest;
    bool newest_is_open;
    struct id owners[3 * LEASE_BLOCK];
    size_t owners_n;
};

/* Counts the rows. */
int lease_blocks_load(struct lease_blocks *b, struct conn *conn, struct err *e) MUST_CHECK;
void lease_blocks_free(struct lease_blocks *b);

/* A lease was inserted: its owners and its block are named. */
int lease_blocks_add(struct lease_blocks *b, struct conn *conn, const struct lease *l,
                     struct err *e) MUST_CHECK;

/* Lease n is closed, or gone. */
int lease_blocks_close(struct lease_blocks *b, int64_t n, struct err *e) MUST_CHECK;

/* Names have been taken out of the tables, those of the newest block perhaps among them. */
void lease_blocks_forget(struct lease_blocks *b);

/* Takes back all steps but the first `kept`; what was written meanwhile is rolled back. */
void lease_blocks_undo(struct lease_blocks *b, size_t kept);

/* At the end of a group, inside its transaction: blocks that are open no more are taken out. */
int lease_blocks_write(struct lease_blocks *b, struct conn *conn, struct err *e) MUST_CHECK;

/* The group is over: what stands, stands. */
void lease_blocks_settle(struct lease_blocks *b);

#endif
