/*
 * A grant and its times. The gateway's clock may differ from ours, so its times are placed on our
 * boot clock: at the moment of a fresh grant the gateway's time was in the second of `issued_at`.
 */
#ifndef CLI_GRANT_H
#define CLI_GRANT_H

#include <stdint.h>

#include "api.h"
#include "views.h"

struct grant {
    struct arena *arena; /* of everything below; NULL: none yet */
    const struct grant_view *view;
    int64_t offset_ms; /* gateway wall time - our boot time */
};

void grant_init(struct grant *g);
void grant_done(struct grant *g); /* cleanses the token */

/*
 * Replaces *g by the grant in the answer's body, *g stays as it was on an error. A `renewed` one
 * keeps the offset: its issued_at is that of the first. `opened`: the body is that of POST
 * /sandboxes. An answer without lease, token, address or times is refused (ERR_INTERNAL).
 */
int grant_read(struct grant *g, const struct api_answer *a, bool opened, bool renewed,
               int64_t now_ms, struct err *e) MUST_CHECK;

/* On our boot clock. */
int64_t grant_renew_at_ms(const struct grant *g);
int64_t grant_expires_at_ms(const struct grant *g);

#endif
