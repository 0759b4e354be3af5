/* The work on one spool. FILE lane, under the key of the session's chat. */
#ifndef GATEWAY_SPOOL_INGEST_H
#define GATEWAY_SPOOL_INGEST_H

#include <stdatomic.h>

#include "services.h"

#define SPOOL_DIR "spool" /* in storage.data_dir */

/* <data_dir>/spool/<session_id> */
int spool_path(const struct services *s, const struct id *session_id, char *ret, size_t size,
               struct err *e) MUST_CHECK;

/* How long one call goes on: an agent may say in a second what takes a minute to take in. */
struct spool_turn {
    const atomic_bool *stop; /* the gateway ends */
    int64_t until_us;        /* boot clock */
    bool more;               /* answered: it was over before the spool was */
};

/* Takes in what has come since the last time, or the next part of that. `final`: nothing more will come;
 * then it is removed, once all is in. No spool is a success, and after a failure nothing is lost: call
 * again. */
int spool_ingest(struct services *s, const struct id *session_id, bool final,
                 struct spool_turn *turn, struct err *e) MUST_CHECK;

#endif
