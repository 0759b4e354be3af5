/*
 * ECDSA signatures on P-256, whose secret halves are made ahead: of a nonce k its inverse and r, the x of
 * kG, both modulo the order. What a signature costs beside kG itself are two inversions, one in the
 * field for r and one modulo the order; of nonces made together all inverses of a kind cost one inversion
 * and three multiplications each (Montgomery's trick), which halves the time of a signature.
 *
 * A nonce is random by itself, of OpenSSL's private generator, and used for one signature at most, whatever becomes of it; none is taken
 * over into a child that was forked. Nothing here branches or looks up by one: kG, products, inverses and
 * the signature are OpenSSL's, of constant time.
 */
#ifndef LEASE_P256_SIGNER_H
#define LEASE_P256_SIGNER_H

#include "p256.h"

#include <openssl/types.h>

#define P256_HASH_BYTES 32

struct p256_signer; /* any number of threads */

/* Returns new; NULL: without memory. */
struct p256_signer *p256_signer_new(EVP_PKEY *pkey);
void p256_signer_free(struct p256_signer *s);

bool p256_signer_sign(struct p256_signer *s, const uint8_t hash[static P256_HASH_BYTES],
                      uint8_t ret_sig[static P256_SIG_BYTES]) MUST_CHECK;

#endif
