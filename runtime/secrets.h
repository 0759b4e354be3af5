/* The secrets of a profile: files that the agent alone can read, for as long as it lives. */
#ifndef RUNTIME_SECRETS_H
#define RUNTIME_SECRETS_H

#include <sys/types.h>

#include "leasehold/config.h"

/* Copies them into box/secrets, which no other user can enter, and which the sandbox sees read-only.
 * What has been copied before a failure goes with the box. Messages hold no path of the host. */
int secrets_put(const char *box, const struct config_profile *profile, uid_t uid, gid_t gid,
                struct err *e) MUST_CHECK;

#endif
