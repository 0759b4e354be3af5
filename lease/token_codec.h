/* What minting, parsing and verifying share. */
#ifndef LEASE_TOKEN_CODEC_H
#define LEASE_TOKEN_CODEC_H

#include "leasehold/token.h"
#include "p256.h"

#define TOKEN_ALG       "ES256"
#define TOKEN_TYP       "lease+jwt"
#define TOKEN_AUD       "door:" /* and the session id */
#define TOKEN_INT_LIMIT ((int64_t)1 << 40)
#define TOKEN_MC_MAX    8

/* The names of the scope bits, lowest first. */
#define TOKEN_SCOPES 3
extern const char *const token_scope_names[TOKEN_SCOPES];
extern const char *const token_use_names[2]; /* by enum lease_use */

/* A token taken apart: its form is right, nothing in it has been judged. */
struct token_parts {
    const char *signed_text; /* header and payload with their dot, borrowed */
    size_t signed_len;
    uint8_t sig[P256_SIG_BYTES];
    size_t header_len, payload_len;
    char header[TOKEN_MAX];
    char payload[TOKEN_MAX];
};

/* Each step returns TOKEN_OK or what is wrong. */
enum token_verdict token_split(const char *token, size_t len, struct token_parts *ret);
enum token_verdict token_read_header(const struct token_parts *parts,
                                     char ret_kid[static TOKEN_KID_TEXT]);
enum token_verdict token_read_claims(const struct token_parts *parts, struct token_claims *ret);

/* The first claim whose value breaks a rule that needs no verifier; NULL: all are right. */
const char *token_claims_fault(const struct token_claims *c);

/* Of all bytes of a token, its signature among them. */
struct token_digest {
    uint8_t bytes[32];
};

/* Fills *ret either way. */
bool token_memo_knows(struct token_memo *memo, const char *token, size_t len,
                      struct token_digest *ret);
void token_memo_learn(struct token_memo *memo, const struct token_digest *digest);

#endif
