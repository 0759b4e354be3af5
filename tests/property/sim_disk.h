/*
 * A disk that can stop at any write: an SQLite VFS, made the default one, over the real files. It
 * counts what reaches the disk, and from the write it is told to stop at nothing does any more, as if
 * the machine or the process had ended there. What was written since the last sync of its file may
 * then be lost, in part and in any order, torn in the middle of a page.
 *
 * One at a time, on the thread of the simulation.
 */
#ifndef PROPERTY_SIM_DISK_H
#define PROPERTY_SIM_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "sim_rng.h"

enum disk_end {
    DISK_KILLED,   /* the process ended: the kernel has what was written */
    DISK_POWER_OFF /* the machine ended: only what was synced is sure */
};

struct sim_disk;

struct sim_disk *sim_disk_new(struct sim_rng *rng);
void sim_disk_free(struct sim_disk *d); /* no file may be open */

/* Writes, truncations and syncs so far. */
int64_t sim_disk_writes(const struct sim_disk *d);

/* Ends before the nth of them from now on, n > 0; 0: never. */
void sim_disk_end_at(struct sim_disk *d, int64_t n);
void sim_disk_end_now(struct sim_disk *d);
bool sim_disk_ended(const struct sim_disk *d);

/* No room for what is written, until there is some again. */
void sim_disk_fill(struct sim_disk *d, bool full);

/* When every file is closed: what the next start finds. The disk works again. */
void sim_disk_restore(struct sim_disk *d, enum disk_end how);

#endif
