/*
 * The spool of a session: what was said at its door, until the gateway has taken it into the chat's
 * history. A file outside of the sandbox, <data_dir>/spool/<session_id>, to which the door appends
 * one record a message through an inherited descriptor and which only the gateway reads.
 *
 *   file   = mark (SPOOL_MARK bytes), zeros up to SPOOL_START, records
 *   mark   = "LHSPOOL1" · taken (8) · check (8)      the gateway's: up to where it has ingested
 *   record = "LHS1" · text length (4) · n (8) · at (8) · role (1) · zeros (3) · author (16) · text ·
 *            check (8)
 *
 * Numbers are big endian; a check is the first 8 bytes of SHA-256 over all that is before it in its
 * record or mark. `n` counts a session's messages 1, 2, 3 …, those included that could not be
 * written: a hole in the numbers is a loss.
 *
 * Any thread; nothing is allocated. What is read may be hostile.
 */
#ifndef LEASEHOLD_SPOOL_H
#define LEASEHOLD_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leasehold/id.h"

#define SPOOL_START    4096u
#define SPOOL_MARK     24u
#define SPOOL_TEXT_MAX (1024u * 1024u)
#define SPOOL_OVERHEAD 52u /* of a record beside its text */
#define SPOOL_MAX      (SPOOL_OVERHEAD + SPOOL_TEXT_MAX)

enum spool_role {
    SPOOL_USER = 1,
    SPOOL_AGENT = 2,
    SPOOL_GAP = 3, /* no message: everything after the record before it, up to n, is lost */
};

struct spool_record {
    int64_t n, at; /* at: milliseconds since the epoch */
    enum spool_role role;
    struct id author;
    const char *text; /* bytes as they were said */
    size_t len;
};

/* Writes SPOOL_OVERHEAD + r->len bytes. */
void spool_record_write(const struct spool_record *r, uint8_t *to);

enum spool_read {
    SPOOL_WHOLE,
    SPOOL_TORN,   /* more must come */
    SPOOL_BROKEN, /* no record, and never one */
};

/* The record at the front of `from`; its text is borrowed. */
enum spool_read spool_record_read(const uint8_t *from, size_t len, struct spool_record *ret,
                                  size_t *ret_size);

void spool_mark_write(int64_t taken, uint8_t to[static SPOOL_MARK]);
bool spool_mark_read(const uint8_t from[static SPOOL_MARK], int64_t *ret_taken);

#endif
