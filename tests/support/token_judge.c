/*
 * The token codec itself, for tests in other languages.
 *
 *   token_judge mint KEYFILE NOW COUNT    tokens that the codec mints, of many claims, one a line
 *   token_judge verify KEYFILE NOW        of each token on a line of the input, in hex: its verdict and,
 *                                         of a good one, what was read of it
 *
 * A token is held against an issuer, session and generation of its own: those are not the question.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leasehold/token.h"

#define TTL_MAX_S 900
#define LEEWAY_S  5
#define JKT       "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U"

static struct keyset *keyset_read(const char *path)
{
    struct keyset *ks = keyset_new();
    struct err e;

    if (!ks || keyset_add_signing_file(ks, path, &e)) {
        fprintf(stderr, "token_judge: %s\n", ks ? e.msg : "no memory");
        exit(1);
    }
    return ks;
}

static void claims_make(struct token_claims *c, int64_t now_s, int i)
{
    *c = (struct token_claims){.ep = 1 + i * INT64_C(7919),
                               .rq = 1 + i,
                               .iat = now_s - i % 5,
                               .nbf = now_s - i % 3,
                               .exp = now_s + 1 + i % 800,
                               .mex = now_s + 1000 + i,
                               .scope = 1 + (unsigned)i % 3,
                               .use = i % 2 ? USE_ONCE : USE_MULTI,
                               .mc = 1 + i % 8};
    snprintf(c->iss, sizeof c->iss, "https://issuer-%d.example", i);
    snprintf(c->node, sizeof c->node, "node-%.*s", i % 100,
             "012345678901234567890123456789"
             "012345678901234567890123456789"
             "012345678901234567890123456789"
             "0123456789");
    if (i % 4 == 0)
        snprintf(c->cnf_jkt, sizeof c->cnf_jkt, JKT);
    id_random(&c->session_id);
    id_random(&c->user_id);
    id_random(&c->chat_id);
    id_random(&c->lease_id);
}

static int mint(const char *path, int64_t now_s, int count)
{
    struct keyset *ks = keyset_read(path);
    struct buf token;
    int rc = 0;

    buf_init(&token, TOKEN_MAX);
    for (int i = 0; i < count && !rc; i++) {
        struct token_claims c;
        struct err e;

        claims_make(&c, now_s, i);
        buf_reset(&token);
        rc = token_mint(ks, &c, &token, &e);
        if (rc)
            fprintf(stderr, "token_judge: %s\n", e.msg);
        else
            printf("%.*s\n", (int)token.len, token.data);
    }
    buf_done(&token);
    keyset_free(ks);
    return rc ? 1 : 0;
}

static void print_claims(const struct token_claims *c)
{
    printf(" {\"iss\":\"%s\",\"node\":\"%s\",\"sid\":\"%s\",\"sub\":\"%s\",\"chat\":\"%s\",\"jti\":"
           "\"%s\","
           "\"ep\":%lld,\"rq\":%lld,\"iat\":%lld,\"nbf\":%lld,\"exp\":%lld,\"mex\":%lld,\"mc\":%d,"
           "\"scope\":%u,\"use\":\"%s\",\"jkt\":\"%s\"}",
           c->iss, c->node, ID_STR(&c->session_id), ID_STR(&c->user_id), ID_STR(&c->chat_id),
           ID_STR(&c->lease_id), (long long)c->ep, (long long)c->rq, (long long)c->iat,
           (long long)c->nbf, (long long)c->exp, (long long)c->mex, c->mc, c->scope,
           c->use == USE_ONCE ? "once" : "multi", c->cnf_jkt);
}

static void judge(const struct keyset *ks, int64_t now_s, const char *token, size_t len)
{
    struct token_expect expect = {
        .iss = "", .node = "", .now = now_s, .leeway = LEEWAY_S, .ttl_max = TTL_MAX_S};
    struct token_claims parsed, read;
    enum token_verdict v;

    if (token_parse(token, len, &parsed) == TOKEN_OK) {
        expect.iss = parsed.iss;
        expect.node = parsed.node;
        expect.session_id = parsed.session_id;
        expect.ep = parsed.ep;
    }
    v = token_verify(ks, token, len, &expect, &read);
    printf("%s", token_verdict_name(v));
    if (v == TOKEN_OK)
        print_claims(&read);
    printf("\n");
}

/* Returns the bytes; -1: it is no hex. */
static ssize_t unhex(const char *text, size_t len, char *out)
{
    for (size_t i = 0; i + 1 < len; i += 2) {
        unsigned byte;

        if (sscanf(text + i, "%2x", &byte) != 1)
            return -1;
        out[i / 2] = (char)byte;
    }
    return (ssize_t)(len / 2);
}

static int verify(const char *path, int64_t now_s)
{
    struct keyset *ks = keyset_read(path);
    char *line = NULL, *token = NULL;
    size_t size = 0;
    ssize_t n;

    while ((n = getline(&line, &size, stdin)) > 0) {
        free(token);
        token = malloc(size);
        n = token ? unhex(line, (size_t)n - 1, token) : -1;
        if (n < 0)
            return 1;
        judge(ks, now_s, token, (size_t)n);
    }
    free(line);
    free(token);
    keyset_free(ks);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "mint") == 0)
        return mint(argv[2], strtoll(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 4 && strcmp(argv[1], "verify") == 0)
        return verify(argv[2], strtoll(argv[3], NULL, 10));
    fprintf(stderr, "usage: token_judge mint KEYFILE NOW COUNT | verify KEYFILE NOW\n");
    return 2;
}
