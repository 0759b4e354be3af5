/* The door put together: core, clients, agent and gateway on one loop. */
#ifndef LEASEHOLD_DOOR_DOOR_H
#define LEASEHOLD_DOOR_DOOR_H

/* Reads the spec, locks the process up and serves until there is nothing left to serve. Exits
 * with 0 as leasehold/door_proto.h says, else 1. */
_Noreturn void door_run(void);

#endif
