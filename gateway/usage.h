/* What a workspace holds by its disk, told to the store. */
#ifndef GATEWAY_USAGE_H
#define GATEWAY_USAGE_H

#include "services.h"

/* Walks the user's chats and corrects the sum in the workspace's row; answers what it is now. The
 * sum stays as it is while changes are under way, or when there is more than one walk looks at and
 * the sum is larger. FILE lane; blocks. */
int usage_scan(struct services *s, const struct id *user_id, struct store_usage *ret,
               struct err *e) MUST_CHECK;

#endif
