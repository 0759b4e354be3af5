/* What the rules share among their files: audit and log entries of a lease. */
#ifndef LEASE_RULES_PRIVATE_H
#define LEASE_RULES_PRIVATE_H

#include <string.h>

#include "leasehold/lease_rules.h"

/* The entry of the session's log under which the lease became what it is, in the audit trail.
 * `reason` may be NULL; seq 0: there is no such entry; caller NULL: the gateway itself. */
int lease_audit(struct store_tx *tx, const struct caller *caller, const char *action,
                const struct lease *l, const char *reason, int64_t seq, struct err *e) MUST_CHECK;

/* "lease.<what>" in the event log. */
int lease_event(struct store_tx *tx, const char *name, const struct lease *l,
                struct err *e) MUST_CHECK;

/* Pending or active. */
bool lease_is_open(const struct lease *l);

/* Its chat may have been deleted since the broker asked. */
int lease_get_if_there(struct store_tx *tx, const struct id *id, struct lease *ret, bool *ret_there,
                       struct err *e) MUST_CHECK;

#endif
