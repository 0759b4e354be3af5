/* What a door is started with (leasehold/door_proto.h), and how it locks itself up. Start-up only,
 * before any thread or loop. */
#ifndef LEASEHOLD_DOOR_SPEC_H
#define LEASEHOLD_DOOR_SPEC_H

#include "leasehold/door_proto.h"
#include "leasehold/log.h"

/* Reads the spec from `fd` to its end and closes it; strings live in the arena. The bytes read are
 * wiped; the secret stays in ret->secret, where door_spec_wipe wipes it. */
int door_spec_read(int fd, struct arena *arena, struct door_spec *ret, struct err *e) MUST_CHECK;
void door_spec_wipe(struct door_spec *spec);

/* Binds the agent's socket and takes the pid file, both below <session_id>/, then gives up all
 * that the door does not need: other descriptors, the network, root, new privileges. */
int sandbox_enter(const struct door_spec *spec, struct log *log, int *ret_agent_fd,
                  struct err *e) MUST_CHECK;

#endif
