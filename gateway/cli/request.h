/*
 * From options to a REST request: the path's variable, the query of a GET or DELETE, the JSON body
 * of the others, all by the `member` column of the option table.
 */
#ifndef CLI_REQUEST_H
#define CLI_REQUEST_H

#include "leasehold/buf.h"

#include "options.h"

struct request {
    const char *method;
    struct buf path; /* behind /api/v1, with the query */
    struct buf body; /* empty: none */
};

void request_init(struct request *r);
void request_done(struct request *r); /* cleanses: the body may hold an environment */

/* `path` may hold one "{}", filled by the option whose member is "{}". */
int request_build(const char *method, const char *path, const struct options *o,
                  struct request *ret, struct err *e) MUST_CHECK;

#endif
