/* Committed changes on their way from the writer thread to the loop. */
#ifndef GATEWAY_CHANGES_H
#define GATEWAY_CHANGES_H

#include "services.h"

/* store_options.changed; ctx is struct services *. Writer thread. */
void changes_post(void *ctx, const struct change *changes, size_t n);

/* Fills the broker's hooks. Loop thread. */
void changes_broker_hooks(struct services *s, struct broker_hooks *ret);

#endif
