/*
 * The highest time of the wall clock that a durable write was made at. A clock that stands behind it was
 * set back, or the machine is a copy from the past: what is issued then could be issued again, and would
 * outlive what the same clock has promised before (lease/rules.c refuses it).
 */
#ifndef STORAGE_HIGH_WATER_H
#define STORAGE_HIGH_WATER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "conn.h"

struct high_water {
    atomic_int_least64_t at_ms; /* read by any thread */
    int64_t group_ms;           /* of the group that is being made */
    int64_t saved_ms;           /* in the file: up to a second less */
    int64_t saving_ms;          /* by this group; 0: it does not */
    bool lowering;              /* this group, to saving_ms */
};

int high_water_load(struct high_water *h, struct conn *c, struct err *e) MUST_CHECK;

/* A write of this group begins. */
void high_water_note(struct high_water *h, int64_t now_ms);

/* Inside the transaction. */
int high_water_write(struct high_water *h, struct conn *c, struct err *e) MUST_CHECK;

/* Behind it: is the group durable? */
void high_water_settle(struct high_water *h, bool durable);

/* How far `now_ms` stands behind, 0: it does not. Any thread. */
int64_t high_water_behind_ms(const struct high_water *h, int64_t now_ms);

#endif
