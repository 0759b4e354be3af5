/*
 * Numbered changes of the schema, applied in order, each in a transaction of its own with its row
 * in schema_migrations. A file made by a newer leasehold is refused.
 */
#ifndef STORAGE_MIGRATE_H
#define STORAGE_MIGRATE_H

#include <stdint.h>

#include "conn.h"

struct migration {
    int64_t version; /* 1, 2, 3 …; 0 ends the table */
    const char *name;
    const char *sql;
    int (*run)(struct conn *c, struct err *e); /* behind it; NULL: nothing */
};

extern const struct migration migrations[];

/* *ret_applied: how many were pending. */
int migrate(struct conn *c, const struct migration *table, int64_t *ret_applied,
            struct err *e) MUST_CHECK;

#endif
