/*
 * The token codec on hostile bytes. The first byte chooses:
 *   0: the rest is a token;
 *   1: the rest are claims, signed behind a good header;
 *   2: header, NUL, claims: both as they are, signed.
 * Held against each input: the verdict is the same twice; parsing and verifying agree; what was
 * accepted obeys the rules of the claims, for minting it again yields an equal token.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../support/token_forge.h"
#include "leasehold/token.h"

/* The session and the times of the seed corpus. */
#define SID "3b241101-e2bb-4255-8caf-4136c566a962"
#define NOW INT64_C(1700000001)

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static EVP_PKEY *key;
static struct keyset *keys;
static struct token_expect expect;
static char good_header[128];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char path[] = "/tmp/fuzz_token.XXXXXX";
    struct err e;
    (void)argc, (void)argv;

    key = forge_key("test_token");
    keys = keyset_new();
    forge_key_file(key, path);
    forge_require(keyset_add_signing_file(keys, path, &e) == 0, "keyset_add_signing_file");
    unlink(path);
    snprintf(good_header, sizeof good_header,
             "{\"alg\":\"ES256\",\"typ\":\"lease+jwt\",\"kid\":\"%s\"}", keyset_signing_kid(keys));
    expect = (struct token_expect){.iss = "https://leasehold.example",
                                   .node = "node-1",
                                   .ep = 7,
                                   .now = NOW,
                                   .leeway = 5,
                                   .ttl_max = 900};
    forge_require(id_parse(SID, strlen(SID), &expect.session_id), "id_parse");
    return 0;
}

static bool same(const struct token_claims *a, const struct token_claims *b)
{
    return strcmp(a->iss, b->iss) == 0 && strcmp(a->node, b->node) == 0 &&
           id_equal(&a->session_id, &b->session_id) && id_equal(&a->user_id, &b->user_id) &&
           id_equal(&a->chat_id, &b->chat_id) && id_equal(&a->lease_id, &b->lease_id) &&
           a->ep == b->ep && a->rq == b->rq && a->iat == b->iat && a->nbf == b->nbf &&
           a->exp == b->exp && a->mex == b->mex && a->scope == b->scope && a->use == b->use &&
           a->mc == b->mc && strcmp(a->cnf_jkt, b->cnf_jkt) == 0;
}

static void check_minted_again(const struct token_claims *claims)
{
    struct buf out;
    struct err e;
    struct token_claims again;

    buf_init(&out, TOKEN_MAX);
    forge_require(token_mint(keys, claims, &out, &e) == 0, "token_mint of accepted claims");
    forge_require(token_parse(out.data, out.len, &again) == TOKEN_OK, "token_parse of our own");
    forge_require(same(claims, &again), "round trip");
    buf_done(&out);
}

static void check_token(const char *token, size_t len)
{
    struct token_claims parsed, verified, again;
    enum token_verdict p = token_parse(token, len, &parsed);
    enum token_verdict v = token_verify(keys, token, len, &expect, &verified);

    forge_require(token_verify(keys, token, len, &expect, &again) == v, "determinism");
    if (v == TOKEN_OK || v == TOKEN_EXPIRED) {
        forge_require(p == TOKEN_OK && same(&parsed, &verified), "parse agrees with verify");
        forge_require(parsed.exp - parsed.iat <= expect.ttl_max, "ttl_max");
        forge_require((v == TOKEN_OK) == (parsed.exp > NOW), "expiry");
    }
    if (p == TOKEN_MALFORMED || p == TOKEN_BAD_HEADER)
        forge_require(v == p, "verify refuses what parse refuses");
    if (p == TOKEN_OK)
        check_minted_again(&parsed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char token[FORGE_TOKEN_SIZE];
    size_t len;

    if (size < 1 || size > 4096)
        return -1;
    const char *text = (const char *)data + 1;
    size--;
    if (data[0] % 3 == 0) {
        check_token(text, size);
        return 0;
    }
    if (data[0] % 3 == 1) {
        len = forge_token(key, good_header, strlen(good_header), text, size, token);
    } else {
        size_t header_len = strnlen(text, size);
        size_t skip = header_len < size ? header_len + 1 : size;
        len = forge_token(key, text, header_len, text + skip, size - skip, token);
    }
    check_token(token, len);
    return 0;
}
