/*
 * A file layer for the writer's connection: what SQLite appends to its write-ahead log, a header and a
 * page in turns, goes to the file in one write before the log is synced. All else is SQLite's own layer.
 *
 * SQLite shows a frame to other connections behind the sync that makes it durable (PRAGMA synchronous =
 * FULL), so that nobody misses what is kept back here; the connection itself reads what it has written.
 * A write that fails is told by the call that has to bring the bytes to the file: the sync as a rule,
 * with the code of the write.
 */
#ifndef STORAGE_LOG_VFS_H
#define STORAGE_LOG_VFS_H

#define LOG_VFS "leasehold-log"

/* Makes the layer known to SQLite under that name, on top of what its default is now: that changes in
 * tests alone, with no connection open. -1: there is none. Any thread. */
int log_vfs_register(void);

#endif
