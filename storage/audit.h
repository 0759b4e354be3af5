/* The end of the audit chain, which the writer keeps in memory between commits. */
#ifndef STORAGE_AUDIT_H
#define STORAGE_AUDIT_H

#include <stdint.h>

#include "conn.h"

struct audit_head {
    int64_t n;        /* of the last row; 0: none yet */
    uint8_t hash[32]; /* of the last row; zeroes: none yet */
};

int audit_head_load(struct conn *c, struct audit_head *ret, struct err *e) MUST_CHECK;

#endif
