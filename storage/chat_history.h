/*
 * history.db: the messages of one chat, the source of truth of its history. Only the gateway ever
 * opens it; it stands outside of what a sandbox can reach.
 */
#ifndef STORAGE_CHAT_HISTORY_H
#define STORAGE_CHAT_HISTORY_H

#include "conn.h"
#include "leasehold/buf.h"
#include "leasehold/err.h"

/* Appends the bytes of a new, empty history.db. Built in memory, so that the file appears whole
 * and no path is ever handed to SQLite. */
int chat_history_image(struct buf *out, struct err *e) MUST_CHECK;

/* Brings one that was made by an older leasehold to the newest schema. */
int chat_history_migrate(struct conn *c, struct err *e) MUST_CHECK;

#endif
