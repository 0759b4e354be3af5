/* The texts of a history: what may stand in history.db, and how it looks in history.md. Any thread. */
#ifndef STORAGE_HISTORY_TEXT_H
#define STORAGE_HISTORY_TEXT_H

#include "leasehold/buf.h"
#include "leasehold/history.h"

/* Is it UTF-8 without NUL? */
bool history_text_is_clean(const char *text, size_t len);

/* Appends it with U+FFFD for each byte that cannot stand. */
void history_text_clean(const char *text, size_t len, struct buf *out);

/* Appends the message as an entry of history.md. No content looks like the head of an entry or of
 * the file: a line that would is given a backslash, which Markdown shows as the same text. */
void history_text_entry(const struct history_message *m, struct buf *out);

#endif
