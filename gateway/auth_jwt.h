/*
 * Callers who prove themselves by the JWT of an issuer that the configuration trusts
 * (security.jwt). Constant after loading; any thread.
 *
 * Order: form, header (alg, typ and kid at most; alg is the one configured), key, signature, claims.
 * libjwt checks the signature, and nothing else of it is believed: it looks at no time, takes any
 * algorithm that fits its key, and reads duplicates its own way.
 */
#ifndef GATEWAY_AUTH_JWT_H
#define GATEWAY_AUTH_JWT_H

#include "leasehold/config.h"
#include "leasehold/model.h"

struct jwt_trust;

/* *ret NULL: no issuer is configured. What fails names security.jwt.key_file. */
int jwt_trust_new(const struct config *cfg, struct jwt_trust **ret, struct err *e) MUST_CHECK;
void jwt_trust_free(struct jwt_trust *t);

/* Might this be a JWT? Three parts; keys of ours have none. */
bool jwt_is_shaped(const char *credential);

struct jwt_caller {
    char *sub; /* all in the arena */
    enum role role;
    bool limited;
    struct list users;             /* struct id */
    int64_t issued_at, expires_at; /* ms; issued_at 0: it does not say */
};

/* ERR_UNAUTHENTICATED; the message names the check that failed, for the log. */
int jwt_trust_check(const struct jwt_trust *t, const char *token, int64_t now_ms,
                    struct arena *arena, struct jwt_caller *ret, struct err *e) MUST_CHECK;

#endif
