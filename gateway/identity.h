/*
 * What the store knows of identities: those that others vouch for are recorded before anything is
 * done in their name, and when each was last used. Loop thread.
 */
#ifndef GATEWAY_IDENTITY_H
#define GATEWAY_IDENTITY_H

#include "op.h"

/* Records the call's caller as auth.h knows it, ends the leases it may not have issued any more, and
 * then starts the call; or fails it. */
void identity_record(struct call *held);

/* Has the store told of the last uses. Every now and then. */
void identity_save_used(struct services *s);

#endif
