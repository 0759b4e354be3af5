/*
 * The public keys of a trusted issuer, from a file: a JWK set (RFC 7517: RSA, or EC on P-256, P-384,
 * P-521) or one PEM public key. Constant after loading; any thread.
 */
#ifndef GATEWAY_AUTH_JWKS_H
#define GATEWAY_AUTH_JWKS_H

#include <stdbool.h>
#include <stddef.h>

#include "leasehold/err.h"

struct jwks;

/* A file that begins with '{' is a set. Keys of it that are of another kind are passed over; one at
 * least must be left. */
int jwks_load(const char *path, struct jwks **ret, struct err *e) MUST_CHECK;
void jwks_free(struct jwks *set);

/* Is there one that can have signed by this algorithm, "RS256" …? */
bool jwks_fits(const struct jwks *set, const char *algorithm);

/* The PEM of the key that a token names. kid NULL: of the only key there is. NULL: none. */
const char *jwks_find(const struct jwks *set, const char *kid, size_t *ret_len);

#endif
