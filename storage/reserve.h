/*
 * Room on the disk that only ending writes may use, so that nobody makes a lease irrevocable by
 * filling the disk. Blocks are held behind the log, for the frames of such writes, and behind the
 * database, for what a checkpoint brings there. While they cannot be held, or the disk has nothing
 * left beside them, the reserve is short: ordinary writes are refused.
 *
 * What holds them, by SQLite 3.40.1 (Debian 12) on ext4, XFS and tmpfs; a copy-on-write file system
 * may need new blocks all the same:
 *  - The log is written over from its start after a checkpoint and not cut while the store is open
 *    (SQLITE_CHECKPOINT_RESTART, SQLITE_FCNTL_PERSIST_WAL, no journal_size_limit), so blocks behind
 *    its end (FALLOC_FL_KEEP_SIZE) stay. The VFS opens a log with UNIXFILE_NOLOCK: it carries no
 *    POSIX locks, so another descriptor of it may come and go.
 *  - The database is cut by every checkpoint that is complete, to the next multiple of
 *    SQLITE_FCNTL_CHUNK_SIZE: that is set to the size the file shall have. Its descriptor is opened
 *    before the first connection and closed behind the last, as a close drops SQLite's locks.
 *  - The index of the log (-shm) is made longer by its own VFS, in advance. That allocates one
 *    block a page; where a block is less, a hole would be a SIGBUS on a full disk, so the others
 *    are held as well. Its descriptor, too, is closed behind the last connection: it carries locks.
 *
 * Of the writer thread while it runs.
 */
#ifndef STORAGE_RESERVE_H
#define STORAGE_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint.h"
#include "leasehold/metrics.h"

struct reserve {
    struct conn *conn;
    struct checkpoint *checkpoint;
    struct log *log;
    struct metric *bytes;        /* gauge: of what is held */
    int db_fd, log_fd, index_fd; /* -1: none */
    int64_t page_bytes;
    int64_t log_step, db_step; /* to hold; 0: there is no reserve */
    int64_t log_end, db_end;   /* so far reach the blocks */
    int64_t db_used;           /* by the last commit */
    bool is_short;
};

struct reserve_options {
    const char *path; /* of the database */
    struct log *log;
    struct metric *bytes;
};

/* Before any connection. The owner then sets db_fd, the descriptor of the database. */
void reserve_init(struct reserve *r);

/* Before any connection, when there was no room to open one: SQLite makes the index of the log
 * anew, and an agent that goes on writing takes what the old one had. Frees some of the blocks
 * behind the log; what ends goes on with the others, and those in it. False: there are none. */
bool reserve_give_way(const char *path);

/* On the writing connection, when the schema stands. A disk that cannot hold a reserve is told to
 * the log, and the store works without. */
void reserve_open(struct reserve *r, const struct reserve_options *o, struct conn *conn,
                  struct checkpoint *checkpoint);

/* Between two groups: holds again what was used. Also before a checkpoint, which may need it. */
void reserve_renew(struct reserve *r);

/* Gives back what a log that was very long has left: with nothing else to do, or in need. */
void reserve_tidy(struct reserve *r);

bool reserve_is_short(const struct reserve *r);

/* Behind the last connection. `log_is_done`: all of the log is in the database. The blocks stay. */
void reserve_close(struct reserve *r, bool log_is_done);

#endif
