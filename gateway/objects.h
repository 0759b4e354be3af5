/* The objects of the API as answered: field tables over the structs of model.h and of grants. */
#ifndef GATEWAY_OBJECTS_H
#define GATEWAY_OBJECTS_H

#include "leasehold/model.h"
#include "services.h"
#include "session_pull.h"

extern const struct field artifact_fields[];
extern const struct field chat_fields[];
extern const struct field lease_fields[];
extern const struct field api_key_fields[];

/* A sandbox with its isolation as the API nests it. */
struct sandbox_view {
    struct sandbox s;
    struct sandbox_isolation {
        char *network;
        bool known; /* the rest: from its start on */
        bool netns, userns, seccomp;
        int64_t uid;
    } isolation;
    struct pull_progress *progress; /* NULL: it waits for no image */
};
extern const struct field sandbox_fields[]; /* over struct sandbox_view */
/* Without the progress of an image: ops_sandbox.c. */
void sandbox_view_fill(struct sandbox_view *v, const struct sandbox *s);

struct grant {
    struct lease lease;
    char *token;
    struct grant_endpoint {
        char url[300];
        char *protocol, *ca_pem, *cert_sha256;
    } endpoint;
    int64_t renew_after;
    int64_t iat;               /* of the token, seconds; not answered */
    const struct keyset *keys; /* it is signed by; not answered */
};
extern const struct field grant_fields[];

/* Everything of a grant for a lease that was just written but the token, which comes behind the
 * commit: signing it takes longer than the whole write. */
struct call;
int grant_describe(struct call *c, const struct lease *l, const struct sandbox *s,
                   struct grant *ret, struct err *e) MUST_CHECK;
int grant_sign(struct call *c, struct grant *g, struct err *e) MUST_CHECK; /* in the call's arena */

/* The results of n calls, CALL_SIGN_MAX at most; sets their rc and e. */
void grant_sign_all(struct call **calls, size_t n);

#endif
