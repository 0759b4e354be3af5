/*
 * ECDSA on P-256 with SHA-256 (ES256 of RFC 7518 §3.4): all that the lease code needs of OpenSSL.
 *
 * A key is immutable once made, as far as others can see, and may be used by any number of threads.
 * It holds contexts that are ready: a signature takes one out and puts it back, a verification copies
 * one, which saves the look-ups that EVP_Digest{Sign,Verify}Init would do each time. No function
 * leaves an entry in the thread's OpenSSL error queue: it would be taken for a failure of the next TLS
 * call on that thread.
 */
#ifndef LEASE_P256_H
#define LEASE_P256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leasehold/token.h"

#define P256_COORD_BYTES 32
#define P256_SIG_BYTES   64 /* r‖s */

struct p256_key;

/* A new private key as PKCS#8 PEM: returns its length, 0 on failure. The caller cleanses. */
size_t p256_generate_pem(char *out, size_t size);

/* Returns new; NULL: not the unencrypted PEM of a sound P-256 private key, or no memory. */
struct p256_key *p256_key_from_pem(const char *pem, size_t len);

/* Returns new; NULL: not a point on the curve, or no memory. */
struct p256_key *p256_key_from_point(const uint8_t x[static P256_COORD_BYTES],
                                     const uint8_t y[static P256_COORD_BYTES]);
void p256_key_free(struct p256_key *key);

/* Fills x, y and the RFC 7638 thumbprint. */
bool p256_key_describe(const struct p256_key *key, struct key_public *ret);

bool p256_sign(const struct p256_key *key, const void *data, size_t len,
               uint8_t ret_sig[static P256_SIG_BYTES]) MUST_CHECK;
/* Each of n texts by itself; several at once cost less than half of that (p256_batch.h). False: none is
 * signed. */
struct p256_text {
    const void *data;
    size_t len;
    uint8_t sig[P256_SIG_BYTES];
};
bool p256_sign_all(const struct p256_key *key, struct p256_text *texts, size_t n) MUST_CHECK;
bool p256_verify(const struct p256_key *key, const void *data, size_t len,
                 const uint8_t sig[static P256_SIG_BYTES]) MUST_CHECK;

#endif
