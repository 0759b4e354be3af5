/*
 * The filter that pid 1 of a sandbox puts on itself and all that it starts, beside the engine's. It lets
 * programs of the machine's 32-bit sister run, as containers do.
 */
#ifndef INIT_INIT_FILTER_H
#define INIT_INIT_FILTER_H

#include "filter.h"

/* Keeps sockets from lingering (filter.h) by any way: io_uring, x32 and i386's socketcall know one, too. */
void init_filter_write(struct filter *f, bool for_tools);

/* `for_tools`: who is not trusted has our uid, and changes nobody's limits but its own. Where a socket of
 * ours does not linger already and there is nothing more to refuse, nothing is done. -1 with errno. */
int init_filter_apply(bool for_tools);

#endif
