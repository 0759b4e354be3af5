/*
 * What people read: objects as aligned rows through their field tables. Text of the server or the
 * agent is made harmless first: a terminal obeys control characters.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdio.h>

#include "leasehold/field.h"

#include "options.h"

struct cli;

/* How the answer of a command looks to a person: a struct of the members worth showing. */
struct view {
    const struct field *fields;
    size_t size;
    /* The member that must not be shown by chance (token, key); NULL: the answer has none. */
    const char *(*secret)(const void *obj);
    bool show_secret; /* print it when no file takes it: it cannot be had again */
    /* The exit code of an answer that was granted but may still not be what was asked for;
     * NULL: always 0. */
    int (*outcome)(const struct cli *cli, const void *obj, const struct options *o);
    /* Of a page of a list (struct list_view): what a row of the table shows of an item. */
    const struct field *columns;
};

/* A page of a list. */
struct list_view {
    struct list items;
    char *next_cursor;
};

/* Rows "name  value"; members of a nested object are called "object.member". Empty lists are left
 * out; of texts flagged FIELD_SECRET only that they are there is printed, unless `show_secret`. */
void output_object(const struct field *fields, const void *obj, bool show_secret, FILE *out);

/* A line of names, then a line for each item, in columns. */
void output_table(const struct field *columns, const struct list *items, size_t item_size,
                  FILE *out);

/* Appends text with control characters as "?", so that it cannot steer a terminal; never longer
 * than it was. `keep_lines`: line feeds stay. */
void output_clean(const char *s, size_t len, bool keep_lines, struct buf *out);

/* The same for one line of a file. */
void output_text(const char *s, size_t len, FILE *out);

#endif
