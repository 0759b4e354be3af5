/*
 * Leases minted and verified per second on one core, beside the same OpenSSL key signing and
 * verifying a ready digest (the ceiling). Prints one JSON line.
 *
 *   taskset -c 1 build/release/bin/bench_token [operations]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../support/token_forge.h"
#include "leasehold/token.h"

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct token_claims sample_claims(void)
{
    struct token_claims c = {.iss = "https://leasehold.example",
                             .node = "node-1",
                             .ep = 7,
                             .rq = 4711,
                             .iat = 1700000000,
                             .nbf = 1700000000,
                             .exp = 1700000120,
                             .mex = 1700043200,
                             .scope = SCOPE_READ | SCOPE_WRITE,
                             .mc = 1};
    id_random(&c.session_id);
    id_random(&c.user_id);
    id_random(&c.chat_id);
    id_random(&c.lease_id);
    return c;
}

static double mint_rate(const struct keyset *ks, const struct token_claims *c, struct buf *out,
                        long n)
{
    struct err e;
    double start = cpu_seconds();
    for (long i = 0; i < n; i++) {
        buf_reset(out);
        forge_require(token_mint(ks, c, out, &e) == 0, "token_mint");
    }
    return (double)n / (cpu_seconds() - start);
}

static double verify_rate(const struct keyset *ks, const struct token_claims *c,
                          const struct buf *token, long n)
{
    struct token_claims got;
    struct token_expect x = {.iss = c->iss,
                             .node = c->node,
                             .session_id = c->session_id,
                             .ep = c->ep,
                             .now = c->iat + 1,
                             .leeway = 5,
                             .ttl_max = 900};
    double start = cpu_seconds();
    for (long i = 0; i < n; i++)
        forge_require(token_verify(ks, token->data, token->len, &x, &got) == TOKEN_OK,
                      "token_verify");
    return (double)n / (cpu_seconds() - start);
}

static void raw_rates(EVP_PKEY *key, long n, double *ret_sign, double *ret_verify)
{
    uint8_t digest[32] = {1}, der[80];
    size_t len = 0;
    EVP_PKEY_CTX *sign = EVP_PKEY_CTX_new(key, NULL), *verify = EVP_PKEY_CTX_new(key, NULL);
    forge_require(EVP_PKEY_sign_init(sign) == 1 && EVP_PKEY_verify_init(verify) == 1, "init");

    double start = cpu_seconds();
    for (long i = 0; i < n; i++) {
        len = sizeof der;
        forge_require(EVP_PKEY_sign(sign, der, &len, digest, sizeof digest) == 1, "sign");
    }
    *ret_sign = (double)n / (cpu_seconds() - start);
    start = cpu_seconds();
    for (long i = 0; i < n; i++)
        forge_require(EVP_PKEY_verify(verify, der, len, digest, sizeof digest) == 1, "verify");
    *ret_verify = (double)n / (cpu_seconds() - start);
    EVP_PKEY_CTX_free(sign);
    EVP_PKEY_CTX_free(verify);
}

int main(int argc, char **argv)
{
    long n = argc > 1 ? strtol(argv[1], NULL, 10) : 100000;
    char path[] = "/tmp/bench_token.XXXXXX";
    struct err e;
    struct buf token;
    double raw_sign, raw_verify;
    struct token_claims c = sample_claims();
    EVP_PKEY *key = forge_key("bench");
    struct keyset *ks = keyset_new();

    forge_key_file(key, path);
    forge_require(keyset_add_signing_file(ks, path, &e) == 0, "keyset_add_signing_file");
    unlink(path);
    buf_init(&token, TOKEN_MAX);
    double mint = mint_rate(ks, &c, &token, n);
    double verify = verify_rate(ks, &c, &token, n);
    raw_rates(key, n, &raw_sign, &raw_verify);
    printf("{\"bench\":\"token\",\"operations\":%ld,\"token_bytes\":%zu,\"mint_per_s\":%.0f,"
           "\"verify_per_s\":%.0f,\"openssl_sign_per_s\":%.0f,\"openssl_verify_per_s\":%.0f}\n",
           n, token.len, mint, verify, raw_sign, raw_verify);
    buf_done(&token);
    keyset_free(ks);
    EVP_PKEY_free(key);
    return 0;
}
