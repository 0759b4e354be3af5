/* What a child of ours takes on before it becomes somebody else's program. */
#ifndef INIT_CHILD_H
#define INIT_CHILD_H

#include <stdint.h>

/* No signal ignored or blocked. What some launcher ignores, the program would ignore too. */
void child_reset_signals(void);

/* 0: no limit. Of memory for each process, of processes for all together. -1 with errno. */
int child_set_limits(uint64_t memory_bytes, uint64_t pids);

#endif
