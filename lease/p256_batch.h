/*
 * Several ECDSA signatures of one key at once, by less than half of what each costs alone (ADR 12).
 *
 * Of the two inversions that each signature needs all of a batch share one of each kind (Montgomery's
 * trick: the inverse of a product, and products of the others). The rest is OpenSSL's: the multiplication
 * of the base point, the arithmetic modulo the order, and the nonces.
 *
 * A nonce lives within one call. Each is made for its text, from the private key, the digest and fresh
 * random bytes together (BN_generate_dsa_nonce, as OpenSSL's own signatures; the idea is of RFC 6979
 * section 3.6): should two machines come to have the same random state, as clones do, nonces of different
 * texts are different still. What depends on a nonce or the key runs in constant time: modular products
 * of Montgomery form, exponents that are no secret, and no branch.
 *
 * One thread at a time.
 */
#ifndef LEASE_P256_BATCH_H
#define LEASE_P256_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <openssl/types.h>

#include "p256.h"

#define P256_BATCH_MIN 3 /* fewer cost less one by one */
#define P256_BATCH_MAX 16
#define P256_DIGEST    32

struct p256_batch;

/* Of a P-256 key with its private half. NULL without memory. */
struct p256_batch *p256_batch_new(const EVP_PKEY *pkey);
void p256_batch_free(struct p256_batch *b);

/* sigs[i], r‖s, is the signature of digests[i]; n <= P256_BATCH_MAX. False: there is none. */
bool p256_batch_sign(struct p256_batch *b, uint8_t (*digests)[P256_DIGEST],
                     uint8_t (*sigs)[P256_SIG_BYTES], size_t n) MUST_CHECK;

#endif
