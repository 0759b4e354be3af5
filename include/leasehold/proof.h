/*
 * Holder binding of a lease (docs/leases.md "Client protocol"): the door sends a nonce, the client
 * answers with its public key and an ES256 signature over `nonce.session_id.lease_id`, ids as
 * canonical text. The key must be the one whose RFC 7638 thumbprint the token names (`cnf.jkt`).
 *
 * Any thread; keeps nothing.
 */
#ifndef LEASEHOLD_PROOF_H
#define LEASEHOLD_PROOF_H

#include <stdbool.h>

#include "leasehold/token.h"

#define PROOF_NONCE_BYTES 32
#define PROOF_NONCE_TEXT  44 /* base64url and NUL */
#define PROOF_SIG_TEXT    87 /* base64url of r‖s and NUL */

/* What a client proves with: base64url texts, NUL-terminated, not checked yet. */
struct proof {
    const char *x, *y, *sig;
};

bool proof_verify(const struct proof *proof, const char *jkt, const char *nonce,
                  const struct id *session_id, const struct id *lease_id);

#endif
