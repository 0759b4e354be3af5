/* The work on one spool. FILE lane, under the key of the session's chat. */
#ifndef GATEWAY_SPOOL_INGEST_H
#define GATEWAY_SPOOL_INGEST_H

#include "services.h"

#define SPOOL_DIR "spool" /* in storage.data_dir */

/* <data_dir>/spool/<session_id> */
int spool_path(const struct services *s, const struct id *session_id, char *ret, size_t size,
               struct err *e) MUST_CHECK;

/* Takes in what has come since the last time. `final`: nothing more will; then it is removed. No
 * spool is a success, and after a failure nothing is lost: call again. */
int spool_ingest(struct services *s, const struct id *session_id, bool final,
                 struct err *e) MUST_CHECK;

#endif
