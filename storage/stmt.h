/*
 * One run of one statement: open, bind in the order of the ?s, step, read in the order of the
 * columns, end. Binding and reading keep their first fault for the call that steps or ends, so that
 * a verb reads as a list of its columns.
 *
 *     struct stmt st;
 *     if (stmt_open(&st, conn, "chat", "SELECT title FROM chats WHERE chat_id = ?", e) != 0)
 *         return -1;
 *     bind_id(&st, chat_id);
 *     int rc = stmt_first(&st, ERR_CHAT_NOT_FOUND, e);
 *     if (rc == 0)
 *         column_text(&st, title, sizeof(title));
 *     return stmt_end(&st, rc, e);
 */
#ifndef STORAGE_STMT_H
#define STORAGE_STMT_H

#include <stdbool.h>
#include <stdint.h>

#include "conn.h"
#include "leasehold/arena.h"
#include "leasehold/id.h"

#define STMT_IDS 6 /* texts of ids that a run keeps itself; SQLite copies further ones */

struct stmt {
    struct conn *conn;
    const char *what; /* the thing it is about, for messages */
    sqlite3_stmt *handle;
    struct prepared *prepared; /* whose handle it is */
    int bound, read;
    int bind_rc;          /* first failed bind */
    const char *bad_read; /* why a column could not be taken over; NULL: none */
    int ids_n;
    char ids[STMT_IDS][ID_TEXT]; /* bound, so it stays where it is until the end of the run */
};

/* `sql` must be a literal: the cache goes by its address. One run of it at a time. */
int stmt_open(struct stmt *st, struct conn *conn, const char *what, const char *sql,
              struct err *e) MUST_CHECK;

/* Finishes the run: a failed rc (of a step) is passed on, a bad column becomes ERR_INTERNAL. */
int stmt_end(struct stmt *st, int rc, struct err *e) MUST_CHECK;

/* Steps once. Without a row: -1 and an error of code `absent`. */
int stmt_first(struct stmt *st, enum err_code absent, struct err *e) MUST_CHECK;

/* Steps once; *ret_row tells whether there is a (next) row. */
int stmt_next(struct stmt *st, bool *ret_row, struct err *e) MUST_CHECK;

/* Runs a statement without rows to its end, and ends it. */
int stmt_run(struct stmt *st, struct err *e) MUST_CHECK;

/* The same; changing no row is an error of code `absent`. */
int stmt_run_one(struct stmt *st, enum err_code absent, struct err *e) MUST_CHECK;

/* A whole statement without parameters or rows, kept prepared. */
int stmt_exec(struct conn *conn, const char *sql, struct err *e) MUST_CHECK;

/* A walk by look-ups ends with the one that failed: because nothing is left (0), or in earnest. */
int stmt_walk_end(const struct err *last, struct err *e) MUST_CHECK;

/* The integer in the first column of the first row; ends the run. */
int stmt_end_with_int(struct stmt *st, enum err_code absent, int64_t *ret,
                      struct err *e) MUST_CHECK;

void bind_int(struct stmt *st, int64_t v);
void bind_text(struct stmt *st, const char *s); /* borrowed until the end; NULL is "" */
void bind_text_len(struct stmt *st, const char *s, size_t len); /* borrowed as well */
void bind_blob(struct stmt *st, const void *data, size_t len);  /* borrowed as well */
void bind_id(struct stmt *st, const struct id *id);
void bind_id_or_null(struct stmt *st, const struct id *id);     /* zero id = NULL */
void bind_hash(struct stmt *st, const uint8_t hash[static 32]); /* as hexadecimal text */

int64_t column_int(struct stmt *st);
bool column_bool(struct stmt *st);
void column_text(struct stmt *st, char *ret, size_t size);
char *column_text_new(struct stmt *st, struct arena *arena);
void column_id(struct stmt *st, struct id *ret); /* NULL = zero id */
void column_hash(struct stmt *st, uint8_t ret[static 32]);
int column_enum(struct stmt *st, const char *const *names);   /* NULL-terminated */
const char *column_borrow(struct stmt *st, int *ret_len);     /* until the next step */
const uint8_t *column_blob(struct stmt *st, size_t *ret_len); /* until the next step */

void prepared_free_all(struct prepared **cache);

#endif
