/* What the rules share among their files: audit and log entries of a lease. */
#ifndef LEASE_RULES_PRIVATE_H
#define LEASE_RULES_PRIVATE_H

#include <string.h>

#include "leasehold/lease_rules.h"

/* caller NULL: the gateway itself. */
int lease_audit(struct store_tx *tx, const struct caller *caller, const char *action,
                const struct id *lease_id, const char *detail, struct err *e) MUST_CHECK;

/* Next seq of the lease's session, and the log entry under it. */
int lease_log(struct store_tx *tx, const struct lease *l, const char *op, int64_t *ret_seq,
              struct err *e) MUST_CHECK;

/* "lease.<what>" in the event log. */
int lease_event(struct store_tx *tx, const char *name, const struct lease *l,
                struct err *e) MUST_CHECK;

/* Pending or active. */
bool lease_is_open(const struct lease *l);

/* Its chat may have been deleted since the broker asked. */
int lease_get_if_there(struct store_tx *tx, const struct id *id, struct lease *ret, bool *ret_there,
                       struct err *e) MUST_CHECK;

#endif
