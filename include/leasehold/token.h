/*
 * The lease token: one strict codec for gateway and door (docs/leases.md "Token").
 *
 * JWS compact serialisation (RFC 7515 §3.1), ES256 only, header exactly
 * {"alg":"ES256","typ":"lease+jwt","kid":"<RFC 7638 thumbprint>"}; canonical unpadded base64url
 * (RFC 7515 §2), exactly two dots, at most TOKEN_MAX bytes. Claims are checked by type and range,
 * unknown and duplicate members are refused. Texts (iss, node) are printable ASCII without quote and
 * backslash, so no value has a second spelling; a token with an escape in it is refused, and so are
 * all-zero ids. Verification is total and deterministic and allocates nothing in proportion to its
 * input. Signatures are the 64-byte r‖s of RFC 7518 §3.4.
 *
 * Any thread; a key set is constant while others use it (the gateway swaps it whole).
 */
#ifndef LEASEHOLD_TOKEN_H
#define LEASEHOLD_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

#include "leasehold/buf.h"
#include "leasehold/err.h"
#include "leasehold/id.h"

#define TOKEN_MAX      2048
#define TOKEN_KID_TEXT 44 /* 43 characters of base64url SHA-256, and NUL */

enum lease_scope { SCOPE_READ = 1, SCOPE_WRITE = 2, SCOPE_ADMIN = 4 };
enum lease_use { USE_MULTI, USE_ONCE };

struct token_claims {
    char iss[128];
    struct id session_id; /* sid, and aud = "door:<sid>" */
    struct id user_id;    /* sub */
    struct id chat_id;    /* chat */
    struct id lease_id;   /* jti, a UUIDv4 */
    char node[128];
    int64_t ep;                 /* generation, 0 < ep < 2^40 */
    int64_t rq;                 /* log seq at issue, 0 < rq < 2^40 */
    int64_t iat, nbf, exp, mex; /* seconds since the epoch */
    unsigned scope;             /* enum lease_scope bits, not empty */
    enum lease_use use;
    int mc;                       /* 1..8 */
    char cnf_jkt[TOKEN_KID_TEXT]; /* "" = bearer */
    char kid[TOKEN_KID_TEXT];     /* out of the header */
};

/* What a verifier holds a token against. */
struct token_expect {
    const char *iss;
    const char *node;
    struct id session_id;
    int64_t ep;
    int64_t now;     /* seconds, gateway time */
    int64_t leeway;  /* of nbf and iat, seconds; exp has none */
    int64_t ttl_max; /* exp - iat at most */
};

/* Why a token was refused. Constant names for logs and audit: token_verdict_name. */
enum token_verdict {
    TOKEN_OK,
    TOKEN_MALFORMED,
    TOKEN_BAD_HEADER,
    TOKEN_UNKNOWN_KEY,
    TOKEN_BAD_SIGNATURE,
    TOKEN_BAD_CLAIMS,
    TOKEN_WRONG_AUDIENCE, /* iss, aud, sid or node of another door */
    TOKEN_OLD_GENERATION, /* ep differs */
    TOKEN_NOT_YET,
    TOKEN_EXPIRED,
};

const char *token_verdict_name(enum token_verdict v);

/* --- keys ---------------------------------------------------------------------------------- */

struct keyset; /* public keys by kid, and perhaps one private key that signs */

/* A public P-256 key as it goes over the wire: base64url of the 32-byte coordinates. */
struct key_public {
    char kid[TOKEN_KID_TEXT];
    char x[TOKEN_KID_TEXT], y[TOKEN_KID_TEXT];
    int64_t retired_at; /* seconds: tokens issued later are not its; 0: it is not retired */
};

struct keyset *keyset_new(void);
void keyset_free(struct keyset *ks);

/* Makes a P-256 key and writes it as PKCS#8 PEM, 0600, atomically; refuses an existing file. */
int keyset_generate_file(const char *path, struct err *e) MUST_CHECK;

/* Adds a private key from PEM and makes it the one that signs. */
int keyset_add_signing_file(struct keyset *ks, const char *path, struct err *e) MUST_CHECK;

/* Adds a public key; kid must be the thumbprint of (x, y), the point on the curve. */
int keyset_add_public(struct keyset *ks, const struct key_public *key, struct err *e) MUST_CHECK;

/* Makes a key whose private half was added the one that signs. */
int keyset_sign_with(struct keyset *ks, const char *kid, struct err *e) MUST_CHECK;

/* Is the key there, and was it not retired when a token of this `iat` was issued? */
bool keyset_vouches(const struct keyset *ks, const char *kid, int64_t iat);

size_t keyset_count(const struct keyset *ks);
void keyset_get(const struct keyset *ks, size_t i, struct key_public *ret);
const char *keyset_signing_kid(const struct keyset *ks); /* NULL: none */

/* Appends the JWK set of RFC 7517: {"keys":[{kty,crv,x,y,use,alg,kid}]}. */
void keyset_jwks(const struct keyset *ks, struct buf *out);

/* --- codec --------------------------------------------------------------------------------- */

/* Signs with the set's signing key; claims->kid is ignored. Appends the token to a buffer whose
 * cap is at least TOKEN_MAX. Checks the claims by the same rules as the verifier. */
int token_mint(const struct keyset *ks, const struct token_claims *claims, struct buf *out,
               struct err *e) MUST_CHECK;

/* The same of several tokens; those that one key signs cost less together. `rc` and `e` tell of each. */
struct token_order {
    const struct keyset *ks;
    const struct token_claims *claims;
    struct buf *out;
    int rc;
    struct err e;
};
#define TOKEN_ORDERS_MAX 16
void token_mint_all(struct token_order *orders, size_t n); /* n <= TOKEN_ORDERS_MAX */

/* Verifies exactly `len` bytes. *ret is filled only on TOKEN_OK (and with TOKEN_EXPIRED, for the
 * lease id in the audit). Order: form, header, key, signature, claims, audience, generation,
 * times: a token that is not ours never reaches a later check. */
enum token_verdict token_verify(const struct keyset *ks, const char *token, size_t len,
                                const struct token_expect *expect, struct token_claims *ret);

/*
 * What a verifier that meets the same tokens again remembers: that the signature of exactly these bytes
 * was found good. It stands for that one step, by far the dearest, and for nothing else: form, whether
 * the key is in the set and vouches, claims, audience, generation and times are judged each time. A key's
 * name is the digest of the key, so a remembered signature can be none of another key. Holds SHA-256
 * digests of a few tokens, good ones only, so that bad ones push nothing out. One thread.
 */
struct token_memo;
struct token_memo *token_memo_new(void); /* NULL without memory */
void token_memo_free(struct token_memo *memo);
void token_memo_forget(struct token_memo *memo);       /* all: the keys have changed */
size_t token_memo_hits(const struct token_memo *memo); /* signatures not verified again */

/* token_verify with a memory; NULL: without. */
enum token_verdict token_verify_again(struct token_memo *memo, const struct keyset *ks,
                                      const char *token, size_t len,
                                      const struct token_expect *expect, struct token_claims *ret);

/* The header and claims checks without key and signature: for the fuzzer and introspection. */
enum token_verdict token_parse(const char *token, size_t len, struct token_claims *ret);

/* --- base64url (RFC 4648 §5, unpadded, canonical: unused bits are zero) --------------------- */

size_t base64url_encode(const uint8_t *in, size_t len, char *out); /* writes NUL; returns length */
int base64url_decode(const char *in, size_t len, uint8_t *out, size_t size,
                     size_t *ret_len); /* -1: not canonical or too long */

#endif
