/* The parts of a key set that the token codec uses. */
#ifndef LEASE_KEYSET_H
#define LEASE_KEYSET_H

#include "leasehold/token.h"
#include "p256.h"

/* Borrowed from the set; NULL: no such key. */
const struct p256_key *keyset_find(const struct keyset *ks, const char *kid);
const struct p256_key *keyset_signing_key(const struct keyset *ks);

#endif
