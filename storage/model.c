#include "leasehold/model.h"

const char *const role_names[] = {
    [ROLE_NONE] = "none",
    [ROLE_VIEWER] = "viewer",
    [ROLE_BOT] = "bot",
    [ROLE_ADMIN] = "admin",
    NULL,
};

const char *const sandbox_status_names[] = {
    [SANDBOX_STARTING] = "starting", [SANDBOX_RUNNING] = "running", [SANDBOX_STOPPING] = "stopping",
    [SANDBOX_STOPPED] = "stopped",   [SANDBOX_FAILED] = "failed",   NULL,
};

const char *const lease_state_names[] = {
    [LEASE_PENDING] = "pending",
    [LEASE_ACTIVE] = "active",
    [LEASE_REVOKING] = "revoking",
    [LEASE_EXPIRING] = "expiring",
    [LEASE_UNCONFIRMED] = "unconfirmed",
    [LEASE_CLOSED] = "closed",
    NULL,
};

const char *const lease_use_names[] = {[USE_MULTI] = "multi", [USE_ONCE] = "once", NULL};

const char *const lease_scope_names[] = {"read", "write", "admin", NULL};

bool caller_may_see(const struct caller *c, const struct id *user_id)
{
    if (!c->limited) {
        return true;
    }
    for (size_t i = 0; i < c->users_n; i++) {
        if (id_equal(&c->users[i], user_id)) {
            return true;
        }
    }
    return false;
}
const char *const signing_key_state_names[] = {"next", "signing", "retired",
                                               "gone", "killed",  NULL};
