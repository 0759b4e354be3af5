#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "token_codec.h"

#define SLOTS 64 /* a power of two; a session has few leases */

_Static_assert(sizeof(struct token_digest) == SHA256_DIGEST_LENGTH, "the digest is SHA-256");

struct slot {
    bool used;
    struct token_digest digest;
};

struct token_memo {
    size_t hits;
    struct slot slots[SLOTS];
};

struct token_memo *token_memo_new(void)
{
    return calloc(1, sizeof(struct token_memo));
}

void token_memo_free(struct token_memo *memo)
{
    if (memo != NULL)
        token_memo_forget(memo);
    free(memo);
}

void token_memo_forget(struct token_memo *memo)
{
    OPENSSL_cleanse(memo->slots, sizeof memo->slots);
}

size_t token_memo_hits(const struct token_memo *memo)
{
    return memo->hits;
}

/* Each digest has one place: no search, and no order of use to keep. */
static struct slot *slot_of(struct token_memo *memo, const struct token_digest *digest)
{
    return &memo->slots[digest->bytes[0] % SLOTS];
}

bool token_memo_knows(struct token_memo *memo, const char *token, size_t len,
                      struct token_digest *ret)
{
    SHA256((const unsigned char *)token, len, ret->bytes);
    const struct slot *slot = slot_of(memo, ret);
    bool known = slot->used && CRYPTO_memcmp(&slot->digest, ret, sizeof *ret) == 0;
    memo->hits += known;
    return known;
}

void token_memo_learn(struct token_memo *memo, const struct token_digest *digest)
{
    *slot_of(memo, digest) = (struct slot){.used = true, .digest = *digest};
}
